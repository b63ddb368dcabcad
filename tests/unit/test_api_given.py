"""What users of a notebook pass to `distill`'s functions: iterators, arrays, compiled models, models of any task."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import Tensor
from transformers import AutoModelForMultipleChoice, AutoModelForQuestionAnswering, AutoTokenizer

import distill
from distill.compression.pruning.importance import fisher
from distill.config import Teacher
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import record
from distill.errors import ConfigError, DataError
from distill.inference.artifact import in_eval_mode
from distill.models import teacher
from distill.pipeline.run import _unchanged
from tests import tiny

Tiny = Callable[..., Any]
ROWS = [{"input_ids": [7 + n, 8, 9 + n], "labels": n % 3} for n in range(8)]


@pytest.fixture
def model(tiny_model: Tiny) -> Any:
    return tiny_model("bert", "SequenceClassification")


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("form", [list, iter, tuple, dict.fromkeys], ids=["list", "iterator", "tuple", "keys"])
def test_modules_stay_in_float_whatever_lists_them(form: Callable[..., Any], model: Any, tmp_path: Path) -> None:
    every = distill.quantize(model, "onnxruntime", out=tmp_path / "all")
    kept = distill.quantize(model, "onnxruntime", out=tmp_path / "kept", keep=form(["bert.encoder"]))
    assert kept.path.stat().st_size > every.path.stat().st_size


@pytest.mark.parametrize("form", [list, iter, lambda names: (name for name in names)])
def test_metrics_may_be_an_iterator(form: Callable[..., Any], model: Any) -> None:
    assert distill.evaluate({"a": model}, ROWS, metrics=form(["accuracy"]))[0]["scores"].keys() == {"accuracy"}
    with pytest.raises(ConfigError, match=r"metrics: got 'accuracy'; must be a list of names; write \['accuracy'\]"):
        distill.evaluate({"a": model}, ROWS, metrics="accuracy")


@pytest.mark.parametrize("form", [list, tuple, iter, np.array, torch.tensor, set], ids=lambda form: form.__name__)
def test_numbers_of_layers_in_any_form(form: Callable[..., Any], model: Any, tiny_batch: dict[str, Tensor]) -> None:
    student = distill.student(model, layers=form([0, 2])).eval()
    for number, layer in enumerate((0, 2)):
        ours, theirs = student.bert.encoder.layer[number], model.bert.encoder.layer[layer]
        assert torch.equal(ours.output.dense.weight, theirs.output.dense.weight)
    assert distill.prune(model, [tiny_batch], layers=form([0, 2])).config.num_hidden_layers == 2
    terms = [distill.terms.Hidden(layers="uniform")]
    mapped, listed = (
        distill.DistillationLoss(student, model, terms, layer_map=layers) for layers in (form([0, 2]), [0, 2])
    )
    assert mapped(tiny_batch)[0].item() == listed(tiny_batch)[0].item()


def test_counts_of_layers_are_numbers(model: Any) -> None:
    for count in (2, np.int64(2), np.array(2), torch.tensor(2)):
        assert distill.student(model, layers=count).config.num_hidden_layers == 2  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="layers: got True; must be a number of layers"):
        distill.student(model, layers=True)


def test_compiled_models_are_those_that_they_call(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    assert distill.student(compiled(model), layers=1).config.num_hidden_layers == 1
    assert distill.prune(compiled(model), [tiny_batch], layers=1).config.num_hidden_layers == 1
    rows = distill.evaluate({"a": model, "b": compiled(model), "c": torch.nn.DataParallel(model)}, ROWS)
    assert rows[0]["scores"] == rows[1]["scores"] == rows[2]["scores"]
    student, terms = distill.student(model, layers=2).eval(), [distill.terms.SoftTargets()]
    plain = distill.DistillationLoss(student, model, terms)(tiny_batch)[0]
    loss = distill.DistillationLoss(compiled(student), compiled(model), terms)(tiny_batch)[0]
    assert loss.item() == plain.item()
    loss.backward()
    assert student.classifier.weight.grad.abs().sum() > 0
    with pytest.raises(ConfigError, match="student: got a DataParallel; must be the model in it"):
        distill.DistillationLoss(torch.nn.DataParallel(student), model, terms)


@pytest.mark.filterwarnings("ignore")  # peft asks transformers for names that it renames
def test_adapters_that_state_no_task_have_the_head_of_their_base(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    settings = peft.LoraConfig(target_modules=["query"], init_lora_weights=False)
    torch.manual_seed(1)
    adapted = peft.get_peft_model(copy.deepcopy(model), settings).eval()
    merged = copy.deepcopy(adapted).merge_and_unload().eval()
    rows = distill.evaluate({"a": merged, "b": adapted}, ROWS)
    assert rows[0]["scores"] == rows[1]["scores"]
    terms = [distill.terms.SoftTargets(), distill.terms.Hidden()]
    loss, _ = distill.DistillationLoss(adapted, model, terms)(tiny_batch)
    assert loss.item() == pytest.approx(distill.DistillationLoss(merged, model, terms)(tiny_batch)[0].item(), rel=1e-3)
    loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert trained
    assert all("lora" in name for name in trained)


def test_a_teacher_is_another_model(model: Any) -> None:
    terms = [distill.terms.SoftTargets()]
    with pytest.raises(ConfigError, match="teacher: got the student, or a model that shares modules with it"):
        distill.DistillationLoss(model, model, terms)
    with pytest.raises(ConfigError, match="teacher: got the student, or a model that shares modules with it"):
        distill.DistillationLoss(model, [compiled(model)], terms)


def test_a_term_alone_is_a_list_of_one(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    student, term = distill.student(model, layers=1).eval(), distill.terms.SoftTargets()
    alone, listed = (distill.DistillationLoss(student, model, terms)(tiny_batch) for terms in (term, [term]))
    assert alone[1].keys() == listed[1].keys()
    assert alone[0].item() == listed[0].item()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ROWS[0], {**ROWS[1], "labels": None}], "some have no labels in row 1 of 2; must be in all"),
        ([{"input_ids": [5] * 3, "labels": 0}, {**ROWS[1], "token_type_ids": [0] * 3}], "no token_type_ids in row 0"),
        ([{"input_ids": [5] * 300, "labels": 1}], "got a text of 300 tokens; must be at most"),
        ([{"input_ids": [5, 10_000], "labels": 1}], "got token 10000; must be below"),
    ],
)
def test_rows_that_a_model_cannot_be_scored_on_are_refused(rows: Any, message: str, model: Any) -> None:
    with pytest.raises(DataError, match=message):
        distill.evaluate({"a": model}, rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [([5] * 300, "got a text of 300 tokens; must be at most"), ([5, 10_000], "got token 10000; must be below")],
)
def test_a_calibration_of_other_tokens_is_refused(row: list[int], message: str, model: Any, tmp_path: Path) -> None:
    """Before anything is written. A scheme that measures no activations reads no calibration."""
    with pytest.raises(DataError, match=message):
        distill.quantize(model, "onnxruntime_static", out=tmp_path / "a", calibration=[{"input_ids": row}])
    assert not list(tmp_path.iterdir())


def test_one_shape_is_no_list(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"shapes: got \(1, 16\); must be pairs of batch size and tokens"):
        distill.benchmark({"a": model}, shapes=(1, 16))  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["MaskedLM", None])
def test_a_model_without_a_task_is_refused_by_its_class(head: str | None, tiny_model: Tiny, tmp_path: Path) -> None:
    model = tiny_model("bert", "MaskedLM") if head else tiny_model("bert", "MaskedLM").bert
    with pytest.raises(ConfigError, match=f"model: got a {type(model).__name__}; must be a model with the head of a"):
        distill.quantize(model, "onnxruntime", out=tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_logging_stays_as_it_was(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    levels = {name: logging.getLogger(name).level for name in ("nncf", "bitsandbytes", "onnxruntime")}
    distill.quantize(model, "onnxruntime", out=tmp_path / "a")
    assert logging.root.handlers == []
    assert {name: logging.getLogger(name).level for name in levels} == levels


@pytest.mark.parametrize(
    "scheme",
    ["onnxruntime", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnxruntime_static", "openvino"))],
)
@pytest.mark.parametrize("head", ["QuestionAnswering", "MultipleChoice"])
def test_models_of_two_texts_are_quantized_and_loaded_in_that_form(head: str, scheme: str, tmp_path: Path) -> None:
    """The outputs are those of the quantized file, which differ from those of torch, and little."""
    if scheme == "openvino":
        pytest.importorskip("nncf")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    folder = tiny.save(tmp_path / "model", "bert", head, length=130, **sizes)
    auto = AutoModelForQuestionAnswering if head == "QuestionAnswering" else AutoModelForMultipleChoice
    model, tokenizer = auto.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    calibration = [dict(tokenizer("the old boat", "a small harbour"))] * 8
    distill.quantize(model, scheme, out=tmp_path / "q", tokenizer=tokenizer, calibration=calibration)
    loaded = distill.load(tmp_path / "q")
    assert (loaded.backend, loaded.scheme) == (
        scheme.removesuffix("_static"),
        "int8_static" if "_" in scheme else "int8",
    )
    asked = ("the old boat", "the small boat" if head == "QuestionAnswering" else ["the small boat", "a harbour"])
    ours, theirs = (each.outputs([asked]) for each in (loaded, distill.load(folder)))
    assert ours.shape == theirs.shape
    assert 0 < np.nanmax(np.abs(ours - theirs)) < 0.2 * np.nanmax(np.abs(theirs)) + 0.05


@pytest.mark.parametrize("layers", [1, 2, [2, 4]])
def test_layers_are_compared_with_those_that_they_were_copied_from(
    layers: Any, tiny_model: Tiny, tiny_batch: dict[str, Tensor]
) -> None:
    """As in a recipe, and not with those at the same relative depth."""
    teacher = tiny_model("bert", "SequenceClassification", layers=6)
    student = distill.student(teacher, layers=layers if isinstance(layers, list) else layers + 1).eval()
    copied = layers if isinstance(layers, list) else {1: [0, 5], 2: [0, 2, 5]}[layers]
    terms = [distill.terms.Hidden(layers="uniform")]
    known, stated = (
        distill.DistillationLoss(student, teacher, terms, layer_map=given)(tiny_batch)[0].item()
        for given in (None, copied)
    )
    assert known == stated
    small = distill.prune(student, [tiny_batch], layers=[1]).eval()
    after = (
        distill.DistillationLoss(small, teacher, terms, layer_map=given)(tiny_batch)[0].item()
        for given in (None, [copied[1]])
    )
    assert len({*after}) == 1
    fresh = distill.student(teacher, layers=2, init="random").eval()
    assert distill.DistillationLoss(fresh, teacher, terms).objective._pairs["hidden_mse"] == [(0, 2), (1, 5)]


def test_no_labels_and_no_pairs_of_layers(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    student, terms = distill.student(model, layers=1).eval(), distill.terms
    unlabelled = {name: values for name, values in tiny_batch.items() if name != "labels"}
    with pytest.raises(
        DataError, match="batch: got input_ids, attention_mask, token_type_ids, lables; must have labels"
    ):
        distill.DistillationLoss(student, model, [terms.Supervised()])({**unlabelled, "lables": tiny_batch["labels"]})
    assert distill.DistillationLoss(student, model, [terms.Supervised(), terms.SoftTargets()])(unlabelled)[0] > 0
    with pytest.raises(ConfigError, match="layers: got 2; must be last, uniform or pairs such as"):
        distill.DistillationLoss(student, model, [terms.Hidden(layers=2)])  # type: ignore[arg-type]


def test_the_form_of_a_folder_keeps_what_the_folder_states(tmp_path: Path) -> None:
    """The length and the pooling of an embedder, the activation of a cross-encoder, and the record of an export."""
    given = teacher.resolve(Teacher())
    distill.quantize(given, "onnxruntime", out=tmp_path / "embedder")
    library = SentenceTransformer(str(tmp_path / "embedder"))
    assert library.max_seq_length == distill.load(tmp_path / "embedder").max_length == 256

    reranker = tiny.save(tmp_path / "given", "bert", "SequenceClassification", num_labels=1, std=0.4)
    settings = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid"}
    (reranker / "config_sentence_transformers.json").write_text(json.dumps(settings))
    distill.quantize(reranker, "onnxruntime", out=tmp_path / "reranker")
    made, original = (distill.load(each, scheme="fp32") for each in (tmp_path / "reranker", reranker))
    pair = [("a small boat", "the harbour")]
    ours, theirs = (model.predict(pair)[0]["score"] for model in (made, original))
    assert ours == pytest.approx(theirs)
    assert CrossEncoder(str(tmp_path / "reranker")).predict(pair)[0] == pytest.approx(theirs)

    at_128 = record.Record("own", TASK_TYPES["embedding"], (), ("text",), 128, (record.Entry("torch", "fp32", "."),))
    record.write(tmp_path / "embedder", at_128)
    distill.quantize(tmp_path / "embedder", "onnxruntime", out=tmp_path / "shorter")
    assert SentenceTransformer(str(tmp_path / "shorter")).max_seq_length == 128

    stated = record.read(tmp_path / "reranker")
    assert stated is not None
    whole = replace(next(each for each in stated.artifacts if each.path == "."), temperature=3.0)
    changes: dict[str, Any] = {"threshold": 0.3, "max_length": 20, "columns": ("query", "body")}
    record.write(tmp_path / "reranker", replace(stated, artifacts=(whole,), **changes))
    distill.quantize(tmp_path / "reranker", "onnxruntime", out=tmp_path / "again")
    again = record.read(tmp_path / "again")
    assert again is not None
    assert (again.threshold, again.max_length, again.columns) == (0.3, 20, ("query", "body"))
    assert [entry.temperature for entry in again.artifacts] == [None, 3.0]


def test_a_student_of_another_family_has_its_teachers_labels(tiny_model: Tiny) -> None:
    names = {"id2label": {0: "calm", 1: "loud"}, "label2id": {"calm": 0, "loud": 1}}
    given = tiny_model(
        "bert", "SequenceClassification", problem_type="multi_label_classification", num_labels=2, **names
    )
    student = distill.student(given, layers=2, family="distilbert")
    for name in ("id2label", "label2id", "problem_type", "num_labels"):
        assert getattr(student.config, name) == getattr(given.config, name)
    distill.DistillationLoss(student, given, [distill.terms.SoftTargets()])


def test_a_model_that_was_trained_in_16_bits_computes_in_the_type_of_its_weights(model: Any) -> None:
    """accelerate leaves its forward under autocast on a model that a Trainer trained. Afterwards it is there again."""
    plain = distill.evaluate({"a": model}, ROWS, metrics=["accuracy"])
    with torch.no_grad():
        expected = model.eval()(input_ids=torch.tensor([[7, 8, 9]])).logits[0].tolist()
    with _unchanged():  # another Accelerator may have been made before
        AcceleratorState._reset_state(reset_partial_state=True)
        prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare_model(model)
    assert prepared is model
    forward = vars(model)["forward"]
    with in_eval_mode([model]), torch.no_grad():
        logits = model(input_ids=torch.tensor([[7, 8, 9]])).logits[0]
        assert logits.tolist() == pytest.approx(expected, abs=1e-6)
    assert vars(model)["forward"] is forward
    assert distill.evaluate({"a": model}, ROWS, metrics=["accuracy"])[0]["scores"] == plain[0]["scores"]
    seen: list[bool] = []

    def importance(given: Any, *arguments: Any) -> Any:
        seen.append("forward" in vars(given))
        return fisher(given, *arguments)

    small = distill.prune(model, ROWS, layers=2, importance=importance)
    assert seen == ["forward" in vars(small)] == [False]
    assert vars(model)["forward"] is forward


def test_labels_that_were_made_for_the_model_count(model: Any) -> None:
    """Beside the data set's own label, and without rows of -100 as a number."""
    both = [{**row, "label": "a name of the data set"} for row in ROWS]
    found, expected = (distill.evaluate({"a": model}, rows, metrics=["accuracy"]) for rows in (both, ROWS))
    assert found[0]["scores"] == expected[0]["scores"]


def test_numbers_of_minus_100_do_not_count(tiny_model: Tiny) -> None:
    number = tiny_model("bert", "SequenceClassification", num_labels=1)
    rows = [{"input_ids": [7 + n, 8, 9 + n], "labels": float(n % 5)} for n in range(12)]
    hidden = [*rows, {"input_ids": [7, 7, 7], "labels": -100.0}]
    found, expected = (distill.evaluate({"a": number}, each, metrics=["pearson"]) for each in (hidden, rows))
    assert found[0]["scores"] == expected[0]["scores"]


def test_tags_that_are_written_with_a_point_are_those_without(tiny_model: Tiny) -> None:
    tagger = tiny_model("bert", "TokenClassification", num_labels=3)
    rows = [{"input_ids": [7 + n, 8, 9 + n], "labels": [n % 3, 1, -100]} for n in range(12)]
    points = [row | {"labels": [*map(float, row["labels"])]} for row in rows]
    found, expected = (distill.evaluate({"a": tagger}, each, metrics=["accuracy"]) for each in (points, rows))
    assert found[0]["scores"] == expected[0]["scores"]


def test_a_frozen_model_can_be_pruned_and_keeps_what_was_put_on_its_layers(
    tiny_model: Tiny, tiny_batch: dict[str, Tensor]
) -> None:
    given = tiny_model("bert", "SequenceClassification", num_labels=3).requires_grad_(False)
    layer = given.bert.encoder.layer[1]
    layer.forward = forward = layer.forward
    small = distill.prune(given, [tiny_batch] * 4, size_mib=0.02, retrain_steps=2)
    assert small.config.num_hidden_layers <= 3
    assert not any(parameter.requires_grad for parameter in given.parameters())
    assert vars(layer)["forward"] is forward


def test_a_run_leaves_the_state_of_accelerate_and_the_random_numbers() -> None:
    """A loop of one's own goes on as without it."""
    before, drawn = dict(AcceleratorState._shared_state), torch.get_rng_state()
    with _unchanged():
        AcceleratorState._reset_state(reset_partial_state=True)
        Accelerator(cpu=True, mixed_precision="bf16")
        torch.manual_seed(5)
    assert AcceleratorState._shared_state == before
    assert torch.equal(torch.get_rng_state(), drawn)


class Own(torch.nn.Module):
    """A model of one's own, which is none of transformers."""


def test_what_is_no_model_of_transformers_is_named_by_its_type(model: Any, tmp_path: Path) -> None:
    terms = [distill.terms.SoftTargets()]
    for student, other, wrong in (
        (Own(), model, "student: got a Own"),
        (str(tmp_path), model, "student: got a str"),
        (model, Own(), "teacher: got a Own"),
        (model, str(tmp_path), "teacher: got a str"),
        (model, tmp_path, "teacher: got a PosixPath"),
    ):
        with pytest.raises(ConfigError, match=f"^{wrong}; must be a model with a head"):
            distill.DistillationLoss(student, other, terms)  # type: ignore[arg-type]
    for given, wrong in (((model, Own()), "student: got a Bert"), ((Own(), model), "student: got a Own")):
        with pytest.raises(ConfigError, match=f"^{wrong}.*; must be a SentenceTransformer"):
            distill.EmbeddingLoss(*given, terms)
    for act in (lambda models: distill.evaluate(models, ROWS), lambda models: distill.benchmark(models, repeats=1)):
        with pytest.raises(ConfigError, match=r"^models: got a Own; must be a model of transformers, its folder, or"):
            act({"a": Own()})
        for models in (model, [model], "my-bert"):
            with pytest.raises(ConfigError, match=r"^models: got a .*; must be models by their names; pass \{name"):
                act(models)
