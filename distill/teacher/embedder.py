"""Settings of a sentence embedder in the layout of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

from distill import checkpoint
from distill.errors import ConfigError, DataError
from distill.family.vectors import POOLING
from distill.teacher.files import readable

EMBEDDER_SETTINGS = "the settings of a sentence embedder; save it again, or choose another teacher"
"""Rule and advice of the errors on settings that cannot be loaded."""


def pooling(path: str | Path) -> str:
    """Pooling of a sentence embedder from its settings: mean, cls or max; mean if it has no such settings.

    Raises:
        DataError: for any other pooling, and for settings that cannot be read.
    """
    file = Path(path) / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    with readable(file, EMBEDDER_SETTINGS):
        stored = checkpoint.read_json(file)
        chosen = {how for how, key in POOLING.items() if stored.get(key) or stored.get("pooling_mode") == how}
    if len(chosen) != 1:
        raise DataError(f"{file}: got {sorted(chosen)}; must be one of {', '.join(POOLING)}; choose another teacher")
    return chosen.pop()


def embedder_length(path: str | Path) -> int | None:
    """Maximum input length of a sentence embedder in tokens, from its settings; None if they set no maximum.

    Raises:
        ConfigError: if it has modules other than Normalize after its pooling.
        DataError: for settings that cannot be read.
    """
    modules, lengths = Path(path) / "modules.json", Path(path) / "sentence_bert_config.json"
    with readable(modules, EMBEDDER_SETTINGS):
        listed = checkpoint.read_json(modules) if modules.is_file() else []
        types = {module["type"].rpartition(".")[2] for module in listed}
    if others := sorted(types - {"Transformer", "Pooling", "Normalize"}):
        raise ConfigError(
            f"teacher.name: got a sentence embedder with {', '.join(others)} after its pooling; must have only "
            "Normalize after it for its student to be exported as an embedder; choose another, or leave the stage that "
            "exports it out of pipeline"
        )
    with readable(lengths, EMBEDDER_SETTINGS):
        longest = checkpoint.read_json(lengths).get("max_seq_length") if lengths.is_file() else None
    return longest if isinstance(longest, int) else None
