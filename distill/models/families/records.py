"""All families: model type -> record. Importing this needs no torch."""

from __future__ import annotations

from typing import Any

from distill.errors import ConfigError
from distill.models.families.albert import ALBERT
from distill.models.families.bert import BERT, ERNIE
from distill.models.families.deberta import DEBERTA, DEBERTA_V2
from distill.models.families.decoder import GEMMA2, GEMMA3, PRIVACY_FILTER, QWEN2, QWEN3
from distill.models.families.distilbert import DISTILBERT
from distill.models.families.electra import ELECTRA
from distill.models.families.modernbert import MODERNBERT
from distill.models.families.mpnet import MPNET
from distill.models.families.record import Family
from distill.models.families.roberta import CAMEMBERT, DATA2VEC, ROBERTA, XLM_ROBERTA
from distill.models.families.rotary import EUROBERT, GTE, JINA_V3, NOMIC_BERT, ULTRABERT
from distill.models.families.seq2seq import BART, T5
from distill.models.families.xlnet import XLNET
from distill.runtime import outside

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERT,
        ERNIE,
        ROBERTA,
        XLM_ROBERTA,
        CAMEMBERT,
        DATA2VEC,
        DISTILBERT,
        ELECTRA,
        ALBERT,
        MPNET,
        DEBERTA,
        DEBERTA_V2,
        MODERNBERT,
        EUROBERT,
        ULTRABERT,
        NOMIC_BERT,
        GTE,
        JINA_V3,
        XLNET,
        BART,
        T5,
        QWEN2,
        QWEN3,
        GEMMA2,
        GEMMA3,
        PRIVACY_FILTER,
    )
}

STUDENTS: dict[str, Family] = {name: family for name, family in FAMILIES.items() if family.layer is not None}
"""Families that a student can have. Terms can also compare hidden states and attention of their models."""
outside.registry("families", FAMILIES)
outside.registry("families of students", STUDENTS)

REFUSED = {
    "big_bird": "attends to blocks of words, and pads texts to whole blocks",
    "longformer": "attends to windows, and to chosen words that its caller names",
}
"""Type of long encoders -> why none of them is a family here."""
_LONG = "modernbert"


def family_of(model_or_config: Any, key: str = "teacher.name") -> Family:
    """The record of a transformers model or config. Raises ConfigError, about the setting `key`, for an unknown
    type."""
    model_type = getattr(model_or_config, "config", model_or_config).model_type
    if model_type not in FAMILIES:
        why = f", which {REFUSED[model_type]}" if model_type in REFUSED else ""
        choice = f"a model of type {_LONG}, which reads texts as long" if why else "such a model"
        raise ConfigError(
            f"{key}: got a model of type {model_type}{why}; must be one of {', '.join(FAMILIES)}; choose {choice}"
        )
    return FAMILIES[model_type]
