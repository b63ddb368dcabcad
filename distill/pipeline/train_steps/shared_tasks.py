"""Training of one encoder with a head for each task, on all tasks at once."""

from __future__ import annotations

import numpy as np
import torch

from distill.config import Train
from distill.losses.shared_encoder import SharedObjective, joined, share_encoder
from distill.models.student.training import only_used_embeddings
from distill.models.write import write_model
from distill.pipeline.artefacts import TaskModel, Trained
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.prepare import Training, prepared, took, trained
from distill.pipeline.train_steps.tasks import starting_model, training_data
from distill.training.feed import Arrays


def on_all_tasks(inputs: MemberInputs, settings: Train, runtime: Runtime) -> Trained:
    """Train one encoder with a head for each task on all tasks at once.

    The models are written to folders named after the tasks, whole and with the same encoder in each, so that all other
    code loads them as models of single tasks. Rows of all tasks are in the same batches.
    """
    name, tokenizer, seed = inputs.name, inputs.tokenizer, runtime.seed
    models, parts = [], []
    for data in inputs.tasks.values():
        torch.manual_seed(seed)
        models.append(prepared(starting_model(inputs, data), settings, runtime, inputs.build, inputs.average))
        parts.append(training_data(inputs, settings, runtime, data))
    share_encoder(models)
    lengths = [of_task.rows.encoded.lengths for of_task in parts]
    ends = np.cumsum([0, *map(len, lengths)])

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        owner = np.searchsorted(ends, rows, side="right") - 1
        return joined({n: parts[n].collate(rows[owner == n] - ends[n], epoch) for n in np.unique(owner).tolist()})

    ids = np.concatenate([of_task.rows.encoded.ids for of_task in parts])
    with only_used_embeddings(models[0], ids, [tokenizer.pad_token_id]):
        objective = SharedObjective([each.objective(model, None) for each, model in zip(parts, models, strict=True)])
        groups, every = _all_groups([of_task.rows.groups for of_task in parts]), np.concatenate(lengths)
        own = np.concatenate(
            [np.arange(len(part)) < of_task.rows.own for part, of_task in zip(lengths, parts, strict=True)]
        )
        total = inputs.length.steps(settings.batch, seed, every[own], None if groups is None else groups[own])
        training = Training(name, seed, inputs.lr, total, every, groups, parts[0].global_batch)
        done = trained(training, settings, runtime, objective, collate)
    seconds = done.seconds + sum(of_task.seconds for of_task in parts)
    for task, model, of_task in zip(inputs.tasks, models, parts, strict=True):
        if runtime.machine.main:
            transfer = of_task.rows.transfer
            made = TaskModel(steps=done.steps, tokens=done.tokens, seconds=seconds, log=done.log, transfer=transfer)
            with write_model(runtime.folder / name / task, model, tokenizer, made):
                pass
    runtime.machine.wait()
    return Trained(**took(done.steps, done.tokens, seconds), tasks=list(inputs.tasks), log=done.log)


def _all_groups(groups: list[np.ndarray | None]) -> np.ndarray | None:
    """The groups of the rows of all tasks, with other numbers for each task; None if terms compare no groups."""
    given = [group for group in groups if group is not None]
    if not given:
        return None
    assert len(given) == len(groups)
    starts = np.cumsum([0, *(int(group.max()) + 1 for group in given[:-1])])
    return np.concatenate([group + start for group, start in zip(given, starts, strict=True)])
