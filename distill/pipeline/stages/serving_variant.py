"""The form in which pruned models will serve, and models of any size in it, with random weights, to be timed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from distill.compression.quantization.quantize import MAKE, always_float
from distill.config import Quantize
from distill.config.schemes import ONNX, SCHEMES
from distill.data.encode import Encoded
from distill.deploy.export.onnx import export_onnx
from distill.inference import latency, timing
from distill.inference.runners import Batch, Runner, alone, load, torch_run
from distill.models import families
from distill.pipeline.context import Context

VOCABULARY = 1000
"""Size of the vocabulary: the time of a lookup does not depend on it."""

PREFERRED = ("openvino", "onnxruntime", "onnxruntime_static")
"""Schemes in which models serve on a CPU, the fastest in our measurements first."""

SAMPLE, CALIBRATION = 64, 2
"""Rows of each task whose lengths are timed, and rows for the ranges of activations, which do not change times."""


@dataclass(frozen=True)
class Form:
    """A form of a model: its backend and scheme, as in results.json."""

    backend: str
    scheme: str
    key: str | None = None
    """Its name in `stages.quantize.schemes`; None for a float form."""


def form_of(ctx: Context) -> Form:
    """The form that the target is about: `target.scheme`, or the one in which this machine serves fastest."""
    goal = ctx.config.target
    if goal.speedup is None and goal.latency_ms is None and goal.scheme is None:
        return Form("torch", "fp32")  # times then only decide between shapes of equal loss
    made = [name for step in ctx.plan.of(Quantize) for name in step.settings.schemes]
    cuda = ctx.machine.device.type == "cuda"
    wanted = goal.scheme or next((name for name in PREFERRED if name in made and not cuda), None)
    if wanted in SCHEMES:
        return Form(SCHEMES[wanted].backend, SCHEMES[wanted].scheme, wanted)
    half = cuda and ctx.machine.precision == "bf16" and wanted is None
    return Form("torch", wanted or ("bf16" if half else "fp32"))


def references(form: Form) -> list[Form]:
    """Forms of the teacher of which the fastest is what speedups are over: those in float32, on all backends, where
    models are to serve in a quantized form; otherwise the same form."""
    if form.key is None:
        return [form]
    onnx = ["openvino"] if find_spec("openvino") else []
    return [Form(backend, "fp32") for backend in ("torch", "onnxruntime", *onnx)]


def runner(ctx: Context, name: str, form: Form, config: Any) -> Runner:
    """A model of a config in a form, with random weights."""
    import torch

    config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
    machine, device = ctx.machine, ctx.machine.device.type
    with torch.random.fork_rng(devices=[]):
        model = families.auto_class(config).from_config(config, trust_remote_code=False).eval()
    if form.backend == "torch" and form.key is None:
        model = model.to(machine.device, torch.bfloat16 if form.scheme == "bf16" else None)
        run = torch_run(model, scheme=form.scheme, device=device, threads=machine.threads)
        return Runner(name, form.backend, form.scheme, run)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        model.save_pretrained(folder)
        path = _made(form, folder, Path(temporary), always_float(model))
        loaded = load(name, path, backend=form.backend, scheme=form.scheme, device=device, threads=machine.threads)
    row_by_row = form.key is not None and SCHEMES[form.key].row_by_row
    return replace(loaded, run=alone(loaded.run)) if row_by_row else loaded


def _made(form: Form, folder: Path, out: Path, floats: Sequence[str]) -> Path:
    """The file or folder of a form of the model in `folder`, below `out`."""
    source = folder
    if form.key is None or SCHEMES[form.key].onnx:
        export_onnx(folder, source := out / ONNX)
    if form.key is None:
        return source
    path = out / SCHEMES[form.key].file
    rows = [latency.synthetic((1, 16 * (number + 1)), VOCABULARY, seed=number) for number in range(CALIBRATION)]
    MAKE[form.key](source, path, floats, rows)
    return path


def batches(ctx: Context) -> list[Batch]:
    """Random tokens of `target.shape`; or with `own`, batches of texts as long as those of the tasks: of up to eight
    texts, or of one where the target is a latency."""
    shape = ctx.config.target.shape
    if shape != timing.OWN:
        return [latency.synthetic((shape[0], shape[1]), VOCABULARY)]
    tokenizer, tasks = ctx.given.tokenizer, list(_sampled(ctx))
    if ctx.config.target.latency_ms is None:
        drawn = timing.task_batches(tasks, tokenizer)
    else:
        drawn = timing.task_requests(tasks, tokenizer, timing.TASK_ROWS)
    random = np.random.default_rng(0)
    return [batch | {"input_ids": random.integers(5, VOCABULARY, batch["input_ids"].shape)} for batch in drawn]


def _sampled(ctx: Context) -> Iterator[tuple[int, Encoded]]:
    """Number of text columns and some training rows of each task, encoded."""
    for data in ctx.tasks.values():
        count = min(SAMPLE, len(data.train))
        rows = data.train.select(np.random.default_rng(0).permutation(len(data.train))[:count])
        yield data.texts, data.encoded(rows, ctx.given.tokenizer, ctx.config.tasks.max_length).sequences
