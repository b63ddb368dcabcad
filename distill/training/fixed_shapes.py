"""Batches whose arrays have few shapes, so that the steps of a training can be replayed on a GPU.

How many tokens are masked, are not padding or have a label differs from step to step. These rows are padded here, and
those that were added are flagged, so that the loss leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

PARTS = 32
"""A number of rows is padded to a multiple of the largest possible number divided by this."""
LEAST = 8
"""And to a multiple of at least this."""
VALID = "_valid"
"""Ending of the name of the flags `[rows]` of rows: false for rows that the loss leaves out."""

_CORPUS = {"masked": ("masked", "labels", "drawn"), "aligned": ("aligned", "teacher_aligned")}
_SEGMENTS = ("pairs", "pair_labels")
_WORDS = ("words", "labels", "teacher_logits", "label_weights", f"labelled{VALID}")


def fixed(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A batch of `distill.losses.objective.Objective`, on the host, with the same loss and few shapes.

    Tensors that have one entry for each masked token, word, pair of tokens or pair of rows are padded with their last
    entry, and `real` becomes all positions. `labelled` becomes flags of all labels. Empty tensors are left as they are.
    """
    made = dict(batch)
    tokens, rows = batch["attention_mask"].numel(), len(batch["input_ids"])
    if "masked" in batch:
        for name, arrays in _CORPUS.items():
            _pad(made, name, arrays, tokens)
        _pad(made, "pair_labels", _SEGMENTS, rows, parts=1)
    else:
        if "labelled" in batch:
            given = torch.zeros(len(batch["labels"]), dtype=torch.bool)
            given[made.pop("labelled")] = True
            made["labels"], made[f"labelled{VALID}"] = batch["labels"].masked_fill(~given, 0), given
        if "words" in batch:
            _pad(made, "labels", _WORDS, tokens)
        _pad(made, "pairs", ("pairs",), rows * (rows - 1) // 2)
    if "real" in batch:
        made["real"] = torch.arange(tokens)
        made[f"real{VALID}"] = batch["attention_mask"].flatten().bool()
    return made


def _pad(batch: dict[str, Tensor], name: str, arrays: tuple[str, ...], most: int, parts: int = PARTS) -> None:
    """Pad those of `arrays` `[n, ...]` that the batch has, in place, where n is at most `most`, and flag rows by
    `name`."""
    if name not in batch or not (count := len(batch[name])):
        return
    step = max(LEAST, -(-most // parts))
    added = -(-count // step) * step - count
    valid = torch.arange(count + added) < count
    for key in filter(batch.__contains__, arrays):
        values = batch[key]
        batch[key] = torch.cat([values, values[-1:].expand(added, *values.shape[1:])])
        if key.endswith(VALID):
            batch[key] &= valid
    batch[f"{name}{VALID}"] = valid
