"""Random cases, the same in every run: 25 of each kind, or as many as FUZZ_CASES (`make fuzz`: 1,000).

With FUZZ_OUTPUT=FILE, the numbers of their outcomes are written to that file.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, Phase, settings

from distill.runtime.storage import atomic
from distill.runtime.versions import commit, hardware

CASES = int(os.environ.get("FUZZ_CASES", "25"))
settings.register_profile(
    "fuzz",
    max_examples=CASES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # making a failing case smaller would take minutes
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fuzz")
SECRET = "hf_a_secret_of_the_environment"


@dataclass(frozen=True)
class Outcome:
    code: int
    printed: str

    @property
    def accepted(self) -> bool:
        return self.code == 0


Command = Callable[[Sequence[str]], Outcome]


TASK_TYPES = {"test_configs": "command lines", "test_files": "files of rows", "test_folders": "model folders"}
"""Module -> what its cases are."""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """Numbers of cases that were `accepted` and `refused`."""
    counts, began, failed = Counter[str](), time.monotonic(), request.session.testsfailed
    yield counts
    if "FUZZ_OUTPUT" not in os.environ or request.session.testsfailed > failed:
        return
    file, row = (
        Path(os.environ["FUZZ_OUTPUT"]).absolute(),
        {"kind": TASK_TYPES[request.module.__name__.rpartition(".")[2]]},
    )
    with FileLock(Path(tempfile.gettempdir()) / "distill-fuzz.lock"):
        stored = atomic.read_json(file)["rows"] if file.is_file() else []
        rows = [each for each in stored if each["kind"] != row["kind"]]
        rows.append(
            {
                **row,
                "accepted": counts["accepted"],
                "refused": counts["refused"],
                "seconds": time.monotonic() - began,
                "commit": commit(),
            }
        )
        rows.sort(key=lambda each: each["kind"])
        atomic.write_json(file, {"environment": hardware(1), "rows": rows})


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "SECRET"):
        monkeypatch.setenv(name, SECRET)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`command(arguments)`: `python -m distill ARGUMENTS` up to where it would load models, in a folder of its own.

    It fails for what no command may do: a traceback, another exit code than 0 and 2, a secret that is printed, or a
    file outside of the folder's `outputs`.
    """
    from hydra.core.global_hydra import GlobalHydra

    from distill.cli import run
    from distill.errors import UserError
    from distill.pipeline import run as pipeline

    class Accepted(UserError):
        pass

    def accepted(*_: object) -> None:
        raise Accepted("accepted")

    monkeypatch.setattr(pipeline, "_context", accepted)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(arguments: Sequence[str]) -> Outcome:
        before = files(tmp_path)
        out = io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            patch.setattr(sys, "argv", ["distill", *arguments])
            try:
                run.main()
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            finally:
                GlobalHydra.instance().clear()
        printed = out.getvalue()
        if printed.endswith("accepted\n"):
            code = 0
        assert code in (0, 2), (arguments, printed)
        assert "Traceback" not in printed, (arguments, printed)
        assert SECRET not in printed, (arguments, printed)
        assert code == 0 or printed.strip(), arguments
        new = {path for path in files(tmp_path) - before if not path.startswith(("home/outputs/", ".cache/"))}
        assert not new, (arguments, new)
        return Outcome(code, printed)

    return call


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
