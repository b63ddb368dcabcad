"""Training on a task: on its labels, and on a teacher's outputs for the same rows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from msgspec.structs import replace as replace_struct
from torch import nn

from distill.compression.pruning.gates import L0, Gates, gates_for
from distill.compression.pruning.goal import Goal
from distill.compression.pruning.importance import SCORES, write
from distill.compression.pruning.masks import merge
from distill.compression.quantization.fake_quantization import faked
from distill.compression.quantization.quantize import linears
from distill.config import Train, Transfer
from distill.data import class_weights
from distill.data.collate import pairs, task_batch
from distill.data.encode import Encoded
from distill.data.task_model import load_for
from distill.data.task_types.answers import narrowed
from distill.data.task_types.retrieval import no_negatives, relevant_pairs
from distill.data.task_types.spans import continues
from distill.data.task_types.task_type import SOFT, group_numbers
from distill.data.tasks import TaskData, targets_of
from distill.data.windows import split, windows
from distill.errors import reason
from distill.losses.objective import Objective
from distill.losses.terms import bound
from distill.models import teacher
from distill.models.families.head import stored_head
from distill.models.student.replacing import Replacing
from distill.models.student.training import only_used_embeddings
from distill.models.write import write_model
from distill.pipeline.artefacts import TaskModel, TransferSet
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.best import best
from distill.pipeline.train_steps.development_rows import DevelopmentRows
from distill.pipeline.train_steps.folds import CrossFitted, in_folds, with_folds
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.layer_map import UNKNOWN, with_head
from distill.pipeline.train_steps.learned_vectors import in_own_space, to_learned_form
from distill.pipeline.train_steps.prepare import Training, forget_training, frozen, prepared, trained
from distill.pipeline.train_steps.replaced import replacing
from distill.pipeline.train_steps.rounds import Part, Rounds
from distill.pipeline.train_steps.teacher_logits import (
    CROSS_FITTED,
    Labeller,
    cross_fitted,
    held_out,
    learned_outputs,
    soft_outputs,
)
from distill.pipeline.train_steps.transfer import extended, makes
from distill.pipeline.train_steps.tries import Kept, kept_try
from distill.runtime.storage import atomic, checksums, run_folder, structs
from distill.training import batching
from distill.training.feed import Arrays, Collate


def rounds(
    inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData, goal: Goal | None = None
) -> Rounds[None]:
    """The trainings that the model of a task takes, which is then in its folder, named after the task. `goal`: what the
    step's gates are trained to reach; None without gates."""
    name, log = f"{inputs.name}/{data.task.name}", runtime.machine.log
    head = stored_head(inputs.start[data.task.name])
    if settings.skip_if_head and head is not None and head.architecture == data.task.kind.architecture:
        log(f"{name}: the given model has a head for this task and is used as it is")
        if settings.folds > 1:
            log(f"{name}: no model is trained, so there are no folds, and students learn its own outputs")
        torch.manual_seed(inputs.seed)
        _save(name, starting_model(inputs, data), TaskModel(steps=0, tokens=0, seconds=0.0), inputs.tokenizer, runtime)
        return

    def whole(this: MemberInputs, folder: str, runtime: Runtime, folds: CrossFitted | None = None) -> None:
        model, made, gates = _fitted(this, settings, runtime, data, folder, goal)
        made = _scored(made, model, this, settings, runtime, data)
        _save(folder, model, made, inputs.tokenizer, runtime, gates, folds)

    kept = (yield from kept_try(inputs, settings, data.task.name, whole, runtime)) if settings.tries_several else None
    inputs = inputs if kept is None else kept.inputs

    def fit(part: TaskData, folder: str, runtime: Runtime) -> tuple[Any, TaskModel]:
        return _fitted(inputs, settings, runtime, part, folder, None)[:2]

    # First the folds: the state from which the whole model's training resumes is not the one at its end.
    folds = None
    if settings.folds > 1:
        folds = yield from in_folds(settings.folds, name, data, inputs.tokenizer, inputs.window, fit, runtime)
    if kept is None:
        yield [Part(name, partial(whole, inputs, name, folds=folds))]
    else:
        _put(kept, name, runtime, folds)


def _fitted(
    inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData, name: str, goal: Goal | None
) -> tuple[Any, TaskModel, Gates | None]:
    """A trained model of a task, what it took, and its gates, which are folded into its weights."""
    tokenizer, log = inputs.tokenizer, runtime.machine.log
    torch.manual_seed(inputs.seed)
    model = prepared(
        starting_model(inputs, data), settings, replace(runtime, seed=inputs.seed), inputs.build, inputs.average
    )
    if data.task.kind.separate and (settings.role != "teacher" or SOFT in data.train.column_names):
        to_learned_form(model, inputs, data)
    of_task = training_data(inputs, settings, runtime, data)
    gates = None if goal is None else gates_for(settings.gates.kind, model, goal)
    if goal is not None and gates is None:
        log(f"{name}: the target cuts nothing that {settings.gates.kind} has gates on, so none are trained")
    in_int8 = linears(model) if settings.quantization_aware else []
    rows, lengths, ids = of_task.rows, of_task.rows.encoded.lengths, of_task.rows.encoded.ids
    training = Training(name, inputs.seed, inputs.lr, rows.steps, lengths, rows.groups, of_task.global_batch)
    kept = best(settings.best_of, training, model, DevelopmentRows(data, tokenizer, inputs.window, runtime), runtime)
    with only_used_embeddings(model, ids, [tokenizer.pad_token_id, *kept.tokens]), faked(model, in_int8):
        objective = of_task.objective(model, gates or replacing(model, inputs, settings, data, rows.steps))
        done = trained(training, settings, runtime, objective, of_task.collate, kept.after_step)
        moment = kept.restore(lambda text: log(f"{name}: {text}"))
    if gates is not None:
        merge(model, gates.eval().masks(1.0))
    made = TaskModel(
        steps=done.steps,
        tokens=done.tokens,
        seconds=done.seconds + of_task.seconds,
        log=done.log,
        best=moment,
        transfer=rows.transfer,
        expected=gates.expected() if isinstance(gates, L0) else {},
    )
    return model, made, gates


def _scored(
    made: TaskModel, model: Any, inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData
) -> TaskModel:
    """With the score on the development rows, in the process that writes the model."""
    rows = DevelopmentRows(data, inputs.tokenizer, inputs.window, runtime)
    # Scores of a smoke run mean nothing, and are left out unless something is chosen by them.
    if not (runtime.machine.main and rows.parts and (settings.tries_several or not runtime.limit.smoke)):
        return made
    try:
        with faked(model, linears(model) if settings.quantization_aware else []):
            tried = rows.tried(model, inputs.lr, inputs.seed, None if made.best is None else made.best.score)
    except RuntimeError as error:
        if settings.tries_several:
            raise
        runtime.machine.log(f"{inputs.name}/{data.task.name}: not scored on the development rows ({reason(error)})")
        return made
    # `evaluate` says what is wrong with the outputs of a model that no other could replace.
    return replace_struct(made, tried=tried) if settings.tries_several or not tried.kept.failed else made


@dataclass(frozen=True)
class TrainingData:
    """The rows on which a task's model is trained, and the models or outputs with which it is compared."""

    rows: TrainingRows
    collate: Collate
    objective: Callable[[Any, Gates | Replacing | None], Objective]
    """(model, gates) -> its loss."""
    seconds: float
    """Time that the teacher's logits took."""
    global_batch: bool
    """Whether each process computes the loss of all rows of a step, of which it encodes a part."""


@dataclass(frozen=True)
class TrainingRows:
    """The training rows of a task: the task's own rows, followed by its transfer set."""

    data: TaskData
    rows: Dataset
    encoded: Encoded
    own: int
    """Number of encoded rows of the task itself."""
    steps: int
    """Optimizer steps of a training on the task alone, computed from its own rows."""
    groups: np.ndarray | None
    """[rows] number of the query of each row, if a term compares the documents of a query."""
    transfer: TransferSet | None = None


def rows_of(inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData, paired: bool) -> TrainingRows:
    """The rows on which the model of a task is trained. `paired`: whether a term compares the rows of a query."""
    tokenizer, longest, batch = inputs.tokenizer, runtime.longest, settings.batch
    rows = held_out(data)[0] if inputs.holds_out else data.train
    encoded = data.encoded(rows, tokenizer, longest)
    if inputs.window is not None:
        encoded, _ = split(encoded, windows(tokenizer, inputs.window, pairs=data.task.in_pairs))
    groups = group_numbers(rows[data.task.columns[0]]) if paired else None
    total = inputs.length.steps(batch, inputs.seed, encoded.lengths, groups)
    own = TrainingRows(data, rows, encoded, len(encoded), total, groups)
    if inputs.transfer is None or not makes(data.task.kind):
        return own
    per_epoch = len(batching.epoch_batches(encoded.lengths, batch, seed=0, epoch=0, groups=groups))
    passes = _own_passes(inputs.transfer.settings)
    spare = round((total / per_epoch - passes) * len(rows))
    if spare <= 0:
        named = [key for key in ("files", "masked_lm") if getattr(inputs.transfer.settings, key) is not None]
        _tell_unused(f"{inputs.name}/{data.task.name}", named, passes, runtime)
        return own
    data, made = extended(inputs.transfer, data, spare, runtime)
    return replace(
        own,
        data=data,
        rows=data.train,
        encoded=data.encoded(data.train, tokenizer, longest),
        groups=group_numbers(data.train[data.task.columns[0]]) if paired else None,
        transfer=made,
    )


def _tell_unused(name: str, named: list[str], passes: float, runtime: Runtime) -> None:
    """Say which settings of rows without labels have no effect, if any is `named`."""
    if named:
        keys = " and ".join(f"transfer.{key}" for key in named)
        runtime.machine.log(
            f"{name}: {keys} not used, because no steps are left for rows without labels beyond {passes:g} passes over "
            "the training rows; a larger stages.*.epochs, or a smaller transfer.passes, leaves some"
        )


def _own_passes(transfer: Transfer) -> float:
    """The number of passes over the training rows that a transfer set never replaces."""
    # Rows that were made are worth less than the task's own rows, of which one pass is not enough.
    if transfer.passes is None:
        return 3.0 if transfer.files is None else 1.0
    return transfer.passes


def _weights(name: str, data: TaskData, targets: np.ndarray, told: bool, runtime: Runtime) -> np.ndarray | None:
    """The weights of a task's labels, if it has any, with a line on them. `told`: whether terms compare with labels."""
    weights = class_weights.of_labels(data.task.class_weight, targets, data.task.labels)
    if weights is not None:
        unused = "tasks.class_weight has no effect, because no term of this stage compares with labels"
        text = class_weights.described(weights, data.task.labels) if told else unused
        runtime.machine.log(f"{name}/{data.task.name}: {text}")
    return weights


def training_data(inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData) -> TrainingData:
    """The training data of the model of a task."""
    kind, tokenizer, machine = data.task.kind, inputs.tokenizer, runtime.machine
    bound_terms = bound(settings.terms, kind)
    paired = any(term.kind.paired for term in bound_terms.values())
    rows = rows_of(inputs, settings, runtime, data, paired)
    data, encoded, groups, own_rows = rows.data, rows.encoded, rows.groups, rows.own
    inside, began = any(term.kind.inside for term in bound_terms.values()), time.monotonic()
    teachers, learned = _teachers_or_logits(inputs.teacher, data, bound_terms, inside, encoded, tokenizer, runtime)
    seconds = time.monotonic() - began

    on_labels = any(term.compare_with == "labels" for term in bound_terms.values())
    in_batch = kind.separate and kind.grouped and on_labels
    texts = [group_numbers(rows.rows[column]) for column in data.task.columns] if in_batch else None
    relevant = np.zeros(0, np.int64) if texts is None else relevant_pairs(texts[0], texts[1], targets_of(rows.rows))
    # Numbers of documents that only rows of the transfer set have come after those of the task's own documents.
    own_documents = 0 if texts is None else int(texts[1][:own_rows].max()) + 1
    if encoded.words is not None and encoded.labels is not None:
        # Of the words of one token, the last of a span counts: the token would else begin a span at each of them.
        counted = ~(encoded.words.shares_with_next & continues(encoded.labels, data.task.labels))
        # A teacher with another tokenizer may have no token for words that the student has.
        counted &= True if learned is None else np.asarray(learned.any(axis=1))
        encoded = replace(encoded, words=encoded.words.only(counted))
        rows = replace(rows, encoded=encoded)
    assert encoded.labels is not None
    weights = _weights(inputs.name, data, encoded.labels, on_labels, runtime)
    # The rows of all processes are compared, whichever process encodes them.
    rank, world = machine.accelerator.process_index, machine.accelerator.num_processes
    global_batch = world > 1 and (kind.separate or any(term.of_batch for term in bound_terms.values()))

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        assert encoded.labels is not None
        own = np.arange(rank, len(rows), world) if global_batch else np.arange(len(rows))
        encoded_rows = rows[own] if len(own) else rows[:1]
        padded, numbers = task_batch(encoded, encoded_rows, tokenizer.pad_token_id, tokenizer.padding_side == "left")
        batch: Arrays = dict(padded)
        if global_batch:
            batch["own"], batch["step"], numbers = own, rows, rows
        batch["labels"] = kind.loss_targets(encoded.labels[numbers])
        batch |= class_weights.arrays(batch["labels"], weights, encoded.labels[numbers]) if on_labels else {}
        if inside:
            batch["real"] = np.flatnonzero(batch["attention_mask"])[: None if len(own) else 0]
        if learned is not None:
            width = padded["input_ids"].shape[1]
            batch["teacher_logits"] = learned[numbers] if encoded.spans is None else narrowed(learned[numbers], width)
        if texts is not None:
            queries, documents = texts[0][rows], texts[1][rows]
            batch["no_negatives"] = no_negatives(queries, documents, relevant, documents >= own_documents)
        if groups is not None:
            batch["pairs"] = pairs(groups[rows])
        return batch

    pooling = teacher.pooling(inputs.given) if teachers else "mean"
    copied = inputs.origin(data.task.name) if teachers else UNKNOWN

    def objective(model: Any, gates: Gates | Replacing | None) -> Objective:
        return Objective(
            model,
            bound_terms,
            teachers,
            pooling,
            gates=gates,
            kept=copied.layers,
            channels=copied.channels,
            rows=kind.rows,
            label_rows=kind.label_rows,
            vectors=in_own_space(model, learned, own_rows, data, tokenizer, runtime),
        )

    return TrainingData(rows, collate, objective, seconds, global_batch)


def starting_model(inputs: MemberInputs, data: TaskData) -> Any:
    """The classifier that training starts from."""
    task, pad_id = data.task, inputs.tokenizer.pad_token_id
    folder = inputs.start[task.name]
    if inputs.unpruned is not None:
        assert inputs.average is not None
        return with_head(inputs.average, data, inputs.unpruned.folder(task.name), folder, pad_id)
    return load_for(task, folder, inputs.pooler, pad_id)


def _teachers_or_logits(
    labeller: Labeller | None,
    data: TaskData,
    bound_terms: dict[str, Any],
    inside: bool,
    encoded: Encoded,
    tokenizer: Any,
    runtime: Runtime,
) -> tuple[list[nn.Module], np.ndarray | None]:
    """The teacher, to run in each training step if terms compare layers (`inside`), or else the outputs [rows, C] that
    are learned.

    Both if the data has soft labels, or the teacher was trained in folds. Only soft labels where they stand in for a
    teacher.
    """
    outputs = any(term.kind.head and term.compare_with == "teacher" for term in bound_terms.values())
    if labeller is None:
        soft = soft_outputs(data, encoded) if outputs else None
        if soft is not None and encoded.words is not None:
            soft[np.isnan(soft)] = 0.0  # words that nothing labels are trained on as little as those cut off
        return [], soft
    if inside:
        others = soft_outputs(data, encoded), cross_fitted(labeller, data.task.name)
        differ = outputs and any(part is not None for part in others)
        # It runs in each step, because stored hidden states of all rows would fill a disk.
        model = load_for(data.task, labeller.models.folder(data.task.name), pad_id=tokenizer.pad_token_id)
        return [frozen(model, runtime.machine)], learned_outputs(labeller, data, runtime, encoded) if differ else None
    return [], learned_outputs(labeller, data, runtime, encoded) if outputs else None


def _save(
    name: str,
    model: Any,
    made: TaskModel,
    tokenizer: Any,
    runtime: Runtime,
    gates: Gates | None = None,
    folds: CrossFitted | None = None,
) -> None:
    """Write the model, and beside it the scores of its gates and the logits of the models of its folds."""
    if runtime.machine.main:
        with write_model(runtime.folder / name, model, tokenizer, with_folds(made, folds)) as temporary:
            if gates is not None:
                write(gates.scores(), temporary / SCORES)
            if folds is not None:
                np.save(temporary / CROSS_FITTED, folds.logits, allow_pickle=False)
    forget_training(name, runtime)
    runtime.machine.wait()


def _put(kept: Kept, name: str, runtime: Runtime, folds: CrossFitted | None) -> None:
    """Copy the files of the try that is kept to the folder of the task's model, with what all tries took."""
    if runtime.machine.main:
        with atomic.writing(runtime.folder / name) as temporary:
            others = shutil.ignore_patterns(run_folder.MANIFEST, checksums.SUMS)
            shutil.copytree(kept.folder, temporary, ignore=others, copy_function=atomic.copy, dirs_exist_ok=True)
            if folds is not None:
                np.save(temporary / CROSS_FITTED, folds.logits, allow_pickle=False)
            structs.write(temporary / run_folder.MANIFEST, with_folds(kept.made, folds))
    forget_training(name, runtime)
    runtime.machine.wait()
