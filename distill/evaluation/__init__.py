"""Scores and what they mean: metrics, resamples, retained %, significance, calibration and chance."""
