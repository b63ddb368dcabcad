"""Which steps of a run are pending: those that did not finish, and those with an input that changed since."""

from __future__ import annotations

from collections.abc import Sequence

from distill.config.plan import Step
from distill.pipeline.context import Context
from distill.pipeline.context.fingerprints import NAMES
from distill.runtime import versions
from distill.runtime.storage import checksums

PACKAGES = "packages"
"""Key, beside the fingerprints with which a step began, of the hash of the code and the packages that ran it."""
CHANGED_PACKAGES, UNKNOWN = "the versions of packages", "the record of its inputs"


def begun_from(ctx: Context, step: Step) -> dict[str, str]:
    """What the results of a step that begins now are made from: fingerprints of given models and data, and a hash of
    the code and the packages."""
    return ctx.fingerprints(step) | {PACKAGES: _packages()}


def _packages() -> str:
    return checksums.fingerprint([versions.source_hash(), versions.installed(versions.PACKAGES)])


def pending_steps(ctx: Context, steps: Sequence[Step]) -> list[Step]:
    """The steps that must run: unfinished steps, and steps with an input that changed or is computed again.

    Removes the outdated files of these steps. A finished step of which only earlier steps are computed again keeps its
    files, because these steps may end with the same: `still_finished` tells when they have run.
    """
    pending: list[Step] = []
    outdated: list[Step] = []
    finished: list[Step] = []
    given_changed = False
    for step in steps:
        record, changed = ctx.folder.record(step), _changed(ctx, step, pending)
        if record is None:
            pending.append(step)
            outdated += [step] if changed else []  # partial results of a stopped run, from inputs that changed
            replaced = [name for name in changed if name in (*NAMES.values(), CHANGED_PACKAGES, UNKNOWN)]
            if replaced and ctx.folder.started(step):
                ctx.machine.log(f"{step.folder}: starts again, because {', '.join(replaced)} changed")
        elif changed and {*changed} <= {other.folder for other in pending}:
            ctx.machine.log(f"{step.folder}: runs again if {', '.join(changed)} changed")
            pending.append(step)
        elif changed:
            ctx.machine.log(f"{step.folder}: runs again, because {', '.join(changed)} changed")
            pending.append(step)
            outdated.append(step)
        else:
            finished.append(step)
        given_changed |= any(name in NAMES.values() for name in changed)
    _print_versions(ctx, finished)
    ctx.machine.wait()
    if ctx.machine.main:
        for step in outdated:
            ctx.folder.forget(step)
        if given_changed:
            ctx.folder.forget_given()
    ctx.machine.wait()
    return pending


def still_finished(ctx: Context, step: Step) -> bool:
    """Whether a pending step had finished, and the earlier steps, which ended meanwhile, left its inputs as they were.

    Removes the outdated files of a finished step whose inputs did change.
    """
    finished = ctx.folder.record(step) is not None
    changed = _changed(ctx, step, []) if finished else []
    ctx.machine.wait()  # until every process has looked
    if changed and ctx.machine.main:
        ctx.folder.forget(step)
    ctx.machine.wait()
    return finished and not changed


def _changed(ctx: Context, step: Step, pending: list[Step]) -> list[str]:
    """Names of the inputs of a step that changed since it ran: earlier steps, and given models and data.

    A part of a step that did not finish counts as made from what the step began with. Files that other packages began
    to quantize are made again, so that all files of a step are made by one version. A training goes on from its state.
    """
    running = [other.folder for other in step.inputs if other in pending]
    record = ctx.folder.record(step)
    before = ctx.folder.begun(step) if record is None else record.given
    if before is None:
        return [*sorted(running), *([UNKNOWN] if ctx.folder.has_parts(step) else [])]
    given = ctx.fingerprints(step) | {"code": ctx.fingerprint("code")}
    replaced = [NAMES[name] for name in given if before.get(name, "") != given[name]]
    if record is None and step.kind == "quantize" and before.get(PACKAGES) != _packages():
        replaced.append(CHANGED_PACKAGES)
    now = {} if record is None else ctx.folder.inputs(step)
    inputs = now if record is None else record.inputs
    rerun = [folder for folder in now if folder not in running and inputs.get(folder) != now[folder]]
    return [*sorted(running), *rerun, *replaced]


def _print_versions(ctx: Context, finished: list[Step]) -> None:
    """Print which finished steps were run by other versions of distill, torch or transformers. They are kept."""
    now = versions.versions()
    for package in now:
        before: dict[str, list[str]] = {}
        for step in finished:
            record = ctx.folder.record(step)
            if record is not None and (other := record.versions.get(package)) != now[package]:
                before.setdefault(str(other), []).append(step.folder)
        for version, steps in before.items():
            ctx.machine.log(
                f"{', '.join(steps)}: run with {package} {version}, now {now[package]}; kept (set output=NEW_FOLDER "
                "to run everything again)"
            )
