"""The functions of `distill` on plain models of transformers, folders and batches: without settings or a run folder."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from distill.compression.pruning.calibration import with_loss
from distill.compression.pruning.importance import fisher
from distill.compression.pruning.prune import check_width
from distill.compression.pruning.search import Shape
from distill.compression.pruning.sensitivity import cut_to, measured
from distill.compression.pruning.target import PARTS, candidates, check_sizes, shape_of
from distill.compression.quantization.quantize import MAKE, floats_of
from distill.config import Target
from distill.config.schemes import ONNX
from distill.deploy.export import quantized_folder, untrained
from distill.deploy.export.onnx import check_reloads, export_onnx, loaded, onnx_parity
from distill.errors import ConfigError, reworded
from distill.evaluation.comparison import compared, outputs_of, parts_of, task_of, truth_of
from distill.inference import latency
from distill.inference.artifact import (
    Artifact,
    Model,
    batches_for,
    batches_of,
    by_length,
    check_counts,
    check_models,
    check_timed,
    check_tokens,
    config_of,
    in_eval_mode,
    listed,
    random_inputs,
    rows_in,
    runner_of,
    scheme_named,
    without_autocast,
)
from distill.inference.timing import TASK_BATCH
from distill.models import families
from distill.models.compatible import misfit
from distill.models.copied import with_copied_layers
from distill.models.families import earlier
from distill.models.student import from_teacher
from distill.models.student.shape import check_type, is_count, numbers_of
from distill.models.teacher.load import load_tokenizer
from distill.models.unwrapped import plain
from distill.models.write import keep_labels, with_names
from distill.report.rows import Rows
from distill.runtime.machine import cores
from distill.runtime.storage import atomic

Log = Callable[[str], None]
Batches = Iterable[Mapping[str, Any]]
"""Batches as a collator returns them, such as a DataLoader, or tokenized rows, which are padded."""


def student(
    teacher: Any,
    layers: int | Sequence[int] | None = None,
    *,
    hidden: int | None = None,
    ffn: int | None = None,
    heads: int | None = None,
    family: str | None = None,
    init: str = "teacher_layers",
    dropout: float | None = None,
    seed: int = 0,
) -> Any:
    """A student of a teacher: fewer layers, smaller sizes, or another family. The teacher is not changed.

        student = distill.student(teacher, layers=6)

    Args:
        teacher: a model of transformers with a head.
        layers: how many layers of the teacher the student starts from, evenly spaced from the first to the last, or
            their numbers, counted from 0. Half of them when None.
        hidden: width of the hidden states. The other sizes are in proportion to it when they are None.
        ffn: width inside of the feed-forward part.
        heads: number of attention heads.
        family: `model_type` of the student, such as distilbert; the teacher's when None.
        init: `teacher_layers` starts from the teacher's weights; `random` from new ones.
        dropout: probability of every dropout; that of the config when None.
        seed: of new weights.

    Raises:
        ConfigError: for layers, sizes or a type that the teacher or the family does not allow.
    """
    teacher = plain("teacher", teacher)
    if family is None:
        check_type(teacher.config, "teacher", 'choose such a model, or one of them as family, with init="random"')
    depth = int(teacher.config.num_hidden_layers)
    sizes = {"hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads}
    check_counts(hidden=hidden, ffn=ffn, heads=heads)
    with _in_arguments("student"):
        kept = numbers_of(depth, max(depth // 2, 1) if layers is None else layers)
        made = from_teacher(teacher, kept, init=init, seed=seed, dropout=dropout, family=family, sizes=sizes)
    return made if init == "random" else with_copied_layers(made, None, kept, depth)


@torch.enable_grad()
def prune(
    model: Any,
    calibration: Batches,
    *,
    layers: int | Sequence[int] | None = None,
    hidden: int | None = None,
    ffn: int | None = None,
    speedup: float | None = None,
    latency_ms: float | None = None,
    size_mib: float | None = None,
    dimensions: Sequence[str] = ("layers", "hidden", "ffn"),
    scheme: str | None = None,
    importance: Callable[..., Any] = fisher,
    refit: bool = False,
    retrain_steps: int = 20,
    threads: int | None = None,
    log: Log = lambda text: None,
) -> Any:
    """A smaller model of the same class, without the layers, heads and channels that cost least. The model is not
    changed. The result has to be trained: most of what it loses comes back by distillation.

        small = distill.prune(student, batches, speedup=4)
        small = distill.prune(student, batches, layers=6, ffn=1024)

    For `speedup`, `latency_ms` or `size_mib`, models of several sizes are timed on this machine, and the model's loss
    is measured with each dimension cut. The shape with the least estimated loss among those that meet them all is
    chosen, as in a recipe. That takes minutes for a model of base size.

    Args:
        model: a model of transformers with a head for a task, or a masked language model.
        calibration: batches with labels on the model's device, some hundred rows, on which importance and loss are
            measured. For a target, their second half is for the training before a loss is measured.
        layers: how many layers are kept, or their numbers, counted from 0. All when None.
        hidden: width of the hidden states, in whole heads; the model's when None.
        ffn: width inside of the feed-forward part; the model's when None.
        speedup: over the model itself in float32: with a `scheme`, on the fastest installed backend; else in torch.
            Texts are as long as those of the calibration, in batches of up to eight.
        latency_ms: most milliseconds for one text.
        size_mib: most MiB of float32 weights.
        dimensions: what may be cut for a target.
        scheme: the scheme in which the model will serve and is timed, such as onnxruntime. None is torch in float32.
        importance: a function of `distill.compression.pruning.importance`, or one with the same arguments.
        refit: whether the remaining output weights are refitted by least squares.
        retrain_steps: steps of training, for a target, between a cut and the measurement of its loss.
        threads: of the CPU, for timing; all cores when None.
        log: gets a line about each thing that is measured.

    Raises:
        ConfigError: for sizes or a family that cannot be pruned, for neither a size nor a target or for both, for a
            scheme that cannot be made here, and for a target that no shape reaches.
        DataError: for batches without labels.
    """
    model = plain("model", model)
    check_type(model.config, "model")
    check_counts(threads=threads)
    form = untrained.form_named(scheme)
    target = Target(speedup=speedup, latency_ms=latency_ms, size_mib=size_mib)
    searches = not speedup is latency_ms is size_mib is None
    if searches != (layers is hidden is ffn is None):
        raise ConfigError(
            f"prune: got {'sizes and a target' if searches else 'neither sizes nor a target'}; must be some of layers, "
            "hidden and ffn, or else some of speedup, latency_ms and size_mib"
        )
    collated, full = list(calibration), shape_of(model.config)
    check_sizes(model.config, hidden, ffn, dimensions)
    if ("hidden" in dimensions) if searches else (hidden or full.hidden) < full.hidden:
        check_width(model.config)
    with _in_arguments("student"):
        batches, loss = with_loss(model, collated)
        kept = None if layers is None or is_count(layers) else numbers_of(full.layers, layers)
        count = len(kept or numbers_of(full.layers, full.layers if layers is None else layers))
    half = (len(batches) + 1) // 2 if searches else len(batches)
    only = Shape(count, hidden or full.hidden, ffn or full.ffn * (hidden or full.hidden) // full.hidden)
    shapes = candidates(model.config, dimensions, PARTS) if searches else [only]
    training = model.training
    with in_eval_mode([model]):
        found = measured(
            model,
            batches[:half],
            lambda: batches[half:] or batches,
            shapes,
            importance=importance,
            row_loss=loss,
            loss=loss,
            layers=kept,
            refit=refit,
            search=searches,
            retrain_steps=retrain_steps,
            log=log,
        )
        shape = shapes[0]
        if searches:
            with _in_arguments("target"):
                shape = untrained.reached(model, collated, shapes, target, form, threads, found, log)
        with _in_arguments("student"):
            small = cut_to(model, found, shape, batches[:half])
            small = with_copied_layers(small, model, found.layers[shape.layers], full.layers)
    return small.train(training)


def quantize(
    model: Model,
    scheme: str,
    *,
    out: str | Path,
    calibration: Batches = (),
    tokenizer: Any = None,
    keep: Sequence[str] = (),
) -> Artifact:
    """Quantize a model into the new folder `out`, which also gets the float model and the tokenizer.

        int8 = distill.quantize(small, "onnxruntime", calibration=batches, out="small-int8", tokenizer=tokenizer)

    With a tokenizer, `distill.load` loads it. What it loses is not limited here: compare it by `distill.evaluate`.

    Args:
        model: a model of transformers with a head for a task, or its folder.
        scheme: onnxruntime, onnxruntime_static, openvino, torchao, bitsandbytes or bitsandbytes_nf4.
        calibration: a hundred batches or rows, by which onnxruntime_static and openvino measure activations.
        tokenizer: saved along; by default that of a folder.
        keep: names of modules that stay in float, besides the head and the pooler.

    Raises:
        ConfigError: for an unknown scheme, or one that is not installed, and for no calibration where it needs some.
        UserError: for a folder `out` with files, and for a model that its saved folder or ONNX file is not.
    """
    chosen = scheme_named(scheme)
    if not isinstance(model, str | Path):
        model = plain("model", model, headed=True)
    config, keep = config_of(model), listed("keep", keep)
    batches = [] if isinstance(calibration, tuple | list) and not calibration else batches_for(config, calibration)
    check_tokens(config, batches if chosen.calibrated else [])
    if chosen.calibrated and not batches:
        raise ConfigError(f"calibration: got none; must be batches for {scheme}, which measures activations; pass some")
    with atomic.writing(Path(out)) as folder, tempfile.TemporaryDirectory() as temporary:
        own = loaded(Path(model), torch.float32) if isinstance(model, str | Path) else copy.deepcopy(model).float()
        without_autocast(own)
        if unknown := [name for name in keep if name not in dict(own.named_modules())]:
            raise ConfigError(f"keep: got {unknown[0]}; must be the name of a module of the model; correct it")
        own.cpu().eval().save_pretrained(folder)
        keep_labels(folder, own.config)
        if not isinstance(model, str | Path):
            check_reloads(own, folder)
        if tokenizer is None and isinstance(model, str | Path):
            tokenizer = load_tokenizer(model)
        if tokenizer is not None:
            with_names(tokenizer, own.config).save_pretrained(folder)
        source = folder
        if chosen.onnx:
            export_onnx(folder, source := Path(temporary) / ONNX)
            onnx_parity(folder, source)
        MAKE[scheme](source, folder / chosen.file, [*floats_of(own, scheme), *keep], [*rows_in(batches)])
        earlier.complete(folder)
        if tokenizer is not None:
            given = Path(model) if isinstance(model, str | Path) else None
            quantized_folder.write_record(folder, Path(out).name, own, tokenizer, chosen, given)
    return Artifact(Path(out), Path(out) / chosen.file, chosen.backend, chosen.scheme, chosen.row_by_row)


def benchmark(
    models: Mapping[str, Model],
    *,
    shapes: Sequence[tuple[int, int]] = ((1, 128), (8, 128)),
    texts: Sequence[str | tuple[str, str]] = (),
    tokenizer: Any = None,
    repeats: int = 10,
    device: str = "cpu",
    threads: int | None = None,
) -> Rows:
    """Times of models on the same inputs, in rounds that time all of them, and speedups over the first model.

        print(distill.benchmark({"teacher": teacher, "small": small, "int8": int8}, texts=texts, tokenizer=tokenizer))

    A temporary slowdown of the machine falls on all models of a round, so that a speedup is the median of the ratios
    within rounds. Tokenizing is not timed.

    Args:
        models: name -> a model of transformers, its folder, or what `quantize` returned. A model object runs on its
            own device.
        shapes: (batch size, tokens) of random tokens without padding.
        texts: texts, or pairs of them, are timed too, in batches of up to eight of similar length.
        tokenizer: of the texts. All models must have the same.
        repeats: number of rounds.
        device: of folders in torch.
        threads: of the CPU; all cores when None.

    Returns:
        Rows with `model`, `backend`, `scheme`, `input`, `ms` (median milliseconds of the input), `p90_ms`, `speedup`
        and its 95% interval `ci95`, which one round does not have.

    Raises:
        ConfigError: for no model, for nothing to time, for texts without a tokenizer, for numbers below 1, and
            for more tokens than a model reads.
    """
    check_timed(models, texts, repeats, threads, shapes)
    asked = [text if isinstance(text, tuple | list) else (text,) for text in texts]
    if not models or not (shapes or asked):
        raise ConfigError("benchmark: got nothing to time; must be at least one model and one of shapes and texts")
    if asked and tokenizer is None:
        raise ConfigError("tokenizer: got None; must be the tokenizer of the models, which makes tokens of the texts")
    configs = [config_of(model) for model in models.values()]
    runners = [runner_of(name, m, device=device, threads=threads or cores()) for name, m in models.items()]
    inputs = random_inputs(configs, shapes)
    if asked:
        longest = min(tokenizer.model_max_length, *map(families.max_length, configs))
        tokens = [dict(tokenizer(*parts, truncation=True, max_length=longest)) for parts in asked]
        inputs["texts"] = by_length(batches_of(tokens, tokenizer.pad_token_id), tokenizer.pad_token_id, TASK_BATCH)
    named: dict[latency.Key, Any] = {key: {r.name: batches for r in runners} for key, batches in inputs.items()}
    with in_eval_mode(models.values()):
        times = latency.measure(runners, named, repeats=repeats)
    rows = Rows()
    for key in inputs:
        for runner in runners:
            own, first = times[runner.name, key], times[runners[0].name, key]
            summary, ratio = latency.summary(own), latency.speedup(first, own)
            row = {"model": runner.name, "backend": runner.backend, "scheme": runner.scheme, "input": key}
            row |= {"ms": summary["median"], "p90_ms": summary["p90"]}
            # One round does not show how much times vary.
            rows.append(row | {"speedup": ratio["median"], "ci95": ratio["ci95"] if repeats > 1 else None})
    return rows


def evaluate(
    models: Mapping[str, Model],
    dataset: Batches,
    *,
    metrics: Sequence[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> Rows:
    """Scores of models on the same rows, with 95% intervals, and the percent of the first model's score that each of
    the others retains, with the interval of a paired comparison.

        print(distill.evaluate({"teacher": teacher, "small": small}, dataset, metrics=["f1"]))

    Args:
        models: name -> a model of transformers, its folder, or what `quantize` returned, all for one task and with one
            tokenizer. A model object runs on its own device.
        dataset: rows that are tokenized, or batches, with `labels` or `label` as the model's config numbers them. Rows,
            and tokens, whose label is -100 do not count.
        metrics: names of metrics. When None, accuracy or what is usual for the kind of task. If there are several, the
            retained % is that of their mean.
        device: of folders in torch.
        threads: of the CPU; all cores when None.

    Returns:
        Rows with `model`, `scores` (metric -> percent), `ci95` (metric -> 95% interval over rows) and, but for the
        first model, `retained` percent, `retained_ci95`, and the same above chance: `above_chance` compares what
        both score above the best constant prediction or guess. For the intervals, rows that share a text are drawn
        together. An interval is None where all resamples of the rows are alike.

    Raises:
        ConfigError: for a model without a head of such a task, and for metrics of another kind of task.
        DataError: for a data set without labels, or with labels that the model does not have.
    """
    check_models(models, threads)
    first = next(iter(models.values()))
    metrics = None if metrics is None else listed("metrics", metrics)
    task = task_of(first, metrics)
    batches = batches_for(config_of(first), dataset)
    truth = truth_of(task.kind, task.labels, batches)
    for name, model in models.items():
        if (other := task_of(model, metrics)).kind is not task.kind or len(other.labels) != len(task.labels):
            raise ConfigError(
                f"models: got {name} for {other.kind.name} with {len(other.labels)} labels; must be for "
                f"{task.kind.name} with {len(task.labels)}, as {next(iter(models))} is; compare models of one task"
            )
        if (problem := misfit(config_of(model), config_of(first))) is not None:
            raise ConfigError(f"models: got {name} with {problem}; compare models of one tokenizer and one task")
    for model in models.values():
        check_tokens(config_of(model), batches)
    outputs = {}
    for name, model in models.items():
        runner = runner_of(name, model, device=device, threads=threads or cores())
        with in_eval_mode([model]):
            outputs[name] = outputs_of(task.kind, runner.run, batches)
    return Rows(compared(task, outputs, truth, parts_of(task.kind, batches)))


_ARGUMENTS = {"num_attention_heads": "heads", "hidden_size": "hidden", "intermediate_size": "ffn"}
"""Setting of `student.*` -> the argument in its place, where these differ."""


def _in_arguments(group: str) -> AbstractContextManager[None]:
    """Errors about settings of a group, such as `student.layers`, as errors about the arguments."""
    setting = re.compile(rf"\b{group}\.(\w+)")
    return reworded(lambda line: setting.sub(lambda found: _ARGUMENTS.get(found[1], found[1]), line), ConfigError)
