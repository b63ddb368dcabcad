"""Cold start and memory of an artifact: a new process loads it as a user does, and predicts once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import distill
from distill.data.task import Task
from distill.deploy.export import record, tokenizer
from distill.deploy.serve.fresh import READY
from distill.runtime.storage import atomic


def measured(
    task: Task,
    checkpoint: Path,
    artifact: Path | None,
    backend: str,
    scheme: str,
    *,
    max_length: int,
    device: str,
    threads: int,
    inside: Path,
) -> tuple[dict[str, float | None], str]:
    """`cold_start_ms`, milliseconds from the start of the process to its first prediction, and `memory_mib`, the MiB
    that are resident then. Both are None, with the reason in the second value, if it does not load there.

    Args:
        task: whose model it is.
        checkpoint: folder of the model, with its tokenizer.
        artifact: the file or folder that the backend loads; the checkpoint itself when None.
        inside: folder for temporary files. Copies of files of its file system may take no further space.
    """
    # Without symbolic links, because one out of a folder is refused when it is loaded.
    suffix = f".{os.getpid()}.distill-tmp"  # a temporary name, which the next run removes if this one is killed
    with tempfile.TemporaryDirectory(dir=inside, prefix=".served.", suffix=suffix) as name:
        folder = Path(name)
        for part in checkpoint.iterdir():
            _put(part, folder / part.name)
        place = "." if artifact is None else f"artifact{artifact.suffix}"
        if artifact is not None:
            _put(artifact, folder / place)
        tokens = tokenizer.proved(folder, [], max_length)
        entries = [record.Entry(backend, scheme, place)]
        record.write(folder, record.of_task(task, max_length, entries, tokens=tokens))
        found = answered([name, backend, scheme, device, str(threads)])
    if isinstance(found, str):
        return {"cold_start_ms": None, "memory_mib": None}, found
    milliseconds, mib = found
    return {"cold_start_ms": milliseconds, "memory_mib": mib}, ""


def _put(source: Path, target: Path) -> None:
    """Copy a file or a folder to another place."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=atomic.copy)
    else:
        atomic.copy(source, target)


def answered(arguments: list[str]) -> tuple[float, float] | str:
    """Milliseconds until `distill.deploy.serve.fresh` has predicted once, and the MiB that are resident in it then.

    It is the last line of its errors if it ends without a prediction.

    Args:
        arguments: of `distill.deploy.serve.fresh`.
    """
    path = os.pathsep.join(filter(None, [str(Path(distill.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "distill.deploy.serve.fresh", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    began = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as errors,  # not a pipe, which a library's warnings could fill
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        # Libraries may print lines before it.
        ready = any(line.strip() == READY for line in process.stdout)
        milliseconds = 1000 * (time.perf_counter() - began)
        mib = psutil.Process(process.pid).memory_info().rss / 2**20 if ready else 0.0
        process.communicate()  # it ends when its input does
        errors.seek(0)
        return (milliseconds, mib) if ready else (errors.read().strip().splitlines() or ["no message"])[-1]
