"""Which steps of a run are pending: those that did not finish, and those with an input that changed since."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distill.config.plan import Step
from distill.pipeline.context.keys import NAMES, Keys, changes
from distill.runtime import versions

CHANGED_PACKAGES, UNKNOWN = "the versions of packages", "the record of its inputs"


def pending_steps(keys: Keys, steps: Sequence[Step]) -> list[Step]:
    """The steps that must run: unfinished steps, and steps with an input that changed or is computed again.

    Removes the outdated files of these steps. A finished step of which only earlier steps are computed again keeps its
    files, because these steps may end with the same: `still_finished` tells when they have run.
    """
    folder, machine = keys.folder, keys.machine
    pending: list[Step] = []
    outdated: list[Step] = []
    finished: list[Step] = []
    given_changed = False
    for step in steps:
        record, changed = folder.record(step), _changed(keys, step, pending)
        if record is None:
            pending.append(step)
            outdated += [step] if changed else []  # partial results of a stopped run, from inputs that changed
            replaced = [name for name in changed if name in (*NAMES.values(), CHANGED_PACKAGES, UNKNOWN)]
            if replaced and folder.started(step):
                machine.log(f"{step.folder}: starts again, because {', '.join(replaced)} changed")
        elif changed and {*changed} <= {other.folder for other in pending}:
            machine.log(f"{step.folder}: runs again if {', '.join(changed)} changed")
            pending.append(step)
        elif changed:
            machine.log(f"{step.folder}: runs again, because {', '.join(changed)} changed")
            pending.append(step)
            outdated.append(step)
        else:
            finished.append(step)
        given_changed |= any(name in NAMES.values() for name in changed)
    _print_versions(keys, finished)
    machine.wait()
    if machine.main:
        for step in outdated:
            folder.forget(step)
        if given_changed:
            folder.forget_given()
    machine.wait()
    return pending


def still_finished(keys: Keys, step: Step) -> bool:
    """Whether a pending step had finished, and the earlier steps, which ended meanwhile, left its inputs as they were.

    Removes the outdated files of a finished step whose inputs did change.
    """
    folder, machine = keys.folder, keys.machine
    finished = folder.record(step) is not None
    changed = _changed(keys, step, []) if finished else []
    machine.wait()  # until every process has looked
    if changed and machine.main:
        folder.forget(step)
    machine.wait()
    return finished and not changed


def _changed(keys: Keys, step: Step, pending: list[Step]) -> list[str]:
    """Names of the inputs of a step that changed since it ran: earlier steps, and given models and data.

    For a step that did not finish, the inputs are compared with the key that was stored when the step began. If package
    versions changed since then, a quantize step starts again, so that one version writes all of its files. A training
    resumes from its last checkpoint.
    """
    running = sorted(other.folder for other in step.inputs if other in pending)
    record = keys.folder.record(step)
    before = keys.folder.begun.get(step.folder) if record is None else record.key
    if before is None:
        return [*running, *([UNKNOWN] if keys.folder.has_parts(step) else [])]
    now = keys.without_settings(step)
    known = before.inputs if record is None else {name: now.inputs[name] for name in now.inputs if name not in running}
    changed = changes(before, replace(now, inputs=known))
    if record is None and step.kind == "quantize" and before.packages != now.packages:
        changed.append(CHANGED_PACKAGES)
    return [*running, *changed]


def _print_versions(keys: Keys, finished: list[Step]) -> None:
    """Print which finished steps were run by other versions of distill, torch or transformers. They are kept."""
    now = versions.versions()
    for package in now:
        before: dict[str, list[str]] = {}
        for step in finished:
            record = keys.folder.record(step)
            if record is not None and (other := record.key.versions.get(package)) != now[package]:
                before.setdefault(str(other), []).append(step.folder)
        for version, steps in before.items():
            keys.machine.log(
                f"{', '.join(steps)}: run with {package} {version}, now {now[package]}; kept (set output=NEW_FOLDER "
                "to run everything again)"
            )
