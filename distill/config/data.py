"""Settings of the corpus, the tasks and their limits."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Corpus:
    kind: str = "docstrings"
    """docstrings (of installed Python packages), parquet, text (one document per line) or hub."""
    path: str | None = None
    """File or folder when kind is parquet or text. Parquet files need a `text` column."""
    name: list[str] = field(default_factory=list)
    """Data sets on the hub when kind is hub, as `name` or `name/config`."""
    max_length: int = 128
    """Maximum tokens in a training sequence, special tokens included."""


@dataclass
class Tasks:
    kind: str = "docstrings"
    """docstrings (five tasks of the same types as GLUE's, made from installed Python packages) or glue."""
    path: str | None = None
    """Folder in the layout of nyu-mll/glue when kind is glue. When null, GLUE is read from the hub."""
    names: list[str] | None = None
    """Names of the tasks to use; all tasks when null."""
    max_length: int = 128
    """Maximum tokens in an example, special tokens included. Longer examples are truncated."""


@dataclass
class Limit:
    """Caps on data and training, for quick runs."""

    examples: int | None = None
    """Maximum training examples per task; no maximum when null, here and below."""
    validation: int | None = None
    """Maximum validation examples per split."""
    documents: int | None = None
    """Maximum documents of the corpus."""
    steps: int | None = None
    """Maximum optimizer steps per training stage."""
    repeats: int | None = None
    """Maximum timing rounds."""
    smoke: bool = False
    """Use a tiny random teacher and small stand-ins for every download. The numbers of such a run mean nothing."""
