"""Checks the names of the tensors in a model folder: wrapped models and adapters are refused. Without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from distill.errors import DataError
from distill.models.families.foreign import python
from distill.models.families.records import FAMILIES
from distill.models.families.weights import INDEX, WEIGHTS, Tensor

ADAPTED = re.compile(
    r"(^|\.)(lora_|base_layer\.|modules_to_save\.|original_module\.|ia3_l|hada_w|lokr_w|oft_|boft_|vera_|"
    r"prompt_encoder\.|prompt_embeddings|adapters\.)"
)
"""Names of the tensors of adapters that are not merged."""
WRAPPERS = r"\b(_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
"""Parts of names that torch.compile, DataParallel and other wrappers of a model add."""


def one_name(name: str, prefix: str) -> str:
    """The name of a tensor below the encoder's `prefix`, as transformers 5 spells it."""
    name = name.removeprefix(prefix)
    return re.sub(r"beta$", "bias", re.sub(r"gamma$", "weight", name)) if "LayerNorm." in name else name


def without_outer(folder: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors [...] of a folder by their names without the prefix that published files of its type may have.

    Raises:
        DataError: for a tensor that is there with the prefix and without it.
    """
    record = FAMILIES.get(str(config.get("model_type")))
    if record is None or not record.outer:
        return tensors
    if twice := sorted(name for name in tensors if f"{record.outer}{name}" in tensors):
        raise DataError(
            f"{folder}: got the tensors {twice[0]} and {record.outer}{twice[0]}, which are two names of one; must be "
            "one of them; save the model again with save_pretrained"
        )
    return {name.removeprefix(record.outer): tensor for name, tensor in tensors.items()}


def check_names(folder: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Check that the tensors of a folder have the names that transformers gives them. Tensors may have any shape [...].

    Raises:
        DataError: for tensors of an adapter, and for an encoder under another name, with the command that renames it.
            transformers would initialize such an encoder at random.
    """
    if adapted := sorted(filter(ADAPTED.search, tensors)):
        raise DataError(
            f"{folder}: got tensors of an adapter that is not merged, such as {adapted[0]}; must be the tensors of the "
            "model alone; where it was trained, merge the adapter before the model is saved: "
            "model.merge_and_unload().save_pretrained(FOLDER)"
        )
    record = FAMILIES.get(str(config.get("model_type")))
    if record is None:
        return
    inside, below = f"{record.encoder}.", f"{record.embeddings}.weight"
    if record.layer is None and any(name.startswith(f"transformer.{below}") for name in tensors):
        return  # the name of the encoder in some classes of decoders and of T5, which their loading checks
    for example, expression, mended in _renamings(tensors, inside, below):
        renamed = [mended(name) for name in tensors]
        if len({*renamed}) == len(renamed):
            raise DataError(
                f"{folder}: got tensors under other names than the model's, such as {example} for {mended(example)}; "
                "must be the names that transformers writes; rename them with "
                + python(_program(Path(folder), tensors, expression))
            )


def _renamings(names: Collection[str], inside: str, below: str) -> Iterator[tuple[str, str, Callable[[str], str]]]:
    """Yield a tensor with a wrong name, and the renaming of all tensors, as a Python expression on `k` and as a
    function.

    Args:
        inside: prefix of the encoder's tensors.
        below: name of its token embeddings, without the prefix.
    """
    if wrapped := sorted(filter(re.compile(WRAPPERS).search, names)):
        yield wrapped[0], f"re.sub({WRAPPERS!r}, '', k)", lambda name: re.sub(WRAPPERS, "", name)
    starts = sorted(name.removesuffix(below) for name in names if f".{name}".endswith(f".{below}"))
    if not starts or {"", inside} & {*starts}:
        return
    start = starts[0]
    outer = start.removesuffix(inside)
    if outer != start:
        yield f"{start}{below}", f"k.removeprefix({outer!r})", lambda name: name.removeprefix(outer)
    else:
        expression = f"{inside!r} + k.removeprefix({start!r}) if k.startswith({start!r}) else k"
        yield f"{start}{below}", expression, lambda name: re.sub(f"^{re.escape(start)}", inside, name)


def _program(folder: Path, tensors: Mapping[str, Tensor], expression: str) -> str:
    """The program that writes all tensors of a folder, renamed, into one file."""
    files = sorted({str(tensor.file) for tensor in tensors.values()})
    target, index = str(folder / WEIGHTS), folder / INDEX
    last = f"; import os; os.remove({str(index)!r})" if index.is_file() else ""
    return (
        "import re; from safetensors.torch import load_file, save_file; "
        f"save_file({{({expression}): v.clone() for f in {files!r} for k, v in load_file(f).items()}}, {target!r}, "
        f"{{'format': 'pt'}}){last}"
    )
