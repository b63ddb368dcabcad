"""Loads models in every scheme and backend, predicts with them, and measures their times, memory and energy."""
