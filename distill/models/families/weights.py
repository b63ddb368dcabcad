"""The weights of a model folder: their files, and the tensors by the files' headers. Without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from distill.errors import DataError
from distill.models.families.foreign import ADAPTER, check_adapter, check_formats
from distill.models.families.settings import check_settings
from distill.models.readable import check_pointer, check_size
from distill.runtime import quoting
from distill.runtime.storage.atomic import claimed

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Files that transformers reads: the weights, or the list of several files with a part of them each."""
READ = (".json", ".txt", ".model", ".safetensors", ".bin", ".codes", ".vocab", ".tiktoken", ".spm")
"""Endings of the files of models and tokenizers. Model cards, pictures, and states of a training have others."""
_TEMPLATE = ".jinja"
_WEIGHTS = (".safetensors", ".bin")
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Number formats of weights that need no scales."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file, by its header."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """As in the header: F32, BF16, I8, ..."""


def config_of(folder: str | Path) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        DataError: for a folder without this file, for that of a run, and for a file that is not a model's config.
    """
    file = Path(folder) / CONFIG
    check_adapter(Path(folder))
    _check_run(Path(folder))
    if not file.is_file():
        raise DataError(
            f"{folder}: got no {CONFIG}; must be a folder that transformers loads; {model_inside(Path(folder))}save "
            "model and tokenizer into it with save_pretrained"
        )
    check_links(folder)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"a {type(content).__name__} in place of settings")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{folder}: got files that cannot be loaded ({CONFIG}: {error}); must be the settings of a model; save it "
            "again with save_pretrained"
        ) from error
    for name in ("transformers_weights", "configuration_files", "attribute_map"):
        if name in content:
            raise DataError(
                f"{file}: got {name} {content[name]!r}; must have no such setting, because transformers would "
                "then read files or settings that are not checked here; save the model again with save_pretrained"
            )
    check_settings(file, content)
    return content


def weight_files(folder: str | Path) -> list[Path]:
    """The files with the weights of a folder, as transformers chooses them: all of them inside of it.

    Raises:
        DataError: for a folder without safetensors, for files that are missing or outside of it, and for two possible
            sets of files.
    """
    folder = Path(folder)
    check_adapter(folder)
    whole, index = folder / WEIGHTS, folder / INDEX
    shards = _listed(index) if index.is_file() else []
    if whole.is_file() and shards not in ([], [whole]):
        others = " ".join(quoting.path(path) for path in (index, *shards) if path.exists())
        raise DataError(
            f"{folder}: got {WEIGHTS} and {INDEX}, which names other files; must be one of the two, because only "
            f"{WEIGHTS} would be read; remove the outdated one, e.g. rm {others}"
        )
    files = [whole] if whole.is_file() else shards
    check_formats(folder, bool(files))
    if not files:
        raise DataError(
            f"{folder}: got no *.safetensors that transformers reads, which are {WEIGHTS}, or those in {INDEX}; must "
            "contain the model's weights as safetensors; load them with the AutoModel class they were trained with, "
            "and save_pretrained"
        )
    for file in files:
        check_inside(folder, file)
    return files


def unread(folder: str | Path, files: list[Path]) -> list[str]:
    """Names of further files of weights in a folder, which are not read."""
    return sorted(path.name for path in Path(folder).glob("*.safetensors") if path not in files)


def _listed(index: Path) -> list[Path]:
    """The files that an index names, which lie beside it."""
    try:
        names = sorted({str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{index}: got no list of files ({error}); must be whole; copy or download it again") from error
    for name in names:
        if {PurePosixPath(name).name, PureWindowsPath(name).name} != {name} or not name.endswith(".safetensors"):
            raise DataError(
                f"{index}: got the file {name}; must be a *.safetensors beside it; copy the file into the folder and "
                "correct the index"
            )
        if not (index.parent / name).is_file():
            raise DataError(f"{index}: got the file {name}, which is not there; must be beside it; copy it again")
    return [index.parent / name for name in names]


def check_inside(folder: Path, file: Path) -> None:
    """Raise DataError for a link that leads out of the folder, unless it is a link of the Hugging Face hub's cache."""
    try:
        target, real = file.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:
        raise DataError(f"{file}: got a link that leads to itself; must be a file; copy it again") from error
    # The hub's cache: models--OWNER--NAME/snapshots/REVISION/.../FILE leads to models--OWNER--NAME/blobs/HASH.
    blob = target.parent.name == "blobs" and target.parents[1] / "snapshots" in real.parents
    if not blob and not target.is_relative_to(real):
        raise DataError(
            f"{file}: got a link to {target}, outside of the model's folder; must be a file; if you trust the file "
            f"that it leads to, copy the folder and use the copy: cp -rL {quoting.path(folder)} "
            f"{quoting.path(f'{folder.absolute()}-copied')}"
        )


def check_links(folder: str | Path) -> None:
    """Raise DataError for a file that is a link out of the folder, or lies in a folder that is such a link.

    Only files are checked that are read when a model is loaded, and may be written again when it is saved.
    """
    for pattern in ("*", "additional_chat_templates/*", "[0-9]*_*/*"):
        for file in sorted(Path(folder).glob(pattern)):
            if file.suffix in (*READ, _TEMPLATE):
                check_inside(Path(folder), file)
                if file.suffix not in _WEIGHTS:
                    check_size(file)


def check_artifact(folder: Path, path: Path, model: bool) -> None:
    """Raise DataError for a file of an artifact that is a link out of its folder, a pipe or a device.

    Args:
        path: a file, or a folder.
        model: whether transformers loads it. It reads files of its own folder alone, which are checked then.
    """
    own = path if path.is_dir() else path.parent
    others = own.rglob("*") if own != folder else () if model else folder.iterdir()
    for file in (path, *others):
        check_inside(folder, file)
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise DataError(f"{file}: got a device or a pipe; must be a file; copy the folder again")


@contextmanager
def opened(file: Path, framework: str = "np") -> Iterator[Any]:
    """An open safetensors file. Raises DataError for a damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework=framework) as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        check_pointer(file)
        raise DataError(f"{file}: got a damaged file ({error}); must be whole; copy or download it again") from error


def tensors_of(folder: str | Path) -> dict[str, Tensor]:
    """Name -> tensor [...] of the weights of a folder. Raises DataError as from `weight_files`, for a damaged file, and
    for a tensor without values."""
    found: dict[str, Tensor] = {}
    for file in weight_files(folder):
        with opened(file) as tensors:
            for name in tensors.keys():
                part = tensors.get_slice(name)
                if name in found:
                    raise DataError(
                        f"{folder}: got {name} in {found[name].file.name} and in {file.name}; must be in one file; "
                        "save the model again with save_pretrained"
                    )
                found[name] = Tensor(file, tuple(part.get_shape()), part.get_dtype())
    if empty := [name for name, tensor in found.items() if tensor.shape == (0,)]:
        raise DataError(
            f"{folder}: got {empty[0]} without values, as DeepSpeed's ZeRO stage 3 leaves it; must be whole; write the "
            "weights with zero_to_fp32.py, which DeepSpeed puts into the folder of a checkpoint"
        )
    return found


def model_inside(folder: Path) -> str:
    """Advice to take the last checkpoint of a training by transformers, or the last snapshot in the hub's cache, if the
    folder has one."""
    names = [path.parent.name for name in (CONFIG, ADAPTER) for path in folder.glob(f"checkpoint-*/{name}")]
    numbers = [int(name.partition("-")[2]) for name in names if name.partition("-")[2].isdigit()]
    if numbers:
        return f"take its last checkpoint, {folder}/checkpoint-{max(numbers)}, or "
    snapshots = [file.parent for file in folder.glob(f"snapshots/*/{CONFIG}")]
    return f"take {max(snapshots, key=lambda path: path.stat().st_mtime)}, or " if snapshots else ""


def _check_run(folder: Path) -> None:
    """Raise DataError for the folder of a run, whose config.json has the settings of the run."""
    if claimed(folder):
        # With targets they are one folder deeper. Their quantized forms, which are inside of them, are none.
        found = {file.parent for below in ("*", "*/*") for file in folder.glob(f"export*/{below}/{CONFIG}")}
        models = " or ".join(sorted(str(model) for model in found if model.parent not in found)) or "one in it"
        raise DataError(f"{folder}: got the folder of a run; must be that of a model; choose {models}")
