"""Comparison."""
