"""Losses between hidden states. Arithmetic is float32, or float64 for float64 inputs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from distill.losses.precision import working


def cosine(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - cos(student, teacher) [N] of hidden states [N, H]; 0 for equal directions, at most 2.

    Sanh et al. 2019, arXiv 1910.01108, section 2: the cosine embedding loss that aligns the
    last hidden states. No gradient reaches the teacher. Deviation: none.
    """
    return 1 - F.cosine_similarity(working(student), working(teacher.detach()), dim=-1)


def mse(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over features of the squared difference [N] of hidden states or logits [N, H].

    The hidden-state loss of Romero et al. 2015, arXiv 1412.6550, equation 3, without its regressor.
    No gradient reaches the teacher. Deviation: the mean over features in place of half their sum.
    """
    return (working(student) - working(teacher.detach())).square().mean(dim=-1)
