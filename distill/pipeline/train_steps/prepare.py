"""Parts that training on the corpus and on tasks share: the trained model, the teachers, the terms and the loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from distill import training as loop
from distill.compression.pruning.gates import parameter_groups
from distill.config import Batch, Limit, Student, Train
from distill.config.feature_kinds import REPLACED, FeatureKind, kinds_of
from distill.config.instantiate import bind
from distill.config.plan import STATIC
from distill.config.stages import BASE_WIDTH
from distill.data.encode import special_tokens
from distill.errors import Problem
from distill.losses.shared_encoder import Trainable
from distill.models import families, student
from distill.models.student.training import aligned_vocabulary, quick_on_cpu
from distill.pipeline.artefacts import Trained
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.layer_map import Average, cut_for_all
from distill.runtime import quoting
from distill.runtime.machine import Machine
from distill.runtime.precision import HALVES
from distill.runtime.storage import atomic, run_folder, structs
from distill.runtime.storage.run_folder import STATE
from distill.training import batching
from distill.training.feed import Collate

FOLDS = ".folds"
"""Suffix of the folder with the logits of each fold, until the logits of all folds are stored beside the model."""
TRIES = ".tries"
"""Suffix of the folder with the model of each try, until the best is stored."""


@dataclass(frozen=True)
class Build:
    """What a student is built from, besides the model of its teacher."""

    student: Student
    tokenizer: Any
    """Tokenizer of the student; None if it has its teacher's."""
    given: Any
    """Tokenizer of the given teacher."""
    pooling: str
    """How the given teacher makes one vector of a text."""


@dataclass(frozen=True)
class Length:
    """How long a step's models are trained: see `Train.epochs`."""

    epochs: float
    """Passes over the data."""
    least: int
    """Number of optimizer steps, likewise `most`, which is None without a maximum."""
    most: int | None

    def steps(self, batch: Batch, seed: int, lengths: np.ndarray, groups: np.ndarray | None = None) -> int:
        """Number of optimizer steps of a training on rows of these `lengths` [rows]."""
        per_epoch = len(batching.epoch_batches(lengths, batch, seed=seed, epoch=0, groups=groups))
        steps = max(self.least, math.ceil(self.epochs * per_epoch))
        return max(1, steps if self.most is None else min(self.most, steps))


@dataclass(frozen=True)
class Training:
    """The training of one model."""

    name: str
    """Folder of the model, relative to the run folder."""
    seed: int
    lr: float
    total: int
    """Number of optimizer steps."""
    lengths: np.ndarray
    """[rows] number of tokens."""
    groups: np.ndarray | None = None
    """[rows] number of the group of each row; rows of a group are batched together. None without groups."""
    global_batch: bool = False
    """Whether each process computes the loss of all rows of a step, of which it encodes a part."""


def prepared(model: Any, settings: Train, runtime: Runtime, build: Build | None, average: Average | None) -> Any:
    """The model to train: `model`, or what is built or cut from it, with the stage's dropout and frozen parameters."""
    if settings.shape_of is not None:
        assert average is not None
        model = cut_for_all(average, model)
    if build is not None and build.student.init == STATIC:
        model = student.static(
            model.to(runtime.machine.device).eval(),
            build.tokenizer,
            build.given,
            around=special_tokens(build.given),
            pooling=build.pooling,
            sizes=asdict(build.student),
            seed=runtime.seed,
        )
    elif build is not None:
        shape = build.student
        if build.tokenizer is not None:
            model = student.with_vocabulary(model, build.tokenizer, student.pieces(build.tokenizer, build.given))
        layers = student.initial_layers(shape, model.config.num_hidden_layers)
        sizes = {name: getattr(shape, name) for name in student.SIZES}
        model = student.from_teacher(
            model, layers, init=shape.init, seed=runtime.seed, family=shape.family, sizes=sizes
        )
    if settings.data == "corpus" and finds_replaced(settings):
        model = student.with_rtd_head(model, runtime.seed)
    if settings.dropout is not None:
        student.set_dropout(model, settings.dropout)
    if settings.data == "corpus" and not uses_head(settings):
        families.freeze_mlm_head(model)
    if settings.only_head:
        families.encoder(model).requires_grad_(False)
    return model.to(runtime.machine.device)


def uses_head(settings: Train) -> bool:
    """Whether a term with a weight needs the output of the model's head."""
    return any(kind.head for kind in kinds_of(settings.terms).values())


def finds_replaced(settings: Train) -> bool:
    """Whether a term with a weight needs a generator, which replaces tokens."""
    return REPLACED in kinds_of(settings.terms).values()


def taught_by_head(terms: Mapping[str, Any], kind: FeatureKind) -> list[str]:
    """Names of the terms of a kind with a weight that need the teacher's head."""
    return [n for n, t in terms.items() if (t.features, t.compare_with) == (kind.name, "teacher") and t.weight > 0]


def headless(stage: str, term: str) -> Problem:
    """The problem of a stage on a corpus with a term on the head of its teacher, a language model that has none: it
    would be random."""
    key, must = f"stages.{stage}", f"have a language-model head for terms.{term}"
    do = f"name a stage that trains one, as adapt does in recipe=distilbert, or set {key}.terms.{term}.weight=0"
    return Problem(f"{key}.teacher", "a model without such a head", must, do)


def untaught(stage: str, names: list[str]) -> Problem:
    """The problem of a stage whose only terms, `names`, need a head that its teacher does not have."""
    must = "have a term with labels, because the teacher has no head for replaced-token detection"
    added = quoting.setting(f"+term@stages.{stage}.terms.{REPLACED.name}", REPLACED.name)
    return Problem(f"stages.{stage}.terms", f"{', '.join(names)} alone", must, f"add {added}")


def frozen(model: nn.Module, machine: Machine) -> nn.Module:
    """The model as a teacher: eval mode, no gradients, on the device, weights in the training precision."""
    dtype = HALVES.get(machine.precision, torch.float32) if families.family_of(model).bf16 else torch.float32
    return model.eval().requires_grad_(False).to(machine.device, dtype)


def length(settings: Train, share: float, compression: float, limit: Limit) -> Length:
    """How long a step's models are trained: for this `share` of the epochs, for which the budget of the run is enough.
    `compression`: number of weights of the layers before pruning, divided by the number after it."""
    limits = [steps for steps in (settings.steps, limit.steps) if steps is not None]
    return Length(
        epochs=share * settings.epochs * compression**settings.scale_with_compression.epochs,
        least=round(share * settings.min_steps),
        most=min(limits, default=None),
    )


def learning_rate(settings: Train, width: int, compression: float) -> float:
    """`optimizer.lr` if it is set, else base_lr x 384 / width of the given model that the step's lineage starts from,
    and for pruned models this x `compression` to the power of `scale_with_compression.lr`.

    The best learning rate of Adam for weight matrices is inversely proportional to the width (Yang et al. 2022, arXiv
    2203.03466, table 8). Deviation: the embeddings, norms and biases, for which it is constant there, get the same.
    """
    if (lr := settings.optimizer.get("lr")) is not None:
        return float(lr)
    return settings.base_lr * BASE_WIDTH / width * compression**settings.scale_with_compression.lr


def trained(
    training: Training,
    settings: Train,
    runtime: Runtime,
    objective: Trainable,
    collate: Collate,
    after_step: Callable[[int], None] = lambda step: None,
) -> loop.Trained:
    """Train the student of an objective in place. `after_step`: see `distill.training.train`."""
    machine, name = runtime.machine, training.name
    machine.log(f"{name}: learning rate {training.lr:.2g}")
    processes, on_gpu = machine.accelerator.num_processes, machine.device.type == "cuda"
    if on_gpu and settings.data == "corpus" and settings.batch.tokens < batching.GPU_TOKENS * processes:
        machine.log(
            f"{name}: each GPU gets {settings.batch.tokens // processes:,} tokens of a step, which do not occupy it; "
            f"with {batching.GPU_TOKENS * processes:,} as batch.tokens of this stage, a step takes little longer"
        )
    named = [(name, p) for name, p in objective.named_parameters() if p.requires_grad]
    named = [(name, p) for name, p in named if not name.startswith("gates.")]
    # Norms and biases are not decayed, as in BERT.
    parameters = [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if objective.gates is not None:
        parameters += parameter_groups(objective.gates, settings.gates.lr)
    quick = aligned_vocabulary(objective.models) if on_gpu else quick_on_cpu(objective.student, training.lengths)
    with quick:
        return loop.train(
            objective,
            training.lengths,
            collate,
            name=name,
            settings=settings,
            seed=training.seed,
            total=training.total,
            optimizer=bind(settings.optimizer | {"lr": training.lr}, "optimizer")(parameters),
            schedule=bind(settings.schedule, "schedule"),
            accelerator=machine.accelerator,
            state_folder=state_folder(name, runtime),
            console=machine.console,
            groups=training.groups,
            global_batch=training.global_batch,
            tracker=machine.tracker,
            after_step=after_step,
            fp16=machine.precision == "fp16" and families.family_of(objective.student).bf16,
        )


def state_folder(name: str, runtime: Runtime) -> Path:
    """Folder with the state from which the training of the model in folder `name` resumes."""
    return runtime.folder / f"{name}{STATE}"


def forget_training(name: str, runtime: Runtime) -> None:
    """Remove the files that only an unfinished training needs. `name` is the folder of its model, which is whole."""
    if runtime.machine.main:
        for ending in (STATE, FOLDS, TRIES):
            atomic.remove(runtime.folder / f"{name}{ending}", runtime.folder)


def write_manifest(name: str, models: Trained, runtime: Runtime) -> Trained:
    """Write the manifest of the folder `name`. Returns it, in every process once it is written."""
    if runtime.machine.main:
        structs.write(runtime.folder / name / run_folder.MANIFEST, models)
    runtime.machine.wait()
    return models


def took(steps: int, tokens: int, seconds: float) -> dict[str, Any]:
    """What trainings took, as fields of `Trained`."""
    return {"steps": steps, "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / max(seconds, 1e-9)}
