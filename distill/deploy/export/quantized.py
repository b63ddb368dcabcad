"""Quantizes models in several schemes, with the float32 ONNX file that some of these start from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill.compression.quantization.quality_limits import (
    Floats,
    Limits,
    Quantized,
    Source,
    guarded,
    guarded_heads,
    remove,
)
from distill.config.schemes import ONNX, SCHEMES, Scheme
from distill.deploy.export.onnx import export_heads, export_onnx, heads_parity, onnx_parity
from distill.errors import reason
from distill.runtime import progress
from distill.runtime.machine import Machine
from distill.runtime.storage.structs import Stored

FLOAT32 = "float32"
"""Key of the score of the float model, beside the keys of schemes."""


class Files(Stored, frozen=True, kw_only=True):
    """The files of a model in several schemes."""

    failed: dict[str, str]
    """Scheme, or `ONNX` -> why it has no file."""
    kept: dict[str, list[str]]
    """Scheme -> modules that stay in float."""
    development: dict[str, dict[str, float]]
    """Task -> `FLOAT32` or scheme -> points on the development rows, for the schemes that were scored."""
    onnx_difference: float | None = None
    """Difference of the ONNX file from torch; None without the file."""


def quantized(
    schemes: Sequence[str],
    sources: Sequence[Source],
    out: Path,
    limits: Sequence[Limits],
    machine: Machine,
    log: Callable[[str], None],
    *,
    one_encoder: bool = False,
    onnx: bool = False,
) -> Files:
    """Write a task's model in every scheme to `out`.

    Args:
        sources: the model or, with `one_encoder`, the models of several tasks, which become one file.
        limits: for each of the sources.
        onnx: whether the float32 ONNX file is written even if no scheme needs it.
    """
    failed, found, onnx_difference = dict[str, str](), dict[str, Quantized](), None
    floats = functools.cache(lambda: [Floats(machine, source) for source in sources])

    def quantize(scheme: Scheme) -> Quantized:
        if one_encoder:
            return guarded_heads(scheme, out, floats(), limits, log)
        return guarded(scheme, sources[0], out, floats()[0], limits[0], log)

    def attempt(label: str, file: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (OSError, SafetensorError):  # such as a full disk, which is no failure of the scheme
            raise
        except Exception as error:
            remove(out / file)
            failed[label] = reason(error)
            return None

    if onnx or any(SCHEMES[label].onnx for label in schemes):
        with progress.waiting("exporting to ONNX"):
            exported = functools.partial(_exported, sources, out / ONNX, one_encoder)
            onnx_difference = attempt(ONNX, ONNX, exported)
    for label in schemes:
        scheme = SCHEMES[label]
        if scheme.onnx and ONNX in failed:
            failed[label] = failed[ONNX]
        elif (model := attempt(label, scheme.file, functools.partial(quantize, scheme))) is not None:
            found[label] = model
    kept = {label: model.floats for label, model in found.items() if model.floats}
    scored = {label: model.scores for label, model in found.items() if model.scores}
    development = {
        each.source.data.task.name: {FLOAT32: each.quality.score} | {label: of[at] for label, of in scored.items()}
        for at, each in enumerate(floats() if scored else [])
    }
    return Files(failed=failed, kept=kept, development=development, onnx_difference=onnx_difference)


def _exported(sources: Sequence[Source], path: Path, one_encoder: bool) -> float:
    """Write the ONNX file of the sources. Returns its largest difference from torch."""
    if not one_encoder:
        export_onnx(sources[0].folder, path)
        return onnx_parity(sources[0].folder, path)
    folders = {source.data.task.name: source.folder for source in sources}
    export_heads(folders, path)
    return heads_parity(folders, path)
