"""Cold start and memory of each variant: a new process loads it as a user does, and predicts once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distill.config.schemes import COMPILED
from distill.deploy.serve import cold_start
from distill.inference.variants import REFERENCE, Variant
from distill.pipeline.stages.load_variants import Loader
from distill.runtime import progress
from distill.runtime.storage import atomic


def served(loader: Loader, variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Variant -> `cold_start_ms` and `memory_mib`, of the teacher in float32 and of all forms of the students; under
    limit=smoke of the first of them. They are stored, so that a stopped run resumes.

    Left out are models that `distill.load` does not load: ensembles, teachers that read texts in windows, and files
    with the heads of several tasks; and compiled ones, whose start depends on the compiler's cache.
    """
    file = loader.folder / "serving.json"
    if file.is_file():
        stored: dict[str, dict[str, Any]] = atomic.read_json(file)
        return stored
    wanted = [variant for variant in variants if _is_served(loader, variant)]
    wanted = wanted[:1] if loader.runtime.limit.smoke else wanted
    firsts = loader.firsts(wanted)
    different = [variant for variant in wanted if firsts[variant.name] == variant.name]
    if wanted:
        processes = f"{len(different)} variants, each in a new process"
        loader.runtime.machine.log(f"evaluate: cold start and memory of {processes}")
    found = {}
    with progress.counted("starting processes", len(different)) as done:
        for variant in different:
            found[variant.name] = _in_new_process(loader, variant)
            done(1)
    found |= {name: found[first] for name, first in firsts.items()}
    atomic.write_json(file, found)
    return found


def _is_served(loader: Loader, variant: Variant) -> bool:
    deployed = variant.name == REFERENCE or variant.role == "student"
    one_model = len(loader.timed_tasks(variant)) == 1 and len(loader.tokenizers(variant)) == 1
    loads = one_model and not loader.whole(variant) and loader.window(variant) is None
    return deployed and loads and not variant.scheme.endswith(COMPILED)


def _in_new_process(loader: Loader, variant: Variant) -> dict[str, float | None]:
    """What `cold_start.measured` returns for a variant, with a message if it does not load: it has been scored and
    timed without it."""
    task, machine = loader.timed_tasks(variant)[0], loader.runtime.machine
    (checkpoint,), (path,) = loader.folders(variant, task), loader.paths(variant, task)
    found, error = cold_start.measured(
        loader.tasks[task].task,
        checkpoint,
        None if variant.file is None else path,
        variant.backend,
        variant.scheme,
        max_length=loader.runtime.longest,
        device=str(machine.device),
        threads=machine.threads,
        inside=loader.folder,
    )
    if error:
        machine.log(f"evaluate: {variant.name} does not load in a new process: {error}")
    return found
