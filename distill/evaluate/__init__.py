"""Scores, retained %, calibration and latency of variants of a model."""
