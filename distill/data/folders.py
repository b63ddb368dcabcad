"""Folders of rows: data sets that `datasets` saved, and those of BEIR and MTEB. They are recognized by their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distill.data import beir, files
from distill.data.files import Table
from distill.data.meant import SPLITS
from distill.errors import DataError
from distill.runtime import quoting

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


def tables(path: str, key: str) -> dict[str, Table]:
    """Split, in the words of `SPLITS`, -> rows. A data set that was saved without splits has the split `train`.

    Args:
        path: a folder that `is_known`.
        key: the setting that contains it, for messages.

    Raises:
        DataError: for a folder whose files do not fit together, and for malformed files.
    """
    folder = Path(path)
    found = _saved(folder, key) if _is_saved(folder) else beir.tables(folder, key)
    splits: dict[str, Table] = {}
    for name in sorted(found, key=lambda name: list(SPLITS.values()).index(SPLITS[name.lower()])):
        if (split := SPLITS[name.lower()]) in splits:
            raise DataError(f"{path}: got two splits {split}; must be one; remove {name}")
        splits[split] = found[name]
    return splits


def of_training(path: str, key: str) -> dict[str, Table]:
    """All splits of a folder that is named as training rows. Raises DataError if it has none."""
    found = tables(path, key)
    if "train" not in found:
        mend = quoting.setting(f"{key.rpartition('.')[0]}.test", path)
        raise DataError(
            f"{path}: got {' and '.join(found)} without train; must have training rows; add them, or name a file with "
            f"training rows, and set {mend}"
        )
    return found


def of_role(path: str, role: str, key: str) -> Table:
    """The rows of a folder for the setting validation, test or development: of the split of this name, or of the only
    split. Development rows are in the split validation. Raises DataError without such a split."""
    found, split = tables(path, key), "validation" if role == "development" else role
    if split not in found and len(found) > 1:
        raise DataError(f"{path}: got {' and '.join(found)}; must have {split}; add it, or set {key} to a file")
    return found[split] if split in found else next(iter(found.values()))


def _is_saved(folder: Path) -> bool:
    return (folder / _SEVERAL).is_file() or (folder / _STATE).is_file()


def _saved(folder: Path, key: str) -> dict[str, Table]:
    if not (folder / _SEVERAL).is_file():
        return {"train": _of_split(folder, key)}
    names = _json(folder / _SEVERAL, "splits", list)
    known = [name for name in names if isinstance(name, str) and name.lower() in SPLITS]
    if not known:
        raise DataError(
            f"{folder}: got the splits {', '.join(map(str, names))}; must have one of train, validation and test; "
            f"name them so, or set {key} to the folder of one split"
        )
    found = {name: _of_split(folder / name, key) for name in known}
    if others := [str(name) for name in names if name not in known]:
        found[known[0]] = found[known[0]].noted(f"the splits {', '.join(others)} of its folder are left out")
    return found


def _of_split(folder: Path, key: str) -> Table:
    state = folder / _STATE
    shards = [each.get("filename") if isinstance(each, dict) else None for each in _json(state, _SHARDS, list)]
    if not shards or not all(isinstance(name, str) and Path(name).name == name for name in shards):
        raise DataError(f"{state}: got {shards}; must be names of files in this folder; save the data set again")
    content = _content(state)
    if any(content.get(name) for name in _INDICES):
        raise DataError(
            f"{state}: got rows in another order than in their files; must be in order; save the data set again with "
            "Dataset.flatten_indices().save_to_disk"
        )
    return files.read([str(folder / str(name)) for name in shards], key)


def _json(file: Path, name: str, kind: type) -> Any:
    """A value of a file of JSON. Raises DataError for another type."""
    value = _content(file).get(name)
    if not isinstance(value, kind):
        raise DataError(f"{file}: got no {name}; must be as Dataset.save_to_disk writes it; save the data set again")
    return value


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{file}: got {str(error)[:100]!r}; must be as Dataset.save_to_disk writes it; save the data set again"
        ) from error
    return content if isinstance(content, dict) else {}
