"""Compares two models on the rows of a file: agreement, significance, scores and latency."""
