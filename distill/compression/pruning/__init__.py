"""Importance, learned gates, the search for a shape, and the surgery that removes heads, channels and layers."""
