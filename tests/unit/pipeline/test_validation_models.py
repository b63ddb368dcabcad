"""Inputs that do not fit together are refused once they are loaded, before any training."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from distill.config import Config, Prune, Teacher, Term, Train, load_config
from distill.config.plan import TEACHER, resolve
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.models.student.training import only_used_embeddings
from distill.pipeline.validation import data, memory, models
from tests.tiny import config as config_of
from tests.tiny import save
from tests.tiny import tokenizer as words


def tasks(kind: str) -> Any:
    task = Task(
        "own", TASK_TYPES[kind], ("text",), ("a", "b") if TASK_TYPES[kind].named else (), TASK_TYPES[kind].metrics
    )
    return {"own": SimpleNamespace(task=task, train=range(100))}


@pytest.mark.parametrize(("teachers", "window"), [(1, None), (2, None), (1, 64)])
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_only_outputs_that_can_be_averaged_are(kind: str, teachers: int, window: int | None) -> None:
    """The softmax over classes has no meaning for labels that do not exclude each other, and only texts are divided."""
    found = [*map(str, data.few_rows(tasks(kind), teachers, Config(teacher=Teacher(window=window)), []))]
    if window is not None:
        divided = kind in ("classification", "regression", "reranking")
        assert found == ([] if divided else [f"teacher.window: got 64; must be left out for {kind}; leave it out"])
    elif teachers == 1 or TASK_TYPES[kind].averaged or TASK_TYPES[kind].mixed:
        assert found == []
    else:
        (line,) = found
        assert line.startswith(
            f"tasks.kind: got {kind} for own; must not be {kind} with several teachers, whose outputs"
        )


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_margins_are_refused_for_tasks_without_queries(kind: str) -> None:
    step: Any = SimpleNamespace(stage="s", settings=Train(terms={"m": Term(features="margins"), "x": Term(weight=0)}))
    without: Any = SimpleNamespace(
        stage="s", settings=Train(terms={"m": Term(weight=0, features="margins"), "x": Term()})
    )
    assert not [*data.without_pairs(tasks(kind), [without])]
    found = [*map(str, data.without_pairs(tasks(kind), [step]))]
    assert len(found) == (kind != "reranking")
    assert all(
        line.startswith(f"stages.s.terms.m.weight: got 1; must be 0 for own, a task of kind {kind}") for line in found
    )


def tiny(**sizes: int) -> Any:
    return BertConfig(**{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, **sizes}, vocab_size=500)


@pytest.mark.parametrize("rows", ["corpus", "tasks"])
@pytest.mark.parametrize("optimizer", [*memory.STATES, "SGD"])
def test_the_least_memory_is_that_of_the_tensors_after_a_step(optimizer: str, rows: str) -> None:
    config = tiny()
    model = BertForSequenceClassification(config)
    batch = {"input_ids": torch.zeros(1, 4, dtype=torch.long)}
    with ExitStack() as stack:
        if rows == "tasks":
            stack.enter_context(only_used_embeddings(model, np.array([0, 1])))
        stepped = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
        model(**batch).logits.sum().backward()
        stepped.step()
        states = [value for state in stepped.state.values() for value in state.values() if torch.is_tensor(value)]
        grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        tensors = [*model.parameters(), *grads, *(value for value in states if value.dim())]
        needed = sum(4 * tensor.numel() for tensor in tensors)
    least = memory.least_memory(config, Train(data=rows, optimizer={"_target_": f"torch.optim.{optimizer}"}))
    if rows == "corpus":
        assert least == needed
    else:  # besides, there is the table of all tokens; the rows of two tokens are not counted
        needed += 4 * config.vocab_size * config.hidden_size
        assert least <= needed <= least + 4 * 2 * config.hidden_size * (2 + memory.STATES.get(optimizer, 0))


@pytest.mark.parametrize(
    ("settings", "student", "refused"),
    [
        ({"role": "teacher"}, None, True),
        ({"role": "teacher", "only_head": True}, None, False),
        ({"role": "student"}, None, False),  # its size follows from an earlier stage
        ({"role": "student"}, tiny(num_hidden_layers=40), True),
        ({"role": "student"}, tiny(num_hidden_layers=1), False),
    ],
)
def test_a_training_for_which_memory_cannot_be_enough_is_refused(
    settings: dict[str, Any], student: Any, refused: bool
) -> None:
    optimizer = {"_target_": "torch.optim.AdamW"}
    step: Any = SimpleNamespace(stage="s", on_corpus=True, settings=Train(optimizer=optimizer, **settings))
    given = models.Models("teacher.name", [models.Model("", tiny(num_hidden_layers=30), None)], None, None)
    trained = [(step, models.trained_configs(given, step, student))]
    assert not [*memory.too_large(trained, 2**40)]
    found = [*map(str, memory.too_large(trained, 20 * 2**20))]
    assert len(found) == refused
    for line in found:
        assert re.match(r"stages.s: got a training that needs 0.\d GiB of memory .*that this machine", line)


GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("family", "sizes", "settings", "do"),
    [
        ("eurobert", GROUPED, ["target.speedup=2"], "choose another, or set 'stages.prune.dimensions=[layers,ffn]'"),
        ("eurobert", GROUPED, ["recipe=frontier"], "choose another, or set 'stages.prune.dimensions=[layers,ffn]'"),
        ("eurobert", GROUPED, ["recipe=prune_layers"], None),
        ("eurobert", GROUPED, ["recipe=prune_ffn"], None),
        ("deberta-v2", {"conv_kernel_size": 3}, ["recipe=prune_layers"], None),
        ("eurobert", GROUPED, ["target.speedup=null", "student.num_hidden_layers=2"], None),
        (
            "eurobert",
            GROUPED,
            ["target.speedup=null", "student.hidden_size=8"],
            "choose another, or leave out student.hidden_size",
        ),
        (
            "eurobert",
            GROUPED,
            ["target.speedup=null", "student.num_attention_heads=2", "stages.prune.uniform=false"],
            "choose another, or leave out student.num_attention_heads",
        ),
        ("albert", {"num_hidden_groups": 3}, ["recipe=prune_layers"], "choose another"),
    ],
)
def test_only_the_width_of_some_models_is_not_pruned(
    family: str, sizes: dict[str, int], settings: list[str], do: str | None
) -> None:
    given = models.Models("teacher.name", [models.Model("", config_of(family, **sizes), words())], None, None)
    config = load_config(settings if settings[0].startswith("recipe=") else ["recipe=prune", *settings])
    plan = resolve(config)
    every = dict.fromkeys(map(str, models.problems(given, config, plan, plan.of(Prune), None)))
    found = [line for line in every if "to be pruned" in line]
    assert [line.rpartition("; ")[2] for line in found] == ([] if do is None else [do])
    assert not any(line.startswith("student.") for line in every)


def test_a_student_that_keeps_another_end_of_long_texts_is_said() -> None:
    teacher, student = words(), words()
    assert [*data.other_ends(teacher, student)] == []
    student.truncation_side = "left"
    (line,) = data.other_ends(teacher, student)
    assert line.startswith("student: of texts that are cut it reads the last tokens, and the teacher the first ones")


@pytest.mark.parametrize(("head", "refused"), [("", True), ("SequenceClassification", True), ("MaskedLM", False)])
def test_a_given_teacher_without_a_language_model_head_is_refused_before_anything_is_trained(
    head: str, refused: bool, tmp_path: Path
) -> None:
    folder = str(save(tmp_path, "bert", head))
    given = models.Models("teacher.name", [models.Model(folder, config_of("bert"), words())], None, None)
    terms = {"soft_targets": Term(), "labels": Term(compare_with="labels")}
    for source, settings, lines in (
        (TEACHER, terms, int(refused)),
        (TEACHER, {"labels": terms["labels"]}, 0),
        (None, terms, 0),
    ):
        step: Any = SimpleNamespace(stage="general", teacher=source, settings=Train(data="corpus", terms=settings))
        found = [*map(str, models._without_mlm_head(given, step))]
        assert len(found) == lines
        assert all(line.startswith("stages.general.teacher: got a model without such a head; must ") for line in found)
