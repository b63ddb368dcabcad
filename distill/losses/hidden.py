"""Losses on hidden states. Computed in float32, or in float64 for float64 inputs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from distill.runtime.precision import working


def cosine(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - cos(student, teacher) [N] of hidden states [N, H]: 0 for equal directions, 2 for opposite ones.

    Sanh et al. 2019, arXiv 1910.01108, section 2: the cosine embedding loss that aligns the
    last hidden states. No gradient reaches the teacher. Deviation: none.
    """
    return 1 - F.cosine_similarity(working(student), working(teacher.detach()), dim=-1)


def mse(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean over features of the squared difference [N] of hidden states or logits [N, H].

    The hint loss of Romero et al. 2015, arXiv 1412.6550, equation 3; its regressor is part of
    `distill.losses.objective`. No gradient reaches the teacher. Deviation: the mean over features in place of
    half their sum.
    """
    return (working(student) - working(teacher.detach())).square().mean(dim=-1)
