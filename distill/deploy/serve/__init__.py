"""Loads a model folder to predict with it: an exported one with its artifacts, or any that transformers loads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distill.config.backends import BACKENDS
from distill.config.schemes import SCHEMES
from distill.data.collate import MULTIPLE
from distill.data.task_types import kind_of_model
from distill.data.task_types.question_answering import ALWAYS
from distill.deploy.export import cross_encoder, recheck
from distill.deploy.export.record import FILE, Entry, Record, located, read, read_any
from distill.deploy.export.record import Heads as HeadsRecord
from distill.deploy.serve.heads import Head, Heads
from distill.deploy.serve.model import Model
from distill.errors import ConfigError, DataError
from distill.inference.runners import Batch, Run, by_row, one_pass
from distill.inference.runners import load as load_runner
from distill.models import families, teacher
from distill.models.families import sentence, vectors
from distill.models.families.head import stored_head
from distill.models.families.record import UNBOUNDED
from distill.models.families.settings import quantizer_of
from distill.models.families.weights import config_of, opened, weight_files
from distill.models.readable import readable
from distill.models.teacher.files import quiet
from distill.runtime import quoting
from distill.runtime.machine import cores
from distill.runtime.versions import cpu_flags

__all__ = ["Heads", "Model", "load"]

SHORTEST = 8
"""Least maximum length in tokens, as in `tasks.max_length`."""
TORCH = Entry("torch", "fp32", ".")
"""The artifact of a folder without a record."""


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=4)


def load(
    folder: str | Path,
    *,
    backend: str | None = None,
    scheme: str | None = None,
    device: str = "cpu",
    threads: int | None = None,
    max_length: int | None = None,
    say: Callable[[str], None] = _warn,
) -> Model | Heads:
    """Load a model folder: an exported one, the folder that contains it, or any classifier of transformers.

    By default it is the artifact that the run timed as the fastest, of the installed backends, or torch float32 if none
    was timed. Nothing is downloaded, and no code in the folder is run.

        model = distill.load("outputs/distilbert/default/export/tickets")
        model.predict(["my card was swallowed"])
        # [{"label": "card", "score": 0.97, "scores": {"access": 0.01, "card": 0.97, "invoice": 0.02}}]

    A folder with one encoder and several heads returns `Heads`, whose predictions have an entry for each head.

    Args:
        backend: torch, onnxruntime, openvino, bitsandbytes or torchao, instead of the fastest.
        scheme: fp32, int8, ..., instead of the fastest.
        device: of torch: cpu, cuda or cuda:1.
        threads: of the CPU; all cores by default.
        max_length: tokens to which a text is truncated; by default as in training.
        say: gets each conclusion from a folder without a record, as a line; by default a warning.

    Raises:
        ConfigError: for an argument that does not fit the folder or the machine.
        DataError: for a damaged folder.
    """
    folder = located(folder)
    _check_device(device)
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: got {threads}; must be at least 1; correct it")
    stored = read_any(folder)
    if stored is None:
        stored = _plain(folder, max_length, say)
    if not isinstance(stored, HeadsRecord):
        return _model(folder, stored, None, backend, scheme, device, threads, max_length)
    records = [_of_head(folder / head) for head in stored.heads]
    first = replace(records[0], artifacts=stored.artifacts)
    model = _model(folder, first, stored, backend, scheme, device, threads, max_length)
    heads = {
        name: Head(r.kind, r.labels, r.threshold, r.artifacts[0].temperature or 1.0)
        for name, r in zip(stored.heads, records, strict=True)
    }
    loaded = Heads(model, heads)
    _check_outputs(model, folder, sum(head.outputs for head in heads.values()))
    return loaded


def _of_head(folder: Path) -> Record:
    record = read(folder)
    if record is None:
        raise DataError(f"{folder}: got no {FILE}; must be an exported head; copy the folder again")
    return record


def _model(
    folder: Path,
    stored: Record,
    several: HeadsRecord | None,
    backend: str | None,
    scheme: str | None,
    device: str,
    threads: int | None,
    max_length: int | None,
) -> Model:
    """The model of a folder. `several`: the record of several heads, of which the first has config and tokenizer."""
    part = folder if several is None else folder / several.heads[0]
    config = teacher.read_config(part, "folder")
    tokenizer = _tokenizer(part, config)
    record = replace(stored, max_length=_length(stored.max_length, max_length, families.max_length(config)))
    entry = chosen(record.artifacts, backend, scheme, device)
    if several is not None and entry.path == ".":
        ready = _one_pass([folder / head for head in several.heads], entry, device, threads or cores())
    else:
        ready = _runner(folder / entry.path, entry, device, threads or cores())
    run = within(ready, families.max_length(config))
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
        _prompt(folder, record),
        _activation(folder, record, not (folder / FILE).is_file()),
    )
    if several is None:
        _check_outputs(model, folder / entry.path, _expected(model))
    _check_processor(folder, entry, model.run, record.proved_on if several is None else several.proved_on)
    return model


def _prompt(folder: Path, record: Record) -> str:
    """The prompt that sentence-transformers puts before every text of an embedder's folder."""
    found = vectors.read(folder) if record.kind.separate else None
    return "" if found is None else found.prompt


def _activation(folder: Path, record: Record, plain: bool) -> cross_encoder.Function | None:
    """The function from the output of a cross-encoder to its scores; None for any other model.

    An export says in its record whether it is a reranker.
    """
    if record.labels and plain:
        cross_encoder.check_several(folder, record.kind.name == "multi_label")
    reranks = record.kind.name == "regression" if plain else record.kind.pipeline == cross_encoder.PIPELINE
    return cross_encoder.function(folder) if reranks and sentence.of_cross_encoder(folder) else None


def _check_processor(folder: Path, entry: Entry, run: Run, proved_on: str | None) -> None:
    """Warn if a quantized artifact outputs something else on this processor than on the one it was proved on."""
    here = " ".join(cpu_flags())
    if proved_on is None or proved_on == here or not recheck.is_checked(entry.scheme):
        return
    if (problem := recheck.problem(folder, entry.name, run, proved_on, here)) is not None:
        warnings.warn(problem, stacklevel=4)


def _one_pass(folders: list[Path], entry: Entry, device: str, threads: int) -> Run:
    """The models of several folders with one encoder, as one. Raises DataError if their encoders differ."""
    for folder in folders:
        teacher.check_weights(folder)
    _check_same_encoder(folders)
    with readable(folders[0], "a whole artifact; copy the folder again"), quiet():
        return one_pass(entry.name, folders, scheme=entry.scheme, device=device, threads=threads).run


def _check_same_encoder(folders: list[Path]) -> None:
    def encoder(folder: Path) -> dict[str, Any]:
        prefix, found = f"{families.family_of(teacher.read_config(folder, 'folder')).encoder}.", dict[str, Any]()
        for file in weight_files(folder):
            with opened(file, "pt") as tensors:
                found |= {name: tensors.get_tensor(name) for name in tensors.keys() if name.startswith(prefix)}
        return found

    first = encoder(folders[0])
    for folder in folders[1:]:
        other = encoder(folder)
        if first.keys() != other.keys() or any(not first[name].equal(other[name]) for name in first):
            raise DataError(
                f"{folder}: got another encoder than that of {folders[0].name}; must be the same in all heads; copy "
                "the whole folder again, or load a head alone"
            )


def chosen(entries: tuple[Entry, ...], backend: str | None, scheme: str | None, device: str) -> Entry:
    """The fastest of the artifacts of a backend and a scheme that this machine can run; the first if none was timed.

    Raises:
        ConfigError: if no artifact fits.
    """
    asked = " ".join(filter(None, (backend, scheme)))
    key = " and ".join(name for name, value in (("backend", backend), ("scheme", scheme)) if value is not None)
    fitting = [e for e in entries if backend in (None, e.backend) and scheme in (None, e.scheme)]
    if not fitting:
        raise ConfigError(f"{key}: got {asked}; must be of {', '.join(e.name for e in entries)}; choose one of these")
    installed = [e for e in fitting if not missing(e.backend)]
    if not installed:
        first = fitting[0].backend
        extra = BACKENDS[first].extra
        command = f"pip install {' '.join(missing(first))}" if extra is None else quoting.install(extra)
        raise ConfigError(f"backend: got {first}; must be installed here; run {command}, or choose another")
    usable = [e for e in installed if device == "cpu" or not BACKENDS[e.backend].cpu_only]
    if not usable:
        raise ConfigError(f"device: got {device}; must be cpu for {installed[0].name}; set it, or choose torch")
    timed = [e for e in usable if e.ms is not None and (scheme is not None or device != "cpu" or _fast(e))]
    return min(timed or usable[:1], key=lambda e: e.ms or 0.0)


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


def _check_device(device: str) -> None:
    import torch

    wanted = "must be a device that this machine has; choose cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ConfigError(f"device: got {device}; {wanted}") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: got {device}; {wanted}")


def _tokenizer(folder: Path, config: Any) -> Any:
    """The tokenizer of a folder, which pads on the side that the model's family needs, whatever was stored."""
    tokenizer = teacher.load_tokenizer(folder)
    teacher.check_vocabulary(tokenizer, config, "folder")
    if getattr(config, "pad_token_id", None) is None:
        raise ConfigError(f"folder: got {folder}, whose config has no pad_token_id; must have one; set it and save it")
    tokenizer.padding_side = "left" if families.family_of(config).pads_left else "right"
    return tokenizer


def _plain(folder: Path, asked: int | None, say: Callable[[str], None]) -> Record:
    """A record made from the files of a folder without one. `asked`: maximum length that the user asks for."""
    config, stated = teacher.read_config(folder, "folder"), config_of(folder)
    head = stored_head(folder)
    if head is None:
        raise DataError(f"{folder}: got a model without a head; must be one with a head for a task; fine-tune it first")
    quantizer = quantizer_of(stated)
    for line in teacher.notes(folder, teacher.unused_in(folder) if quantizer is None else ()):
        say(line)
    kind = kind_of_model(head.problem, head.outputs, head.architecture)
    labels = head.names if kind.named else ()
    if kind.architecture in (record := families.family_of(config)).without:
        raise DataError(
            f"{folder}: got a model of type {record.name}; must be of another type for {kind.name}; use another"
        )
    # A model without a record may not have been trained on questions without an answer.
    threshold = ALWAYS if kind.extractive else 0.5
    most = teacher.longest(folder, _tokenizer(folder, config), config)
    if most >= UNBOUNDED:
        most = families.trained_length(config)
        if asked is None:
            say(
                f"{folder}: neither the tokenizer nor the model states a maximum length; texts are cut after {most} "
                "tokens, for which such a model is trained (max_position_embeddings, or 512)"
            )
    return Record(
        folder.name, kind, labels, (), most, (TORCH if quantizer is None else _quantized(folder, stated),), threshold
    )


def _quantized(folder: Path, stated: Mapping[str, Any]) -> Entry:
    """The artifact of a folder of quantized weights. Raises ConfigError for quantizers that exports do not use."""
    settings = stated.get("quantization_config")
    settings = settings if isinstance(settings, Mapping) else {}
    name, scheme = quantizer_of(stated), _scheme(settings)
    if (name, scheme) not in [(s.backend, s.scheme) for s in SCHEMES.values()]:
        raise ConfigError(
            f"folder: got {folder}, a model quantized by {name} in another scheme than int8 or nf4; must be float, or "
            "quantized by bitsandbytes or torchao in one of them; name the folder of the float model"
        )
    return Entry(str(name), str(scheme), ".")


def _scheme(settings: Mapping[str, Any]) -> str | None:
    """The scheme of a quantization_config: int8 or nf4; None for any other."""
    if settings.get("load_in_4bit"):
        return "nf4" if settings.get("bnb_4bit_quant_type") == "nf4" else None
    return "int8" if settings.get("load_in_8bit") or "int8" in str(settings.get("quant_type")).lower() else None


def _length(stored: int, asked: int | None, most: int) -> int:
    if asked is not None and not SHORTEST <= asked <= most:
        raise ConfigError(f"max_length: got {asked}; must be from {SHORTEST} to {most}, the model's limit; correct it")
    return min(stored, most) if asked is None else asked


def _runner(path: Path, entry: Entry, device: str, threads: int) -> Run:
    if not path.exists():
        raise DataError(f"{path}: got no such file; must be the artifact {entry.name}; copy the folder again")
    if BACKENDS[entry.backend].loads == "transformers":
        teacher.check_weights(path)
    with readable(path, "a whole artifact; copy the folder again"), quiet():
        backend, scheme = entry.backend, entry.scheme
        return load_runner(entry.name, path, backend=backend, scheme=scheme, device=device, threads=threads).run


def probe(model: Model) -> Any:
    """A list of one row that a model takes, in the layout of its kind of task."""
    return [model.kind.layout.sample or (("a", "a") if len(model.columns) > 1 else "a")]


def _check_outputs(model: Model, path: Path, expected: int | None) -> None:
    """Raise DataError unless the model runs, and has one output for each label."""
    with readable(path, "a whole artifact; copy the folder again"), quiet():
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
