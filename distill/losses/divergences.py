"""Other divergences between the softened probabilities of teacher and student than that of `soft_targets`.

With p = softmax(z / T) of logits z [N, C] and the temperature T, all are multiplied by T^2, as in Hinton et al. 2015,
arXiv 1503.02531, section 2. Deviation of all: for one column (regression), the squared difference, without T, as in
`soft_targets`. No gradient reaches the teacher. Computed in float32, or in float64 for float64 inputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.runtime.precision import working

_NONE = -1e9
"""A logit of probability 0."""

LEAST = 1e-6
"""Least probability of the teacher in `reverse_kl`, which has no bound where one is 0."""

Divergence = Callable[..., Tensor]
"""(log p_s, log p_t, settings) [N, C] -> [N]."""


def _of_logits(divergence: Divergence) -> Divergence:
    """The function of logits [N, C], at a temperature, that a function of the logarithms of probabilities is."""

    @functools.wraps(divergence)
    def of_logits(student: Tensor, teacher: Tensor, *, temperature: float, **settings: Any) -> Tensor:
        student, teacher = working(student), working(teacher.detach())
        if student.shape[-1] == 1:
            return (student - teacher).squeeze(-1).square()
        logs = (F.log_softmax(logits / temperature, dim=-1) for logits in (student, teacher))
        return divergence(*logs, temperature=temperature, **settings) * temperature**2

    return of_logits


def _kl(first: Tensor, second: Tensor) -> Tensor:
    """KL(p || q) [N] of log p and log q [N, C]."""
    return (first.exp() * (first - second)).sum(dim=-1)


def _mixed(first: Tensor, second: Tensor, share: float) -> Tensor:
    """log(share p + (1 - share) q) [N, C] of log p and log q."""
    return torch.logaddexp(first + math.log(share), second + math.log1p(-share))


@_of_logits
def reverse_kl(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """T^2 KL(p_s || p_t) [N]. It keeps the student from what the teacher finds unlikely, rather than make it cover all
    that the teacher finds likely.

    Gu et al. 2024, MiniLLM, arXiv 2306.08543, section 2.1. Deviation: of classes or masked tokens, not of texts that
    the student wrote; and a probability of the teacher counts as `LEAST` at least, because soft labels may be 0.
    """
    return _kl(student, teacher.clamp(min=math.log(LEAST)))


@_of_logits
def skewed_kl(student: Tensor, teacher: Tensor, *, temperature: float, skew: float) -> Tensor:
    """T^2 KL(p_t || skew p_t + (1 - skew) p_s) [N], with 0 < skew < 1, which is bounded where p_s is nearly 0.

    Ko et al. 2024, DistiLLM, arXiv 2402.03898, section 3.1, with a skew of 0.1. Deviation: none.
    """
    return _kl(teacher, _mixed(teacher, student, skew))


@_of_logits
def jensen_shannon(student: Tensor, teacher: Tensor, *, temperature: float, share: float) -> Tensor:
    """T^2 (share KL(p_t || m) + (1 - share) KL(p_s || m)) [N], with m = share p_t + (1 - share) p_s and 0 < share < 1.

    The generalized Jensen-Shannon divergence of Agarwal et al. 2024, arXiv 2306.13649, section 2. Deviation: none.
    """
    mixed = _mixed(teacher, student, share)
    return share * _kl(teacher, mixed) + (1 - share) * _kl(student, mixed)


@_of_logits
def decoupled_kl(student: Tensor, teacher: Tensor, *, temperature: float, target: float, others: float) -> Tensor:
    """T^2 (target KL(b_t || b_s) + others KL(q_t || q_s)) [N]: b is the probability of one class against that of all
    others together, and q are the probabilities of the others if that class is left out.

    Zhao et al. 2022, Decoupled Knowledge Distillation, arXiv 2203.08679, section 3. With target = 1 and others =
    1 - b_t it is the KL divergence; the paper's `others` is 1 to 10. Deviation: the class is the teacher's most
    probable one, and not the label, so that rows without a label count too. With two classes, q is 1 and the second
    part 0.
    """
    top = teacher.argmax(dim=-1, keepdim=True)
    of_student, of_teacher = (_parts(logs, top) for logs in (student, teacher))
    return target * _kl(of_teacher[0], of_student[0]) + others * _kl(of_teacher[1], of_student[1])


def _parts(logs: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """log b [N, 2] of the class `top` [N, 1] and of all others, and log q [N, C] of the others."""
    rest = logs.scatter(-1, top, _NONE)
    return torch.cat([logs.gather(-1, top), rest.logsumexp(dim=-1, keepdim=True)], dim=-1), rest.log_softmax(dim=-1)
