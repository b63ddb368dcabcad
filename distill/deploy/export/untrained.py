"""Models of any size with random weights, in the variant that will serve, to be timed before anything is trained."""

from __future__ import annotations

import copy
import functools
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from distill.compression.pruning.search import Shape, estimated, margin_lost
from distill.compression.pruning.sensitivity import Sensitivity
from distill.compression.pruning.stored_times import Kept
from distill.compression.pruning.target import KNOTS, Search, config_of
from distill.compression.pruning.times import OwnBatches, Timer, Times
from distill.compression.quantization.quantize import MAKE, always_float
from distill.config import Target
from distill.config.backends import BACKENDS
from distill.config.loads import SINGLE, load_of
from distill.config.schemes import BF16, ONNX, SCHEMES, Form
from distill.deploy.export.onnx import export_depths, export_onnx
from distill.errors import ConfigError
from distill.inference import latency
from distill.inference.artifact import batches_of, by_length, scheme_named
from distill.inference.runners import Batch, Run, Runner, ensemble, in_turn, load, runs_here, torch_run
from distill.inference.timing import TASK_BATCH, TASK_ROWS
from distill.models import families
from distill.models.teacher.whole import without_memories
from distill.models.write import keep_labels
from distill.runtime import outside
from distill.runtime.machine import cores
from distill.runtime.versions import PACKAGES, installed, source_hash

VOCABULARY = 1000
"""Size of the vocabulary: the time of a lookup does not depend on it."""

CALIBRATION = 1
"""Number of rows for the ranges of activations, which do not change times."""


TORCH = Form("torch", "fp32")


def form_named(scheme: str | None) -> Form:
    """The form of a quantization scheme; with None torch in float32. Raises ConfigError as `scheme_named`."""
    if scheme is None:
        return TORCH
    found = scheme_named(scheme)
    return Form(found.backend, found.scheme, scheme)


def forms_of(target: Target, made: Iterable[str], *, cuda: bool, half: str | None) -> list[Form]:
    """The forms in which the models of a target may serve: the fastest of them is searched by timing.

    With `target.scheme` there is one. On a CPU these are the forms that an evaluate step times and an export step
    writes: the quantized ones, torch and, where a scheme needs the float32 ONNX file, the backends that run it.

    Args:
        made: names of the schemes that the recipe quantizes in.
        half: the precision of 16 bits in which the device is fast: bf16, on a GPU also fp16; None for none.
    """
    if target.scheme is not None:
        return [form_named(target.scheme) if target.scheme in SCHEMES else Form("torch", target.scheme)]
    if target.speedup is target.latency_ms is None:
        return [TORCH]  # times then only decide between shapes of equal loss
    if cuda:
        return [Form("torch", half) if half else TORCH]
    schemes = [SCHEMES[name] for name in made if runs_here(BACKENDS[SCHEMES[name].backend], gpu=False)]
    if not schemes:
        return [TORCH]
    onnx = any(scheme.onnx for scheme in schemes)
    plain = [form for form in float32() if onnx or form == TORCH]
    in_bf16 = [Form(form.backend, "bf16") for form in plain if half and BACKENDS[form.backend].bf16]
    quantized = [Form(scheme.backend, scheme.scheme, scheme.name) for scheme in schemes]
    mixed = [
        Form(form.backend, f"{form.scheme}{BF16}", form.key)
        for form in quantized
        if any(form.backend == each.backend for each in in_bf16)
    ]
    return [*plain, *in_bf16, *quantized, *mixed]


REPEATS = 5
"""Rounds of timing."""


def float32() -> list[Form]:
    """The float32 forms that a CPU runs."""
    return [
        Form(name, "fp32") for name, backend in BACKENDS.items() if backend.float32 and runs_here(backend, gpu=False)
    ]


def references(forms: Sequence[Form]) -> list[Form]:
    """Forms of the teacher; speedups are over the fastest of them.

    If models may only serve in one float form, it is the same, else these are the float32 forms on all backends.
    """
    return [*forms] if [form.key for form in forms] == [None] else float32()


def reference_config(config: Any, labels: int) -> Any:
    """A copy of a teacher's config as the teacher is timed, with the number of labels of the models that are pruned.

    It keeps all sizes, of which some families have more than shapes do. With the same labels, models share a graph,
    those too whose labels are not resized; times do not depend on it.
    """
    own = copy.deepcopy(config)
    own.num_labels = labels
    if families.family_of(own).layer is None:  # others are timed like the models that are pruned
        without_memories(own)
        own.pad_token_id = own.pad_token_id or 0  # decoders refuse several texts without one
        for name in own.to_dict():
            if name.endswith("_token_id") and isinstance(token := getattr(own, name), int) and token >= VOCABULARY:
                setattr(own, name, 0)
    return own


def references_of(config: Any, forms: Iterable[Form], *, device: str, threads: int) -> dict[Form, Runner]:
    """The models of `runners`, for texts of random tokens: where a classifier reads an end token, it gets one."""
    found, end = runners(config, forms, device=device, threads=threads), families.end_token(config)
    return found if end is None else {form: replace(each, run=_ended(each.run, end)) for form, each in found.items()}


def _ended(run: Run, end: int) -> Run:
    """`run`, of texts whose last token, and no other one, is the end token."""

    def ended(batch: Batch) -> np.ndarray:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        ids = np.where(ids == end, end - 1, ids)
        ids[np.arange(len(ids)), mask.shape[1] - 1 - mask[:, ::-1].argmax(1)] = end
        return run(batch | {"input_ids": ids})

    return ended


def runners(config: Any, forms: Iterable[Form], *, device: str, threads: int) -> dict[Form, Runner]:
    """A model of a config with random weights, in each form. The vocabulary of `config` is made small.

    Args:
        device: of torch.
        threads: of the CPU.
    """
    import torch

    from distill.runtime.precision import HALVES

    config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
    with torch.random.fork_rng(devices=[]):
        of_class = families.auto_class(config)
        model = of_class.from_config(config, dtype=torch.float32, trust_remote_code=False).eval()
    found: dict[Form, Runner] = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = _Files(model, Path(temporary))
        for form in forms:
            if form.key is None and BACKENDS[form.backend].loads == "transformers":
                own = copy.deepcopy(model).to(device, HALVES.get(form.scheme))
                run = torch_run(own, scheme=form.scheme, device=device, threads=threads)
                found[form] = Runner(form.name, form.backend, form.scheme, run)
            else:
                found[form] = load(
                    form.name,
                    files.of(form.key),
                    backend=form.backend,
                    scheme=form.scheme,
                    device=device,
                    threads=threads,
                    row_by_row=form.key is not None and SCHEMES[form.key].row_by_row,
                )
    return found


def encoders(config: Any, depths: Sequence[int], forms: Sequence[Form], threads: int) -> dict[tuple[int, Form], Runner]:
    """The first layers of an encoder with random weights, as many as each of `depths`, in some forms.

    Args:
        config: has as many layers as the largest of `depths`. Its vocabulary is made small.
        forms: that run an ONNX file on the CPU, float32 or quantized.
    """
    import torch
    from transformers import AutoModel

    found: dict[tuple[int, Form], Runner] = {}
    config.vocab_size = max(VOCABULARY, (config.pad_token_id or 0) + 1)
    with tempfile.TemporaryDirectory() as temporary, torch.random.fork_rng(devices=[]):
        model = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False).eval()
        for depth, file in export_depths(model, depths, Path(temporary)).items():
            for form in forms:
                made = file
                if form.key is not None:
                    made = file.with_name(f"{depth} {SCHEMES[form.key].file}")
                    MAKE[form.key](file, made, [], [])
                found[depth, form] = load(
                    form.name, made, backend=form.backend, scheme=form.scheme, device="cpu", threads=threads
                )
    return found


@dataclass(frozen=True)
class _Files:
    """The files of a model, each of which is written when it is first needed."""

    model: Any
    out: Path

    @functools.cached_property
    def checkpoint(self) -> Path:
        self.model.save_pretrained(self.out / "model")
        keep_labels(self.out / "model", self.model.config)
        return self.out / "model"

    @functools.cached_property
    def onnx(self) -> Path:
        export_onnx(self.checkpoint, self.out / ONNX)
        return self.out / ONNX

    @functools.cached_property
    def made(self) -> dict[str, Path]:
        """Name of a scheme -> its file or folder."""
        return {}

    def of(self, key: str | None) -> Path:
        """The file or folder of a scheme, or with None the ONNX file."""
        if key is None:
            return self.onnx
        if key not in self.made:
            source = self.onnx if SCHEMES[key].onnx else self.checkpoint
            rows = [latency.synthetic((1, 16 * (number + 1)), VOCABULARY, seed=number) for number in range(CALIBRATION)]
            MAKE[key](source, self.out / SCHEMES[key].file, always_float(self.model), rows)
            self.made[key] = self.out / SCHEMES[key].file
        return self.made[key]


def random_tokens(batches: Iterable[Batch]) -> list[Batch]:
    """The batches, which may be `joined`, with other tokens, which are in the small vocabulary of the models that are
    timed."""
    random = np.random.default_rng(0)

    def drawn(name: str, values: np.ndarray) -> np.ndarray:
        return random.integers(5, VOCABULARY, values.shape) if name.endswith("input_ids") else values

    return [{name: drawn(name, values) for name, values in batch.items()} for batch in batches]


_NOT_TIMED = re.compile(
    "num_hidden_layers|.*hidden_size|intermediate_size|num_attention_heads|.*dropout.*|.*_token_id|vocab_size"
    "|architectures|id2label|label2id|num_labels|problem_type|_name_or_path|dtype|transformers_version"
)
"""Settings of a config on which the time of a shape does not depend."""

_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
"""The sizes among these settings. A family that has another name for one has it among the others too."""


def timed_settings(config: Any) -> dict[str, Any]:
    """The settings of a config on which the times of models depend, besides their sizes."""
    every = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in every.items() if not _NOT_TIMED.fullmatch(name)}


def search_in(
    target: Target,
    forms: Sequence[Form],
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
    shared: bool = False,
    widths: tuple[Collection[int], Collection[int]] | None = None,
    checked: bool = True,
    knots: tuple[int, int] = KNOTS,
    of_teachers: Sequence[Batch] | None = None,
) -> Search:
    """The search for a shape of models, and for the one of `forms` in which they will serve.

    Args:
        target: what the shape must meet.
        config: of the models to be pruned.
        times: times models, whose tokens are below `VOCABULARY`.
        teachers: returns the configs of the models over which speedups are, which run one after the other.
        device: of torch.
        threads: of the CPU.
        folder: where times are stored.
        conditions: further conditions under which stored times are used again.
        shared: whether later runs on this machine may use the times.
        widths: hidden and FFN channels whose times are measured; those of `shapes` by default.
        checked: whether the chosen shape is timed itself.
        knots: numbers of hidden and of FFN sizes that are timed.
        of_teachers: what the teachers are timed on, `joined`, each in the tokens of its own tokenizer; None for the
            batches on which the models to be pruned are timed.
    """
    over = references(forms)

    def built(config: Any, shape: Shape, forms: Iterable[Form]) -> dict[Form, Runner]:
        return runners(config_of(config, shape), forms, device=device, threads=threads)

    def joint(form: Form, parts: Sequence[Runner]) -> Runner:
        if of_teachers is None:
            return parts[0] if len(parts) == 1 else in_turn(form.name, parts)
        one = ensemble(form.name, parts, [1.0] * len(parts))
        return OwnBatches(one.name, one.backend, one.scheme, one.run, of_teachers)

    def compared() -> list[Runner]:
        configs = [reference_config(whole, config.num_labels) for whole in teachers()]
        exported = all(families.family_of(whole).onnx for whole in configs)
        shown = [form for form in over if exported or BACKENDS[form.backend].loads == "transformers"]
        every = [references_of(whole, shown, device=device, threads=threads) for whole in configs]
        return [joint(form, [found[form] for found in every]) for form in shown]

    of = {
        **{"device": device, "threads": threads, "over": [[form.backend, form.scheme] for form in over]},
        **{"packages": installed(PACKAGES), "code": source_hash(), "own_code": outside.code()},
        **conditions,
    }

    def common() -> list[Any]:
        given = [[[getattr(whole, name, None) for name in _SIZES], timed_settings(whole)] for whole in teachers()]
        return [timed_settings(config), given]

    return Search(
        target,
        config,
        shapes,
        widths or ({shape.hidden for shape in shapes}, {shape.ffn for shape in shapes}),
        forms,
        lambda shape, forms: built(config, shape, forms),
        compared,
        times,
        of,
        Kept(folder, common if shared else None, log),
        checked,
        log,
        knots,
    )


def reached(
    model: Any,
    collated: Iterable[Mapping[str, Any]],
    shapes: Sequence[Shape],
    target: Target,
    form: Form,
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
    single, pad_id = load_of(target) == SINGLE, model.config.pad_token_id or 0
    inputs = by_length(batches_of(collated, pad_id), pad_id, 1 if single else TASK_BATCH, TASK_ROWS)
    assert found.losses is not None
    with tempfile.TemporaryDirectory() as folder:
        search = search_in(
            target,
            [form],
            model.config,
            shapes,
            Timer(random_tokens(inputs), log, REPEATS, apart=single),
            lambda: [model.config],
            device=model.device.type,
            threads=threads or cores(),
            folder=Path(folder),
            log=log,
        )
        price = estimated([found.losses])
        if target.speedup is target.latency_ms is None:
            return _small_enough(search, target.size_mib, price)
        return search.choice(price, cost=margin_lost([found.losses])).shape


def _small_enough(search: Search, size_mib: float, price: Callable[[Shape], Any]) -> Shape:
    """The shape with the least price among the shapes that are small enough; of equal ones the largest."""
    mib = search.sizes.milliseconds
    fitting = [shape for shape in search.shapes if mib(shape) <= size_mib]
    if not fitting:
        least = min(map(mib, search.shapes))
        raise ConfigError(f"size_mib: got {size_mib}; must be at least {least:.1f}, the smallest shape; set more")
    return min(fitting, key=lambda shape: (price(shape), -shape.weights))
