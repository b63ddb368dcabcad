"""`DistillationLoss` against the losses of transformers, formulas in float64, and the step of a training stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from accelerate import Accelerator
from torch import Tensor
from transformers import TrainingArguments

import distill
from distill import config, losses
from distill.config.instantiate import bind
from distill.data.task_types import TASK_TYPES
from distill.errors import ConfigError, DataError
from distill.losses import terms
from distill.losses.collated import batch_of
from distill.losses.distillation_loss import DistillationLoss
from distill.losses.objective import Objective
from distill.models import families
from distill.training.train import gradients
from distill.training.trainer import DistillationTrainer
from tests import tiny

LENGTH = 9
BATCH = 4


def inputs(*shape: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 60, shape, generator=generator)
    mask = torch.ones(shape, dtype=torch.long)
    mask[..., 1, LENGTH - 3 :] = 0
    return {"input_ids": ids.masked_fill(mask == 0, tiny.PADDING), "attention_mask": mask}


def on_tokens(*given: tuple[int, int, int]) -> Tensor:
    labels = torch.full((BATCH, LENGTH), -100)
    for row, column, label in given:
        labels[row, column] = label
    return labels


BATCHES: dict[str, tuple[str, dict[str, Any], dict[str, Tensor]]] = {
    "classification": (
        "SequenceClassification",
        {"num_labels": 3},
        inputs(BATCH, LENGTH) | {"labels": torch.tensor([0, 2, 1, 2])},
    ),
    "regression": (
        "SequenceClassification",
        {"num_labels": 1},
        inputs(BATCH, LENGTH) | {"labels": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    ),
    "multi_label": (
        "SequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        inputs(BATCH, LENGTH) | {"labels": torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])},
    ),
    "token_classification": (
        "TokenClassification",
        {"num_labels": 4},
        inputs(BATCH, LENGTH) | {"labels": on_tokens((0, 1, 3), (0, 2, 0), (1, 3, 1), (3, 7, 2))},
    ),
    "multiple_choice": (
        "MultipleChoice",
        {},
        inputs(BATCH, 3, LENGTH) | {"labels": torch.tensor([0, 2, 1, 2])},
    ),
    "question_answering": (
        "QuestionAnswering",
        {},
        inputs(BATCH, LENGTH)
        | {"start_positions": torch.tensor([0, 2, 5, 1]), "end_positions": torch.tensor([0, 3, 8, 4])},
    ),
    "masked_lm": ("MaskedLM", {}, inputs(BATCH, LENGTH) | {"labels": on_tokens((0, 1, 40), (2, 5, 7), (3, 2, 59))}),
}
"""Kind of task -> head, settings of the config, and a batch as a collator returns it."""


def pair(kind: str, name: str = "bert", **sizes: Any) -> tuple[Any, Any]:
    head, settings, _ = BATCHES[kind]
    student = tiny.model(name, head, std=0.3, seed=0, num_hidden_layers=2, **settings, **sizes)
    return student.double(), tiny.model(name, head, std=0.3, seed=1, **settings).double()


def close(value: Any, expected: Any) -> None:
    """The models compute in float64; the sums of terms are float32."""
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-7, check_dtype=False)


def in_float64(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() if value.is_floating_point() else value for name, value in batch.items()}


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert"])
def test_supervised_is_the_loss_of_transformers(kind: str, name: str) -> None:
    if BATCHES[kind][0] == "MultipleChoice" and "ForMultipleChoice" in families.FAMILIES[name].without:
        pytest.skip("transformers has no such class")
    student, _ = pair(kind, name)
    batch = in_float64(BATCHES[kind][2])
    if kind == "question_answering":
        batch["attention_mask"] = torch.ones_like(batch["attention_mask"])  # transformers lets padding be an answer
    term = terms.MaskedLM() if kind == "masked_lm" else terms.Supervised()
    loss, parts = DistillationLoss(student, None, {"term": term})(batch)
    expected = student(**batch).loss
    close(loss, expected)
    assert parts.keys() == {"term"}
    assert not parts["term"].requires_grad
    assert loss.requires_grad


@pytest.mark.parametrize("kind", ["classification", "token_classification", "multiple_choice"])
@pytest.mark.parametrize("labelled", [True, False])
def test_soft_targets_of_a_teacher_that_runs(kind: str, labelled: bool) -> None:
    student, teacher = pair(kind)
    batch = {name: value for name, value in BATCHES[kind][2].items() if labelled or name != "labels"}
    loss, _ = DistillationLoss(student, teacher, [terms.SoftTargets(0.5, temperature=3.0)])(batch)
    unlabelled = {name: value for name, value in batch.items() if name != "labels"}
    ours, theirs = student(**unlabelled).logits, teacher(**unlabelled).logits
    if kind == "token_classification":
        rows = batch["labels"] != -100 if labelled else batch["attention_mask"] == 1
        ours, theirs = ours[rows], theirs[rows]
    logs = (F.log_softmax(logits / 3, dim=-1) for logits in (ours, theirs))
    expected = 0.5 * 9 * F.kl_div(*logs, reduction="batchmean", log_target=True)
    close(loss, expected)


def test_several_labels_are_compared_one_by_one() -> None:
    student, teacher = pair("multi_label")
    batch = inputs(BATCH, LENGTH)
    loss, _ = DistillationLoss(student, teacher, [terms.SoftTargets(temperature=1.0)])(batch)
    ours, theirs = student(**batch).logits.sigmoid(), teacher(**batch).logits.sigmoid()
    bernoulli = torch.distributions.Bernoulli
    expected = torch.distributions.kl_divergence(bernoulli(theirs), bernoulli(ours)).mean()
    close(loss, expected)


@pytest.mark.parametrize("kind", ["classification", "token_classification", "multi_label", "multiple_choice"])
def test_stored_outputs_stand_in_for_a_teacher(kind: str) -> None:
    student, teacher = pair(kind)
    batch = in_float64(BATCHES[kind][2])
    with torch.no_grad():
        logits = teacher(**{name: value for name, value in batch.items() if name != "labels"}).logits
    wanted = [terms.SoftTargets(), terms.Supervised()]
    expected, _ = DistillationLoss(student, teacher, wanted)(batch)
    loss, _ = DistillationLoss(student, None, wanted)(batch | {"teacher_logits": logits})
    assert loss.equal(expected)


def test_rows_without_a_label_count_for_the_teacher_alone() -> None:
    student, teacher = pair("classification")
    batch = BATCHES["classification"][2] | {"labels": torch.tensor([0, -100, 1, -100])}
    loss_fn = DistillationLoss(student, teacher, [terms.SoftTargets(), terms.Supervised()])
    _, parts = loss_fn(batch)
    _, without = loss_fn({name: value for name, value in batch.items() if name != "labels"})
    logits = student(**inputs(BATCH, LENGTH)).logits
    expected = F.cross_entropy(logits, batch["labels"])
    close(parts["supervised"].double(), expected.detach())
    assert parts["soft_targets"].equal(without["soft_targets"])
    assert without["supervised"] == 0


@pytest.mark.parametrize("kind", ["classification", "masked_lm"])
def test_it_is_the_step_of_a_training_stage_to_the_last_bit(kind: str) -> None:
    """The same student and terms as a stage has them, in float32, in `gradients`, which every stage runs through."""
    head, settings, batch = BATCHES[kind]
    wanted = {"soft": terms.SoftTargets(0.7), "hidden": terms.Hidden(0.3, "uniform"), "pooled": terms.Pooled(0.2)}
    label = {"label": terms.MaskedLM(0.5) if kind == "masked_lm" else terms.Supervised(0.5)}
    ours, theirs = (tiny.model("bert", head, std=0.3, seed=0, num_hidden_layers=2, **settings) for _ in range(2))
    teacher = tiny.model("bert", head, std=0.3, seed=1, **settings)
    loss_fn = DistillationLoss(ours, teacher, wanted | label, layer_map=[0, 2])
    loss, parts = loss_fn(batch)
    loss.backward()

    task = None if kind == "masked_lm" else TASK_TYPES[kind]
    rows = {} if task is None else {"rows": task.rows, "label_rows": task.on_labels}
    objective = Objective(theirs, wanted | label, [teacher], kept=[0, 2], **rows)
    weights = torch.tensor([term.weight for term in objective.terms.values()])
    arrays = {name: value.numpy() for name, value in batch_of(task, settings.get("num_labels", 0), batch).items()}
    means, _ = gradients(objective, objective, [arrays], 1.0, weights, Accelerator(cpu=True))
    assert means.equal(torch.stack([*parts.values()]))
    assert loss.equal((weights * means).sum())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        assert mine.grad is None or mine.grad.equal(other.grad)


def test_a_function_of_your_own_is_a_term() -> None:
    student, teacher = pair("classification")

    def gap(student: Tensor, teacher: Tensor) -> Tensor:
        return (student - teacher).abs().sum(-1)

    loss, parts = DistillationLoss(student, teacher, [gap, terms.Hidden(loss=gap)])(BATCHES["classification"][2])
    given = inputs(BATCH, LENGTH)
    ours, theirs = (model(**given, output_hidden_states=True) for model in (student, teacher))
    expected = {"gap": gap(ours.logits, theirs.logits).mean()}
    real = given["attention_mask"] == 1
    expected["hidden_gap"] = gap(ours.hidden_states[-1][real], theirs.hidden_states[-1][real]).mean()
    assert parts.keys() == expected.keys()
    close(loss, sum(expected.values()))


def test_the_same_function_twice_has_two_names() -> None:
    assert [*terms.named([terms.Hidden(), terms.Hidden(layers="uniform"), terms.SoftTargets()])] == [
        "hidden_mse",
        "hidden_mse_2",
        "soft_targets",
    ]


def test_a_name_that_another_function_has_is_not_given_again() -> None:
    """No term takes the place of another one."""

    def gap(student: Tensor, teacher: Tensor) -> Tensor:
        return (student - teacher).abs().mean(-1)

    def gap_3(student: Tensor, teacher: Tensor) -> Tensor:
        return gap(student, teacher)

    assert [*terms.named([gap, gap_3, gap])] == ["gap", "gap_3", "gap_2"]
    assert [*terms.named([gap, gap_3, gap, gap])] == ["gap", "gap_3", "gap_2", "gap_4"]


@pytest.mark.parametrize(
    ("term", "file"),
    [
        (terms.SoftTargets(temperature=2.0), "soft_targets"),
        (terms.Supervised(), "supervised"),
        (terms.MaskedLM(), "mlm"),
        (terms.Hidden(), "mse"),
        (terms.Hidden(layers="uniform"), "hidden"),
        (terms.Hidden(loss=losses.cosine), "cosine"),
        (terms.Pooled(), "pooled"),
        (terms.Vectors(), "vectors"),
        (terms.Relations(), "relations"),
        (terms.Attention(), "attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_defaults_are_those_of_the_settings(term: terms.Term, file: str) -> None:
    stated = yaml.safe_load((config.folder("conf") / "term" / f"{file}.yaml").read_text())
    function = {k: 2.0 if value == "${....temperature}" else value for k, value in stated.pop("loss").items()}
    bound = bind(function, "loss")

    def made(function: Any) -> tuple[Any, dict[str, Any]]:
        function = function if isinstance(function, partial) else partial(function)
        return function.func, function.keywords

    assert (
        made(term.loss) == made(bound) if "temperature" not in made(bound)[1] else made(term.loss)[0] == made(bound)[0]
    )
    assert {name: getattr(term, name) for name in stated} == stated


def test_the_loss_moves_with_its_models_and_leaves_the_teacher_alone() -> None:
    student, teacher = pair("classification", hidden_size=8, intermediate_size=12)
    teacher.train()
    before = [parameter.detach().clone() for parameter in teacher.parameters()]
    loss_fn = DistillationLoss(student, teacher, [terms.Hidden()])
    assert not teacher.training
    assert {parameter.dtype for parameter in loss_fn.float().objective.teachers[0].parameters()} == {torch.float32}
    assert len([*loss_fn.parameters()]) == len([*student.parameters()]) + 1  # the map from width 8 to 16
    assert not any("teacher" in name for name in loss_fn.state_dict())
    loss_fn(BATCHES["classification"][2])[0].backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(map(torch.allclose, before, (parameter.double() for parameter in teacher.parameters())))


def refused(error: type[Exception], act: Callable[[], Any]) -> str:
    with pytest.raises(error) as raised:
        act()
    return str(raised.value)


def test_what_does_not_fit_is_refused_with_one_line() -> None:
    student, teacher = pair("classification")
    other, _ = pair("token_classification")
    few = tiny.model("bert", "SequenceClassification", num_labels=2)
    bare = tiny.model("bert", "")
    other_words = tiny.model("bert", "SequenceClassification", num_labels=3, vocab_size=500)
    swapped = tiny.model("bert", "SequenceClassification", num_labels=3, id2label={0: "b", 1: "a", 2: "c"})
    named = tiny.model("bert", "SequenceClassification", num_labels=3, id2label={0: "a", 1: "b", 2: "c"})
    language, masked = tiny.model("bert", "MaskedLM"), BATCHES["masked_lm"][2]
    batch = BATCHES["classification"][2]
    soft = [terms.SoftTargets()]
    lines = {
        refused(ConfigError, lambda: DistillationLoss(student, other, soft)): "teacher: got a BertForToken",
        refused(ConfigError, lambda: DistillationLoss(student, few, soft)): "teacher: got num_labels 2; must be 3",
        refused(ConfigError, lambda: DistillationLoss(student, other_words, soft)): "teacher: got a vocabulary of 500",
        refused(ConfigError, lambda: DistillationLoss(named, swapped, soft)): "teacher: got the labels b, a, c; must",
        refused(
            DataError, lambda: DistillationLoss(student, teacher, soft)(batch | {"position_ids": batch["input_ids"]})
        ): "batch: got position_ids; must be left out",
        refused(
            DataError, lambda: DistillationLoss(student, teacher, soft)(batch | {"attention_mask": torch.ones(4, 9, 9)})
        ): "batch: got attention_mask of shape [4, 9, 9]; must be [4, 9]",
        refused(ConfigError, lambda: DistillationLoss(bare, None, soft)): "student: got a BertModel; must be a model",
        refused(ConfigError, lambda: DistillationLoss(student, teacher, [])): "terms: got none; must be at least one",
        refused(ConfigError, lambda: DistillationLoss(student, teacher, ["kl"])): "terms: got 'kl'; must be a term",
        refused(
            ConfigError, lambda: DistillationLoss(student, teacher, [terms.Vectors()])
        ): "terms: got vectors_cosine, which compares the vectors that embedders make",
        refused(ConfigError, lambda: DistillationLoss(student, [teacher] * 2, soft)): "teacher: got 2 models; must be",
        refused(ConfigError, lambda: DistillationLoss(student, None, soft)(batch)): "teacher: got None; must be a mod",
        refused(
            ConfigError, lambda: DistillationLoss(student, None, [*soft, terms.Hidden()])
        ): "teacher: got None; must be a model for the term hidden_mse, which compares its layers",
        refused(
            DataError, lambda: DistillationLoss(language, None, soft)(masked | {"teacher_logits": torch.ones(4, 9, 60)})
        ): "batch: got teacher_logits; must be left out of masked language modelling; pass the",
        refused(DataError, lambda: DistillationLoss(student, teacher, soft)({})): "batch: got no input_ids; must have",
        refused(
            DataError, lambda: DistillationLoss(student, teacher, soft)(batch | {"labels": batch["labels"][:2]})
        ): "batch: got labels of shape [2]; must be [4]",
        refused(
            DataError, lambda: DistillationLoss(student, teacher, soft)(batch | {"labels": batch["labels"].double()})
        ): "labels: got numbers with a fraction; must be class numbers",
        refused(
            DataError, lambda: DistillationLoss(student, teacher, soft)(BATCHES["multiple_choice"][2])
        ): "batch: got input_ids of shape [4, 3, 9]; must have 2 dimensions for classification",
    }
    assert {line: line.startswith(start) for line, start in lines.items()} == dict.fromkeys(lines, True)


@pytest.mark.parametrize("name", ["keys", "values", "train", "hidden.last", ""])
def test_a_name_that_torch_allows_for_no_module_is_refused_where_a_map_would_have_it(name: str) -> None:
    student, teacher = pair("classification", hidden_size=8, intermediate_size=12)
    line = refused(ConfigError, lambda: DistillationLoss(student, teacher, {name: terms.Hidden()}))
    assert line.startswith(f"terms.{name}: got a term of this name, which a trained part of the loss cannot have")
    assert DistillationLoss(*pair("classification"), {name: terms.Hidden()})


def test_a_trainer_of_transformers_takes_the_loss(tmp_path: Path) -> None:
    """One epoch of its steps is that of a loop of one's own."""
    head, settings, batch = BATCHES["classification"]
    rows = [{name: value[row] for name, value in batch.items()} for row in range(BATCH)]
    teacher = tiny.model("bert", head, std=0.3, seed=1, **settings)
    students = [
        tiny.model(
            "bert",
            head,
            std=0.3,
            seed=0,
            num_hidden_layers=2,
            hidden_size=8,
            intermediate_size=12,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            classifier_dropout=0.0,
            **settings,
        )
        for _ in range(2)
    ]
    wanted = [terms.SoftTargets(), terms.Hidden()]
    torch.manual_seed(3)  # of the map between the widths
    arguments = TrainingArguments(
        str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=1,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        seed=5,
    )
    trainer = DistillationTrainer(students[0], teacher, wanted, args=arguments, train_dataset=rows, eval_dataset=rows)
    maps = [parameter.detach().clone() for parameter in trainer.loss_fn.objective.projections.parameters()]
    trainer.train()
    assert not any(map(torch.equal, maps, trainer.loss_fn.objective.projections.parameters()))
    first = trainer.state.log_history[0]
    assert {"loss", "soft_targets", "hidden_mse"} <= first.keys()
    assert first["loss"] == pytest.approx(first["soft_targets"] + first["hidden_mse"], rel=1e-3)
    evaluated = trainer.evaluate()["eval_loss"]
    with torch.no_grad():
        assert evaluated == pytest.approx(students[0].eval()(**batch).loss.item(), rel=1e-5)

    loss_fn = DistillationLoss(students[1].train(), teacher, wanted)
    with torch.no_grad():
        loss_fn.objective.projections["hidden_mse"].weight.copy_(maps[0])
    order = [*trainer.get_train_dataloader().batch_sampler]
    optimizer = torch.optim.SGD(loss_fn.parameters(), lr=0.01)
    assert len(order) > 2, "what one step leaves shows in the second after it"
    for picked in order:
        loss, _ = loss_fn({name: torch.stack([rows[row][name] for row in picked]) for name in batch})
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for ours, theirs in zip(*(student.parameters() for student in students), strict=True):
        torch.testing.assert_close(ours, theirs)
    ours, theirs = (each.objective.projections["hidden_mse"].weight for each in (trainer.loss_fn, loss_fn))
    torch.testing.assert_close(ours, theirs)
    assert ours.grad is None, "no gradient is left for the next step"


def test_a_language_model_without_masked_tokens_is_refused(tiny_model: Any) -> None:
    """Terms on them would be 0, and only weight decay would change the student."""
    student, teacher = (tiny_model("bert", "MaskedLM", seed=seed) for seed in (1, 2))
    batch = inputs(BATCH, LENGTH)
    with pytest.raises(DataError, match="must have labels, which tell the masked tokens, for the term soft_targets"):
        DistillationLoss(student, teacher, [terms.SoftTargets()])(batch)
    loss, _ = DistillationLoss(student, teacher, [terms.SoftTargets(positions="all")])(batch)
    assert loss > 0


def test_models_of_other_padding_tokens_are_of_other_tokenizers(tiny_model: Any) -> None:
    """RoBERTa's and ModernBERT's vocabularies have nearly the same size."""
    student, teacher = (tiny_model("bert", "SequenceClassification") for _ in range(2))
    teacher.config.pad_token_id = student.config.pad_token_id + 1
    DistillationLoss(student, teacher, [terms.SoftTargets()])  # one vocabulary, and a number that somebody has set
    teacher.config.vocab_size += 1
    with pytest.raises(ConfigError, match="got the padding token"):
        DistillationLoss(student, teacher, [terms.SoftTargets()])


def test_copied_layers_are_those_of_a_teacher_of_that_depth(tiny_model: Any) -> None:
    """Of another teacher, or of the student that was cut again, the same numbers are other layers."""
    given = tiny_model("bert", "SequenceClassification", layers=4)
    student = distill.student(given, layers=[0, 3]).eval()
    other = tiny_model("bert", "SequenceClassification", layers=6)
    batch = BATCHES["classification"][2] | {"labels": torch.tensor([0, 1, 1, 0])}
    for teacher, layers in ((given, [0, 3]), (other, [2, 5])):
        wanted = [terms.Hidden(layers="uniform")]
        found = DistillationLoss(student, teacher, wanted)(batch)[0]
        expected = DistillationLoss(student, teacher, wanted, layer_map=layers)(batch)[0]
        assert found.item() == pytest.approx(expected.item())


def test_the_public_names_are_these() -> None:
    assert distill.DistillationLoss is DistillationLoss
    assert distill.terms is terms


@pytest.mark.parametrize(("kind", "outputs"), [("reranking", 3), ("regression", 3), ("classification", 1)])
def test_a_kind_of_another_number_of_outputs_is_refused(kind: str, outputs: int, tiny_model: Any) -> None:
    student = tiny_model("bert", "SequenceClassification", num_labels=outputs)
    with pytest.raises(ConfigError, match=f"kind: got {kind}; must be .* with this head and {outputs} outputs"):
        DistillationLoss(student, None, [terms.Supervised()], kind=kind)
