"""Writes model folders, the same way for every stage."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from distill.models import families
from distill.models.families import earlier
from distill.models.token_types import typed
from distill.runtime.storage import atomic, run_folder, structs
from distill.runtime.storage.structs import Stored

_TEMPLATE = "chat_template"
_CODE = ("auto_map", "custom_pipelines")
_ASKED = "should_save_on_this_rank"
"""Method of transformers' models. Earlier versions do not have it, and write in any process."""


def with_names(tokenizer: Any, config: Any) -> Any:
    """A copy of a tokenizer that outputs, and is saved with, exactly the inputs with which a model of this config was
    trained."""
    copied = copy.copy(tokenizer)
    with_types, names = typed(tokenizer), families.input_names(config)
    copied.model_input_names = [name for name in names if name != "token_type_ids" or with_types]
    # What is not among these is not written.
    copied.init_kwargs = tokenizer.init_kwargs | {"model_input_names": list(copied.model_input_names)}
    return copied


@contextmanager
def write_model(
    folder: Path,
    model: Any,
    tokenizer: Any,
    manifest: Stored | None = None,
    more: Mapping[str, Tensor] | None = None,
    *,
    headless: bool = False,
) -> Iterator[Path]:
    """Write a folder that plain transformers loads, with model, tokenizer and a manifest, if it has one, atomically.

    `more` are tensors of another class of the family, such as a head, which are written beside the model's own. With
    `headless`, a masked language model is written as its encoder alone: its head is random.
    Yields the temporary folder, to which the block may add files. If the block raises an error, no folder is written.
    """
    tokenizer = with_names(tokenizer, model.config)
    setattr(tokenizer, _TEMPLATE, None)  # no encoder reads one, and its names become names of files
    # A teacher's references to Python code, which a user's transformers would offer to run.
    tokenizer.init_kwargs = {name: value for name, value in tokenizer.init_kwargs.items() if name not in _CODE}
    for name in _CODE:
        if hasattr(model.config, name):
            delattr(model.config, name)
    with atomic.writing(folder) as temporary:
        with _in_any_process(model):
            model.save_pretrained(temporary, state_dict=_state(model, more or {}, headless))
        if not any(temporary.glob("*.safetensors")):
            raise RuntimeError(f"{folder}: save_pretrained wrote no weights")
        keep_labels(temporary, model.config)
        if headless:
            encoder, file = type(families.encoder(model)).__name__, temporary / "config.json"
            atomic.write_json(file, atomic.read_json(file) | {"architectures": [encoder]})
        earlier.complete(temporary)
        tokenizer.save_pretrained(temporary)
        yield temporary
        if manifest is not None:
            structs.write(temporary / run_folder.MANIFEST, manifest)


def _state(model: Any, more: Mapping[str, Tensor], headless: bool) -> dict[str, Tensor] | None:
    """Name -> tensor of what is written; None for all of a model's own."""
    if not more and not headless:
        return None
    heads = tuple(f"{path}." for path in families.family_of(model).mlm_head) if headless else ()
    own = {name: value for name, value in model.state_dict().items() if not name.startswith(heads)}
    return own | dict(more)


@contextmanager
def _in_any_process(model: Any) -> Iterator[None]:
    """Within the context, transformers writes a model in any process; otherwise it writes in the first process alone.

    Processes that train different models write what they have trained.
    """
    parts = [part for part in model.modules() if hasattr(part, _ASKED)]
    for part in parts:
        setattr(part, _ASKED, lambda is_main_process: is_main_process)
    try:
        yield
    finally:
        for part in parts:
            delattr(part, _ASKED)


def keep_labels(folder: Path, config: Any) -> None:
    """Store the labels of a binary classifier in the config of its folder, where transformers omits them although
    BART's default is three labels."""
    if families.family_of(config).layer is not None:
        return
    file = folder / "config.json"
    stored = atomic.read_json(file)
    if "id2label" not in stored and config.num_labels == 2:
        names = {"id2label": config.id2label, "label2id": config.label2id}
        atomic.write_json(file, stored | names)
