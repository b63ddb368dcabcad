"""Which layers and channels of the teacher a student's were copied from, and what one model for all tasks keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distill.compression.pruning.importance import Importance, magnitude
from distill.compression.pruning.search import Shape
from distill.compression.pruning.sensitivity import Sensitivity, stored
from distill.config import Prune, Student, Train
from distill.config.plan import TEACHER, Source, Step
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.models import families, teacher
from distill.models.student import half_depth
from distill.pipeline.artefacts import Cut
from distill.pipeline.context.checkpoints import WHOLE
from distill.pipeline.stages.train import _average, _origin
from distill.pipeline.train_steps.layer_map import (
    UNKNOWN,
    Origin,
    averaged,
    cut_for_all,
    kept_longest,
    mean_scores,
    with_head,
)
from tests import tiny


def build(start: Source) -> Step:
    return Step("build", Train(build_student=True), sources={"start": (start,)})


def prune(start: Source, name: str = "prune") -> Step:
    return Step(name, Prune(), sources={"start": (start,)})


def train(start: Source, teacher: Source = TEACHER) -> Step:
    return Step("train", Train(), sources={"start": (start,), "teacher": (teacher,)})


FINETUNED = Step("finetune_teacher", Train(role="teacher"), sources={"start": (TEACHER,)})


def general() -> Step:
    """A step that cuts the given teacher to the shape of a prune step, and trains it on a corpus."""
    return Step(
        "general", Train(), sources={"start": (TEACHER,), "teacher": (TEACHER,), "shape_of": (prune(FINETUNED),)}
    )


@dataclass
class Origins:
    """Of a teacher with six layers. A pruned model keeps its first and third layer for task a; pruned again, the second
    of these."""

    student: Student | None = field(default_factory=lambda: Student(layers=[0, 3, 5]))

    def __call__(self, step: Step, task: str | None) -> Origin:
        again = {"a": Cut(layers=[1], hidden=[0])}
        tasks = {"a": Cut(layers=[0, 2], hidden=[1, 3]), "b": Cut(layers=[1, 2], hidden=[0, 3])}
        folder: Any = SimpleNamespace(
            result=lambda step, _: SimpleNamespace(tasks=again if step.stage == "again" else tasks)
        )
        return _origin(step, self.student, lambda: 6, folder, pytest.fail, task or WHOLE)


@pytest.fixture
def origin() -> Origins:
    return Origins()


@pytest.mark.parametrize(
    ("start", "task", "layers"),
    [
        (build(TEACHER), None, [0, 3, 5]),
        (prune(FINETUNED), "a", [0, 2]),
        (prune(FINETUNED), "b", [1, 2]),
        (prune(build(TEACHER)), "a", [0, 5]),  # the first and third of the layers that were built
        (TEACHER, "a", None),  # neither built nor pruned
        (build(prune(FINETUNED)), "a", None),
        (prune(prune(FINETUNED), "again"), "a", [2]),
        (prune(train(prune(FINETUNED)), "again"), "a", [2]),
        (prune(build(prune(FINETUNED)), "again"), "a", None),
    ],
)
def test_layers_are_those_of_the_teacher(
    start: Source, task: str | None, layers: list[int] | None, origin: Origins
) -> None:
    assert origin(train(start, FINETUNED), task).layers == layers


def test_without_layers_half_of_them_are_kept() -> None:
    assert Origins(Student())(train(build(TEACHER)), None) == Origin(half_depth(6))


@pytest.mark.parametrize("teacher", [build(TEACHER), prune(FINETUNED)])
def test_a_student_as_teacher_has_other_layers(teacher: Step, origin: Origins) -> None:
    assert origin(train(build(TEACHER), teacher), None) == UNKNOWN


@pytest.mark.parametrize("student", [Student(layers=[0, 3, 5], init="random"), None])
def test_a_random_or_given_student_has_no_layers_of_the_teacher(student: Student | None) -> None:
    assert Origins(student)(train(build(TEACHER)), None) == UNKNOWN


def test_channels_are_those_that_were_kept(origin: Origins) -> None:
    assert origin(train(prune(FINETUNED), FINETUNED), "b") == Origin([1, 2], [0, 3])
    assert origin(train(prune(build(TEACHER)), FINETUNED), "b").channels is None  # of a student that was built


def test_channels_that_were_kept_twice_are_those_of_the_teacher(origin: Origins) -> None:
    assert origin(train(prune(train(prune(FINETUNED)), "again"), FINETUNED), "a").channels == [1]


def measured(hidden: list[float], layers: dict[int, list[int]]) -> Sensitivity:
    scores = Importance(torch.ones(4, 2), torch.rand(4, 12), torch.tensor(hidden))
    return Sensitivity(scores, refit=False, layers=layers, losses=None)


def test_tasks_count_alike_whatever_the_scale_of_their_scores() -> None:
    one, two = (measured(hidden, {}).scores for hidden in ([1.0, 0.0, 0.0, 0.0], [0.0, 300.0, 100.0, 0.0]))
    torch.testing.assert_close(mean_scores([one, two]).hidden, torch.tensor([0.5, 0.375, 0.125, 0.0]))


def test_layers_are_those_that_tasks_lose_last() -> None:
    one = measured([1.0], {4: [0, 1, 2, 3], 3: [0, 1, 3], 2: [0, 3], 1: [3]})
    two = measured([1.0], {4: [0, 1, 2, 3], 3: [1, 2, 3], 2: [1, 3], 1: [1]})
    assert [kept_longest([one, two], count) for count in (4, 3, 2, 1)] == [[0, 1, 2, 3], [0, 1, 3], [1, 3], [3]]


def test_one_model_for_all_tasks_keeps_what_matters_on_average(tmp_path: Path, tiny_model: Any) -> None:
    model = tiny_model("bert", layers=4, hidden_size=16, num_attention_heads=2, intermediate_size=12)
    hidden = [float(n % 2) for n in range(16)]
    layers = {4: [0, 1, 2, 3], 3: [0, 1, 3], 2: [0, 3]}
    step = general()
    for task in ("a", "b"):
        stored(tmp_path / task, lambda: measured(hidden, layers))
    pruned = SimpleNamespace(shape=Shape(layers=2, hidden=8, ffn=4))
    folder: Any = SimpleNamespace(result=lambda *_: pruned, measured=lambda step: tmp_path)
    average = _average(folder, ["a", "b"], prune(FINETUNED))
    cut = cut_for_all(average, model)
    assert (families.depth(cut), families.width(cut), cut.config.intermediate_size) == (2, 8, 4)
    odd = [n for n in range(16) if n % 2]
    words = model.get_input_embeddings().weight
    assert torch.equal(cut.get_input_embeddings().weight, words[:, odd])
    recover = Step("recover", Train(), sources={"start": (step,), "teacher": (FINETUNED,)})
    for each, task in ((step, WHOLE), (recover, "a")):
        found = _origin(each, Student(), lambda: 4, folder, lambda pruner: average, task)
        assert found == Origin([0, 3], odd)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", tiny.SHAPES)
def test_a_task_gets_the_encoder_for_all_tasks_and_its_own_head(name: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 4}
    whole = tiny.save(tmp_path / "task", name, "SequenceClassification", num_labels=3, **sizes)
    given = tiny.save(tmp_path / "given", name, "MaskedLM", **sizes)
    model, _ = teacher.load_mlm(given)
    depth = families.depth(model)
    scores = magnitude(model)
    layers = {count: [*range(count)] for count in range(1, depth + 1)}
    shape = Shape(layers=1, hidden=16, ffn=8)
    average = averaged(shape, [Sensitivity(scores, refit=False, layers=layers, losses=None)])
    cut = cut_for_all(average, model)
    with torch.no_grad():
        for parameter in cut.parameters():
            parameter.add_(0.1)  # trained
    cut.save_pretrained(tmp_path / "general")
    task: Any = SimpleNamespace(task=Task("a", TASK_TYPES["classification"], ("text",), ("x", "y", "z"), ("accuracy",)))
    found = with_head(average, task, whole, tmp_path / "general", tiny.PADDING)
    trained = {key: value for key, value in families.encoder(cut).state_dict().items() if "pooler" not in key}
    assert trained
    encoder = families.encoder(found).state_dict()
    assert all(torch.equal(value, encoder[key]) for key, value in trained.items())
    original = teacher.load_classifier(whole, 3)
    out = families.head_of(found)
    kept = torch.tensor(origin_channels(scores, shape.hidden))
    before, after = original.get_submodule(families.head_of(original)).weight, found.get_submodule(out).weight
    assert torch.equal(after, before[:, kept])


def origin_channels(scores: Importance, count: int) -> list[int]:
    return scores.hidden.argsort(descending=True, stable=True)[:count].sort().values.tolist()
