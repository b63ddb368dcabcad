"""Everything specific to a model family: one record per family, and functions on models that use the record.

To add a family, write a file with its `Family`, list it in `FAMILIES` (records.py) and add its row to the contract
tests. Importing this package does not import torch.
"""

from __future__ import annotations

from distill.models.families.model import (
    auto_class,
    check_head_size,
    class_of,
    depth,
    encode,
    encoder,
    end_token,
    freeze_mlm_head,
    has_mlm_head,
    has_rtd_head,
    head_of,
    heads,
    input_names,
    inputs,
    layers,
    logits,
    max_length,
    mlm_logits,
    recordable,
    rtd_logits,
    trained_length,
    unprunable,
    width,
)
from distill.models.families.record import Family
from distill.models.families.records import FAMILIES, STUDENTS, family_of

__all__ = [
    "FAMILIES",
    "STUDENTS",
    "Family",
    "auto_class",
    "check_head_size",
    "class_of",
    "depth",
    "encode",
    "encoder",
    "end_token",
    "family_of",
    "freeze_mlm_head",
    "has_mlm_head",
    "has_rtd_head",
    "head_of",
    "heads",
    "input_names",
    "inputs",
    "layers",
    "logits",
    "max_length",
    "mlm_logits",
    "recordable",
    "rtd_logits",
    "trained_length",
    "unprunable",
    "width",
]
