"""Losses on logits. Computed in float32, or in float64 for float64 inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from distill.config.backends import compiles
from distill.runtime.precision import working

CPU_BLOCK, GPU_BLOCK = 2**18, 2**26
"""Number of logits in a block. On a CPU a small block stays in the cache over several passes, which makes soft_targets
over a vocabulary of 30522 much faster. On a GPU the block size only limits memory."""
VOCABULARY = 4096
"""Number of logits in a row from which kernels are compiled on a GPU, which takes some seconds once."""


def soft_targets(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """T^2 KL(p_t || p_s) [N] with p = softmax(z / T), of logits z [N, C]; T is the temperature.

    Hinton et al. 2015, arXiv 1503.02531, section 2: p is equation 1; the factor T^2 keeps the size of the gradients
    when T changes. No gradient reaches the teacher. Deviations: the KL divergence in place of the cross-entropy, from
    which it differs by the teacher's entropy, so that 0 is a perfect fit; for one column (regression), the squared
    difference, without T.
    """
    if student.shape[-1] == 1:
        return (working(student) - working(teacher.detach())).squeeze(-1).square()
    return cast(Tensor, _SoftTargets.apply(student, teacher.detach(), temperature))


def supervised(student: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [N] of logits [N, C] with class numbers [N]; for C = 1, squared error with float labels [N].

    The fine-tuning losses of Devlin et al. 2019, arXiv 1810.04805, section 4.1. Deviation: none.
    """
    if student.shape[-1] == 1:
        predicted = working(student).squeeze(-1)
        return (predicted - labels.to(predicted.dtype)).square()
    return F.cross_entropy(working(student), labels, reduction="none")


def mlm(student: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy [N] of vocabulary logits [N, V] with the token ids [N] before masking.

    The masked-language-model loss of Devlin et al. 2019, arXiv 1810.04805, section 3.1, which Sanh et al. 2019, arXiv
    1910.01108, section 2, use together with soft targets. Deviation: none.
    """
    if _compiles(student):
        return cast(Tensor, _compiled(_cross_entropy)(student, labels))
    rows = zip(_blocks(student), _blocks(labels, student.shape[-1]), strict=True)
    return torch.cat([_cross_entropy(z, token) for z, token in rows])


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(working(logits), labels, reduction="none")


class _SoftTargets(torch.autograd.Function):
    """KL and its gradient T (p_s - p_t), block by block; only one tensor of the logits' size is kept for backward."""

    @staticmethod
    def forward(ctx: Any, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """T^2 KL(p_t || p_s) [N] of logits [N, C]."""
        if _compiles(student):
            values, difference = _compiled(_divergence)(student, teacher, temperature)
        else:
            blocks = zip(_blocks(student), _blocks(teacher), strict=True)
            parts = [_divergence(*both, temperature) for both in blocks]
            values, difference = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(difference)
        ctx.temperature = temperature
        return cast(Tensor, values * temperature**2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient [N, C] of the student's logits for a gradient [N]; None for the other arguments."""
        (difference,) = ctx.saved_tensors
        factor = (gradient * ctx.temperature).to(difference.dtype)
        return difference * factor[:, None], None, None


def _divergence(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """KL(p_t || p_s) [N] of logits [N, C], and p_s - p_t [N, C] in the student's precision."""
    log_student = F.log_softmax(working(student) / temperature, dim=-1)
    log_teacher = F.log_softmax(working(teacher) / temperature, dim=-1)
    p_teacher = log_teacher.exp()
    values = log_teacher.sub_(log_student).mul_(p_teacher).sum(dim=-1)
    return values, log_student.exp_().sub_(p_teacher).to(student.dtype)


def _compiles(logits: Tensor) -> bool:
    """Whether to compute on these logits in one compiled kernel, which reads and writes each of them once."""
    return logits.is_cuda and logits.shape[-1] >= VOCABULARY and compiles()


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


def _blocks(rows: Tensor, width: int | None = None) -> tuple[Tensor, ...]:
    """`rows` split into blocks; `width` is the number of logits in a row (None: the length of a row of `rows`)."""
    size = GPU_BLOCK if rows.is_cuda else CPU_BLOCK
    return rows.split(max(size // (width or rows.shape[-1]), 1))


def averaged(logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Logits [N, C] of the weighted mean of several models' probabilities; the logits of a single model are unchanged.

    The same as `distill.inference.mixture.average`, in torch.
    """
    if len(logits) == 1:
        return logits[0]
    total = math.log(sum(weights))
    shares = [math.log(weight) - total for weight in weights]
    parts = [working(z).log_softmax(-1) + share for z, share in zip(logits, shares, strict=True)]
    mean = torch.stack(parts).logsumexp(0)
    return mean - mean.mean(-1, keepdim=True)
