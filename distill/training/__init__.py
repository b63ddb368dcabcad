"""The one training loop, on accelerate, with exact resume."""

from distill.training.train import Trained, train

__all__ = ["Trained", "train"]
