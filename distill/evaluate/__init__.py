"""Scores, retained quality, calibration and speed of any form of a model."""
