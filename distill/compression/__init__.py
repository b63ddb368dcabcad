"""Pruning, smaller vocabularies and quantization."""
