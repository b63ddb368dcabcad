"""The table of encoders: encoders.yaml beside this file, where each published score has its source. Without torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from distill.models.families.record import VECTORS, Family, position_table_after_padding
from distill.models.families.records import FAMILIES, STUDENTS

FILE = Path(__file__).with_name("encoders.yaml")
ENGLISH = "en"
RELATIVE = 512
"""Tokens that models were trained to read whose config states no number of positions."""
SETTINGS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
}
"""Size in the table -> common name of the setting of a config."""


@dataclass(frozen=True)
class Checkpoint:
    """A published encoder."""

    name: str
    """Its name on the Hub."""
    family: str
    """What people call its kind, e.g. DeBERTa v3."""
    type: str
    """`model_type` of its config."""
    year: int
    paper: str
    """Number on arXiv."""
    objective: str
    """What it was pretrained for."""
    tokenizer: str
    licence: str
    languages: str
    """A key of the language sets."""
    shape: tuple[int, int, int, int]
    """Layers, hidden size, heads and FFN size."""
    vocabulary: int
    parameters: tuple[float, float, float]
    """Millions of parameters of the token embeddings, of the layers, and of the whole encoder."""
    positions: int | None = None
    reads: int | None = None
    """Tokens at which it is published to cut texts, where these are fewer than its positions."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of its config."""
    embeds: bool = False
    """Whether it was trained to embed texts."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Size -> its name in the config, where the family's record does not have it."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Source -> millions of parameters that it states."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metric -> source -> value."""

    @property
    def record(self) -> Family:
        return FAMILIES[self.type]

    @property
    def context(self) -> int:
        """Tokens of a text that it reads, at the most."""
        return self.reads or self.longest

    @property
    def longest(self) -> int:
        """The same for a task without vectors of texts, in which the length that an embedder is published with is no
        limit."""
        positions = self.positions or RELATIVE
        return positions - (2 if self.record.max_length is position_table_after_padding else 0)

    def value(self, metric: str) -> float:
        """Its score: the lowest where sources differ."""
        return min(self.scores[metric].values())

    def settings(self) -> dict[str, Any]:
        """The settings of its config, by the names that its type gives them."""
        names = {size: self.record.settings.get(name, name) for size, name in SETTINGS.items()} | dict(self.names)
        sizes = [*self.shape, self.vocabulary, self.positions]
        given = {names[size]: value for size, value in zip(SETTINGS, sizes, strict=True) if value is not None}
        return {**self.record.published, **given, **self.config}


@dataclass(frozen=True)
class Table:
    """What encoders.yaml has."""

    metrics: Mapping[str, Mapping[str, str]]
    """Metric -> its title, and what it is."""
    sources: Mapping[str, Mapping[str, str]]
    """Source -> its title and its address."""
    ranked_by: Mapping[str, Mapping[str, Sequence[str]]]
    """Kind of task -> `english` or `other` -> metrics, the one that counts most first."""
    language_sets: Mapping[str, Sequence[str]]
    checkpoints: Mapping[str, Checkpoint]

    def languages(self, checkpoint: Checkpoint) -> Sequence[str]:
        """Codes of the languages that its authors name."""
        return self.language_sets[checkpoint.languages]

    def metrics_of(self, kind: str, architecture: str, languages: Sequence[str]) -> Sequence[str]:
        """The metrics by which encoders are ranked for a kind of task in some languages."""
        named = kind if kind in self.ranked_by else "embedding" if architecture == VECTORS else "classification"
        return self.ranked_by[named]["english" if {*languages} <= {ENGLISH} else "other"]

    def ranked(self, checkpoint: Checkpoint, metrics: Sequence[str]) -> tuple[str, str, float] | None:
        """The first of some metrics that it has, the metric by which it is compared, and its value of that: converted
        by the encoders that have both, of which the least difference counts. None without any of the metrics."""
        metric = next((name for name in metrics if name in checkpoint.scores), None)
        for scale in metrics:
            both = [each for each in self.checkpoints.values() if {scale, metric} <= each.scores.keys()]
            if metric and both:
                shift = min(each.value(scale) - each.value(metric) for each in both)
                return metric, scale, round(checkpoint.value(metric) + shift, 2)
        return None

    def spread(self, metric: str) -> float:
        """Largest difference between two sources' values of one checkpoint: closer scores do not tell two apart."""
        of = (each.scores[metric].values() for each in self.checkpoints.values() if metric in each.scores)
        return round(max((max(values) - min(values) for values in of), default=0.0), 2)


@functools.cache
def table() -> Table:
    read = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    families = read.pop("families")
    found = {name: {**families[row["family"]], **row, "name": name} for name, row in read["checkpoints"].items()}
    for row in found.values():
        row |= {key: tuple(row[key]) for key in ("shape", "parameters")}
    return Table(**read | {"checkpoints": {name: Checkpoint(**row) for name, row in found.items()}})


def supports(checkpoint: Checkpoint) -> str:
    """What distill can do with models of its type, in a sentence."""
    record = checkpoint.record
    role = "a teacher, and the family of a student" if record.name in STUDENTS else "a teacher on tasks alone"
    onnx = "exports to ONNX" if record.onnx else "has no ONNX file, so it is timed in torch alone"
    return f"Type {record.name} can be {role}; it {onnx}."


def config_of(checkpoint: Checkpoint, layers: int | None = None) -> Any:
    """The config of a checkpoint. With `layers`, the config of a model of the same width with this number of layers."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(checkpoint.type, **checkpoint.settings())
    if layers is not None:
        config.num_hidden_layers = layers
        if kinds := getattr(config, "layer_types", None):
            config.layer_types = (kinds * layers)[:layers]
    return config
