"""`distill.json`: the task and the proved artifacts of an exported folder, for `distill.load`. Without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from distill import __version__
from distill.config.backends import BACKENDS
from distill.config.loads import BATCH, LOADS, SINGLE
from distill.data.task_types import TASK_TYPES, TaskType
from distill.data.task_types.detecting import detectable
from distill.deploy.export.sample import content_of, hashed
from distill.errors import ConfigError, DataError
from distill.models.families.foreign import check_adapter
from distill.models.families.weights import model_inside
from distill.runtime.storage import atomic
from distill.runtime.storage.strict_json import read_json

if TYPE_CHECKING:
    from distill.data.task import Task

FILE = "distill.json"
SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """An artifact of the folder."""

    backend: str
    scheme: str
    path: str
    """Its file or folder, below the exported folder; `.` for that folder itself."""
    ms: float | None = None
    """Median time of a batch; None if it was not timed."""
    batch: int | None = None
    length: int | None = None
    """Shape of the timed batch."""
    agreement: float | None = None
    """Share of development rows with the same prediction as the float model; None for numbers."""
    temperature: float | None = None
    """Temperature by which logits are divided before they are made probabilities; None if none was chosen."""
    single_ms: float | None = None
    """Median time of one text at a time; None if it was not timed."""
    thresholds: dict[str, float] | None = None
    """Label -> probability, before temperature scaling, that few development rows without it reach: see
    `evaluation.detection`; None if none was chosen. It cannot be compared with scores of predictions, which are
    scaled."""
    temperatures: dict[str, float] | None = None
    """Task -> `temperature` of its head; None for an artifact of one head."""
    content: str | None = None
    """`sample.content_of` its file or folder; None if it is unknown, and for the exported folder itself."""

    @property
    def name(self) -> str:
        return f"{self.backend} {self.scheme}"

    def time(self, load: str) -> float | None:
        """Its median time under a load of `LOADS`."""
        return self.single_ms if load == SINGLE else self.ms


LIBRARY = "tokenizers"
"""The library that encodes texts where the export has proved that it does so as transformers does."""


@dataclass(frozen=True)
class Tokens:
    """The facts with which the library tokenizers alone encodes texts as transformers does."""

    pad_id: int
    """The padding token."""
    pads_left: bool
    """Whether padding is put before a text."""
    cuts_left: bool
    """Whether texts lose their beginning where they are too long."""
    longest: int
    """Maximum number of tokens of the model."""
    files: str
    """Hash of the files that transformers reads its tokenizer from, when the export compared both."""
    types: bool
    """Whether the tokenizer outputs token types by itself."""
    own: str | None = None
    """Hash of tokenizer.json; None if unknown."""


@dataclass(frozen=True)
class Record:
    """The facts that a user of an exported folder needs besides its models."""

    task: str
    kind: TaskType
    labels: tuple[str, ...]
    """Names of the outputs; empty for a number."""
    columns: tuple[str, ...]
    """The text columns of the task's files; empty if they are unknown."""
    max_length: int
    artifacts: tuple[Entry, ...]
    """The float32 model first."""
    threshold: float = 0.5
    range: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    """The columns of multiple choice with the choices of each row."""
    proved_on: str | None = None
    """Flags of the processor on which the artifacts were proved; None if unknown."""
    tokens: Tokens | None = None
    """None where only transformers encodes texts."""
    load: str = BATCH
    """The load for which an artifact is chosen by default, one of `LOADS`."""
    weights: str | None = None
    """`sample.hashed` of the float32 weights, from which the artifacts were made; None if unknown."""
    prompts: tuple[str, ...] = ()
    """What an embedder was trained to read before first texts and before second ones; empty without prompts."""


def of_task(
    task: Task,
    longest: int,
    entries: Sequence[Entry],
    proved_on: str | None = None,
    tokens: Tokens | None = None,
    load: str = BATCH,
) -> Record:
    """The record of a task's models. `longest`: number of tokens to which texts are truncated."""
    return Record(
        task.name,
        task.kind,
        task.labels,
        task.columns[:1] if task.kind.separate else task.columns,
        longest,
        tuple(entries),
        task.threshold,
        task.range,
        task.choices,
        proved_on,
        tokens,
        load,
        prompts=task.prompts,
    )


def changed(folder: Path, record: Record) -> bool:
    """Whether the weights of an exported folder are known to be others than those that were exported."""
    return record.weights is not None and hashed(folder) not in (None, record.weights)


@dataclass(frozen=True)
class Heads:
    """The record of a folder with one encoder and several heads, each in a subfolder with a `Record` of its own."""

    heads: tuple[str, ...]
    """Names of the subfolders, which are the names of the tasks, in the order of the outputs."""
    artifacts: tuple[Entry, ...]
    """Artifacts with all heads. The artifact of torch is all subfolders together."""
    proved_on: str | None = None
    """As in `Record`."""
    load: str = BATCH
    """As in `Record`."""


def located(folder: str | Path) -> Path:
    """The model folder that a user means: the folder itself, or the only exported folder in it.

    Raises:
        DataError: for a folder with an adapter.
        ConfigError: for a path without a folder, and for a folder that has no exported folder or several.
    """
    path = Path(folder)
    if not os.path.isdir(path):  # also of a long text in its place
        raise ConfigError(f"folder: got {folder}; must be a local folder; check the path (from {Path.cwd()})")
    check_adapter(path)
    of_run = (path / atomic.CLAIM).exists()  # whose own config.json has its settings
    if any((path / name).exists() for name in (FILE, "config.json")) and not of_run:
        return path
    # A run exports its teacher too if it advises the teacher, so that neither is the model that is meant.
    places = [path / "export", path / "export_teacher"] if of_run else [path]
    found = {file.parent for place in places for pattern in ("*", "*/*") for file in place.glob(f"{pattern}/{FILE}")}
    inside = sorted(folder for folder in found if folder.parent not in found)  # without single heads
    if len(inside) == 1:
        return inside[0]
    wanted = "must be one exported folder, or a folder that transformers loads"
    if not inside:
        got = "a run folder without an export" if of_run else "which has no config.json"
        raise ConfigError(f"folder: got {folder}, {got}; {wanted}; {model_inside(path)}choose another")
    raise ConfigError(f"folder: got {folder}, with several exported folders; {wanted}; choose {_one_of(inside)}")


def _one_of(names: Sequence[object]) -> str:
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


def write(folder: Path, record: Record | Heads) -> None:
    """Write the file atomically. Values that are unknown are left out of its artifacts."""
    hashed_now = [replace(entry, content=content_of(folder, entry.path)) for entry in record.artifacts]
    artifacts = [{key: value for key, value in asdict(entry).items() if value is not None} for entry in hashed_now]
    proved: dict[str, Any] = {} if record.proved_on is None else {"proved_on": record.proved_on}
    proved |= {"load": record.load}
    if isinstance(record, Heads):
        stored = {"schema": SCHEMA, "version": __version__, "heads": record.heads}
        atomic.write_json(folder / FILE, stored | proved | {"artifacts": artifacts})
        return
    content: dict[str, Any] = {"schema": SCHEMA, "version": __version__, "task": record.task}
    content |= {"kind": record.kind.name, "labels": record.labels, "columns": record.columns}
    content |= {"max_length": record.max_length, "threshold": record.threshold, "range": record.range}
    content |= {"choices": record.choices} if record.choices else {}
    content |= {"prompts": record.prompts} if record.prompts else {}
    weights = hashed(folder)
    content |= {} if weights is None else {"weights": weights}
    content |= {} if record.tokens is None else {"tokenizer": {"library": LIBRARY, **asdict(record.tokens)}}
    atomic.write_json(folder / FILE, content | proved | {"artifacts": artifacts})


def read(folder: Path) -> Record | None:
    """The record of a folder; None without a record.

    Raises:
        ConfigError: for a folder with several heads.
        DataError: for a file that is damaged, or of another schema.
    """
    record = read_any(folder)
    if isinstance(record, Heads):
        raise ConfigError(
            f"folder: got {folder}, with several heads; must be the folder of one of them; choose "
            f"{_one_of([folder / head for head in record.heads])}"
        )
    return record


def read_any(folder: Path) -> Record | Heads | None:
    """The record of a folder with one head or with several; None without a record.

    Raises:
        DataError: for a file that is damaged, or of another schema.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        content = read_json(file)
        return _heads(content) if isinstance(content, dict) and "heads" in content else _record(content)
    except KeyError as error:
        problem = f"no {error}"
    except (OSError, ValueError, TypeError) as error:
        problem = " ".join(str(error).split())[:200]
    raise DataError(
        f"{file}: got {problem}; must be the file that the export stage of distill {__version__} writes; copy the "
        "folder again, or install the version of distill that exported it"
    )


def _record(content: Any) -> Record:
    """Raise KeyError for a missing value, ValueError for a wrong one."""
    if not isinstance(content, dict):
        raise ValueError(f"a {type(content).__name__}")
    _check("schema", content["schema"], content["schema"] == SCHEMA)
    kind, labels, longest, threshold = (content[key] for key in ("kind", "labels", "max_length", "threshold"))
    _check("task", content["task"], isinstance(content["task"], str))
    _check("kind", kind, kind in list(TASK_TYPES))
    _check(
        "labels", labels, _texts(labels) and bool(labels) == TASK_TYPES[kind].named and len(set(labels)) == len(labels)
    )
    _check("columns", content["columns"], _texts(content["columns"]) and len(content["columns"]) <= 2)
    _check("max_length", longest, type(longest) is int and longest > 0)
    below = _number(threshold) and (threshold < 1 or TASK_TYPES[kind].extractive)  # 1: every question has an answer
    _check("threshold", threshold, below and 0 < threshold <= 1)
    ends, artifacts, choices = content["range"], content["artifacts"], content.get("choices", [])
    prompts = content.get("prompts", [])
    _check("prompts", prompts, _texts(prompts) and len(prompts) in (0, 2))
    _check("choices", choices, _texts(choices))
    _check("range", ends, ends is None or (isinstance(ends, list) and len(ends) == 2 and all(map(_number, ends))))
    _check("artifacts", artifacts, isinstance(artifacts, list) and bool(artifacts))
    able = detectable(TASK_TYPES[kind].detecting, labels)
    return Record(
        content["task"],
        TASK_TYPES[kind],
        tuple(labels),
        tuple(content["columns"]),
        longest,
        tuple(_entry(artifact, able) for artifact in artifacts),
        float(threshold),
        None if ends is None else (float(ends[0]), float(ends[1])),
        tuple(choices),
        _proved_on(content),
        None if content.get("tokenizer") is None else _tokens(content["tokenizer"]),
        _load(content),
        None if content.get("weights") is None else str(content["weights"]),
        tuple(prompts),
    )


def _tokens(content: Any) -> Tokens:
    _check("tokenizer", content, isinstance(content, dict))
    pad_id, pads_left, cuts_left = content["pad_id"], content["pads_left"], content["cuts_left"]
    longest, files, types = content["longest"], content["files"], content["types"]
    _check("tokenizer", content["library"], content["library"] == LIBRARY)
    _check("pad_id", pad_id, type(pad_id) is int and pad_id >= 0)
    _check("pads_left", pads_left, isinstance(pads_left, bool))
    _check("cuts_left", cuts_left, isinstance(cuts_left, bool))
    _check("longest", longest, type(longest) is int and longest > 0)
    _check("files", files, isinstance(files, str))
    _check("types", types, isinstance(types, bool))
    own = content.get("own")
    _check("own", own, own is None or isinstance(own, str))
    return Tokens(pad_id, pads_left, cuts_left, longest, files, types, own)


def _load(content: dict[str, Any]) -> str:
    load = content["load"]
    _check("load", load, load in LOADS)
    return str(load)


def _proved_on(content: dict[str, Any]) -> str | None:
    flags = content.get("proved_on")
    _check("proved_on", flags, flags is None or isinstance(flags, str))
    return flags


def _heads(content: dict[str, Any]) -> Heads:
    """Raise KeyError for a missing value, ValueError for a wrong one."""
    _check("schema", content["schema"], content["schema"] == SCHEMA)
    heads, artifacts = content["heads"], content["artifacts"]
    plain = _texts(heads) and all(name not in (".", "..") and "/" not in name and "\\" not in name for name in heads)
    _check("heads", heads, plain and len(set(heads)) == len(heads) > 0)
    _check("artifacts", artifacts, isinstance(artifacts, list) and bool(artifacts))
    # Thresholds are of single heads.
    return Heads(
        tuple(heads), tuple(_entry(artifact, []) for artifact in artifacts), _proved_on(content), _load(content)
    )


def _entry(content: Any, able: Sequence[str]) -> Entry:
    """An artifact. `able`: the labels that may have a threshold."""
    _check("artifact", content, isinstance(content, dict))
    backend, scheme, path = content["backend"], content["scheme"], content["path"]
    times = content.get("ms"), content.get("single_ms")
    _check("backend", backend, backend in list(BACKENDS))
    _check("scheme", scheme, isinstance(scheme, str))
    inside = isinstance(path, str) and not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
    _check("path", path, inside)
    for key, ms in zip(("ms", "single_ms"), times, strict=True):
        _check(key, ms, ms is None or (_number(ms) and ms > 0))
    temperature = content.get("temperature")
    _check("temperature", temperature, temperature is None or (_number(temperature) and temperature > 0))
    thresholds = content.get("thresholds")
    _check("thresholds", thresholds, thresholds is None or _shares(thresholds, able))
    by_head = content.get("temperatures")
    numbers = isinstance(by_head, dict) and all(_number(value) and value > 0 for value in by_head.values())
    _check("temperatures", by_head, by_head is None or numbers)
    stored = content.get("content")
    _check("content", stored, stored is None or isinstance(stored, str))
    shape, agreement = (content.get("batch"), content.get("length")), content.get("agreement")
    return Entry(backend, scheme, path, times[0], *shape, agreement, temperature, times[1], thresholds, by_head, stored)


def _check(key: str, value: Any, right: bool) -> None:
    if not right:
        raise ValueError(f"{key} {value!r}"[:100])


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _shares(value: Any, names: Sequence[str]) -> bool:
    """Whether it is a dictionary from some of the names to numbers between 0 and 1."""
    numbers = isinstance(value, dict) and all(_number(share) and 0 < share < 1 for share in value.values())
    return numbers and value.keys() <= {*names}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
