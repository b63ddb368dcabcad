"""Cold start and memory of each variant: a new process loads it as a user does, and predicts once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distill
from distill.config.schemes import COMPILED
from distill.deploy.export import record
from distill.inference.variants import REFERENCE, Variant
from distill.pipeline.stages.load_variants import Loader
from distill.runtime import progress
from distill.runtime.storage import run_folder


def served(loader: Loader, variants: Sequence[Variant]) -> dict[str, dict[str, Any]]:
    """Variant -> `cold_start_ms` and `memory_mib`, of the teacher in float32 and of all forms of the students; under
    limit=smoke of the first of them. They are stored, so that a stopped run resumes.

    Left out are models that `distill.load` does not load: ensembles, teachers that read texts in windows, and files
    with the heads of several tasks; and compiled ones, whose start depends on the compiler's cache.
    """
    file = loader.folder / "serving.json"
    if file.is_file():
        stored: dict[str, dict[str, Any]] = run_folder.read_json(file)
        return stored
    wanted = [variant for variant in variants if _is_served(loader, variant)]
    wanted = wanted[:1] if loader.ctx.config.limit.smoke else wanted
    if wanted:
        loader.ctx.machine.log(f"evaluate: cold start and memory of {len(wanted)} variants, each in a new process")
    found = {}
    with progress.counted("starting processes", len(wanted)) as done:
        for variant in wanted:
            found[variant.name] = _in_new_process(loader, variant)
            done(1)
    run_folder.write_json(file, found)
    return found


def _is_served(loader: Loader, variant: Variant) -> bool:
    deployed = variant.name == REFERENCE or variant.role == "student"
    one_model = len(loader.timed_tasks(variant)) == 1 and len(loader.tokenizers(variant)) == 1
    loads = one_model and not loader.whole(variant) and loader.window(variant) is None
    return deployed and loads and not variant.scheme.endswith(COMPILED)


def _in_new_process(loader: Loader, variant: Variant) -> dict[str, Any]:
    """Milliseconds from the start of the process to its first prediction, and the MiB that are resident then.

    Both are None, with a message, if it does not load there: the variant has been scored and timed without it.
    """
    task, machine = loader.timed_tasks(variant)[0], loader.ctx.machine
    (checkpoint_folder,), (path,) = loader.folders(variant, task), loader.paths(variant, task)
    # In the run folder, where files need no copy; a link out of a folder is refused when it is loaded.
    suffix = f".{os.getpid()}.distill-tmp"  # a temporary name, which the next run removes if this one is killed
    with tempfile.TemporaryDirectory(dir=loader.folder, prefix=".served.", suffix=suffix) as name:
        folder = Path(name)
        for part in checkpoint_folder.iterdir():
            _put(part, folder / part.name)
        place = "." if variant.file is None else f"artifact{path.suffix}"
        if variant.file is not None:
            _put(path, folder / place)
        entry = record.Entry(variant.backend, variant.scheme, place)
        settings = loader.ctx.config.tasks
        record.write(folder, record.of_task(loader.ctx.tasks[task].task, settings.max_length, [entry]))
        arguments = [name, variant.backend, variant.scheme, str(machine.device), str(machine.threads)]
        milliseconds, line, error = _answer(arguments)
    if not line:
        machine.log(f"evaluate: {variant.name} does not load in a new process: {error}")
        return {"cold_start_ms": None, "memory_mib": None}
    return {"cold_start_ms": milliseconds, "memory_mib": json.loads(line)["memory_mib"]}


def _put(source: Path, target: Path) -> None:
    """Put a file or a folder at another place, as another link to the same files where the file system has them."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link)
    else:
        _link(source, target)


def _link(source: str | Path, target: str | Path) -> str | Path:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copy(source, target)
    return target


def _answer(arguments: list[str]) -> tuple[float, str, str]:
    """Milliseconds until `distill.deploy.serve.fresh` prints its line, that line, and the last line of its errors."""
    path = os.pathsep.join(filter(None, [str(Path(distill.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "distill.deploy.serve.fresh", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    began = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as errors,  # not a pipe, which a library's warnings could fill
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        # Libraries may print lines before it.
        line = next((line for line in process.stdout if line.startswith('{"memory_mib"')), "")
        milliseconds = 1000 * (time.perf_counter() - began)
        process.wait()
        errors.seek(0)
        return milliseconds, line, (errors.read().strip().splitlines() or ["no message"])[-1]
