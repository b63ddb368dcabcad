"""Refuses launches that would train nothing, or something else than the settings ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_PARALLEL = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_TP": "tensor parallelism",
}
"""Variable of `accelerate launch` -> a way to divide a model, which `distill` does not support: an encoder fits on one
device, and its state is saved by the main process alone."""


def launch(environment: Mapping[str, str], *, sweep: bool = False) -> Iterator[str]:
    """Problems of how the processes of a run were started. `sweep`: whether the command is one (`-m`)."""
    processes = environment.get("WORLD_SIZE", "1")
    for variable, name in _PARALLEL.items():
        if environment.get(variable, "").lower() in ("1", "true"):
            yield (
                f"accelerate launch: got {name}; must be data parallel, with a whole model on each device; leave its "
                "options out, or use torchrun --nproc_per_node N -m distill"
            )
    # With --cpu, accelerate announces several processes to a single one, which would train alone.
    if "WORLD_SIZE" not in environment and {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= environment.keys():
        yield (
            "accelerate launch: got several processes, of which it starts one; must start all of them; use torchrun "
            "--nproc_per_node N -m distill, or leave --num_processes out"
        )
    if sweep and processes != "1":
        yield (
            f"-m: got a sweep in each of {processes} processes; must be one run for all of them; start torchrun for "
            "one run after the other, without -m"
        )


def alone(environment: Mapping[str, str], processes: int) -> Iterator[str]:
    """The problem of a process that runs by itself although it was started as one of several: with GPUs, accelerate
    needs `LOCAL_RANK`, which schedulers do not set. Each would write to the folder of the same run. `processes`: number
    of processes that were found."""
    announced = environment.get("WORLD_SIZE", "1")
    if processes == 1 and announced != "1":
        yield (
            f"WORLD_SIZE: got {announced} processes, each of which would train by itself; must have LOCAL_RANK, the "
            "number of each process on its machine; set it, start them by torchrun -m distill, or "
            "unset WORLD_SIZE where this is the only one"
        )
