"""Loads a model folder to predict with it: an exported one with its artifacts, or any that transformers loads.

An ONNX or OpenVINO artifact of an exported folder is loaded without torch and transformers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from distill.config.backends import BACKENDS
from distill.config.loads import BATCH, LOADS
from distill.config.schemes import SCHEMES
from distill.data.collate import MULTIPLE
from distill.data.windows import windows as layout_of
from distill.deploy.export import cross_encoder
from distill.deploy.export.record import FILE, Entry, Record, located, read, read_any
from distill.deploy.export.record import Heads as HeadsRecord
from distill.deploy.serve import tokens, unchanged
from distill.deploy.serve.heads import Head, Heads
from distill.deploy.serve.model import Model
from distill.errors import ConfigError, DataError, printable
from distill.inference.runners import FLOATS, Batch, Run, by_row, check_device
from distill.inference.runners import load as load_runner
from distill.models.families import sentence, vectors
from distill.models.families.weights import check_artifact, tensors_of
from distill.models.readable import readable
from distill.runtime import quoting
from distill.runtime.cores import cores
from distill.runtime.versions import cpu_flags

__all__ = ["Heads", "Model", "load"]

SHORTEST = 8
"""Least maximum length in tokens, as in `tasks.max_length`."""


def _warn(line: str) -> None:
    warnings.warn(printable(line), stacklevel=4)


def load(
    folder: str | Path,
    *,
    backend: str | None = None,
    scheme: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    max_length: int | None = None,
    load: str | None = None,
    windows: bool = False,
    say: Callable[[str], None] = _warn,
) -> Model | Heads:
    """Load a model folder: an exported one, the folder that contains it, or any classifier of transformers.

    By default it is the artifact that the run timed as the fastest under the run's load, of the installed backends, or
    torch float32 if none was timed. Nothing is downloaded, and no code in the folder is run.

        model = distill.load("outputs/distilbert/default/export/tickets")
        model.predict(["my card was swallowed"])
        # [{"label": "card", "score": 0.97, "scores": {"access": 0.01, "card": 0.97, "invoice": 0.02}}]

    A folder with one encoder and several heads returns `Heads`, whose predictions have an entry for each head.

    Args:
        backend: torch, onnxruntime, openvino, bitsandbytes or torchao, instead of the fastest.
        scheme: fp32, int8, ..., instead of the fastest.
        device: of torch: cpu, cuda or cuda:1.
        threads: of the CPU; all cores by default.
        max_length: tokens to which a text is truncated, or of the windows in which it is read, as for token
            classification; by default as in training.
        load: the load under which the fastest artifact is meant: `batch` for texts in batches, or `single` for one text
            at a time; by default that of the run.
        windows: whether an embedder reads a text of more than `max_length` tokens in overlapping windows of this
            length, in place of truncating it as sentence-transformers does. Its vector is the mean of their vectors.
        say: gets each conclusion from a folder without a record, as a line; by default a warning.

    Raises:
        ConfigError: for an argument that does not fit the folder or the machine.
        DataError: for a damaged folder.
    """
    folder = located(folder)
    if device != "cpu":
        with _needing(folder):
            check_device(device)
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: got {threads}; must be at least 1; correct it")
    if load is not None and load not in LOADS:
        raise ConfigError(f"load: got {load}; must be {' or '.join(LOADS)}; choose one of them")
    stored = read_any(folder)
    if stored is None:
        stored = _whole(folder).plain(folder, max_length, say)
    entry = chosen(stored.artifacts, backend, scheme, device, load or stored.load, meant=load is not None)
    if not isinstance(stored, HeadsRecord):
        unchanged.check(folder, stored, entry)
        entry = unchanged.as_trained(folder, stored, entry)
        return _model(folder, stored, None, entry, device, threads, max_length, windows)
    records = {name: _of_head(folder / name) for name in stored.heads}
    for name, record in records.items():
        unchanged.check(folder / name, record, entry)
    model = _model(folder, records[stored.heads[0]], stored, entry, device, threads, max_length, windows)
    heads = {name: _head(folder / name, record, entry) for name, record in records.items()}
    loaded = Heads(model, heads)
    _check_outputs(model, folder, sum(head.outputs for head in heads.values()))
    return loaded


def _head(folder: Path, record: Record, entry: Entry) -> Head:
    """The predictions of the head in a folder, by an artifact of all heads."""
    if entry.path == ".":
        temperature = unchanged.as_trained(folder, record, record.artifacts[0]).temperature
    else:
        temperature = (entry.temperatures or {}).get(folder.name)
    return Head(record.kind, record.labels, record.threshold, temperature or 1.0, _activation(folder, record, False))


def _of_head(folder: Path) -> Record:
    record = read(folder)
    if record is None:
        raise DataError(f"{folder}: got no {FILE}; must be an exported head; copy the folder again")
    return record


def _model(
    folder: Path,
    stored: Record,
    several: HeadsRecord | None,
    entry: Entry,
    device: str,
    threads: int | None,
    max_length: int | None,
    windows: bool,
) -> Model:
    """The model of a folder. `several`: the record of several heads, of which the first has config and tokenizer."""
    if windows and not stored.kind.separate:
        anyway = "are read in windows anyway" if stored.kind.windowed else "are truncated"
        raise ConfigError(
            f"windows: got true; must be false for {stored.kind.name}, whose long texts {anyway}; leave it out"
        )
    part = folder if several is None else folder / several.heads[0]
    unchanged.check_content(folder, entry)
    tokenizer, longest = _tokenizer(part, stored, entry)
    record = replace(stored, max_length=_length(stored.max_length, max_length, longest))
    if several is not None and entry.path == ".":
        ready = _whole(folder).in_one_pass([folder / head for head in several.heads], entry, device, threads or cores())
    else:
        ready = _runner(folder, entry, device, threads or cores())
    run = within(ready, longest)
    row_by_row = any(
        (s.backend, s.scheme, s.row_by_row) == (entry.backend, entry.scheme, True) for s in SCHEMES.values()
    )
    model = Model(
        folder,
        record.kind,
        record.labels,
        entry.backend,
        entry.scheme,
        record.max_length,
        record.threshold,
        record.columns,
        tokenizer,
        by_row(run) if row_by_row else run,
        row_by_row,
        entry.temperature or 1.0,
        vectors.prompt(folder) if record.kind.separate else "",
        _activation(folder, record, not (folder / FILE).is_file()),
        thresholds=entry.thresholds or {},
        windows=layout_of(tokenizer, record.max_length) if windows else None,
    )
    if several is None:
        _check_outputs(model, folder / entry.path, _expected(model))
    _check_processor(folder, entry, model.run, record.proved_on if several is None else several.proved_on)
    return model


def _activation(folder: Path, record: Record, plain: bool) -> cross_encoder.Function | None:
    """The function from the output of a cross-encoder to its scores; None for any other model.

    An export says in its record whether it is a reranker.
    """
    if record.labels and plain:
        cross_encoder.check_several(folder, record.kind.name == "multi_label")
    reranks = record.kind.name == "regression" if plain else record.kind.pipeline == cross_encoder.PIPELINE
    if not (reranks and sentence.of_cross_encoder(folder)):
        return None
    with _needing(folder):
        return cross_encoder.function(folder)


def _check_processor(folder: Path, entry: Entry, run: Run, proved_on: str | None) -> None:
    """Warn if a quantized artifact outputs something else on this processor than on the one it was proved on."""
    here = " ".join(cpu_flags())
    if proved_on is None or proved_on == here or entry.scheme in FLOATS:
        return
    from distill.deploy.export import recheck

    with readable(folder / recheck.FILE, "the file of the export; copy the folder again"):
        problem = recheck.problem(folder, entry.name, run, proved_on, here)
    if problem is not None:
        warnings.warn(printable(problem), stacklevel=4)


def chosen(
    entries: tuple[Entry, ...],
    backend: str | None,
    scheme: str | None,
    device: str,
    load: str = BATCH,
    *,
    meant: bool = False,
) -> Entry:
    """The artifact of a backend and a scheme that is the fastest under a load, among those that this machine can run;
    the first if none was timed.

    Args:
        load: one of `LOADS`.
        meant: whether the user asks for this load.

    Raises:
        ConfigError: if no artifact fits, and if the load is asked for and none was timed under it.
    """
    asked = " ".join(filter(None, (backend, scheme)))
    key = " and ".join(name for name, value in (("backend", backend), ("scheme", scheme)) if value is not None)
    fitting = [e for e in entries if backend in (None, e.backend) and scheme in (None, e.scheme)]
    if not fitting:
        raise ConfigError(f"{key}: got {asked}; must be of {', '.join(e.name for e in entries)}; choose one of these")
    installed = [e for e in fitting if not missing(e.backend)]
    if not installed:
        # A runtime of its own needs no torch, which an extra of this package would bring along.
        first = next((e.backend for e in fitting if BACKENDS[e.backend].loads != "transformers"), fitting[0].backend)
        extra = BACKENDS[first].extra if BACKENDS[first].loads == "transformers" else None
        command = f"pip install {' '.join(missing(first))}" if extra is None else quoting.install(extra)
        raise ConfigError(f"backend: got {first}; must be installed here; run {command}, or choose another")
    usable = [e for e in installed if device == "cpu" or not BACKENDS[e.backend].cpu_only]
    if not usable:
        raise ConfigError(f"device: got {device}; must be cpu for {installed[0].name}; set it, or choose torch")
    if meant and len(usable) > 1 and not any(e.time(load) for e in usable):
        raise ConfigError(
            f"load: got {load}; must be a load for which the run timed its artifacts; run it again, or name the "
            "artifact by backend and scheme"
        )
    quick = [e for e in usable if scheme is not None or device != "cpu" or _fast(e)]
    for each in (load, *LOADS):
        if timed := [e for e in quick if e.time(each) is not None]:
            return min(timed, key=lambda e: e.time(each) or 0.0)
    return usable[0]


def _fast(entry: Entry) -> bool:
    """Whether this processor runs an artifact as fast as the processor that timed it: emulated bfloat16 is slow."""
    return not entry.scheme.endswith("bf16") or bool({"avx512_bf16", "amx_bf16", "bf16"} & set(cpu_flags()))


def missing(backend: str) -> list[str]:
    """The packages of a backend that are not installed."""
    return [package for package in BACKENDS[backend].packages if find_spec(package) is None]


def within(run: Run, longest: int) -> Run:
    """`run` without the padding beyond the model's maximum length: `pad` rounds lengths up.

    Every family that has a maximum length is padded on the right.
    """
    if longest % MULTIPLE == 0:
        return run

    def clipped(batch: Batch) -> Any:
        return run({name: values[:, :longest] for name, values in batch.items()})

    return clipped


def _tokenizer(folder: Path, stored: Record, entry: Entry) -> tuple[Any, int]:
    """The tokenizer of a folder, and the most tokens of its model. It is of transformers for models that transformers
    loads, for folders whose record does not state another, and for files that were changed since the export."""
    stated = stored.tokens
    same = stated is not None and tokens.content(folder) == stated.files
    if stated is not None and not same:
        unchanged.check_tokenizer(folder, stated)
    if stated is None or not same or BACKENDS[entry.backend].loads == "transformers":
        found: tuple[Any, int] = _whole(folder).tokenizer_and_length(folder)
        return found
    return tokens.read(folder, stated), stated.longest


def _whole(folder: Path) -> ModuleType:
    """The module that needs torch and transformers."""
    with _needing(folder):
        from distill.deploy.serve import whole
    return whole


@contextmanager
def _needing(folder: Path) -> Iterator[None]:
    """A block that needs packages which serving does not. Raises ConfigError for one that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        absent = [name for name in (FILE, "config.json", "tokenizer.json") if not (folder / name).is_file()]
        without = f" without {' and '.join(absent)}" if absent else ""
        raise ConfigError(
            f"folder: got {folder}{without}, which is read with the package {error.name}; must be an exported folder "
            "as the run wrote it, with an artifact of ONNX Runtime or OpenVINO, where it is absent; run "
            f"{quoting.install()}"
        ) from error


def _quiet() -> AbstractContextManager[None]:
    """A block in which transformers is silent, if it is imported."""
    if "transformers" not in sys.modules:
        return nullcontext()
    from distill.models.teacher.files import quiet

    return quiet()


def _length(stored: int, asked: int | None, most: int) -> int:
    if asked is not None and not SHORTEST <= asked <= most:
        raise ConfigError(f"max_length: got {asked}; must be from {SHORTEST} to {most}, the model's limit; correct it")
    return min(stored, most) if asked is None else asked


def _runner(folder: Path, entry: Entry, device: str, threads: int) -> Run:
    path = folder / entry.path
    check_artifact(folder, path, BACKENDS[entry.backend].loads == "transformers")
    if not path.exists() or not (path.is_dir() or path.is_file()):
        raise DataError(f"{path}: got no such file; must be the artifact {entry.name}; copy the folder again")
    if BACKENDS[entry.backend].loads == "transformers":
        tensors_of(path)  # which names a damaged file
    with readable(path, "a whole artifact; copy the folder again"), _quiet():
        backend, scheme = entry.backend, entry.scheme
        return load_runner(entry.name, path, backend=backend, scheme=scheme, device=device, threads=threads).run


def probe(model: Model) -> Any:
    """A list of one row that a model takes, in the layout of its kind of task."""
    return [model.kind.layout.sample or (("a", "a") if len(model.columns) > 1 else "a")]


def _check_outputs(model: Model, path: Path, expected: int | None) -> None:
    """Raise DataError unless the model runs, and has one output for each label."""
    with readable(path, "a whole artifact; copy the folder again"), _quiet():
        outputs = model.outputs(probe(model))
    if expected is not None and outputs.shape[1] != expected:
        raise DataError(
            f"{path}: got {outputs.shape[1]} outputs; must be {expected}, one for each label; copy the folder again"
        )


def _expected(model: Model) -> int | None:
    """Number of a model's outputs for the probe of `_check_outputs`; None for vectors, which may have any width."""
    layout = model.kind.layout
    (row,) = map(layout.divide, probe(model))
    return None if layout.width is None else len(model.labels) or layout.width * len(layout.sequences(row))
