"""Cache keys: a hash of everything that the result of a stage depends on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from distill.config import Config, Prune, Quantize, Train
from distill.config.plan import Step
from distill.data import corpus
from distill.pipeline.context import Context
from distill.runtime import outside
from distill.runtime.machine import Machine
from distill.runtime.storage import run_folder
from distill.runtime.versions import installed, processor, source_hash, versions

_OF_NO_STAGE = (
    *("stages", "pipeline", "temperature", "report", "budget", "cache"),
    *("output", "threads", "device", "precision", "push", "push_private", "push_dry_run", "tracker"),
)
"""Settings that are left out of the hash of a trained stage. Training does not read them, or the hash already includes
them as settings of the stage or as `arithmetic`."""
_OF_STUDENTS = ("student", "target", "transfer")
"""Settings that the training of a teacher does not read."""


def of_step(ctx: Context, step: Step) -> str | None:
    """Hash of everything on which a train step's models depend: settings, the models that it starts from and learns
    from, data, code, and arithmetic.

    Threads and processor are left out, because they change only the last bits. They count for gates that are trained to
    reach a measured time.

    None for a step whose result is not kept for other runs: it is not a training, or `limit.smoke` is set.
    """
    settings = step.settings
    if not isinstance(settings, Train) or ctx.config.limit.smoke:
        return None
    given = ctx.fingerprints(step)
    return run_folder.fingerprint(
        {
            "folder": step.folder,
            "settings": _own(step),
            "config": _config(ctx.config, settings),
            "revisions": corpus.revisions(ctx.config.corpus) if "corpus" in given else None,
            "corpus_tokens": ctx.corpus_tokens if step.on_corpus else None,
            "epochs": ctx.epochs.get(step.target),
            "inputs": {other.folder: ctx.identity(other) for other in step.inputs},
            "given": given,
            "processes": ctx.machine.accelerator.num_processes,
            "student_is_given": ctx.plan.given_student,
            "gates": _of_gates(ctx) if settings.gates.trained else None,
            **arithmetic(ctx.machine),
        }
    )


def _of_gates(ctx: Context) -> list[Any]:
    """What the goal of gates depends on: the machine on which forms are timed, and the settings of the stages that
    prune by the gates and that make the forms."""
    others = {step.stage: asdict(step.settings) for step in ctx.plan.of(Prune, Quantize)}
    return [processor(ctx.machine), ctx.machine.threads, others]


def _own(step: Step) -> dict[str, Any]:
    """The settings of a stage that its models depend on."""
    left_out = {"checkpoint_seconds", *(() if step.teacher else ("temperature",))}
    return {name: value for name, value in asdict(step.settings).items() if name not in left_out}


def _config(config: Config, settings: Train) -> dict[str, Any]:
    """The settings outside of its own that a train stage may read."""
    of_teacher = settings.role == "teacher" and settings.shape_of is None and not settings.build_student
    left_out = {*_OF_NO_STAGE, *(_OF_STUDENTS if of_teacher else ())}
    left_out |= {"corpus"} if of_teacher and settings.data == "tasks" else set()
    return {name: value for name, value in asdict(config).items() if name not in left_out}


def arithmetic(machine: Machine) -> dict[str, Any]:
    """How models compute on this machine, and by which code. Threads and processor are left out."""
    packages = versions() | {"distill": source_hash(), "outside": outside.code()}
    packages |= installed(("tokenizers", "accelerate", "bitsandbytes"))
    return {"arithmetic": [machine.device.type, machine.precision, machine.fast_float32], "versions": packages}
