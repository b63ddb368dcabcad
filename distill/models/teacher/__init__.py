"""Fetches, checks and loads models and tokenizers.

Weights are loaded from safetensors only, and code in a model's folder is never run. Only `fetch` connects to the hub;
everything else loads from local folders.
"""

from distill.models.teacher.embedder import check_exported, is_lower_cased, longest, pooling
from distill.models.teacher.files import check_weights
from distill.models.teacher.folders import EMBEDDED_NAME, EMBEDDED_PACKAGE, TOKENIZER, fetch, licence, resolve
from distill.models.teacher.given import check_given, check_masked_lm, notes, stores_mlm_head, unused_in
from distill.models.teacher.headless import without_head
from distill.models.teacher.load import (
    check_vocabulary,
    load_classifier,
    load_mlm,
    load_rtd,
    load_tokenizer,
    read_config,
)
from distill.models.teacher.random import random_teacher

__all__ = [
    "EMBEDDED_NAME",
    "EMBEDDED_PACKAGE",
    "TOKENIZER",
    "check_exported",
    "check_given",
    "check_masked_lm",
    "check_vocabulary",
    "check_weights",
    "fetch",
    "is_lower_cased",
    "licence",
    "load_classifier",
    "load_mlm",
    "load_rtd",
    "load_tokenizer",
    "longest",
    "notes",
    "pooling",
    "random_teacher",
    "read_config",
    "resolve",
    "stores_mlm_head",
    "unused_in",
    "without_head",
]
