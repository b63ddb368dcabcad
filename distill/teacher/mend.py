"""Messages about weights with other names than those of the model, with the command that mends the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from distill import family
from distill.errors import DataError
from distill.family.foreign import PARTS, python
from distill.family.weights import INDEX, WEIGHTS, Tensor

WRAPPERS = r"\b(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
"""Parts of names that torch.compile, DataParallel and other wrappers of a model add."""


def one_name(name: str, prefix: str) -> str:
    """The name of a tensor below the encoder's `prefix`, as transformers 5 spells it."""
    name = name.removeprefix(prefix)
    return re.sub(r"beta$", "bias", re.sub(r"gamma$", "weight", name)) if "LayerNorm." in name else name


def refusal(
    path: str | Path,
    model: Any,
    stored: Mapping[str, Tensor],
    expected: Mapping[str, tuple[int, ...]],
    missing: Sequence[str],
    strange: Collection[str],
) -> DataError:
    """The error for a folder without some of its model's tensors, or with tensors that no part of it uses.

    Args:
        stored: the tensors of the folder.
        expected: shapes of the model's tensors.
        missing: names of those that the folder must have.
        strange: names of tensors of the folder that are not the model's.
    """
    if adapted := sorted(name for name in strange if any(part in name for part in PARTS)):
        return DataError(
            f"{path}: got tensors of an adapter that is not merged, such as {adapted[0]}{_and(missing, ', and no ')}; "
            "must be the tensors of the model alone; where it was trained, merge the adapter before it is saved: "
            "model.merge_and_unload().save_pretrained(FOLDER)"
        )
    if (mended := _renamed(path, model, stored, expected)) is not None:
        name, wanted, command = mended
        return DataError(
            f"{path}: got tensors under other names than the model's, such as {name} for {wanted}; must be the names "
            f"that transformers writes; rename them in the file with {command}"
        )
    kind = type(model).__name__
    got = _and(missing, "no ") or "tensors"
    more = _and(sorted(strange), " and " if missing else "that the model has no place for, such as ")
    more = f"{more}, which the model has no place for" if missing and strange else more
    joined = f"{got}{'' if missing else ' '}{more}"
    return DataError(
        f"{path}: got {joined}; must have every tensor of {kind} and no other, as config.json states it; save the "
        "whole model again with save_pretrained"
    )


def _and(names: Sequence[str], before: str) -> str:
    """The first of some names and the number of the others; empty without names."""
    if not names:
        return ""
    return f"{before}{names[0]}" + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _renamed(
    path: str | Path, model: Any, stored: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]
) -> tuple[str, str, str] | None:
    """A tensor, its name in the model, and the command that renames all of them; None if no other names are enough."""
    record = family.family_of(model)
    inside = f"{record.encoder}." if hasattr(model, record.encoder) else ""
    anchor = f"{inside}{record.embeddings}.weight"
    below = anchor.removeprefix(inside)
    for start in sorted(name.removesuffix(below) for name in stored if f".{name}".endswith(f".{below}")):
        for expression, rename in _renamings(start, inside):
            named = {rename(name): tensor.shape for name, tensor in stored.items()}
            encoder = [name for name in expected if name.startswith(inside) and ".pooler." not in f".{name}"]
            if len(named) == len(stored) and all(named.get(name) == expected[name] for name in encoder):
                return f"{start}{below}", anchor, python(_program(Path(path), stored, expression))
    return None


def _renamings(start: str, inside: str) -> list[tuple[str, Callable[[str], str]]]:
    """Ways to rename a tensor `k` of a file whose encoder is below `start` in place of `inside`."""
    outer = start.removesuffix(inside)
    ways: list[tuple[str, Callable[[str], str]]] = [
        (f"re.sub({WRAPPERS!r}, '', k)", lambda name: re.sub(WRAPPERS, "", name)),
        (f"k.removeprefix({outer!r})", lambda name: name.removeprefix(outer)),
    ]
    if start:
        expression = f"({inside!r} + k.removeprefix({start!r}) if k.startswith({start!r}) else k)"
        ways.append((expression, lambda name: re.sub(f"^{re.escape(start)}", inside, name)))
    return ways


def _program(folder: Path, stored: Mapping[str, Tensor], expression: str) -> str:
    """The program that writes all tensors of a folder, renamed, into one file."""
    files = sorted({str(tensor.file) for tensor in stored.values()})
    target, index = str(folder / WEIGHTS), folder / INDEX
    last = f"; import os; os.remove({str(index)!r})" if index.is_file() else ""
    return (
        "import re; from safetensors.torch import load_file, save_file; "
        f"save_file({{{expression}: v.clone() for f in {files!r} for k, v in load_file(f).items()}}, {target!r}, "
        f"{{'format': 'pt'}}){last}"
    )
