"""What a word, a value or a name that does not exist is likely to mean: advice with the settings to type instead."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import yaml

from distill.config import folder, recipes
from distill.pipeline.validation.rules import nearest
from distill.runtime.quoting import command, setting

_OF_GROUP = {"target": "target.speedup", "budget": "budget.minutes"}
"""Group of settings -> the one that a value of the group is likely to be."""

_SETTINGS = {
    "teacher.name": "model model_name model_path model_name_or_path teacher_name teacher_model teacher_path",
    "tasks.train": "data dataset file csv rows input train train_file train_data",
    "tasks.validation": "validation validation_file eval dev",
    "tasks.test": "test test_file test_data",
    "tasks.text": "text text_column",
    "tasks.label": "label label_column target_column",
    "tasks.max_length": "max_len max_seq_length",
    "target.speedup": "speedup speed faster",
    "target.latency_ms": "latency latency_ms ms",
    "target.size_mib": "size_mib mib",
    "target.retained": "retained quality",
    "budget.minutes": "minutes time time_limit",
    "student.layers": "layers num_layers",
    "student.hidden_size": "hidden_size hidden",
    "output": "out output_dir output_folder output_path",
}
_OTHER_NAMES = {name: key for key, names in _SETTINGS.items() for name in names.split()}
"""Name that other programs have for a setting -> the setting."""
_OF_STAGES = {
    "base_lr": "lr learning_rate",
    "epochs": "epochs num_epochs num_train_epochs",
    "batch.examples": "batch_size per_device_train_batch_size train_batch_size",
}
OF_STAGES = {name: key for key, names in _OF_STAGES.items() for name in names.split()}
"""Name that other programs have for a setting of each stage that trains -> the setting."""
_OWNED = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""Names on the hub, OWNER/NAME."""
_PRECISIONS = ("bf16", "fp16", "tf32")
"""Names of flags of the `Trainer` that are values of `precision` here."""


def choice(group: str, name: str, options: list[str]) -> str:
    """Advice for a choice of a group that does not exist: what it means as a model or as a file, or a name like it."""
    near, own = nearest(name, options), _own(group, name)
    if own is None or (near.startswith("did you mean") and not _is_path(name)):
        return near
    return own if group == "recipe" else f"{own}, or choose from {', '.join(options)}"


def _own(group: str, name: str) -> str | None:
    """Advice for what users have of their own in place of a choice."""
    if name == "null":
        return None
    if group == "teacher":
        return f"for a model of your own set {setting('teacher.name', name)}"
    if group == "student":
        return f"to train a model that you have set {command(['recipe=task'])} {setting('student.name', name)}"
    if group == "corpus":
        kind = "parquet" if name.endswith(".parquet") else "text"
        return f"for texts of your own set {setting('corpus', kind)} {setting('corpus.path', name)}"
    if group == "tasks":
        if name in yaml.safe_load((folder("conf") / "tasks" / "glue.yaml").read_text(encoding="utf-8"))["each"]:
            return f"set tasks=glue {command([f'tasks.names=[{name}]'])}"
        if _on_hub(name):
            return f"for a data set on the hub set {setting('tasks.hub', name)}"
        return f"for rows of your own set {setting('tasks.train', name if _is_path(name) else 'FILE')}"
    if group == "recipe" and name.endswith((".yaml", ".yml")):
        words = command(["--config-dir", "FOLDER", f"recipe={Path(name).stem}"])
        return f"for a recipe of your own, in FOLDER/recipe, set {words}"
    return None


def _is_path(name: str) -> bool:
    return "." in name or "/" in name or os.path.exists(name)


def _on_hub(name: str) -> bool:
    """Whether rows under a name are likely to be a data set on the hub: OWNER/NAME, and no file is called so."""
    return _OWNED.fullmatch(name) is not None and not (Path(name).suffix or os.path.exists(name))


def value(group: str, given: str) -> str | None:
    """Advice for a single value in place of a group of settings, such as `target=4x`; None for other groups."""
    number = given.removesuffix("x")
    return f"set {command([f'{_OF_GROUP[group]}={number}'])}" if group in _OF_GROUP else None


def name(key: str, given: str) -> str | None:
    """Advice for a setting under the name that other programs have for it; None for other names."""
    if key in _PRECISIONS and given.lower() == "true":
        return f"set {setting('precision', key)}"
    meant = _OTHER_NAMES.get(key)
    meant = "tasks.hub" if meant == "tasks.train" and _on_hub(given) else meant
    given = given.removesuffix("x") if meant == "target.speedup" else given
    return None if meant is None else f"set {command([f'{meant}={given}'])}"


def of_stages(key: str, given: str, stages: Iterable[str]) -> str:
    """Advice for a name of `OF_STAGES`. `stages`: names of the stages that train."""
    meant = (command([f"stages.{stage}.{OF_STAGES[key]}={given}"]) for stage in stages)
    return f"set {' or '.join(meant)}"


def words(given: Iterable[str]) -> dict[str, str]:
    """Key -> value of the settings that words without `=` mean: recipes, folders of models, and files with rows."""
    found = dict[str, str]()
    for word in given:
        if word in recipes():
            found["recipe"] = word
        elif os.path.exists(word):
            found["teacher.name" if Path(word).is_dir() else "tasks.train"] = word
    return found
