"""The machine that a run uses: its device, its arithmetic, its processes, and its console."""

from __future__ import annotations

import datetime
import functools
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs
from rich.console import Console

from distill.errors import ConfigError, discreet, printable_lines
from distill.runtime.cores import cores as cores
from distill.runtime.messages import TEXT, console_for
from distill.runtime.network import name_interface
from distill.runtime.single_process import alone
from distill.runtime.tracker import Tracker

STEP = datetime.timedelta(minutes=30)
"""Maximum time that a process waits for another one in a training step; then it stops, because the other may hang."""
STAGE = datetime.timedelta(days=7)
"""Maximum time that the other processes wait for a stage of the main process. If a process ends, they stop waiting."""


@dataclass(frozen=True)
class Machine:
    accelerator: Accelerator
    console: Console
    precision: str
    """Arithmetic of training: bf16, fp16, tf32 or fp32."""
    threads: int
    """CPU threads of a stage that the main process runs alone, while the others sleep."""
    shared_threads: int
    """CPU threads of each process where all of them work."""
    fast_float32: bool
    """Whether torch's fast float32 matrix product ("medium") is real float32 on this machine: training then uses it."""
    waiting: Any = None
    """The group of all processes, in which they wait for each other; None for a single process."""

    @property
    def device(self) -> torch.device:
        return self.accelerator.device

    @functools.cached_property
    def tracker(self) -> Tracker:
        """The tracker that gets losses and results while the run goes on."""
        return Tracker(self.accelerator, self.log)

    @property
    def main(self) -> bool:
        """Whether this is the main process, the only one that writes and prints."""
        return self.accelerator.is_main_process

    def log(self, text: str) -> None:
        """Print a line, on the main process only."""
        if self.main:
            self.console.print(printable_lines(discreet(text)), highlight=False, markup=False, soft_wrap=True)

    def wait(self) -> None:
        """Wait for every process.

        Waiting processes sleep, because a busy wait would slow down what others time. They fail soon after another
        process has ended.
        """
        if self.waiting is not None:
            torch.distributed.barrier(group=self.waiting)

    def agreed(self, value: bool) -> bool:
        """The value that the main process has."""
        if self.waiting is None:
            return value
        number = torch.tensor([int(value)])
        torch.distributed.broadcast(number, 0, group=self.waiting)
        return bool(number.item())

    def check_same(self, values: dict[str, str]) -> None:
        """Raise ConfigError, in every process, if the processes do not all have the same values; it names the first
        that differs."""
        if self.waiting is None:
            return
        every: list[Any] = [None] * self.accelerator.num_processes
        torch.distributed.all_gather_object(every, values, group=self.waiting)
        for name in values:
            if len({each.get(name) for each in every}) > 1:
                raise ConfigError(
                    f"{name}: got others on one machine than on another; must be the same for all processes; copy them "
                    "from one machine to all, or keep them in a folder that the machines share"
                )

    def single_process(self) -> Machine:
        """The machine for a process that works by itself while the others do other work, and prints only if it is the
        main process."""
        console = self.console if self.main else Console(quiet=True)
        own = replace(self, accelerator=alone(self.accelerator), console=console, waiting=None)
        own.__dict__["tracker"] = self.tracker  # it counts the steps of all trainings
        return own

    def see(self, files: Iterable[Path], seconds: float = 90) -> None:
        """Wait until this process sees files that other processes have written, but no longer than `seconds`.

        A network file system may show a new file up to a minute later to a machine that looked for it before.
        """
        end = time.monotonic() + seconds
        for file in files if self.waiting is not None else ():
            while not file.is_file() and time.monotonic() < end:
                time.sleep(0.1)

    def check_shared(self, folder: Path, seconds: float = 60) -> None:
        """Raise ConfigError, in every process, if one of them does not see a file of the main process in the folder.

        Each looks for `seconds`: see `see`.
        """
        if self.waiting is None:
            return
        number = torch.randint(2**62, (1,), generator=torch.Generator().manual_seed(secrets.randbits(62)))
        torch.distributed.broadcast(number, 0, group=self.waiting)
        file = folder / f".processes.{number.item()}.distill-tmp"  # removed as a temporary file if the run is killed
        if self.main:
            file.touch()
        self.see([file], seconds)
        everywhere = torch.tensor([float(file.is_file())])
        torch.distributed.all_reduce(everywhere, torch.distributed.ReduceOp.MIN, group=self.waiting)
        if self.main:
            file.unlink()
        if not everywhere.item():
            raise ConfigError(
                f"output: got {folder}, which is not the same folder for all processes; must lie on a file system that "
                "their machines share; set output=FOLDER"
            )

    @contextmanager
    def working(self, all_processes: bool) -> Iterator[None]:
        """Use the threads of one of several processes within the block or, if not all work, of the main process."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.shared_threads if all_processes else self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run the block on the main process before all others, which can then read the files that it wrote."""
        if not self.main:
            self.wait()
        yield
        if self.main:
            self.wait()


def start(
    device: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    tracker: str | None = None,
    folder: Path | None = None,
    console: Console | None = None,
) -> Machine:
    """Set up device, threads and precision.

    Args:
        device: `cpu`, `cuda`, or `auto` for a GPU if there is one.
        precision: `fp32`, `tf32`, `bf16`, `fp16`, or `auto` as in `detect_precision`.
        threads: number of CPU threads of each process; None divides the machine's cores.
        tracker: name of an experiment tracker that Accelerate knows.
        folder: the run folder, in which trackers write their files.
        console: where lines are printed; by default the terminal, as with `log=text`.

    Raises:
        ConfigError: for a device that the machine does not have, and for a precision that the device does not have.
    """
    silence()
    name_interface(os.environ)
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    shared_threads = threads or max(1, cores() // world)
    torch.set_num_threads(shared_threads)
    chosen = torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")
    if device == "cuda" and chosen.type != "cuda":
        raise ConfigError("device: got cuda; must be a device that this machine has; set device=cpu")
    if chosen.type == "cuda":
        _check_rank(int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count())
    found, on_gpu, waiting = detect_precision(precision, chosen), chosen.type == "cuda", None
    if found == "tf32" and not on_gpu:
        raise ConfigError(
            "precision: got tf32 on a CPU; must be bf16, fp16 or fp32 there; set precision=auto, or device=cuda on a "
            "machine with a GPU"
        )
    timeout = InitProcessGroupKwargs(timeout=STEP)
    if world == 1:
        AcceleratorState._reset_state(reset_partial_state=True)  # `distill.run` may be called again
    if PartialState(cpu=not on_gpu, **timeout.to_kwargs()).num_processes > 1:
        waiting = torch.distributed.new_group(backend="gloo", timeout=STAGE)
        # That of the main process: others may have measured otherwise, or have another processor.
        agreed = [found]
        torch.distributed.broadcast_object_list(agreed, 0, group=waiting)
        (found,) = agreed
    accelerator = Accelerator(
        cpu=not on_gpu,
        mixed_precision="bf16" if found == "bf16" else "no",
        kwargs_handlers=[timeout],
        log_with=tracker,
        project_dir=None if folder is None else str(folder / "tracker"),
    )
    fast = fast_path_is_float32(chosen.type)
    # Where training may round more, what it computes in float32 may be in TF32. Scoring in float32 sets its own.
    matmul = "medium" if fast else "high" if on_gpu and found != "fp32" else "highest"
    torch.set_float32_matmul_precision(matmul)
    most = threads or cores()
    machine = Machine(accelerator, console or console_for(TEXT), found, most, shared_threads, fast, waiting)
    machine.log(
        f"on {accelerator.device}, {shared_threads} threads, training in {found}"
        f"{f', in {accelerator.num_processes} processes' if waiting is not None else ''}"
    )
    return machine


def _check_rank(rank: int, gpus: int) -> None:
    """ConfigError unless a process, with its number on its machine, sees a GPU of this number: accelerate gives it
    another, which two processes may then have, and sends its batches to this one."""
    if rank >= gpus:
        raise ConfigError(
            f"LOCAL_RANK: got {rank}; must be below {gpus}, the number of GPUs that this process sees; start no more "
            "processes on a machine than it has GPUs, and let each of them see all"
        )


def silence() -> None:
    """Turn off progress bars and warnings of libraries, for a command line that prints its own."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # transformers imports torchao where it is installed, and torchao warns about absent GPUs.
    for noisy in ("torchao", "torch.utils._pytree"):
        getLogger(noisy).setLevel(ERROR)


def detect_precision(setting: str, device: torch.device) -> str:
    """The setting `precision`. For auto, bf16 if the hardware has fast matrix products of it (on a CPU they are timed);
    else fp16 on a GPU that has them of fp16 (V100, T4, RTX 20); else fp32."""
    if setting != "auto":
        return setting
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16"
        return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"
    return "bf16" if _cpu_is_faster_in_bf16() else "fp32"


@functools.cache
def _cpu_is_faster_in_bf16() -> bool:
    """Whether a matrix product of a layer's size is faster in bf16.

    It is timed, because processors with AVX512_BF16 differ: some compute more bf16 products than float32 products in a
    second, others fewer.
    """
    capabilities = torch.cpu.get_capabilities()
    if not (capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")):
        return False

    def seconds(half: bool) -> float:
        rows, weights = (torch.ones(size, dtype=torch.bfloat16 if half else None) for size in ((512, 768), (768, 768)))
        begun = time.perf_counter()
        torch.mm(rows, weights)
        return time.perf_counter() - begun

    # Alternately, so that another process slows both; the first products also prepare the library.
    rounds = [(seconds(half=True), seconds(half=False)) for _ in range(8)]
    in_half, in_whole = (min(times) for times in zip(*rounds, strict=True))
    return in_half < in_whole


@contextmanager
def arithmetic(precision: str, threads: int) -> Iterator[None]:
    """Set torch's float32 matmul precision and its number of CPU threads within the block."""
    before, threads_before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.set_num_threads(threads_before)


def fast_path_is_float32(device: str) -> bool:
    """Whether torch's fast float32 matrix product ("medium") is real float32 on this hardware.

    It is on most CPUs (oneDNN). Hardware that multiplies in bf16 or TF32 instead must not be reported as float32.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(256, 384, generator=generator).to(device), torch.randn(384, 1536, generator=generator).to(device)
    with arithmetic("medium", torch.get_num_threads()):
        fast = (a @ b).double().cpu()
    exact = a.double().cpu() @ b.double().cpu()
    return bool((fast - exact).abs().max() < 1e-3)
