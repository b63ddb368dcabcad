"""Quantizes models in several schemes, with the float32 ONNX file that some of these start from."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill.compression.quantization.quality_limits import (
    Floats,
    Limits,
    Quality,
    Quantized,
    Source,
    guarded,
    guarded_heads,
    remove,
)
from distill.config.schemes import ONNX, SCHEMES, Scheme, packages
from distill.deploy.export.onnx import export_heads, export_onnx, heads_parity, onnx_parity
from distill.errors import reason
from distill.runtime import progress
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.storage.structs import Stored
from distill.runtime.versions import installed, processor, versions

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
    scored = {label: model.qualities for label, model in found.items() if model.qualities}
    limited = bool(schemes) and limits != [Limits()] * len(limits)
    qualities = {
        name: {FLOAT32: quality} | {label: of[at] for label, of in scored.items()}
        for at, (name, quality) in enumerate(_qualities(floats, bool(scored)) if limited else [])
    }
    _store(qualities, out / development_file(machine))
    development = {task: {label: each.score for label, each in of.items()} for task, of in qualities.items()}
    return Files(failed=failed, kept=kept, development=development, onnx_difference=onnx_difference)


def _qualities(floats: Callable[[], list[Floats]], needed: bool) -> list[tuple[str, Quality]]:
    """Each task and the quality of its float model. Empty if it cannot be scored and not `needed`: each scheme has then
    failed for the same reason, and says so."""
    try:
        return [(each.source.data.task.name, each.quality) for each in floats()]
    except (OSError, SafetensorError):
        raise
    except Exception:
        if needed:
            raise
        return []


def development_file(machine: Machine) -> str:
    """Name of the file, beside the models, with their logits on the development rows as this machine computes them.

    It is hidden, because it does not count among the files by which a step is known to have made the same.
    """
    conditions = [processor(machine), machine.threads, versions(), installed(packages())]
    return f".development-{fingerprint(conditions)}.npz"


def development_key(task: str, label: str, split: str) -> str:
    """The name in that file of the logits for a split. `label`: `FLOAT32` or a scheme."""
    return f"{task}|{label}|{split}"


def _store(qualities: Mapping[str, Mapping[str, Quality]], file: Path) -> None:
    """Write the logits of the models that were scored, if any. `qualities`: task -> label -> quality."""
    logits = {
        development_key(task, label, split): outputs
        for task, of_task in qualities.items()
        for label, each in of_task.items()
        for split, outputs in each.logits.items()
    }
    if logits:
        atomic.write_arrays(file, logits)


def _exported(sources: Sequence[Source], path: Path, one_encoder: bool) -> float:
    """Write the ONNX file of the sources. Returns its largest difference from torch."""
    if not one_encoder:
        export_onnx(sources[0].folder, path)
        return onnx_parity(sources[0].folder, path)
    folders = {source.data.task.name: source.folder for source in sources}
    export_heads(folders, path)
    return heads_parity(folders, path)
