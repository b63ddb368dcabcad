"""The one training loop, on accelerate, with exact resume."""

from distill.training.train import Row, Trained, train

__all__ = ["Row", "Trained", "train"]
