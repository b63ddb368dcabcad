"""The one training loop, on accelerate, with exact resume."""

from distill.engine.train import Trained, train

__all__ = ["Trained", "train"]
