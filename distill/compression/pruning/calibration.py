"""Batches and the loss by which `distill.prune` prunes a model, from the batches of a collator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distill.compression.pruning.importance import Batch, Loss
from distill.compression.pruning.sensitivity import row_loss
from distill.errors import DataError
from distill.inference.artifact import batches_for
from distill.losses import mlm
from distill.losses.collated import batch_of, kind_of
from distill.models import families


def with_loss(model: Any, collated: Sequence[Mapping[str, Tensor]]) -> tuple[list[Batch], Loss]:
    """The batches as losses take them, and the function of (model, batch) for the loss of each row [R].

    Raises:
        ConfigError: for a model without a head of a task or of a masked language model.
        DataError: without a batch, for what is no batch, and for a batch with a row that has no label.
    """
    kind = kind_of(model, "model")
    if wrong := [each for each in collated if not isinstance(each, Mapping)]:
        raise DataError(
            f"calibration: got a {type(wrong[0]).__name__} as a batch; must be a mapping with input_ids; put a single "
            "batch into a list, and name a split of several"
        )
    if any(map(_is_row, collated)):  # rows, which are padded here
        padded = batches_for(model.config, collated)
        device = next(model.parameters()).device
        collated = [{k: torch.from_numpy(v).to(device) for k, v in batch.items()} for batch in padded]
    batches = [batch_of(kind, getattr(model.config, "num_labels", 0), batch) for batch in collated]
    if not batches:
        raise DataError("calibration: got no batch; must be batches with labels; pass what a DataLoader returns")
    for batch in batches:
        if not len(batch["labels"]) or len(batch.get("labelled", batch["labels"])) < len(batch["labels"]):
            raise DataError("calibration: got a batch with rows without labels; must have labels; leave those rows out")
    return batches, _of_masked_tokens if kind is None else partial(row_loss, kind)


def _is_row(entry: Mapping[str, Any]) -> bool:
    """Whether this is one row: its tokens have one dimension or, as tensors of a single text, its label has none."""
    label = entry.get("labels", entry.get("label"))
    return getattr(entry.get("input_ids"), "ndim", 1) == 1 or (label is not None and not getattr(label, "ndim", 0))


def _of_masked_tokens(model: Any, batch: Batch) -> Tensor:
    hidden = families.encode(model, batch).flatten(0, 1)[batch["masked"]]
    return mlm(families.mlm_logits(model, hidden), batch["labels"])
