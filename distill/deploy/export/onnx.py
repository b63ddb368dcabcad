"""A fine-tuned model as one ONNX file, and the proof that it outputs the same logits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

from distill.compression.pruning.ragged import squeezed
from distill.deploy.export import graphs
from distill.errors import UserError
from distill.inference.runners import LOGITS, Batch, Run, onnx_runner, torch_runner
from distill.models.families import ENDED, auto_class, family_of, input_names, max_length
from distill.models.families.head import architecture_of, names_of_class
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, VECTORS
from distill.models.teacher.load import load_tokenizer, pad_as_tokenizer, read_config
from distill.models.teacher.whole import load_whole
from distill.models.token_types import typed
from distill.runtime.storage import atomic

TOLERANCE = 1e-3
"""Largest accepted difference of a logit; about 1e-5 is usual."""
SHAPES = ((1, 1), (2, 16), (5, 33), (1, 256))
"""(batch size, length) of the check. The last is longer than attention windows and position buckets; models with a
smaller maximum length are checked at their maximum."""


OUTPUTS = {ANSWERS: ["start_logits", "end_logits"], VECTORS: ["sentence_embedding"]}
"""Architecture -> names of its outputs in the file. Others have `logits`."""


def _example(shape: tuple[int, int], config: Any, padded: bool, seed: int = 0) -> Batch:
    """Random tokens; if `padded`, every row but the first ends in padding, each of another length. A row has one end
    token, its last, where heads read it."""
    rows, length = shape
    ids = np.random.default_rng(seed).integers(min(5, config.vocab_size - 1), config.vocab_size, shape)
    mask = np.ones(shape, np.int64)
    if padded:
        mask = (np.arange(length) < np.maximum(1, length - 3 * np.arange(rows))[:, None]).astype(np.int64)
    if family_of(config).name in ENDED:
        ids[ids == config.eos_token_id] = int(config.eos_token_id == 0)
        ids[np.arange(rows), mask.sum(1) - 1] = config.eos_token_id
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
    return {name: batch[name] for name in input_names(config)}


def _tensors(config: Any, folder: Path | None = None) -> dict[str, Any]:
    """Two rows as tensors of torch, without token types where the tokenizer of a folder outputs none: all are 0."""
    import torch

    example = _example((2, 16), config, padded=True)
    if folder is not None and "token_type_ids" in example and not _has_types(folder):
        del example["token_type_ids"]
    return {name: torch.from_numpy(values) for name, values in example.items()}


def loaded(folder: Path, dtype: Any) -> Any:
    """The fine-tuned model of a folder, in eval mode."""
    auto = auto_class(read_config(folder, "folder"), folder)
    return load_whole(auto, folder, claimed=True, dtype=dtype)[0]


def check_reloads(model: Any, folder: Path) -> None:
    """Raise UserError for a model that outputs something else than the one that its folder is loaded as, which is of a
    class of transformers."""
    import torch

    batch = _tensors(model.config)
    if architecture_of(names_of_class(model)) == CHOICES:
        batch = {name: values[:, None].repeat(1, 3, 1) for name, values in batch.items()}
    with torch.no_grad():
        again = loaded(folder, torch.float32)
        ours, theirs = (each(**batch) for each in (model, again))
    # With `return_dict=False` a model outputs a tuple, of which the first value is that of its head.
    ours = dict(ours.items()) if hasattr(ours, "items") else {next(iter(theirs)): ours[0]}
    for name in ours.keys() & theirs.keys():
        if torch.is_tensor(ours[name]) and (ours[name] - theirs[name]).abs().max() > TOLERANCE:
            own, stock = type(model).__name__, type(again).__name__
            raise UserError(
                f"model: got a {own}, whose {name} differ from those of the {stock} that its saved folder is loaded as;"
                " must be of a class of transformers, without changed modules; write its layers into the config of such"
                " a class"
            )


def export_onnx(folder: Path, path: Path) -> None:
    """Write `path`: float32, with dynamic sizes and the tokenizer's input names.

    The output is `logits`, or the outputs in `OUTPUTS`. Heads and FFN channels whose output weights are all zero are
    removed.
    """

    import torch

    model = _by_last_end(squeezed(loaded(folder, torch.float32)))
    pad_as_tokenizer(model, folder)
    architecture = architecture_of(names_of_class(model)) or TEXTS
    tensors = _tensors(model.config, folder)
    if architecture == CHOICES:  # not 1 of them, which torch would take for a constant
        tensors = {key: value[:, None].repeat(1, 3, 1) for key, value in tensors.items()}
    _write(model, tensors, OUTPUTS.get(architecture, ["logits"]), path)


def _by_last_end(model: Any) -> Any:
    """The model; where its head reads the last end token of a row, with a forward pass that finds it row by row.

    The head of transformers divides the end tokens of a batch evenly among the rows. Its check that all rows have as
    many is in no graph, which would give a row the state of another one.
    """
    from distill.models.families.embedding import pooled

    def forward(self: Any, input_ids: Any, attention_mask: Any) -> Any:
        hidden = self.model(input_ids, attention_mask=attention_mask, use_cache=False)[0]
        ended = (input_ids == self.config.eos_token_id).long()
        return (self.classification_head(pooled(hidden, ended, "lasttoken")),)

    if family_of(model).name in ENDED and family_of(model).onnx:
        model.forward = MethodType(forward, model)
    return model


def _has_types(folder: Path) -> bool:
    """Whether the tokenizer of a folder outputs token types; True for a folder without one."""
    try:
        return typed(load_tokenizer(folder))
    except UserError:
        return True


def _write(model: Any, tensors: dict[str, Any], outputs: list[str], path: Path) -> None:
    """Write the ONNX file of a model, in which all sizes of the inputs are dynamic. `tensors`: examples of these."""
    import torch

    # It warns of missing torchvision operators and of deprecated calls of its own.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    sizes = {name: dict.fromkeys(range(each.dim()), torch.export.Dim.DYNAMIC) for name, each in tensors.items()}
    with atomic.writing_file(path) as temporary:
        graphs.program(model, tensors, outputs, sizes).save(temporary, external_data=False)
        beside = temporary.with_name(f"{temporary.name}.data")
        if beside.is_file():
            beside.unlink()
            raise UserError(
                f"{path}: got a model too large for one ONNX file; must be below 1.5 GiB; remove the ONNX schemes"
            )


def export_depths(model: Any, depths: Sequence[int], folder: Path) -> dict[int, Path]:
    """Write an ONNX file for each number of layers in `depths`. It outputs the encoder's hidden states [B, L, H] after
    that number of layers.

    torch traces the encoder once for all files, because tracing takes longest.
    """
    import onnx
    import torch

    class States(torch.nn.Module):
        config = model.config

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
            given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            states = self.model(input_ids, attention_mask, output_hidden_states=True, **given).hidden_states
            return tuple(states[depth] for depth in depths)

    tensors = _tensors(model.config)
    names = [f"states_{depth}" for depth in depths]
    _write(States().eval(), tensors, names, folder / "every.onnx")
    every = onnx.utils.Extractor(onnx.load(folder / "every.onnx"))
    files = {depth: folder / f"{name}.onnx" for depth, name in zip(depths, names, strict=True)}
    for file in files.values():
        with atomic.writing_file(file) as temporary:
            onnx.save(every.extract_model([each.name for each in every.graph.input], [file.stem]), temporary)
    return files


def export_heads(folders: dict[str, Path], path: Path) -> None:
    """Write `path`: the float32 models of several tasks with one encoder, which it contains once.

    Args:
        folders: task -> its model. The logits of task T are the output `logits_T`, in this order.
    """
    import torch

    from distill.losses.shared_encoder import OnePass

    class Heads(OnePass):
        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
            return tuple(self.each(input_ids, attention_mask, token_type_ids))

    model = Heads([loaded(folder, torch.float32) for folder in folders.values()]).eval()
    tensors = _tensors(model.config, next(iter(folders.values())))
    _write(model, tensors, [f"{LOGITS}{task}" for task in folders], path)


def heads_parity(folders: dict[str, Path], path: Path) -> float:
    """As `onnx_parity`, for a file of `export_heads`: each head is compared with the model of its task."""
    torch_runs = [torch_runner("torch", f, scheme="fp32", device="cpu", threads=1).run for f in folders.values()]

    def separately(batch: Batch) -> np.ndarray:
        return np.concatenate([run(batch) for run in torch_runs], axis=-1)

    return _parity(separately, next(iter(folders.values())), path)


def onnx_parity(folder: Path, path: Path) -> float:
    """Largest difference from torch's logits over several shapes, including one token and padded rows.

    Raises:
        UserError: if it is above 1e-3.
    """
    return _parity(torch_runner("torch", folder, scheme="fp32", device="cpu", threads=1).run, folder, path)


def _parity(torch_run: Run, folder: Path, path: Path) -> float:
    """Largest difference between the logits of `path` and of `torch_run`. `folder`: a model with their config."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    onnx_run = onnx_runner("onnx", path, scheme="fp32", threads=1).run
    largest = 0.0
    for seed, (rows, length) in enumerate(SHAPES):
        for padded in (False, True):
            batch = _example((rows, min(length, max_length(config))), config, padded, seed)
            if family_of(config).name in ENDED:
                batch["input_ids"][1::2, 0] = config.eos_token_id  # texts and pairs have other numbers of end tokens
            different = np.abs(torch_run(batch) - onnx_run(batch))
            if different.ndim == 3:  # outputs at padding are arbitrary
                different = different[batch["attention_mask"] == 1]
            largest = max(largest, float(different.max()))
    # NaN must fail too.
    if not largest <= TOLERANCE:
        raise UserError(
            f"{path}: got logits that differ from torch's by {largest:.2g}; must be at most {TOLERANCE:g}; report it"
        )
    return largest
