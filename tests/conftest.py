"""Settings and fixtures of all tests: no network, few threads, one cache kept between test sessions, and settings that
are composed once.

The cache contains data that is slow to compute and depends only on installed packages: harvested docstrings,
font lists. ONNX graphs also depend on the code of models and of exports.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.forked import PYTHON

ROOT = Path(__file__).resolve().parent.parent

# Set before torch, transformers or matplotlib is imported; every process a test starts inherits it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # more would start processes, each of which imports torch first
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"  # skips the test of the processor's instructions, which takes 15 s
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "xdg" / "torchinductor")
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".pytest_cache" / "xdg")
# Files in place of these folders: no test gets from the cache what it has to make, unless it sets `cache.dir`.
for part in (".distill-cache", "corpora", "models", "logits", "openings"):
    (ROOT / ".pytest_cache" / "xdg" / "distill").mkdir(parents=True, exist_ok=True)
    (ROOT / ".pytest_cache" / "xdg" / "distill" / part).touch()
os.environ["HF_HOME"] = str(ROOT / ".pytest_cache" / "xdg" / "huggingface")
# Every worker and the processes that it starts use one core, because threads of two workers would slow each other down.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
os.environ.setdefault("OMP_NUM_THREADS", "1" if worker else "2")
for name in ("HYDRA_FULL_ERROR", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
    os.environ.pop(name, None)

# Hydra's logging closes the stream of the handler of absl, on which TensorBoard depends: without this, pytest's.
if find_spec("absl") is not None:
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

# Tracing models creates millions of objects. With default thresholds, garbage collection takes a sixth of the time.
gc.set_threshold(50_000, 20, 100)


Run = Callable[..., Any]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test with the mark `quick(n)` as slow, but n of them at even distances."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        (quick,) = several[0].get_closest_marker("quick").args  # type: ignore[union-attr]
        kept = {number * len(several) // quick for number in range(quick)}
        for number, item in enumerate(several):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    import torch
    from transformers.utils import logging

    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@pytest.fixture(scope="session")
def export_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, Path], None]:
    """`export_onnx`, which copies the file if the same model was exported before, because exporting takes seconds."""
    from distill.deploy.export.onnx import export_onnx

    def content(folder: Path) -> bytes:
        return (folder / "config.json").read_bytes() + (folder / "model.safetensors").read_bytes()

    return _once(export_onnx, content, tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="session", autouse=True)
def _kept_graphs() -> Iterator[None]:
    """ONNX graphs of an earlier session serve until code changes that decides about them, because capturing one takes
    seconds. Those of a user are captured again after any change of distill."""
    from distill.deploy.export import graphs

    folders = [ROOT / "distill" / name for name in ("compression", "deploy", "losses", "models")]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "source_hash", lambda: code)
        yield


@pytest.fixture(scope="session")
def shapes_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Models with random weights, which are only timed, are exported once for each shape."""
    from distill.deploy.export import untrained

    def shape(folder: Path) -> bytes:
        config = json.loads((folder / "config.json").read_bytes())
        labels = len(config.pop("id2label", ()))
        others = {key: value for key, value in config.items() if key not in ("label2id", "problem_type")}
        return json.dumps([labels, others]).encode()

    with pytest.MonkeyPatch.context() as patch:
        once = _once(untrained.export_onnx, shape, tmp_path_factory.mktemp("shapes"))
        patch.setattr(untrained, "export_onnx", once)
        yield


def _once(
    export: Callable[[Path, Path], None], key: Callable[[Path], bytes], cache: Path
) -> Callable[[Path, Path], None]:
    """An export of a folder to a file, which is copied if a folder with the same key was exported before."""

    def once(folder: Path, path: Path) -> None:
        copy = cache / hashlib.sha256(key(folder)).hexdigest()
        if not copy.is_file():
            export(folder, path)
            shutil.copyfile(path, copy)
        else:
            shutil.copyfile(copy, path)

    return once


_VALUE = re.compile(r"(?!hydra\.)[a-z_][\w.]*=")
"""A word of a command line that sets a value or chooses a file of a group, and adds or deletes nothing."""


@pytest.fixture(scope="session", autouse=True)
def composed_once() -> Iterator[Any]:
    """Hydra merges the same files once; the values of a test are then set in a copy, by Hydra's own function.

    Merging takes a second, and hundreds of tests need settings. Half of that second goes to a map that is hardly ever
    read and to copies of what reads files, which has no state: both are left out. A test of the merging itself has the
    fixture `real_compose`.
    """
    import hydra
    from hydra._internal import defaults_list
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    from distill.config import folder

    compose, groups, merged = hydra.compose, {path.name for path in folder("conf").iterdir()} | {"recipe"}, {}

    def once(name: str, overrides: list[str]) -> Any:
        values = [word for word in overrides if _VALUE.match(word) and word.partition("=")[0] not in groups]
        files = tuple(word for word in overrides if word not in values)
        if any("hydra." in word for word in files):
            return compose(name, overrides)
        if files not in merged:
            merged[files] = compose(name, [*files])
        settings = copy.deepcopy(merged[files])
        try:
            ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), settings)
        except HydraException:
            return compose(name, overrides)  # with the message of a run
        return settings

    mapped = defaults_list._create_interpolation_map

    def mapped_if_read(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        """Hydra makes this map for each file, which is a third of its time, and reads it for a name with `${`."""
        return mapped(overrides, defaults, self_added) if "${" in str([*map(vars, defaults)]) else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra, "compose", once)
        patch.setattr(defaults_list, "_create_interpolation_map", mapped_if_read)
        patch.setattr(ConfigRepository, "__deepcopy__", lambda self, _: copy.copy(self), raising=False)
        yield compose


@pytest.fixture
def real_compose(composed_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra reads and merges its files, as in a run."""
    import hydra

    monkeypatch.setattr(hydra, "compose", composed_once)


class Reported(dict[str, Any]):
    """The rows that are reported: reading them fails while a stage runs that must not see them."""

    sealed: str | None = None
    """Kind of the stage that runs, unless it may read them."""

    def __getattribute__(self, name: str) -> Any:
        assert Reported.sealed is None or name == "__class__", f"{Reported.sealed} reads reported rows"
        return super().__getattribute__(name)

    def __getitem__(self, split: str) -> Any:
        assert Reported.sealed is None, f"{Reported.sealed} reads reported rows"
        return super().__getitem__(split)

    def __iter__(self) -> Iterator[str]:
        assert Reported.sealed is None, f"{Reported.sealed} reads reported rows"
        return super().__iter__()


def _seal(patch: pytest.MonkeyPatch) -> None:
    """Let no stage but `evaluate`, and the export of an embedder, which scores it, read the rows that are reported."""
    from distill.data.tasks import Loaded, load_tasks
    from distill.pipeline import context, stages

    def load(*arguments: Any, **settings: Any) -> Loaded:
        loaded = load_tasks(*arguments, **settings)
        tasks = {name: replace(data, reported=Reported(data.reported)) for name, data in loaded.tasks.items()}
        return replace(loaded, tasks=tasks)

    def without_reported(kind: str, stage: stages.Stage) -> stages.Stage:
        def inputs(ctx: Any, step: Any) -> Any:
            Reported.sealed = None if kind == "evaluate" or step.embeds else kind
            return stage.inputs(ctx, step)

        def run(*given: Any) -> Any:
            try:
                return stage.run(*given)
            finally:
                Reported.sealed = None

        return stages.Stage(inputs, run)

    patch.setattr(context, "load_tasks", load)
    patch.setattr(stages, "STAGES", {kind: without_reported(kind, stage) for kind, stage in stages.STAGES.items()})


@pytest.fixture(scope="session")
def run(export_once: Callable[[Path, Path], None], shapes_once: None) -> Iterator[Run]:
    """`run(folder, recipe, *overrides)`: checks and runs a recipe in `folder`, as `python -m distill` does.

    Choices must not be made on the rows that are reported: a stage that reads them fails. The start of a new process is
    measured once for each backend and scheme, because it takes seconds. So does an ONNX file: with `onnx=False`, as on
    a GPU, an evaluation makes none to time a model in float.
    """
    from distill.deploy.export import quantized
    from distill.deploy.serve import cold_start

    measured: dict[tuple[str, ...], tuple[float, float]] = {}
    measure = cold_start.answered

    def once(arguments: list[str]) -> tuple[float, float] | str:
        _, *form = arguments  # the folder and its form
        if tuple(form) in measured:
            return measured[tuple(form)]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "executable", PYTHON)
            answer = measure(arguments)
        if not isinstance(answer, str):  # what does not load may load for the next model
            measured[tuple(form)] = answer
        return answer

    @functools.cache
    def imported() -> None:
        """Exclude the modules that the first run imports from later garbage collections."""
        gc.collect()
        gc.freeze()

    def call(folder: Path, recipe: str, *overrides: str, onnx: bool = True) -> Any:
        from distill import config
        from distill.inference import variants
        from distill.pipeline import run as pipeline
        from distill.pipeline import validation
        from distill.runtime.storage.structs import plain

        supported = variants.supported
        settings = config.load_config([f"recipe={recipe}", *overrides])
        with contextlib.chdir(folder), _restored(), pytest.MonkeyPatch.context() as patch:
            if not onnx:
                patch.setattr(variants, "supported", lambda **asked: supported(**asked | {"runtimes": ()}))
            assert validation.settings(settings, recipe) == []
            results = pipeline.run_pipeline(settings, recipe, list(overrides))
        imported()
        return None if results is None else plain(results)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantized, "export_onnx", export_once)
        patch.setattr(cold_start, "answered", once)
        _seal(patch)
        yield call


@contextlib.contextmanager
def _small_disk(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """`with small_disk(most)`: no file can grow beyond `most` bytes, as on a full disk."""
    return _small_disk


@pytest.fixture(scope="session", autouse=True)
def _quick_processes() -> Iterator[Any]:
    """Run the scripts that reload saved models in forks of a server, tests/fresh.py, which has imported transformers.

    A test with the fixture `real_process` starts a real process, as a run does.
    """
    from distill.deploy.export import proof, reload

    server, real = list[subprocess.Popen[str]](), proof.run_script

    def run_script(request: str) -> tuple[int, str, str]:
        if not server:
            script = str(ROOT / "tests" / "fresh.py")
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            server.append(subprocess.Popen([sys.executable, "-P", script, reload.__file__], cwd="/", **pipes))
        requests, answers = server[0].stdin, server[0].stdout
        assert requests is not None
        assert answers is not None
        with tempfile.TemporaryDirectory() as folder:
            requests.write(json.dumps([request, folder]) + "\n")
            requests.flush()
            code = int(answers.readline())
            return code, (Path(folder) / "out").read_text(), (Path(folder) / "err").read_text()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "run_script", run_script)
        yield real
    for process in server:
        process.communicate()


@pytest.fixture
def real_process(_quick_processes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that reload saved models run in real processes, as in a run."""
    from distill.deploy.export import proof

    monkeypatch.setattr(proof, "run_script", _quick_processes)
