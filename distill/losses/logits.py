"""Losses of logits. Arithmetic is float32, or float64 for float64 inputs."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from distill.losses.precision import working

CPU_BLOCK, GPU_BLOCK = 2**18, 2**26
"""Numbers in a block. On a CPU a small block stays in the cache over several passes, which makes soft_targets over a
vocabulary of 30522 much faster; on a GPU its size only bounds memory."""


def soft_targets(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """T^2 KL(p_t || p_s) [N] with p = softmax(z / T), of logits z [N, C]; T is the temperature.

    Hinton et al. 2015, arXiv 1503.02531, section 2: equation 1 gives p, and the factor T^2 keeps
    the size of the gradients when T changes. No gradient reaches the teacher. Deviations: the
    divergence in place of the cross-entropy, which differs by a constant (the teacher's entropy), so
    that 0 is a perfect fit; one column (regression) is no distribution and gives the squared
    difference, without T.
    """
    if student.shape[-1] == 1:
        return (working(student) - working(teacher.detach())).squeeze(-1).square()
    return cast(Tensor, _SoftTargets.apply(student, teacher.detach(), temperature))


def supervised(student: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [N] of logits [N, C] with class numbers [N].

    One column (regression): squared error with float labels [N]. The fine-tuning losses of Devlin
    et al. 2019, arXiv 1810.04805, section 4.1. Deviation: none.
    """
    if student.shape[-1] == 1:
        predicted = working(student).squeeze(-1)
        return (predicted - labels.to(predicted.dtype)).square()
    return F.cross_entropy(working(student), labels, reduction="none")


def mlm(student: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [N] of vocabulary logits [N, V] with the tokens [N] that were masked.

    The masked-language-model loss that Sanh et al. 2019, arXiv 1910.01108, section 2, keep beside
    the soft targets; Devlin et al. 2019, arXiv 1810.04805, section 3.1. Deviation: none.
    """
    rows = zip(_blocks(student), _blocks(labels, student.shape[-1]), strict=True)
    return torch.cat([F.cross_entropy(working(z), token, reduction="none") for z, token in rows])


class _SoftTargets(torch.autograd.Function):
    """KL and its gradient T (p_s - p_t), block by block; one tensor of the logits' size is kept."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        values, differences = [], []
        for s, t in zip(_blocks(student), _blocks(teacher), strict=True):
            log_student = F.log_softmax(working(s) / temperature, dim=-1)
            log_teacher = F.log_softmax(working(t) / temperature, dim=-1)
            p_teacher = log_teacher.exp()
            values.append(log_teacher.sub_(log_student).mul_(p_teacher).sum(dim=-1))
            differences.append(log_student.exp_().sub_(p_teacher).to(student.dtype))
        ctx.save_for_backward(torch.cat(differences))
        ctx.temperature = temperature
        return torch.cat(values) * temperature**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (difference,) = ctx.saved_tensors
        factor = (gradient * ctx.temperature).to(difference.dtype)
        return difference * factor[:, None], None, None


def _blocks(rows: Tensor, width: int | None = None) -> tuple[Tensor, ...]:
    """Rows in blocks, where a row counts as `width` numbers (as its own length when None)."""
    size = GPU_BLOCK if rows.is_cuda else CPU_BLOCK
    return rows.split(max(size // (width or rows.shape[-1]), 1))
