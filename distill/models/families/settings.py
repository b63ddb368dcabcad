"""Settings of a model's config that change its outputs and that this version of transformers ignores. Without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.errors import DataError
from distill.models.families.records import FAMILIES


@dataclass(frozen=True)
class Needed:
    """A setting that must have one of some values. An absent setting has one."""

    values: tuple[Any, ...]
    shown: str
    """The value that a message names."""
    why: str
    encoders: bool = False
    """Whether only encoders need it, whose families have records of layers."""


POSITIONS, ROTARY = "position_embedding_type", ("rope", "rotary", "sans_pos")
"""A setting, and the names that published configs give to rotary positions there: `sans_pos` is mmBERT's."""

NEEDED = {
    POSITIONS: Needed((None, "absolute"), "absolute", "which transformers 5 computes whatever is set"),
    "pruned_heads": Needed((None, {}), "none", "because transformers 5 has no models with pruned heads"),
    "is_decoder": Needed(
        (None, False), "false", "because a decoder does not see the words after a word", encoders=True
    ),
    "add_cross_attention": Needed((None, False), "false", "because an encoder has no second input", encoders=True),
}
"""Setting -> the values that it may have."""

_PADDED = "by which its head reads padding where texts of several lengths are in a batch"
NEEDED_OF: dict[str, dict[str, Needed]] = {
    "xlnet": {
        "summary_type": Needed((None, "last"), "last", _PADDED),
        "attn_type": Needed((None, "bi"), "bi", "because transformers computes others for one text at a time alone"),
    },
}
"""Type -> setting -> the values that it may have in models of this type."""
CHOOSING_BY_FIRST = Needed((None, "first"), "first", _PADDED)
"""`summary_type` of ELECTRA's head for multiple choice; its other heads read the first token whatever is set."""

OLD: dict[str, dict[str, tuple[str, Any]]] = {
    "nomic_bert": {
        "n_embd": ("hidden_size", 768),
        "n_layer": ("num_hidden_layers", 12),
        "n_head": ("num_attention_heads", 12),
        "n_inner": ("intermediate_size", 3072),
        "layer_norm_epsilon": ("layer_norm_eps", 1e-12),
        "rotary_emb_base": ("rope_parameters", 1000),
        "rotary_emb_fraction": ("", 1),
        "activation_function": ("", "swiglu"),
        "rotary_emb_interleaved": ("", False),
        "rotary_emb_scale_base": ("", None),
        "scale_attn_weights": ("", True),
        "scale_attn_by_inverse_layer_idx": ("", False),
        "parallel_block": ("", False),
        "prenorm": ("", False),
        "causal": ("", False),
    },
    "eurobert": {"clf_pooling": ("classifier_pooling", "late")},
}
"""Type -> setting of the first files of that type, which transformers does not read -> (the setting in its place; empty
without one, the value with which transformers computes where that is absent)."""


ATTENTION = ("attn_implementation", "_attn_implementation")
"""Settings by which transformers would compute attention in code of another package, or of the hub."""
OWN = (None, "eager", "sdpa")
"""The values that are code of torch and transformers alone."""
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
MOST = {"num_labels": 50_000, "num_decoder_layers": 500, "num_hidden_groups": 500} | dict.fromkeys(_LAYERS, 500)
"""Setting -> its largest value. transformers takes minutes and much memory for larger ones, before it reads weights."""


def check_settings(file: Path, config: Mapping[str, Any]) -> None:
    """Raise DataError for a setting with another value than it must have."""
    _check_first(file, config)
    record = FAMILIES.get(str(config.get("model_type")))
    encoder = record is not None and record.layer is not None
    own = NEEDED_OF.get(str(config.get("model_type")), {})
    if "ElectraForMultipleChoice" in (config.get("architectures") or ()):
        own = {"summary_type": CHOOSING_BY_FIRST}
    for name, needed in {**NEEDED, **own}.items():
        got = config.get(name)
        rotary = record is not None and record.rotary
        if name == POSITIONS and rotary and got in ROTARY:
            continue
        if got not in needed.values and (encoder or not needed.encoders):
            shown = "rotary" if name == POSITIONS and rotary else needed.shown
            other = "one trained without it"
            if name == POSITIONS and got in ROTARY:
                other = "files of it in a type that has them, e.g. jinaai/jina-embeddings-v3-hf"
            raise DataError(f"{file}: got {name} {got}; must be {shown}, {needed.why}; use another model, or {other}")
    for name, (instead, value) in OLD.get(str(config.get("model_type")), {}).items():
        if name in config and instead not in config and config[name] != value:
            todo = f"set {instead} too" if instead else "use another model"
            raise DataError(
                f"{file}: got {name} {config[name]}; must be {value}, with which transformers computes whatever is "
                f"set; {todo}"
            )


def _check_first(file: Path, config: Mapping[str, Any]) -> None:
    """Raise DataError for a setting that transformers obeys while it reads the config, before any weights."""
    for name in ATTENTION:
        if config.get(name) not in OWN:
            raise DataError(
                f"{file}: got {name} {config[name]!r}; must be eager or sdpa, because others are code of further "
                "packages; remove the setting"
            )
    for name, most in MOST.items():
        got = config.get(name)
        if isinstance(got, int) and got > most:
            raise DataError(f"{file}: got {name} {got:,}; must be at most {most:,}; correct it")


def own_code(config: Mapping[str, Any]) -> list[str]:
    """Names of the classes of a folder's own code that a config names for its models. This code is never run."""
    named = config.get("auto_map")
    if not isinstance(named, Mapping):
        return []
    return sorted({str(value) for key, value in named.items() if str(key).startswith("AutoModel")})


def quantizer_of(config: Mapping[str, Any]) -> str | None:
    """Name of the method by which the weights of a folder are quantized; None for float weights."""
    settings = config.get("quantization_config")
    if settings is None and "compression_config" not in config:
        return None
    return str((settings if isinstance(settings, Mapping) else {}).get("quant_method", "an unnamed method"))
