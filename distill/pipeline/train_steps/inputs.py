"""What a train stage reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distill.compression.pruning.goal import Goal
from distill.config import Train
from distill.data.align import Aligned
from distill.data.encode import Encoded
from distill.data.tasks import TaskData
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.layer_map import Average, Origin
from distill.pipeline.train_steps.prepare import Build, Length
from distill.pipeline.train_steps.teacher_logits import Labeller
from distill.pipeline.train_steps.transfer import Sources


@dataclass(frozen=True)
class MemberInputs:
    """What the models of one teacher of an ensemble, or the models of any other step, are trained from."""

    name: str
    """Folder of the models, relative to the run folder."""
    tasks: Mapping[str, TaskData]
    corpus: Callable[[], Encoded | Aligned]
    """Returns the encoded corpus, on every process at once."""
    start: Mapping[str, Path]
    """Task, or `WHOLE` -> folder of the model that training starts from."""
    tokenizer: Any
    given: str
    """Folder of the given teacher, or of the first one of an ensemble."""
    given_tokenizer: Any
    own_width: bool
    """Whether a student keeps the width of its vectors, because there are several teachers, of which none has the width
    that is learned."""
    pooler: str | None
    """Folder of the model whose pooler a classifier without one gets; None if it gets a new one."""
    unpruned: Checkpoints | None
    """The models of the tasks from which the heads are cut, where training starts from one encoder for all tasks."""
    average: Average | None
    """What that encoder keeps, or is to keep if the stage cuts it."""
    build: Build | None
    """None if no student is built."""
    teacher: Labeller | None
    generator: Path | None
    """Folder of the language model that replaces tokens; None without one."""
    origin: Callable[[str], Origin]
    """Returns the parts of the teacher that the student of a task, or of `WHOLE`, was copied from."""
    window: int | None
    """Number of tokens that a teacher that is trained reads at once; None for whole texts."""
    holds_out: bool
    """Whether some training rows are held out, by which the weights of teachers are learned."""
    transfer: Sources | None
    """None if no transfer set is added to the rows of tasks."""
    goal: Callable[[Runtime], Goal] | None
    """Returns what gates are trained to reach, on every process at once; None without gates."""
    shared: bool
    """Whether the models of all tasks have one encoder."""
    seed: int
    """Seed of trainings on tasks. Teachers of an ensemble have different ones, so that a model that is named twice
    becomes two different teachers."""
    lr: float
    length: Length


@dataclass(frozen=True)
class Beside:
    """Another step, of which processes train models while others train those of this one."""

    inputs: MemberInputs
    settings: Train
    pending: bool
    """Whether it has models to train. A step that has finished, or whose models are in the cache, has none."""


@dataclass(frozen=True)
class TrainInputs:
    name: str
    """Folder of the step, relative to the run folder."""
    members: list[MemberInputs]
    """One for each teacher of an ensemble; for any other step, one."""
    beside: list[Beside] = field(default_factory=list)
    """The other steps that train at the same time, where several processes do."""
