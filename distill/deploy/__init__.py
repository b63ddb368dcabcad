"""Exports folders that a user ships, and loads them to predict."""
