"""Evaluate stage: scores and timings of teacher, student, quantized variants and baseline, measured together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from msgspec import convert
from msgspec.structs import replace

from distill import __version__
from distill.config import Evaluate
from distill.config.backends import BACKENDS
from distill.config.loads import Load, load_of
from distill.config.plan import Step
from distill.config.schemes import COMPILED, packages
from distill.data.asked import Asked
from distill.data.development_split import aside
from distill.data.tasks import TaskData
from distill.deploy.export import tokenizer
from distill.evaluation import disagreements, model_results
from distill.evaluation.measured import Measured
from distill.evaluation.results import Coverage, Disagreement
from distill.inference import energy, latency, memory, runners, timing, variants
from distill.inference.cost import size_mib
from distill.inference.variants import Variant
from distill.pipeline import openings
from distill.pipeline.artefacts import Evaluated
from distill.pipeline.context import Context
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import cold_start
from distill.pipeline.stages.load_variants import Loader, Models, models, variants_of
from distill.pipeline.stages.predictions import Scoring, failing, predictions, score_share, scoring
from distill.report import model_rows
from distill.runtime.storage import atomic, run_folder, structs
from distill.runtime.versions import environment, installed, source_hash


@dataclass(frozen=True)
class EvaluateInputs:
    """What an evaluate step reads."""

    name: str
    """Folder of the step, relative to the run folder."""
    models: Models
    tasks: dict[str, TaskData]
    tokenizers: list[Any]
    """Tokenizers of all models; the first one is the first teacher's."""
    coverage: list[Coverage]
    shape: list[int] | None
    """The fixed shape of a target, which is timed too."""
    load: Load
    """How the models will be asked, as in `config.loads`."""
    command: str
    identities: dict[str, str]
    """Folder -> identity of every step that it reads."""
    reader: openings.Reader


def inputs(ctx: Context, step: Step) -> EvaluateInputs:
    fixed = ctx.plan.has_target and ctx.config.target.shape != timing.OWN
    return EvaluateInputs(
        name=step.folder,
        models=models(ctx, step),
        tasks=ctx.tasks,
        tokenizers=ctx.every_tokenizer,
        coverage=convert(ctx.coverage, list[Coverage]),
        shape=ctx.config.target.shape if fixed else None,
        load=load_of(ctx.config.target),
        command=ctx.command,
        identities=ctx.folder.inputs(step),
        reader=openings.reader(ctx),
    )


def run(inputs: EvaluateInputs, settings: Evaluate, runtime: Runtime) -> Evaluated | None:
    """Score and time every variant of the models that the step compares.

    Of several processes, each scores a share of the variants. Then the main one times all, while the others sleep.

    Returns:
        None in a process that is not the main one.
    """
    machine = runtime.machine
    loader = Loader(
        inputs.name, inputs.models, inputs.tasks, variants_of(inputs.models, len(inputs.tasks), runtime), runtime
    )
    with machine.main_first():  # it makes the files that others load
        if machine.main:
            _same_conditions(inputs, runtime)
            openings.record(runtime.folder, inputs.reader, inputs.tasks.values())
        failed: dict[str, str] = dict(loader.failures())
        scored = {
            task: scoring(loader, inputs.tokenizers, data, {**data.reported, **aside(data)})
            for task, data in inputs.tasks.items()
        }
    score_share(loader, list(scored.values()), failed)
    machine.wait()
    if not machine.main:
        return None
    with machine.working(all_processes=False):
        return _measured(inputs, settings, loader, scored, failed)


def _measured(
    inputs: EvaluateInputs, settings: Evaluate, loader: Loader, scored: dict[str, Scoring], failed: dict[str, str]
) -> Evaluated:
    """What the main process measures: it scores what is not scored yet, and times every variant."""
    runtime, all_variants, tasks = loader.runtime, loader.variants, inputs.tasks
    outputs, development = ({variant.name: dict[Any, Any]() for variant in all_variants} for _ in range(2))
    lengths: dict[tuple[str, str], np.ndarray] = {}
    for task, data in tasks.items():
        for name, split, logits, labels in predictions(loader, scored[task], failed):
            (outputs if split in data.reported else development)[name][task, split] = (logits, labels)
        encoded = scored[task].encoded[id(inputs.tokenizers[0])]
        lengths |= {(task, split): encoded[split].whole_lengths for split in data.reported}
    working = [variant for variant in all_variants if variant.name not in failed]
    firsts = loader.firsts(working)
    different = [variant for variant in working if firsts[variant.name] == variant.name]
    timed = _times(loader, inputs, settings, different, failed)
    failed |= {name: failed[first] for name, first in firsts.items() if first in failed}
    working = [variant for variant in working if variant.name not in failed]
    timed = timing.named(timed, {variant.name: firsts[variant.name] for variant in working})
    served, cuda = cold_start.served(loader, working), runtime.machine.device.type == "cuda"
    seen = _seen(inputs.models, working, runtime)
    measured = Measured(tasks, working, outputs, timed, served, cuda, inputs.load, development, lengths, seen)
    rows = []
    for variant in all_variants:
        if variant.name in failed:
            rows.append(replace(model_results.unmeasured(variant), failed=failed[variant.name]))
            continue
        of_variant, one_encoder = loader.timed_tasks(variant), variant.step in inputs.models.one_encoder
        paths = dict.fromkeys(path for task in of_variant for path in loader.paths(variant, task))
        every = list(tasks) if inputs.models.shared else of_variant
        sources = dict.fromkeys(path for task in every for path in loader.folders(variant, task))
        row = model_results.row(variant, measured, [*sources], [*paths], runtime.folder, one_encoder)
        rows.append(replace(row, parameters=None, gmacs=None) if _lacks_zeros(variant) else row)
    evaluated = Evaluated(
        environment=_environment(runtime),
        command=inputs.command,
        version=__version__,
        models=rows,
        coverage=inputs.coverage,
        statistics=model_results.compared(measured),
        load=inputs.load,
    )
    found = structs.plain(list(_disagreements(measured, evaluated)))
    atomic.write_json(runtime.folder / run_folder.DISAGREEMENTS, found)
    return evaluated


def _lacks_zeros(variant: Variant) -> bool:
    """Whether the file of a variant lacks heads and channels that are zero in its checkpoint, by which parameters and
    multiplications are counted: see `compression.pruning.ragged`."""
    pruner = variant.step.pruner
    return pruner is not None and not pruner.settings.uniform and BACKENDS[variant.backend].loads != "transformers"


def _seen(models: Models, compared: list[Variant], runtime: Runtime) -> frozenset[tuple[str, str]]:
    """(variant, task) of the given teacher where it may have been trained on the development rows."""
    for task in sorted(models.seen):
        runtime.machine.log(
            f"{task}: no temperature and no threshold is chosen for the given model, which may have been trained on "
            "the development rows; set tasks.development to rows that it has not seen"
        )
    own = [variant.name for variant in compared if variant.step == models.reference]
    return frozenset((name, task) for name in own for task in models.seen)


def _disagreements(measured: Measured, evaluated: Evaluated) -> Iterator[Disagreement]:
    """The rows on which the student of each target, in the headline's variant, and the teacher disagree."""
    every = [model_rows.chosen(evaluated, target) for target in model_rows.targets(evaluated)]
    for model in filter(None, every):
        name = " ".join((model.name, model.backend, model.scheme))
        for task, data in measured.tasks.items():
            found: list[Disagreement] = []
            for split, split_rows in data.reported.items() if disagreements.readable(data.task.kind) else ():
                teacher, student = (measured.outputs[each][task, split][0] for each in (variants.REFERENCE, name))
                most = disagreements.MOST - len(found)
                found += disagreements.disagreements(data.task, split, split_rows, model, teacher, student, most)
            yield from found


def _environment(runtime: Runtime) -> dict[str, Any]:
    """As `environment`, with the versions of all backends that are known."""
    return environment(runtime.machine) | installed(packages())


def _same_conditions(inputs: EvaluateInputs, runtime: Runtime) -> None:
    """Remove predictions and timings of a stopped run that had other models or code, or ran on another machine."""
    folder = runtime.folder / inputs.name
    now = {"inputs": inputs.identities, "environment": _environment(runtime), "code": source_hash()}
    file = folder / "conditions.json"
    before = atomic.read_json(file) if file.is_file() else None
    if before != now and folder.is_dir():
        runtime.machine.log(f"{inputs.name}: starts again, because models, code or machine changed")
        atomic.remove(folder, runtime.folder)
    atomic.write_json(file, now)


_TRIED = 16
"""Tokens of the call that shows whether a variant works."""

WHILE_LOADED = 2
"""Memory that a variant takes while it is loaded, as a multiple of the size of its files."""


def _times(
    loader: Loader, inputs: EvaluateInputs, settings: Evaluate, compared: list[Variant], failed: dict[str, str]
) -> timing.Timed:
    """Times of all variants. They are stored, so that a stopped run resumes."""
    file, machine, limit = loader.folder / "latency.json", loader.runtime.machine, loader.runtime.limit
    if file.is_file():
        stored = atomic.read_json(file)
        failed |= stored.pop("failed")
        return timing.Timed(**stored)
    different = list({id(tokenizer): tokenizer for tokenizer in inputs.tokenizers}.values())
    serving = _serving(loader, compared)
    of = {variant.name: loader.tokenizers(variant) for variant in compared}
    without_torch = {v.name for v in compared if BACKENDS[v.backend].loads != "transformers"}
    readers = timing.Readers(
        of,
        different,
        {name: [serving[id(each)] for each in own] if name in without_torch else own for name, own in of.items()},
    )
    loaded = list[runners.Runner]()
    for variant in sorted(compared, key=lambda each: _order(loader, each)):
        with failing(variant, failed):
            _check_memory(variant, _mib(loader, variant))
            runner = loader.timed(variant)
            runner.run(readers.synthetic(variant.name, [1, min(_TRIED, loader.runtime.longest)]))
            loaded.append(runner)

    timed = timing.timed(
        loaded,
        readers,
        timing.shapes(settings.shapes, inputs.shape),
        [_rows(data) for data in loader.tasks.values()],
        loader.runtime.longest,
        repeats=min(settings.repeats, limit.repeats or settings.repeats),
        requests=timing.SMOKE_REQUESTS if limit.smoke else timing.REQUESTS,
        least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
        meter=energy.meter(machine.device.type == "cuda"),
        log=lambda text: machine.log(f"evaluate: {text}"),
    )
    atomic.write_json(file, asdict(timed) | {"failed": failed})
    return timed


def _mib(loader: Loader, variant: Variant) -> float:
    """Size of the files of a variant that is timed."""
    paths = (path for task in loader.timed_tasks(variant) for path in loader.paths(variant, task))
    return sum(size_mib(path) for path in dict.fromkeys(paths))


def _order(loader: Loader, variant: Variant) -> tuple[bool, float]:
    """The teacher that speedups are over comes first, then the others from the smallest on, of which most then fit."""
    cuda, compiled = loader.runtime.machine.device.type == "cuda", variant.scheme.endswith(COMPILED)
    return compiled or not variants.is_reference(variant, cuda), _mib(loader, variant)


def _check_memory(variant: Variant, mib: float) -> None:
    """Raise MemoryError for a variant that needs more memory than is left while the others are loaded.

    Without this, Linux kills the process. The same command would be killed again, and the run would have no report.
    """
    left = memory.left()
    if variant.name != variants.REFERENCE and left is not None and WHILE_LOADED * mib * 2**20 > left:
        raise MemoryError(f"it was not timed, because only {left / 2**30:.1f} GiB of memory were left for it")


def _serving(loader: Loader, compared: list[Variant]) -> dict[int, Any]:
    """`id` of each tokenizer -> the one that reads texts where its model is served without torch."""
    task, found = next(iter(loader.tasks)), dict[int, Any]()
    for variant in compared:
        for own, checkpoint in zip(loader.tokenizers(variant), loader.folders(variant, task), strict=True):
            if id(own) not in found:
                found[id(own)] = tokenizer.serving(own, checkpoint, loader.runtime.longest)
    return found


def _rows(data: TaskData) -> list[Asked]:
    """Rows that are reported, of the first split: more than are timed."""
    rows = next(iter(data.reported.values()))
    places = np.random.default_rng(0).permutation(len(rows))[: 10 * timing.REQUESTS]
    return data.asked(rows.select(places))
