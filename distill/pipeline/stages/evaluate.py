"""Evaluate stage: scores and timings of teacher, student, quantized variants and baseline, measured together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import convert
from msgspec.structs import replace

from distill import __version__
from distill.config import Evaluate
from distill.config.plan import Step
from distill.config.schemes import packages
from distill.data.development_split import aside
from distill.data.encode import Encoded
from distill.evaluation import disagreements, model_results
from distill.evaluation.lengths import of_rows
from distill.evaluation.results import Coverage, Disagreement, plain
from distill.inference import energy, latency, runners, timing, variants
from distill.inference.variants import Variant
from distill.pipeline.artefacts import Evaluated
from distill.pipeline.context import Context
from distill.pipeline.stages import cold_start
from distill.pipeline.stages.load_variants import Loader, variants_of
from distill.pipeline.stages.predictions import failing, predictions
from distill.report import headline
from distill.runtime.storage import run_folder
from distill.runtime.versions import environment, installed


def run(ctx: Context, step: Step) -> Evaluated:
    """Score and time every variant of the models that the step compares."""
    settings: Evaluate = step.settings
    folder, all_variants = ctx.folder.of(step), variants_of(ctx, step)
    _same_conditions(ctx, step, folder)
    loader = Loader(ctx, step, all_variants)
    failed: dict[str, str] = dict(loader.failures())
    outputs, development = ({variant.name: dict[Any, Any]() for variant in all_variants} for _ in range(2))
    lengths: dict[tuple[str, str], np.ndarray] = {}
    for task, data in ctx.tasks.items():
        for found, splits in ((outputs, data.reported), (development, aside(data))):
            for name, split, logits, labels in predictions(loader, data, splits, failed):
                found[name][task, split] = (logits, labels)
        encoded = data.scored(data.reported, ctx.given.tokenizer, ctx.config.tasks.max_length)
        lengths |= {(task, split): of_rows(rows) for split, rows in encoded.items()}
    fixed = ctx.plan.has_target and ctx.config.target.shape != timing.OWN
    shapes = timing.shapes(settings.shapes, ctx.config.target.shape if fixed else None)
    working = [variant for variant in all_variants if variant.name not in failed]
    timed = _times(loader, settings, shapes, working, failed)
    working = [variant for variant in working if variant.name not in failed]
    served, cuda = cold_start.served(loader, working), ctx.machine.device.type == "cuda"
    measured = model_results.Measured(
        ctx.tasks, working, outputs, timed, served, settings.shapes[-1], cuda, development, lengths
    )
    models = []
    for variant in all_variants:
        if variant.name in failed:
            models.append(replace(model_results.unmeasured(variant), failed=failed[variant.name]))
            continue
        tasks, one_encoder = loader.timed_tasks(variant), ctx.shares_encoder(variant.step.settings)
        paths = _unique(path for task in tasks for path in loader.paths(variant, task))
        every = list(ctx.tasks) if ctx.shared else tasks
        sources = _unique(path for task in every for path in loader.folders(variant, task))
        models.append(model_results.row(variant, measured, sources, paths, ctx.folder.path, one_encoder))
    evaluated = Evaluated(
        environment=_environment(ctx),
        command=ctx.command,
        version=__version__,
        models=models,
        coverage=convert(ctx.coverage, list[Coverage]),
        statistics=model_results.compared(measured),
    )
    run_folder.write_json(ctx.folder.path / run_folder.DISAGREEMENTS, plain(list(_disagreements(measured, evaluated))))
    return evaluated


def _disagreements(measured: model_results.Measured, evaluated: Evaluated) -> Iterator[Disagreement]:
    """The rows on which the student of each target, in the headline's variant, and the teacher disagree."""
    every = [headline.chosen(evaluated, target) for target in headline.targets(evaluated)]
    for model in filter(None, every):
        name = " ".join((model.name, model.backend, model.scheme))
        for task, data in measured.tasks.items():
            found: list[Disagreement] = []
            for split, split_rows in data.reported.items() if disagreements.readable(data.task.kind) else ():
                teacher, student = (measured.outputs[each][task, split][0] for each in (variants.REFERENCE, name))
                most = disagreements.MOST - len(found)
                found += disagreements.disagreements(data.task, split, split_rows, model, teacher, student, most)
            yield from found


def _environment(ctx: Context) -> dict[str, Any]:
    """As `environment`, with the versions of all backends that are known."""
    return environment(ctx.machine) | installed(packages())


def _same_conditions(ctx: Context, step: Step, folder: Path) -> None:
    """Remove predictions and timings of a stopped run that had other models or ran on another machine."""
    file, now = folder / "conditions.json", {"inputs": ctx.folder.inputs(step), "environment": _environment(ctx)}
    before = run_folder.read_json(file) if file.is_file() else None
    if before != now and folder.is_dir():
        ctx.machine.log(f"{step.folder}: starts again, because models or machine changed")
        run_folder.remove(folder, ctx.folder.path)
    run_folder.write_json(file, now)


def _times(
    loader: Loader, settings: Evaluate, shapes: list[list[int]], compared: list[Variant], failed: dict[str, str]
) -> timing.Timed:
    """Times of all variants. They are stored, so that a stopped run resumes."""
    ctx, file = loader.ctx, loader.folder / "latency.json"
    if file.is_file():
        stored = run_folder.read_json(file)
        failed |= stored.pop("failed")
        return timing.Timed(**stored)
    tokenizers = {variant.name: loader.tokenizers(variant) for variant in compared}
    readers, loaded = timing.Readers(tokenizers, ctx.every_tokenizer), list[runners.Runner]()
    for variant in compared:
        with failing(variant, failed):
            runner = loader.timed(variant)
            runner.run(readers.synthetic(variant.name, [1, settings.shapes[0][1]]))
            loaded.append(runner)

    def own_rows(tokenizer: Any) -> list[tuple[int, Encoded]]:
        longest = ctx.config.tasks.max_length
        first = ((data, next(iter(data.reported.values()))) for data in ctx.tasks.values())
        return [(data.texts, data.encoded(rows, tokenizer, longest).sequences) for data, rows in first]

    limit, meter = ctx.config.limit, energy.meter(ctx.machine.device.type == "cuda")
    timed = timing.timed(
        loaded,
        readers,
        shapes,
        own_rows,
        repeats=min(settings.repeats, limit.repeats or settings.repeats),
        requests=timing.SMOKE_REQUESTS if limit.smoke else timing.REQUESTS,
        least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
        meter=meter,
        log=lambda text: ctx.machine.log(f"evaluate: {text}"),
    )
    run_folder.write_json(file, asdict(timed) | {"failed": failed})
    return timed


def _unique(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))
