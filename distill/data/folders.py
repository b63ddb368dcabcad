"""Folders of rows: data sets that `datasets` saved, and those of BEIR and MTEB. They are recognized by their files."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from distill import config
from distill.data import beir, files
from distill.data.files import Table
from distill.data.inside import inside as inside_of
from distill.data.inside import settings_of
from distill.data.lines import NoRows, no_rows
from distill.data.split_names import SPLITS, by_split
from distill.errors import ConfigError, DataError
from distill.runtime import quoting
from distill.runtime.storage.strict_json import read_json

_SEVERAL, _STATE = "dataset_dict.json", "state.json"
_SHARDS, _INDICES = "_data_files", ("_indices_files", "_indices_data_files")
"""Keys of `state.json`: the files with the rows; in early versions of `datasets`, files with the order of the rows."""


def is_known(path: str) -> bool:
    """Whether a path is a folder that is read as a data set."""
    folder = Path(path)
    return folder.is_dir() and (_is_saved(folder) or beir.is_beir(folder))


def inside(path: str) -> list[str]:
    """The files that may be read of a folder that `is_known`; none of any other path."""
    folder = Path(path)
    return [str(file) for form in ("*", "*/*") for file in sorted(folder.glob(form))] if is_known(path) else []


def read(paths: Sequence[str], split: str, key: str, settings: config.Task) -> dict[str, Table]:
    """Split -> rows of the files or the one folder of a setting; of training rows, all splits of the folder for which
    the settings name no other rows.

    Args:
        split: the name of the rows of files, and of those of a folder for any setting but `train`.
        key: the setting that contains the paths, e.g. `tasks.train`.

    Raises:
        ConfigError: for other folders.
        DataError: for malformed files, and for folders without the wanted split.
    """
    if len(paths) == 1 and is_known(paths[0]):
        role = key.rpartition(".")[2]
        return of_training(paths[0], key, settings) if role == "train" else {split: of_role(paths[0], role, key)}
    for path in paths:
        if os.path.isdir(path):
            wanted = "one folder alone, or files" if len(paths) > 1 else "files, or a folder of BEIR or save_to_disk"
            raise ConfigError(f"{key}: got the folder {path}; must be {wanted}; set {inside_of(path, key)}")
    table = files.read(paths, key, settings.separator)
    return {split: _one_split(table, paths, key) if key.endswith(".train") else table}


def _one_split(table: Table, paths: Sequence[str], key: str) -> Table:
    """The training rows. Raises ConfigError for a glob that matches files of several splits, which a list may name."""
    if not (several := by_split(table.files)):
        return table
    if all(file in paths for file in table.files):
        named = " and ".join(os.path.basename(file) for names in several.values() for file in names[:1])
        return table.noted(
            f"all of its files are used for training, although their names are of several splits: {named}"
        )
    others = [os.path.basename(names[0]) for split, names in several.items() if split != "train"]
    raise ConfigError(
        f"{key}: got {' and '.join(paths)}, which matches {' and '.join(others)} too; must be training rows alone; set "
        f"{settings_of(several, key)}"
    )


def tables(path: str, key: str, wanted: Collection[str] | None = None) -> dict[str, Table]:
    """Split, in the words of `SPLITS`, -> rows. A data set that was saved without splits has the split `train`.

    Args:
        path: a folder that `is_known`.
        key: the setting that contains it, for messages.
        wanted: the splits to read; all when None.

    Raises:
        DataError: for a folder whose files do not fit together, or have no rows, and for malformed files.
    """
    folder, notes = Path(path), list[str]()
    names, others = _splits(folder, key)
    if others:
        notes.append(f"the splits {', '.join(others)} of its folder are left out")
    if wanted is not None:
        names = {split: name for split, name in names.items() if split in wanted}
    if not names:
        return {}
    if _is_saved(folder):
        saved = {split: _saved(folder, name, key) for split, name in names.items()}
        found = {split: table for split, table in saved.items() if table is not None}
        if not found:
            raise no_rows(path)
        if empty := [split for split in saved if split not in found]:
            notes.append(f"the splits {', '.join(empty)} of its folder have no rows, and are left out")
    else:
        by_name = beir.tables(folder, [*names.values()], key)
        found = {split: by_name[name] for split, name in names.items()}
    first = next(iter(found))
    for note in notes:
        found[first] = found[first].noted(note)
    return found


def of_training(path: str, key: str, settings: config.Task) -> dict[str, Table]:
    """The splits of a folder that is named as training rows, without those in whose place the settings name others.
    Raises DataError if it has no training rows."""
    names = [*_splits(Path(path), key)[0]]
    unused = {split for split in ("validation", "test") if getattr(settings, split) is not None}
    if settings.development is not None and (settings.test is not None or "test" in names):
        unused.add("validation")  # choices are made on the rows that the user names
    found = tables(path, key, [split for split in names if split not in unused])
    if "train" not in found:
        mend = quoting.setting(f"{key.rpartition('.')[0]}.test", path)
        raise DataError(
            f"{path}: got {' and '.join(names)} without training rows; must have them; add them, or name a file with "
            f"training rows, and set {mend}"
        )
    if left := [split for split in names if split in unused]:
        found["train"] = found["train"].noted(
            f"the split {' and '.join(left)} of its folder is not used, as the settings name other rows"
        )
    return found


def of_role(path: str, role: str, key: str) -> Table:
    """The rows of a folder for the setting validation, test or development: of the split of this name, or of the only
    split. Development rows are in the split validation. Raises DataError without such a split."""
    names, split = [*_splits(Path(path), key)[0]], "validation" if role == "development" else role
    if split not in names and len(names) > 1:
        raise DataError(f"{path}: got {' and '.join(names)}; must have {split}; add it, or set {key} to a file")
    chosen = split if split in names else names[0]
    return tables(path, key, [chosen])[chosen]


def _is_saved(folder: Path) -> bool:
    return (folder / _SEVERAL).is_file() or (folder / _STATE).is_file()


def _splits(folder: Path, key: str) -> tuple[dict[str, str], list[str]]:
    """(split in the words of `SPLITS`, in their order -> its name in the folder; names of other splits). The name of
    the only split of a data set that was saved without splits is empty."""
    if not _is_saved(folder):
        every, mend = beir.splits(folder), "rename a file, e.g. qrels/train.tsv"
    elif (folder / _SEVERAL).is_file():
        every = [str(name) for name in _json(folder / _SEVERAL, "splits", list)]
        mend = f"name them so, or set {key} to the folder of one split"
    else:
        return {"train": ""}, []
    known = [name for name in every if name.lower() in SPLITS]
    if not known:
        raise DataError(
            f"{folder}: got the splits {', '.join(every)}; must have one of train, validation (or dev) and test; {mend}"
        )
    names: dict[str, str] = {}
    for name in sorted(known, key=lambda name: list(SPLITS.values()).index(SPLITS[name.lower()])):
        if (split := SPLITS[name.lower()]) in names:
            raise DataError(f"{folder}: got two splits {split}; must be one; remove {name}")
        names[split] = name
    return names, [name for name in every if name not in known]


def _saved(whole: Path, name: str, key: str) -> Table | None:
    """The rows of a split; None without rows."""
    folder = whole / name
    state = folder / _STATE
    shards = [each.get("filename") if isinstance(each, dict) else None for each in _json(state, _SHARDS, list)]
    if not all(isinstance(name, str) and Path(name).name == name for name in shards):
        raise DataError(f"{state}: got {shards}; must be names of files in this folder; save the data set again")
    content = _content(state)
    if any(content.get(name) for name in _INDICES):
        raise DataError(
            f"{state}: got rows in another order than in their files; must be in order; save the data set again with "
            "Dataset.flatten_indices().save_to_disk"
        )
    paths = [str(folder / str(name)) for name in shards]
    if not paths:
        return None
    try:
        return files.read(paths, key)  # without shards that are empty, where there are more of them than rows
    except NoRows:
        return None


def _json(file: Path, name: str, kind: type) -> Any:
    """A value of a file of JSON. Raises DataError for another type."""
    value = _content(file).get(name)
    if not isinstance(value, kind):
        raise DataError(f"{file}: got no {name}; must be as Dataset.save_to_disk writes it; save the data set again")
    return value


def _content(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file)
    except ValueError as error:
        raise DataError(
            f"{file}: got {str(error)[:100]!r}; must be as Dataset.save_to_disk writes it; save the data set again"
        ) from error
    return content if isinstance(content, dict) else {}
