"""Models of any size with random weights, in the variant that will serve, to be timed before anything is trained."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from distill.compression.pruning.search import Shape, estimated, margin_lost
from distill.compression.pruning.sensitivity import Sensitivity
from distill.compression.pruning.target import KNOTS, Search, config_of, shape_of
from distill.compression.pruning.times import Times, timer
from distill.compression.quantization.quantize import MAKE, always_float
from distill.config import Target
from distill.config.backends import BACKENDS
from distill.config.schemes import ONNX, SCHEMES
from distill.deploy.export.onnx import export_onnx
from distill.errors import ConfigError
from distill.inference import latency
from distill.inference.artifact import batches_of, by_length, scheme_named
from distill.inference.runners import Batch, Runner, in_turn, load, runs_here, torch_run
from distill.inference.timing import TASK_BATCH, TASK_ROWS
from distill.models import families
from distill.runtime.machine import cores

VOCABULARY = 1000
"""Size of the vocabulary: the time of a lookup does not depend on it."""

CALIBRATION = 2
"""Number of rows for the ranges of activations, which do not change times."""


@dataclass(frozen=True)
class Form:
    """A form of a model: its backend and scheme, as in results.json."""

    backend: str
    scheme: str
    key: str | None = None
    """Its name in `distill.config.schemes.SCHEMES`; None for a float form."""


TORCH = Form("torch", "fp32")


def form_named(scheme: str) -> Form:
    """The form of a quantization scheme. Raises ConfigError for an unknown name."""
    found = scheme_named(scheme)
    return Form(found.backend, found.scheme, scheme)


def form_of(target: Target, made: Iterable[str], *, cuda: bool, bf16: bool) -> Form:
    """The form that a target is about: its scheme, or the form in which this machine serves fastest.

    Args:
        made: names of the schemes that the recipe quantizes in.
        bf16: whether it serves in bfloat16, as on a GPU.
    """
    if target.speedup is target.latency_ms is target.scheme is None:
        return TORCH  # times then only decide between shapes of equal loss
    schemes = (SCHEMES[name] for name in made)
    ranks = {scheme.cpu_rank: scheme.name for scheme in schemes if scheme.cpu_rank is not None and not cuda}
    wanted = target.scheme or (ranks[min(ranks)] if ranks else None)
    if wanted in SCHEMES:
        return form_named(wanted)
    return Form("torch", wanted or ("bf16" if bf16 else "fp32"))


REPEATS = 5
"""Rounds of timing."""


def references(form: Form) -> list[Form]:
    """Forms of the teacher; speedups are over the fastest of them.

    If models are to serve in a quantized form, these are its float32 forms on all backends, else the same form.
    """
    if form.key is None:
        return [form]
    return [
        Form(name, "fp32") for name, backend in BACKENDS.items() if backend.float32 and runs_here(backend, gpu=False)
    ]


def runner(name: str, form: Form, config: Any, *, device: str, threads: int) -> Runner:
    """A model of a config in a form, with random weights. The vocabulary of `config` is made small.

    Args:
        device: of torch.
        threads: of the CPU.
    """
    import torch

    config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
    with torch.random.fork_rng(devices=[]):
        model = families.auto_class(config).from_config(config, trust_remote_code=False).eval()
    if form.key is None and BACKENDS[form.backend].loads == "transformers":
        model = model.to(device, torch.bfloat16 if form.scheme == "bf16" else None)
        return Runner(
            name, form.backend, form.scheme, torch_run(model, scheme=form.scheme, device=device, threads=threads)
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        model.save_pretrained(folder)
        path = _made(form, folder, Path(temporary), always_float(model))
        return load(
            name,
            path,
            backend=form.backend,
            scheme=form.scheme,
            device=device,
            threads=threads,
            row_by_row=form.key is not None and SCHEMES[form.key].row_by_row,
        )


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


def random_tokens(batches: Iterable[Batch]) -> list[Batch]:
    """The batches with other tokens, which are in the small vocabulary of the models that are timed."""
    random = np.random.default_rng(0)
    return [batch | {"input_ids": random.integers(5, VOCABULARY, batch["input_ids"].shape)} for batch in batches]


def search_in(
    form: Form,
    config: Any,
    shapes: Sequence[Shape],
    times: Times,
    teachers: Callable[[], Sequence[Any]],
    *,
    device: str,
    threads: int,
    folder: Path,
    log: Callable[[str], None],
    conditions: Mapping[str, Any] = MappingProxyType({}),
    checked: bool = True,
    knots: tuple[int, int] = KNOTS,
) -> Search:
    """The search for a shape of models that will serve in a form.

    Args:
        config: of the models to be pruned.
        times: times models, whose tokens are below `VOCABULARY`.
        teachers: returns the configs of the models over which speedups are, which run one after the other.
        device: of torch.
        threads: of the CPU.
        folder: where times are stored.
        conditions: further conditions under which stored times are used again.
        checked: whether the chosen shape is timed itself.
        knots: numbers of hidden and of FFN sizes that are timed.
    """

    def built(name: str, form: Form, config: Any, shape: Shape) -> Runner:
        return runner(name, form, config_of(config, shape), device=device, threads=threads)

    def compared() -> list[Runner]:
        configs = teachers()
        for whole in configs:
            whole.num_labels = config.num_labels  # so that they share a graph; times do not depend on it
        every = [
            [built(f"{each.backend} {each.scheme}", each, whole, shape_of(whole)) for whole in configs]
            for each in references(form)
        ]
        return [first if not others else in_turn(first.name, [first, *others]) for first, *others in every]

    return Search(
        config,
        shapes,
        lambda name, shape: built(name, form, config, shape),
        compared,
        times,
        {"device": device, "threads": threads, **asdict(form), **conditions},
        folder,
        checked,
        log,
        knots,
    )


def reached(
    model: Any,
    collated: Iterable[Mapping[str, Any]],
    shapes: Sequence[Shape],
    target: Target,
    scheme: str | None,
    threads: int | None,
    found: Sensitivity,
    log: Callable[[str], None],
) -> Shape:
    """The shape that meets a target at the least estimated loss.

    If the target is about time, models are timed: on random texts with the lengths of `collated`, in batches of up to
    eight or, for a latency, one by one.

    Raises:
        ConfigError: if no shape meets the target, in the words of its settings.
    """
    single, form = target.latency_ms is not None, TORCH if scheme is None else form_named(scheme)
    pad_id = model.config.pad_token_id or 0
    inputs = by_length(batches_of(collated, pad_id), pad_id, 1 if single else TASK_BATCH, TASK_ROWS)
    parts = sum(len(batch["input_ids"]) for batch in inputs) if single else 1
    assert found.losses is not None
    with tempfile.TemporaryDirectory() as folder:
        search = search_in(
            form,
            model.config,
            shapes,
            timer(random_tokens(inputs), parts, repeats=REPEATS, log=log),
            lambda: [model.config],
            device=model.device.type,
            threads=threads or cores(),
            folder=Path(folder),
            log=log,
        )
        price = estimated([found.losses])
        if target.speedup is target.latency_ms is None:
            return _small_enough(search, target.size_mib, price)
        return search.choice(target, price, cost=margin_lost([found.losses])).shape


def _small_enough(search: Search, size_mib: float, price: Callable[[Shape], Any]) -> Shape:
    """The shape with the least price among the shapes that are small enough; of equal ones the largest."""
    mib = search.sizes.milliseconds
    fitting = [shape for shape in search.shapes if mib(shape) <= size_mib]
    if not fitting:
        least = min(map(mib, search.shapes))
        raise ConfigError(f"size_mib: got {size_mib}; must be at least {least:.1f}, the smallest shape; set more")
    return min(fitting, key=lambda shape: (price(shape), -shape.weights))
