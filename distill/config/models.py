"""Settings of the given models, the student and the target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distill.config.allowed import above, at_least, one_of
from distill.config.loads import LOADS
from distill.runtime.storage.cache import MAX_GIB

NO_TEACHER = "none"
"""Value of `teacher.kind` without a teacher."""


@dataclass
class Teacher:
    kind: str = field(
        default="embedded",
        metadata=one_of("embedded", "hub", "ensemble", NO_TEACHER, "random", advice="choose with teacher=NAME"),
    )
    """embedded (its weights come inside an installed package), hub (a hub name or a local folder), ensemble (several
    hub names or local folders, whose probabilities or similarities are averaged), none (soft labels stand in for its
    outputs, and the model of `student.name` is trained on them) or random (tiny, for smoke runs)."""
    name: str | None = None
    """Hub name or local folder when kind is hub."""
    revision: str | None = None
    """Revision on the hub; the newest when null."""
    head: str = field(default="given", metadata=one_of("given", "new", advice="new gives every task its own"))
    """given (a head for a task is used; one for other labels is refused) or new (the last layer of its head is left
    out, and every task gets its own): for a model that was first fine-tuned on another task, such as MNLI."""
    names: list[str] = field(default_factory=list)
    """Hub names or local folders when kind is ensemble. Students are built from the first."""
    weights: Any = None
    """Weight of each of `names` in the mean of their probabilities or, of embedders, of their similarities, e.g. [2,1];
    equal weights when null. With `learned`, which embedders cannot have, each task has the weights of the least loss
    on every tenth training row. No teacher is fine-tuned on these rows. On a corpus the weights are equal."""
    window: int | None = field(default=None, metadata=at_least(16, "null cuts no text into windows"))
    """Maximum tokens of a task's text that the teacher reads at once. A longer text is read in overlapping windows,
    whose probabilities are averaged. When null, no text may be longer than the teacher can read."""
    seed: int | None = field(default=None, metadata=at_least(0, "null is the seed of the run"))
    """Seed with which the teacher is fine-tuned on the tasks. When null, it is the seed of the run. With a number, runs
    with several seeds share one teacher, so that they differ in their students alone. `limit.examples`, which draws
    training rows by the seed of the run, cannot be set too."""


@dataclass
class Student:
    layers: list[int] | None = None
    """Teacher layers that initialize the student's, or that a prune stage keeps, counted from 0. When null:
    `num_hidden_layers` of them, evenly spaced; with a prune stage, the least important ones go."""
    num_hidden_layers: int | None = field(
        default=None, metadata=at_least(1, "null keeps half or all, or those of student.layers")
    )
    """Number of layers of a student that is built, evenly spaced in the teacher; half when null. Of a model
    that is pruned and not built, number of layers that it keeps, chosen by measured loss; all when null and no target
    is set."""
    init: str = field(
        default="teacher_layers",
        metadata=one_of("teacher_layers", "random", "static", advice="choose with student=NAME"),
    )
    """teacher_layers (layers, embeddings and language-model head are copied, or some of their channels), random, or
    static (a student without layers: a vector for each token, made by the teacher from that token alone, and their mean
    for a text)."""
    name: str | None = None
    """Hub name or local folder of a pretrained student, in recipes whose stages start from `student`; with
    teacher=none, of the model that is trained on soft labels."""
    tokenizer: str | None = None
    """Hub name or local folder of the student's own tokenizer; the teacher's tokenizer when null."""
    family: str | None = None
    """Model type of the student, e.g. distilbert or albert; the teacher's when null."""
    hidden_size: int | None = field(default=None, metadata=at_least(1, "null is the teacher's"))
    """Width of the student's layers; when null that of the model from which it is built or pruned."""
    num_attention_heads: int | None = field(default=None, metadata=at_least(1, "null keeps the size of the heads"))
    """Number of attention heads in each layer. When null, heads are as wide as in the model from
    which it is built or pruned."""
    intermediate_size: int | None = field(default=None, metadata=at_least(1, "null keeps its ratio to the width"))
    """Width of the feed-forward part of each layer. When null, its ratio to hidden_size is that of the
    model from which it is built or pruned."""
    embedding_size: int | None = field(default=None, metadata=at_least(1, "null is the teacher's"))
    """Width of the embeddings, in families where it may be smaller than hidden_size; the teacher's when null."""
    heads: str = field(
        default="own", metadata=one_of("own", "shared", advice="shared trains one encoder for all tasks")
    )
    """own (a student for each task) or shared (one encoder with a head for each task, trained on all tasks at once)."""


@dataclass
class Report:
    hourly_rate: float | None = field(default=None, metadata=above(0, "null leaves the price out"))
    """Price of an hour of the machine that the run measures, in any currency. With it, the report has the price of a
    million inferences."""
    purpose: str = "report"
    """What the reported rows are read for, in words of yours, e.g. `choose a temperature`. It stands in the record of
    when they were read."""


@dataclass
class Target:
    """Requirements that pruned models must meet."""

    speedup: Any = field(default=None, metadata=above(1, "2 is twice as fast as the teacher"))
    """Speedup over the teacher's fastest float32 variant; with several teachers, over all of them, one after the other.
    A list, here or below, makes one model for each number."""
    latency_ms: Any = field(
        default=None, metadata=above(0, "it is the time of one text, or of one batch of target.shape")
    )
    """Maximum milliseconds for one batch of `shape`, or for one text."""
    size_mib: Any = field(default=None, metadata=above(0, "it is the size of float32 weights"))
    """Maximum MiB of float32 weights."""
    chain: bool = False
    """Whether the models of several targets form a chain: each is pruned from the student that recovered for the slower
    target before it. With `budget.minutes` they always do. Otherwise each is pruned from the unpruned model."""
    retained: float | None = field(
        default=None, metadata=above(1, "it is a percentage of the teacher's macro score, such as 97", below=100)
    )
    """Percent of the teacher's macro score. The report names the fastest student that keeps it."""
    scheme: str | None = None
    """Variant in which the pruned models will serve and which is timed: one of `stages.*.schemes`, or fp32 or bf16 (in
    torch, compared with the teacher in the same variant). When null: on a CPU the fastest of all variants of a recipe
    that quantizes, found by timing; fp32 otherwise, and on a GPU bf16."""
    shape: Any = "own"
    """Inputs with which models are timed: own (texts as long as the tasks' own, as `load` says) or [batch size, length
    in tokens]."""
    load: str | None = field(
        default=None, metadata=one_of(*LOADS, advice="null is single with target.latency_ms, and else batch")
    )
    """How the models will be asked: batch (texts in batches of up to eight) or single (one text at a time). The
    speedups of the report are about it, and those of the search unless `shape` is fixed. When null, single with
    `latency_ms`, and otherwise batch."""


@dataclass
class Budget:
    """Limits on what a run spends."""

    minutes: float | None = field(default=None, metadata=above(0, "null sets no limit"))
    """Minutes that a run may take. With a limit, the models of the targets are made one by one, from the slowest on,
    until one retains less than `target.retained` or the time is spent. Before a single `target.speedup`, half of it is
    made. No limit when null."""


@dataclass
class Cache:
    """The cache of what later runs use again: trained stages, outputs of teachers, token ids, and measured times."""

    dir: str | None = None
    """Folder outside of run folders. When null, `distill` in `$XDG_CACHE_HOME` or `~/.cache`."""
    max_gib: float = field(default=MAX_GIB, metadata=at_least(0, "20 is the default, and with 0 nothing is reused"))
    """Maximum size. Beyond it, the entries that were not used for longest are removed. With 0 the run makes everything
    itself, and keeps nothing for others."""
