"""Losses on relations: of the classes of a row (DIST), and of the rows of a batch among each other (DIST and RKD).

A loss `of_batch` needs all rows of a step at once. No gradient reaches the teacher. Computed in float32, or in float64
for float64 inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from distill.data.task_types import ABSENT
from distill.runtime.precision import working

CONSTANT = 1e-6
"""Numbers whose deviations from their mean are smaller than this share of them do not vary: it is rounding."""
NEAR = 1e-3
"""Share of the mean distance from a vector below which another is at the same place: its direction is rounding."""
BLOCK = 2**24
"""Numbers in memory at once for the angles of a part of the vectors."""

Loss = Callable[..., Tensor]


def of_batch(loss: Loss) -> Loss:
    """Mark a loss that compares rows with each other, so that it needs all rows of a step at once.

    It returns any number of values, whose mean is the loss of the batch, and 0 for a batch of a single row.
    """
    loss.of_batch = True  # type: ignore[attr-defined]
    return loss


def inter_class(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """T^2 (1 - r) [N]: r is Pearson's correlation, over the classes of a row, of the probabilities softmax(z / T) of
    student and teacher, of logits z [N, C].

    Huang et al. 2022, DIST, arXiv 2205.10536, section 3.2, with the factor T^2 of the authors' code. With two classes r
    is 1 or -1, without a gradient. Deviations: 0 where the teacher's probabilities are all the same; for one column
    (regression), the squared difference, without T. Columns that a row does not have, such as those of a fifth choice
    of four, are no classes.
    """
    student, teacher = working(student), working(teacher.detach())
    if student.shape[-1] == 1:
        return (student - teacher).squeeze(-1).square()
    ours, theirs = ((logits / temperature).softmax(dim=-1) for logits in (student, teacher))
    return _uncorrelated(ours, theirs, teacher > ABSENT / 2) * temperature**2


@of_batch
def intra_class(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """T^2 (1 - r) [C]: r is Pearson's correlation, over the rows of a batch, of the probabilities softmax(z / T) that
    student and teacher give to a class, of logits z [N, C].

    Huang et al. 2022, DIST, arXiv 2205.10536, section 3.2, with the factor T^2 of the authors' code. Deviations: 0 for
    a class to which the teacher gives the same probability in all rows; for one column (regression), 1 - r of the
    outputs.
    """
    student, teacher = working(student), working(teacher.detach())
    if student.shape[-1] == 1:
        return _uncorrelated(student.T, teacher.T)
    return _uncorrelated(*((logits / temperature).softmax(dim=-1).T for logits in (student, teacher))) * temperature**2


@of_batch
def distances(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of h(d_s(i, j) - d_t(i, j)) over all other vectors j [N], of vectors [N, H], also of other widths: d is the
    Euclidean distance divided by the mean distance in the batch, and h(x) = x^2 / 2 for |x| <= 1, else |x| - 1/2.

    Park et al. 2019, RKD, arXiv 1904.05068, equations 4 to 6. Deviation: the mean over pairs of different vectors, and
    not their sum. The mean in the authors' code also counts each vector with itself, so that it is (N - 1) / N of this.
    """
    ours, theirs = (_relative_distances(working(vectors)) for vectors in (student, teacher.detach()))
    return F.huber_loss(ours, theirs, reduction="none").sum(dim=1) / max(len(student) - 1, 1)


@of_batch
def angles(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of h(cos_s(i, j, k) - cos_t(i, j, k)) over all pairs i, k of other vectors [N], of vectors [N, H], also of
    other widths: cos is the cosine of the angle at vector j, and h as of `distances`.

    Park et al. 2019, RKD, arXiv 1904.05068, equation 7. Deviations: the mean over triplets of different vectors, and
    not their sum (the mean in the authors' code counts all N^3, so that it is (N - 1) (N - 2) / N^2 of this); vectors
    that the teacher has at the same place, such as those of equal texts, have no angle.
    """
    both = working(student), working(teacher.detach())
    rows = len(student)
    size = max(1, BLOCK // max(1, rows * max(rows, *(vectors.shape[1] for vectors in both))))
    # Recomputed in the backward pass: the cosines of all triplets would fill the memory.
    parts = [
        checkpoint(_angles_at, *both, start, size, use_reentrant=False, preserve_rng_state=False)
        for start in range(0, max(rows, 1), size)
    ]
    return torch.cat(parts)


def _uncorrelated(student: Tensor, teacher: Tensor, present: Tensor | None = None) -> Tensor:
    """1 - r [N] of numbers [N, C] with Pearson's correlation r; 0 where the teacher's do not vary, and 1 where only the
    student's do not. `present` [N, C] flags the numbers that count; None for all."""
    ours, theirs = _standardized(student, present), _standardized(teacher, present)
    return (1 - (ours * theirs).sum(dim=-1)).masked_fill((theirs == 0).all(dim=-1), 0)


def _standardized(numbers: Tensor, present: Tensor | None) -> Tensor:
    """Deviations [N, C] from the mean of a row, divided by their length; 0, without a gradient, where they are 0."""
    if present is None:
        deviations = numbers - numbers.mean(dim=-1, keepdim=True)
    else:
        mean = numbers.where(present, 0).sum(dim=-1, keepdim=True) / present.sum(dim=-1, keepdim=True)
        deviations = (numbers - mean).where(present, 0)
    length = torch.linalg.vector_norm(deviations, dim=-1, keepdim=True)
    least = CONSTANT * torch.linalg.vector_norm(numbers.detach(), dim=-1, keepdim=True)
    return deviations / length.masked_fill(length <= least, torch.inf)


def _relative_distances(vectors: Tensor) -> Tensor:
    """Distances [N, N] of vectors [N, H], divided by the mean of those of different vectors; 0 if all are 0."""
    with torch.autocast(vectors.device.type, enabled=False):
        # Not by products of vectors: their differences are rounded where all vectors have a large part in common.
        each = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    mean = each.sum() / max(len(each) * (len(each) - 1), 1)
    return each / mean.masked_fill(mean == 0, torch.inf)


def _angles_at(student: Tensor, teacher: Tensor, start: int, size: int) -> Tensor:
    """`angles` [n] at the vectors from number `start` on: at `size` of them, or at fewer at the end."""
    (ours, _), (theirs, apart) = (_cosines(vectors, start, size) for vectors in (student, teacher))
    others = ~torch.eye(len(teacher), dtype=torch.bool, device=teacher.device)
    valid = apart[:, :, None] & apart[:, None] & others
    values = F.huber_loss(ours, theirs, reduction="none").where(valid, 0)
    return values.sum(dim=(1, 2)) / valid.sum(dim=(1, 2)).clamp(min=1)


def _cosines(vectors: Tensor, start: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines [n, N, N] of the angles at n vectors between all pairs, and whether each vector is elsewhere [n, N]."""
    differences = vectors - vectors[start : start + size, None]
    length = torch.linalg.vector_norm(differences, dim=-1, keepdim=True)
    near = length <= NEAR * length.detach().mean(dim=1, keepdim=True)
    directions = differences / length.masked_fill(near, torch.inf)
    with torch.autocast(vectors.device.type, enabled=False):
        return directions @ directions.transpose(1, 2), ~near.squeeze(-1)
