"""The only place that knows model families: one record for each, and the few questions asked of a model.

A new family is one file with a `Family`, its name in `FAMILIES` (records.py) and one row in the contract test. torch is
not imported.
"""

from __future__ import annotations

from distill.family.model import (
    depth,
    encode,
    encoder,
    freeze_mlm_head,
    has_mlm_head,
    heads,
    input_names,
    inputs,
    layers,
    max_length,
    mlm_logits,
    token_types,
    width,
)
from distill.family.record import Family
from distill.family.records import FAMILIES, STUDENTS, family_of

__all__ = [
    "FAMILIES",
    "STUDENTS",
    "Family",
    "depth",
    "encode",
    "encoder",
    "family_of",
    "freeze_mlm_head",
    "has_mlm_head",
    "heads",
    "input_names",
    "inputs",
    "layers",
    "max_length",
    "mlm_logits",
    "token_types",
    "width",
]
