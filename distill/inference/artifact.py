"""Loads any variant of a model as a function from a batch to logits, and turns data sets into batches for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from distill.config.schemes import SCHEMES
from distill.data.task_types import MISSING
from distill.errors import ConfigError, DataError
from distill.inference import latency
from distill.inference.runners import Batch, Runner, load, torch_run
from distill.models import families
from distill.models.families.head import names_of_class
from distill.models.teacher.load import read_config
from distill.models.unwrapped import is_parallel, unwrapped
from distill.runtime import quoting

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LABELS = ("labels", "label", "start_positions", "end_positions")

_TORCH = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Type of a model's weights -> its scheme."""


@dataclass(frozen=True)
class Artifact:
    """A model in one scheme on one backend, as `distill.quantize` writes it."""

    folder: Path
    """The folder with its config, and with its tokenizer if it was saved along."""
    path: Path
    """The file or folder that the backend loads."""
    backend: str
    scheme: str
    row_by_row: bool = False
    """Whether rows are scored one at a time, because the rows of a batch would change each other's logits."""


Model = Any
"""A model of transformers, its folder, or an `Artifact`."""


def config_of(model: Model) -> Any:
    """The config of a model.

    Raises:
        ConfigError: for what is no model, and for a folder with a model of an unknown family.
        DataError: for a folder that cannot be read.
    """
    if isinstance(model, str | Path | Artifact):
        return read_config(model.folder if isinstance(model, Artifact) else model, "model")
    config = getattr(unwrapped(model), "config", None)
    if not hasattr(config, "model_type"):
        raise ConfigError(
            f"models: got a {type(model).__name__}; must be a model of transformers, its folder, or what "
            "distill.quantize returned; load it with from_pretrained"
        )
    return config


def class_names_of(model: Model) -> list[str]:
    """Names of a model's class and of those that it extends, or of the classes that its config states."""
    if isinstance(model, str | Path | Artifact):
        return list(getattr(config_of(model), "architectures", None) or ())
    return names_of_class(unwrapped(model))


def runner_of(name: str, model: Model, *, device: str, threads: int) -> Runner:
    """The model as a callable.

    A model object runs on its own device, in the type of its weights. It must be in eval mode when it is called, see
    `in_eval_mode`.

    Args:
        device: of a folder, and of an artifact that torch runs.
        threads: of the CPU.
    """
    if isinstance(model, Artifact):
        return load(
            name,
            model.path,
            backend=model.backend,
            scheme=model.scheme,
            device=device,
            threads=threads,
            row_by_row=model.row_by_row,
        )
    if isinstance(model, str | Path):
        return load(name, model, backend="torch", scheme="fp32", device=device, threads=threads)
    model = unwrapped(model) if is_parallel(model) else model  # a compiled one is as fast as it is
    scheme = _TORCH.get(str(model.dtype).removeprefix("torch."), "fp32")
    run = torch_run(model, scheme=scheme, device=str(model.device), threads=threads)
    return Runner(name, "torch", scheme, run)


@contextmanager
def in_eval_mode(models: Iterable[Model]) -> Iterator[None]:
    """Put model objects into eval mode within the block, so that a training that goes on after it has its dropout, and
    let them compute in the type of their weights."""
    modules = [module for model in models if hasattr(model, "modules") for module in model.modules()]
    training = [module for module in modules if module.training]  # a part of a model may be frozen in eval mode
    cast = [(module, forward) for module in modules if (forward := without_autocast(module)) is not None]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
        for module, forward in cast:
            module.forward = forward


def without_autocast(module: Any) -> Any:
    """Take off the `forward` that accelerate puts on a model that a Trainer trained in 16 bits, which would compute in
    them whatever the type of the weights. Returns it; None where there is none."""
    return vars(module).pop("forward", None) if "_original_forward" in vars(module) else None


def scheme_named(name: str) -> Any:
    """The record of a quantization scheme. Raises ConfigError for an unknown name, and without a package it needs."""
    if name not in SCHEMES:
        raise ConfigError(f"scheme: got {name}; must be one of {', '.join(SCHEMES)}; choose one")
    scheme = SCHEMES[name]
    if absent := [package for package in scheme.packages if find_spec(package) is None]:
        raise ConfigError(
            f"scheme: got {name}; must be a scheme whose packages are installed, and {' and '.join(absent)} is not; "
            f"run {quoting.install(scheme.extra)}, or choose another"
        )
    return scheme


def batches_for(config: Any, dataset: Iterable[Mapping[str, Any]]) -> list[Batch]:
    """`batches_of` with rows padded as a model with this config reads them."""
    return batches_of(dataset, config.pad_token_id or 0, left=families.family_of(config).pads_left)


def batches_of(dataset: Iterable[Mapping[str, Any]], pad_id: int, size: int = 8, *, left: bool = False) -> list[Batch]:
    """A data set as batches of numpy arrays, in its order: `input_ids` [B, L], `attention_mask`, labels and so on.

    Args:
        dataset: batches, e.g. a DataLoader, or tokenized rows, which are padded.
        pad_id: token with which rows are padded.
        size: rows of a batch.
        left: whether rows are padded before their texts.

    Raises:
        DataError: for a data set without rows, or without `input_ids`, and for batches that are not padded.
    """
    batches: list[Batch] = []
    rows: list[dict[str, np.ndarray]] = []
    if isinstance(dataset, Mapping) or hasattr(dataset, "iterrows"):
        raise DataError(
            f"dataset: got a {type(dataset).__name__}; must be rows, or batches; put a single batch into a list, and "
            "name a split of several"
        )
    for entry in dataset:
        if not isinstance(entry, Mapping):
            raise DataError(
                f"dataset: got a {type(entry).__name__} as a row; must be a mapping with input_ids; tokenize the texts"
            )
        given = {name: entry[name] for name in (*INPUTS, *LABELS) if entry.get(name) is not None}
        if _has_sequences(given):
            given = _of_sequences(given, pad_id, left)
        arrays = _with_labels({name: _array(values) for name, values in given.items()})
        if "input_ids" not in arrays:
            raise DataError(
                f"dataset: got a row or batch with {sorted(entry)}; must have input_ids; tokenize it first, with "
                "dataset.map(lambda row: tokenizer(row['text'], truncation=True))"
            )
        if arrays["input_ids"].ndim > 1:
            batches.append(arrays)
            continue
        rows.append(arrays)
        if len(rows) == size:
            batches.append(_padded(rows, pad_id, left))
            rows = []
    if rows:
        batches.append(_padded(rows, pad_id, left))
    if not batches:
        raise DataError("dataset: got no rows; must have at least one")
    return batches


def _with_labels(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with `labels`; with both, `label` is the data set's own. A row with the number -100 has no label."""
    label = arrays.pop("label", None)
    labels = arrays.get("labels", label)
    if labels is None or "input_ids" not in arrays:
        return arrays
    number = labels.dtype.kind == "f" and labels.ndim < arrays["input_ids"].ndim
    return arrays | {"labels": np.where(labels == MISSING, np.nan, labels) if number else labels}


def _has_sequences(given: Mapping[str, Any]) -> bool:
    """Whether an entry is one row, with one label, of several sequences, such as a question with each of its choices,
    or of one, such as a text that was tokenized into tensors."""
    ids, label = given.get("input_ids", ()), given.get("labels", given.get("label", ()))
    single = getattr(label, "ndim", int(isinstance(label, list | tuple))) == 0
    return single and len(ids) > 0 and np.ndim(ids[0]) == 1


def _of_sequences(given: Mapping[str, Any], pad_id: int, left: bool) -> dict[str, Any]:
    """Such a row as a batch of this row: `input_ids` [1, sequences, L], and so on; [1, L] of one sequence."""
    inputs = [name for name in INPUTS if name in given]
    sequences = [{name: _array(given[name][number]) for name in inputs} for number in range(len(given["input_ids"]))]
    padded = _padded(sequences, pad_id, left)
    batch = padded if len(sequences) == 1 else {name: values[None] for name, values in padded.items()}
    return batch | {name: _array(given[name])[None] for name in LABELS if name in given}


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise DataError(
            "dataset: got a batch with texts of different lengths; must be padded; pass its rows one by one, or use "
            "the collator of the task"
        ) from error


def _padded(rows: Sequence[Mapping[str, np.ndarray]], pad_id: int, left: bool) -> Batch:
    fill = {"input_ids": pad_id, "labels": MISSING}
    rows = [{"attention_mask": np.ones_like(row["input_ids"])} | dict(row) for row in rows]
    most = max(len(row["input_ids"]) for row in rows)

    def stacked(name: str) -> np.ndarray:
        values = [row[name] for row in rows]
        of_tokens = values[0].ndim == 1 and all(len(row[name]) == len(row["input_ids"]) for row in rows)
        if of_tokens:
            values = [
                np.pad(v, (most - len(v), 0)[:: 1 if left else -1], constant_values=fill.get(name, 0)) for v in values
            ]
        return np.stack(values)

    names = {name for row in rows for name in row}
    if missing := next((f"{name} in row {n}" for n, row in enumerate(rows) for name in names - row.keys()), None):
        raise DataError(f"dataset: got rows of which some have no {missing} of {len(rows)}; must be in all; add it")
    return {name: stacked(name) for name in rows[0]}


def rows_in(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Each row of each batch as a batch of its own, without padding: the inputs of a model."""
    for batch in batches:
        inputs = inputs_in(batch)
        for row, real in enumerate(inputs["attention_mask"] == 1):
            yield {name: values[row : row + 1, real] for name, values in inputs.items()}


def by_length(batches: Iterable[Batch], pad_id: int, size: int = 8, most: int | None = None) -> list[Batch]:
    """The inputs of the rows of all batches, or of the first `most`, in batches of `size` rows of similar length."""
    rows = list(islice(rows_in(batches), most))
    rows.sort(key=lambda row: row["input_ids"].shape[1])
    flat = [{name: values[0] for name, values in row.items()} for row in rows]
    return [_padded(flat[start : start + size], pad_id, False) for start in range(0, len(flat), size)]


def inputs_in(batch: Batch) -> Batch:
    """The inputs of a batch, [B, L] int64. Of multiple choice, [B, choices, L], each choice is a row."""
    ids = batch["input_ids"]
    given = {"token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)} | batch
    return {name: given[name].reshape(-1, ids.shape[-1]).astype(np.int64) for name in INPUTS if name in given}


def count(batch: Batch) -> int:
    """Number of texts in a batch; each choice of multiple choice counts as one."""
    return math.prod(batch["input_ids"].shape[:-1])


def listed(name: str, values: Iterable[str]) -> list[str]:
    """The names of an argument, which may be an iterator. ConfigError for one name in place of a list."""
    if isinstance(values, str):
        raise ConfigError(f"{name}: got {values!r}; must be a list of names; write [{values!r}]")
    return list(values)


def check_tokens(config: Any, batches: Iterable[Batch]) -> None:
    """DataError for tokens, or for texts, of another tokenizer than that of the model with this config."""
    for batch in batches:
        highest, length = int(batch["input_ids"].max()), batch["input_ids"].shape[-1]
        if highest >= config.vocab_size:
            raise DataError(
                f"dataset: got token {highest}; must be below {config.vocab_size}; tokenize with the models' own "
                "tokenizer"
            )
        if length > (most := families.max_length(config)):
            raise DataError(
                f"dataset: got a text of {length} tokens; must be at most {most}; truncate it, with "
                f"tokenizer(text, truncation=True, max_length={most})"
            )


def random_inputs(configs: Sequence[Any], shapes: Sequence[tuple[int, int]]) -> dict[str, list[Batch]]:
    """`8x128` and so on, for each shape -> a batch of random tokens that all models with these configs read.

    Raises:
        ConfigError: for a shape without tokens, or of more than a model reads.
    """
    vocabulary, most = min(config.vocab_size for config in configs), min(map(families.max_length, configs))
    last = next((end for each in configs if (end := families.end_token(each)) is not None), None)
    if wrong := [(rows, length) for rows, length in shapes if rows < 1 or not 1 <= length <= most]:
        raise ConfigError(
            f"shapes: got {wrong[0]}; must be a batch size and 1 to {most} tokens, the models' limit; correct it"
        )
    return {f"{rows}x{length}": [latency.synthetic((rows, length), vocabulary, last)] for rows, length in shapes}


def check_counts(**values: int | None) -> None:
    """ConfigError for the first of these arguments that is below 1."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}: got {value}; must be 1 or more; correct it")


def check_models(models: Any, threads: int | None) -> None:
    """ConfigError for models without names, for none, and for less than one thread."""
    _check_named(models)
    check_counts(threads=threads)
    if not models:
        raise ConfigError("models: got none; must be at least one; pass {name: model}")


def _check_named(models: Any) -> None:
    if not hasattr(models, "items"):
        raise ConfigError(f"models: got a {type(models).__name__}; must be models by their names; pass {{name: model}}")


def check_timed(models: Any, texts: Any, repeats: int, threads: int | None, shapes: Sequence[Any]) -> None:
    """ConfigError for models without names, for a text in place of a list of them, for one shape in place of a list,
    and for numbers below 1."""
    _check_named(models)
    if any(not hasattr(shape, "__len__") or len(shape) != 2 for shape in shapes):
        raise ConfigError(f"shapes: got {shapes!r}; must be pairs of batch size and tokens; write [(8, 128)]")
    if isinstance(texts, str):
        raise ConfigError(f"texts: got {texts!r}; must be a list of texts; write [{texts!r}]")
    check_counts(repeats=repeats, threads=threads)
