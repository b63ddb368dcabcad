"""Jobs that run side by side have GPUs of their own."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.pipeline import sweep
from distill.runtime import gpus

THREE = ["GPU-a", "GPU-b", "GPU-c"]
HOLDS = "\n".join(
    (
        "import sys",
        "from distill.runtime import gpus",
        "with gpus.one_of(sys.argv[1:]) as gpu:",
        "    print(gpu, flush=True)",
        "    sys.stdin.read()",
    )
)


@pytest.fixture
def three() -> list[str]:
    """Names that no other test has."""
    return [f"{name}-{os.getpid()}" for name in THREE]


def test_jobs_are_spread_evenly_and_a_gpu_is_free_again(three: list[str]) -> None:
    with ExitStack() as stack:
        jobs = [stack.enter_context(gpus.one_of(three)) for _ in range(7)]
        assert jobs == [*three, *three, three[0]]
    with gpus.one_of(three) as first, gpus.one_of(three) as second:
        assert [first, second] == three[:2]


def test_a_job_gets_the_gpu_that_the_fewest_have_when_others_have_ended(three: list[str]) -> None:
    first, second, *_ = three
    jobs = [ExitStack() for _ in range(4)]
    with jobs[2]:
        assert [job.enter_context(gpus.one_of([first, second])) for job in jobs] == [first, second] * 2
        for ended in (0, 1, 3):
            jobs[ended].close()
        with gpus.one_of([first, second]) as gpu:
            assert gpu == second, "the first still has a job"


def test_jobs_are_spread_where_the_system_lists_no_names(three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_listed", set)
    with ExitStack() as stack:
        assert [stack.enter_context(gpus.one_of(three)) for _ in range(4)] == [*three, three[0]]


def test_a_killed_process_leaves_its_gpu(three: list[str]) -> None:
    with ExitStack() as stack:
        processes = []
        for name in three[:2]:
            started = subprocess.Popen([sys.executable, "-c", HOLDS, *three], stdin=-1, stdout=-1, text=True)
            processes.append(stack.enter_context(started))
            assert started.stdout is not None
            assert started.stdout.readline().strip() == name
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        with gpus.one_of(three) as again:
            assert again == three[0]
        processes[1].communicate("")


def test_a_machine_that_allows_no_such_names_does_not_hang(three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(gpus.socket, "socket", type("Socket", (socket.socket,), {"bind": forbidden}))
    with gpus.one_of(three) as gpu:
        assert gpu is None


@pytest.mark.parametrize("given", [[], ["0"]])
def test_one_gpu_or_none_is_left_as_it_is(given: list[str]) -> None:
    with gpus.one_of(given) as gpu, gpus.shown(gpu):
        assert gpu is None
        assert gpus.VISIBLE not in os.environ


@pytest.mark.parametrize("before", [None, "2,3"])
def test_a_started_process_sees_its_gpu_alone(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is not None:
        monkeypatch.setenv(gpus.VISIBLE, before)
    with gpus.shown("3"):
        told = subprocess.run(
            [sys.executable, "-c", f"import os; print(os.environ['{gpus.VISIBLE}'])"], capture_output=True, text=True
        )
    assert told.stdout == "3\n"
    assert os.environ.get(gpus.VISIBLE) == before


@pytest.mark.parametrize(
    ("named", "count", "seen"),
    [(None, 2, ["0", "1"]), ("4,6,7", 3, ["4", "6", "7"]), ("1,9", 1, ["1"]), ("", 0, []), ("GPU-x,GPU-y", 2, None)],
)
def test_gpus_are_those_that_the_process_may_use(
    named: str | None, count: int, seen: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invalid index 9 hides itself and all after it, so that CUDA counts one."""
    if named is not None:
        monkeypatch.setenv(gpus.VISIBLE, named)
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("/dev/nvidia0")]))
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    assert gpus.visible() == (named or "").split(",") if seen is None else gpus.visible() == seen


def test_a_job_of_a_sweep_has_one(monkeypatch: pytest.MonkeyPatch, three: list[str], tmp_path: Path) -> None:
    """Its process is started with the name of one; on a CPU with all that the sweep has."""
    seen: list[str | None] = []

    class Process:
        pid, sentinel, exitcode = None, 0, 0

        def __init__(self, **_: Any) -> None: ...

        def start(self) -> None:
            seen.append(os.environ.get(gpus.VISIBLE))

    context = SimpleNamespace(Process=Process, Pipe=sweep.multiprocessing.Pipe)
    monkeypatch.setattr(sweep.multiprocessing, "get_context", lambda _: context)
    monkeypatch.setattr(sweep, "wait", lambda _: [0])
    monkeypatch.setattr(gpus, "visible", lambda: three)
    monkeypatch.setenv(sweep._FOLDER, str(tmp_path))
    for device in ("auto", "cuda", "cpu"):
        settings: Any = SimpleNamespace(device=device)
        sweep.run(0, [], settings, "distilbert", None)
    assert seen == [three[0], three[0], None]
