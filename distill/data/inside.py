"""Files inside of a folder, as settings name them."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

from distill.data import formats
from distill.data.split_names import by_split
from distill.runtime import quoting

_ABOUT = ("dataset_info.json", "dataset_dict.json", "state.json")
"""Files of `datasets` about the rows of other files."""


def extension(file: str) -> tuple[str, bool]:
    """As from `formats.extension`, of a path or a URL."""
    return formats.extension(urlsplit(file).path if "://" in file else file)


def is_readable(file: str) -> bool:
    """Whether a file has an ending of a form that is read."""
    return extension(file)[0] in {*formats.TEXT, *formats.BINARY}


def inside(folder: str, key: str) -> str:
    """How settings name the files of a folder, or of its folder `data`: those with the ending that most of them have,
    and for training rows each split by itself."""
    found: list[str] = []
    for place in (folder, os.path.join(folder, "data")):
        if not found and os.path.isdir(place):
            found = sorted(os.path.join(place, f) for f in os.listdir(place) if is_readable(f) and f not in _ABOUT)
    if not found:
        return f"{key}=FILE"
    endings = Counter(Path(file).suffix for file in found)
    ending = max(endings, key=endings.__getitem__)
    several = by_split(file for file in found if file.endswith(ending))
    if several and key.endswith(".train"):
        return settings_of(several, key)
    return quoting.setting(key, os.path.join(os.path.dirname(found[0]), f"*{ending}"))


def settings_of(several: Mapping[str, Sequence[str]], key: str) -> str:
    """The settings that name the files of each split. `key`: the setting of the training rows."""
    start = key.removesuffix("train")
    return " ".join(quoting.setting(f"{start}{split}", _pattern(names)) for split, names in several.items())


def _pattern(names: Sequence[str]) -> str | list[str]:
    """A file, a glob of the files if it matches no other, or else a list of them."""
    start = "".join(each[0] for each in takewhile(lambda each: len({*each}) == 1, zip(*names, strict=False)))
    ending = Path(names[0]).suffix
    pattern = f"{start}*{ending}"
    if len(names) == 1 or "://" in pattern:
        return names[0] if len(names) == 1 else pattern
    return pattern if sorted(glob.glob(pattern)) == sorted(names) else [*names]
