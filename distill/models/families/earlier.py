"""Settings of a config by the names that transformers 4 has for them. Without torch.

Version 5 writes the kind of each layer, and the bases of rotary positions, under other names. Version 4 does not read
these, and computes with its own defaults without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.runtime.storage.atomic import read_json, write_json

_FULL, _SLIDING = "full_attention", "sliding_attention"
_EVERY = "global_attn_every_n_layers"
_BASES = {
    "modernbert": {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"},
    "gemma3_text": {_FULL: "rope_theta", _SLIDING: "rope_local_base_freq"},
}
"""Type -> kind of layers -> the setting for the base of their rotary positions."""
_ONE_BASE = ("qwen2", "qwen3", "gemma2")
"""Types with one base, `rope_theta`, for all layers. Version 4 has no further types of which version 5 renamed it."""


def named(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config that version 4 has other names for, by these names.

    None where it has no setting for a value. It then ends with an error, and not with a wrong model.
    """
    kind, rope, layers = str(config.get("model_type")), config.get("rope_parameters"), config.get("layer_types")
    found: dict[str, Any] = {}
    if isinstance(rope, Mapping):
        found |= {name: _base(rope.get(of_layers)) for of_layers, name in _BASES.get(kind, {}).items()}
        found |= {"rope_theta": _base(rope)} if kind in _ONE_BASE else {}
    if kind == "modernbert" and isinstance(layers, list) and layers:
        # It takes the other base in place of one that is null, so that this setting must end it.
        found[_EVERY] = None if None in found.values() else _every(layers)
    return found


def _base(rope: Any) -> Any:
    """The base of rotary positions; None for positions that are scaled."""
    plain = isinstance(rope, Mapping) and rope.get("rope_type", "default") == "default"
    return rope.get("rope_theta") if plain else None


def _every(layers: Sequence[str]) -> int | None:
    """The number n for which each nth layer, from the first on, attends to the whole text; None without one."""

    def fits(number: int) -> bool:
        return all((kind == _FULL) == (place % number == 0) for place, kind in enumerate(layers))

    return next(filter(fits, range(1, len(layers) + 1)), None)


def complete(folder: Path) -> None:
    """Add these settings to the configs of the models in a folder and below it."""
    for file in sorted(folder.rglob("config.json")):
        stated = read_json(file)
        if isinstance(stated, dict) and (more := named(stated)):
            write_json(file, stated | more)


def needs_5(folder: Path) -> bool:
    """Whether version 4 has no settings for the model of a folder."""
    return None in named(read_json(folder / "config.json")).values()
