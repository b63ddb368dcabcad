"""What users of Python have: token types that the student lacks, rows of any form, losses of torch, and resumed
trainings; with transformers, torch and sentence-transformers as oracles."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor
from transformers import (
    BertForSequenceClassification,
    DataCollatorForMultipleChoice,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import distill
from distill import terms
from distill.deploy import serve
from distill.errors import ConfigError, DataError
from tests import tiny

Tiny = Callable[..., Any]
SENTENCES = tiny.SENTENCES
TOKENIZER = tiny.tokenizer()


def classifier(family: str = "bert", head: str = "SequenceClassification", seed: int = 0, **settings: Any) -> Any:
    return tiny.model(family, head, std=0.3, seed=seed, vocab_size=len(TOKENIZER) + 3, **settings)


def arguments(folder: Path, **settings: Any) -> TrainingArguments:
    usual = {"report_to": "none", "use_cpu": True, "save_strategy": "no", "per_device_train_batch_size": 8}
    return TrainingArguments(str(folder), **usual | {"logging_steps": 1} | settings)


def trained(folder: Path, student: Any, teacher: Any, given: Any, rows: Any, **settings: Any) -> Any:
    resume = settings.pop("resume", None)
    trainer = distill.DistillationTrainer(
        student,
        teacher,
        given,
        args=arguments(folder, **settings),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=DataCollatorWithPadding(TOKENIZER),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


ROWS = [{**TOKENIZER(text), "labels": number % 3} for number, text in enumerate(SENTENCES)]


@pytest.mark.parametrize("form", [list, Dataset.from_list])
def test_a_teacher_gets_the_token_types_that_its_student_lacks(form: Any, tmp_path: Path) -> None:
    teacher = classifier(num_labels=2, seed=1)
    student = distill.student(classifier(num_labels=2), layers=1, family="distilbert")
    pairs = [{**TOKENIZER(SENTENCES[n], SENTENCES[(n + 3) % 8]), "labels": 0} for n in range(8)]
    seen: list[Tensor] = []

    def gap(ours: Tensor, theirs: Tensor) -> Tensor:
        seen.append(theirs)
        return (ours - theirs).abs().mean(-1)

    trainer = trained(tmp_path, student, teacher, [gap], form(pairs), max_steps=1, train_sampling_strategy="sequential")
    batch = DataCollatorWithPadding(TOKENIZER)(pairs)
    batch.pop("labels")
    with torch.no_grad():
        torch.testing.assert_close(seen[0], teacher.eval()(**batch).logits)
    predicted = trainer.predict(form(pairs)).predictions
    batch.pop("token_type_ids")
    with torch.no_grad():
        np.testing.assert_allclose(predicted, student.eval()(**batch).logits, atol=1e-5)


def test_stored_outputs_of_a_teacher_stay_in_rows(tmp_path: Path) -> None:
    rows = [row | {"teacher_logits": [1.0, 2.0, float(n)]} for n, row in enumerate(ROWS)]
    trainer = trained(tmp_path, classifier(num_labels=3), None, [terms.SoftTargets()], rows, max_steps=1)
    assert np.isfinite(trainer.evaluate()["eval_loss"])


def test_a_resumed_training_goes_on_with_its_maps(tmp_path: Path) -> None:
    sizes = {"num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    teacher = classifier(seed=1, **sizes)

    def losses(folder: str, **settings: Any) -> list[float]:
        torch.manual_seed(0)
        student = classifier(hidden_size=8, num_attention_heads=1, **sizes)
        steps = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "learning_rate": 1e-2}
        trainer = trained(tmp_path / folder, student, teacher, [terms.Hidden()], ROWS, **steps | settings)
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    whole = losses("a")
    checkpoint = tmp_path / "a" / "checkpoint-2"
    assert losses("a", resume=str(checkpoint)) == pytest.approx(whole, rel=1e-2)  # Adam enlarges rounding
    (checkpoint / "distill_maps.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"resume_from_checkpoint: got .* without distill_maps.safetensors"):
        losses("a", resume=str(checkpoint))


def test_an_optimizer_and_its_schedule_that_are_given_train_the_maps(tmp_path: Path) -> None:
    student, teacher = classifier(num_labels=3, hidden_size=8, num_attention_heads=1), classifier(num_labels=3, seed=1)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 4)
    trainer = distill.DistillationTrainer(
        student, teacher, [terms.Hidden()], args=arguments(tmp_path, max_steps=2), train_dataset=ROWS,
        data_collator=DataCollatorWithPadding(TOKENIZER), optimizers=(optimizer, schedule),
    )  # fmt: skip
    (before,) = (each.detach().clone() for each in trainer.loss_fn.objective.projections.parameters() if each.ndim == 2)
    trainer.train()
    (after,) = (each for each in trainer.loss_fn.objective.projections.parameters() if each.ndim == 2)
    assert not torch.equal(before, after)


def test_a_language_model_is_trained_in_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()
    student, teacher = (classifier(head="MaskedLM", seed=seed) for seed in (0, 1))
    student.bert.encoder.layer[0].intermediate.dense.register_forward_hook(lambda _, __, out: seen.add(out.dtype))
    rows = [{**row, "labels": [token if n == 2 else -100 for n, token in enumerate(row["input_ids"])]} for row in ROWS]
    same = [row for row in rows if len(row["input_ids"]) == len(rows[0]["input_ids"])]
    trained(tmp_path, student, teacher, [terms.SoftTargets()], same, max_steps=1, bf16=True)
    assert seen == {torch.bfloat16}


@pytest.mark.parametrize("reentrant", [True, False])
def test_terms_on_attention_keep_their_gradient_or_are_refused(reentrant: bool, tiny_batch: dict[str, Tensor]) -> None:
    student, teacher = classifier(num_labels=3).train(), classifier(num_labels=3, seed=1)
    student.activation_checkpointing_enable({"use_reentrant": reentrant})
    student.enable_input_require_grads()
    loss_fn = distill.DistillationLoss(student, teacher, [terms.SoftTargets(weight=1e-6), terms.Attention()])
    if reentrant:
        with pytest.raises(ConfigError, match=r"^gradient_checkpointing: got use_reentrant=True; must be False"):
            loss_fn(tiny_batch)
        return
    loss_fn(tiny_batch)[0].backward()
    gradients = [p.grad for name, p in student.named_parameters() if "query.weight" in name]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in gradients)


@pytest.mark.parametrize("loss", [F.mse_loss, torch.nn.MSELoss(), lambda s, t: (s - t) ** 2])
@pytest.mark.parametrize("form", [terms.Logits, lambda loss: terms.Hidden(loss=loss)])
def test_a_loss_without_a_value_for_each_row_is_refused(form: Any, loss: Any, tiny_batch: dict[str, Tensor]) -> None:
    student, teacher = classifier(num_labels=3), classifier(num_labels=3, seed=1)
    with pytest.raises(
        ConfigError, match=r"^terms: got .*, which returned the shape .*; must return one value for each"
    ):
        distill.DistillationLoss(student, teacher, [form(loss)])(tiny_batch)


def test_a_loss_of_torch_is_what_torch_returns(tiny_batch: dict[str, Tensor]) -> None:
    student, teacher = classifier(num_labels=3).eval(), classifier(num_labels=3, seed=1).eval()

    def loss(ours: Tensor, theirs: Tensor) -> Tensor:
        return F.mse_loss(ours, theirs, reduction="none").mean(-1)

    inputs = {name: values for name, values in tiny_batch.items() if name != "labels"}
    wanted = F.mse_loss(student(**inputs).logits, teacher(**inputs).logits)
    torch.testing.assert_close(distill.DistillationLoss(student, teacher, [loss])(tiny_batch)[0], wanted)


@pytest.mark.parametrize("layers", [[[-2, -2]], [[True, 0]], [[0.0, 1]], "first"])
def test_layers_that_no_model_has_are_refused(layers: Any) -> None:
    with pytest.raises(ConfigError, match=r"^layers: got .*counted from 0, where -1 are the embeddings"):
        distill.DistillationLoss(classifier(), classifier(seed=1), [terms.Hidden(layers=layers)])


def test_rows_of_xlnet_are_padded_before_their_texts() -> None:
    """Labels are what the model says of each text alone, so that only other padding could be wrong."""
    texts = [" ".join((SENTENCES * 3)[n].split()[: 1 + n]) for n in range(8)]
    model = classifier("xlnet", num_labels=2, seed=2).eval()
    with torch.no_grad():
        alone = [model(input_ids=torch.tensor([TOKENIZER(text).input_ids])).logits for text in texts]
        model.logits_proj.bias -= torch.cat(alone).median(0).values
        labels = [int(model(input_ids=torch.tensor([TOKENIZER(text).input_ids])).logits.argmax()) for text in texts]
    assert {*labels} == {0, 1}
    rows = [{"input_ids": TOKENIZER(text).input_ids, "labels": n} for text, n in zip(texts, labels, strict=True)]
    assert distill.evaluate({"model": model}, rows, metrics=["accuracy"])[0]["scores"] == {"accuracy": 100.0}


TEXTS = SENTENCES[:3]


@pytest.mark.parametrize(
    ("head", "texts"),
    [
        ("TokenClassification", TEXTS),
        ("SequenceClassification", TEXTS),
        ("MultipleChoice", [(text, ["a boat", "snow"]) for text in TEXTS]),
        ("QuestionAnswering", [("who", text) for text in TEXTS]),
    ],
)
def test_texts_may_be_iterated_once(head: str, texts: list[Any], tmp_path: Path) -> None:
    labels = {} if head in ("MultipleChoice", "QuestionAnswering") else {"num_labels": 3}
    model = serve.load(tiny.save(tmp_path / "model", "bert", head, std=0.3, **labels))
    wanted = model.predict(texts)
    assert len(wanted) == 3
    for form in (iter(texts), (text for text in texts), tuple(texts)):
        assert model.predict(form) == wanted
    if head.endswith("sification"):
        assert model.predict(pd.Series(texts)) == model.predict(np.array(texts, object)) == wanted
        assert model.predict(texts, batch_size=np.int64(2)) == model.predict(texts, batch_size=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["TokenClassification", "SequenceClassification"])
def test_names_of_columns_are_no_texts(head: str, tmp_path: Path) -> None:
    model = serve.load(tiny.save(tmp_path / "model", "bert", head, num_labels=3))
    for table in (pd.DataFrame({"text": TEXTS}), {"text": TEXTS}, {*TEXTS}):
        with pytest.raises(DataError, match=rf"^texts: got a {type(table).__name__}; must be a list of texts"):
            model.predict(table)  # type: ignore[arg-type]


class Own(BertForSequenceClassification):
    """As users extend a class, with a loss of their own or another log."""


def test_a_class_that_extends_one_of_transformers_has_its_head(tiny_batch: dict[str, Tensor]) -> None:
    plain = classifier(num_labels=3).eval()
    own = Own(plain.config).eval()
    own.load_state_dict(plain.state_dict())
    teacher = copy.deepcopy(plain)
    found = [
        distill.DistillationLoss(each, teacher, [terms.Hidden(), terms.Supervised()])(tiny_batch)
        for each in (plain, own)
    ]
    torch.testing.assert_close(*(loss for loss, _ in found))
    assert type(distill.student(own, layers=1)) is Own


def test_rows_are_padded_for_pruning_and_labels_by_name_are_refused() -> None:
    model, collated = classifier(num_labels=3), [DataCollatorWithPadding(TOKENIZER)(ROWS)]
    small = [distill.prune(model, given, ffn=16).state_dict() for given in (collated, ROWS, Dataset.from_list(ROWS))]
    for each in small[1:]:
        assert each.keys() == small[0].keys()
        assert all(values.shape == small[0][name].shape for name, values in each.items())
    with pytest.raises(DataError, match="got the label 'LABEL_1'; must be a whole number from 0 to 2"):
        distill.evaluate({"model": model}, [row | {"labels": "LABEL_1"} for row in ROWS])


def test_a_row_of_several_sequences_is_a_row() -> None:
    """Questions with choices of different lengths score as the batches of transformers' own collator."""
    model = classifier(head="MultipleChoice")
    asked = [
        [TOKENIZER(text, choice) for choice in ("a boat", SENTENCES[n], "snow")] for n, text in enumerate(SENTENCES)
    ]
    rows = [
        {name: [choice[name] for choice in choices] for name in choices[0]} | {"labels": n % 3}
        for n, choices in enumerate(asked)
    ]
    batches = [DataCollatorForMultipleChoice(TOKENIZER)([dict(row) for row in rows[n : n + 4]]) for n in (0, 4)]
    expected = distill.evaluate({"model": model}, batches, metrics=["accuracy"])
    for form in (list, Dataset.from_list):
        assert distill.evaluate({"model": model}, form(rows), metrics=["accuracy"]) == expected
    assert distill.prune(model, rows, ffn=16).config.intermediate_size == 16


def test_a_text_that_was_tokenized_into_tensors_is_a_row() -> None:
    model = classifier(num_labels=3)
    tensors = [{**TOKENIZER(text, return_tensors="pt"), "labels": n % 3} for n, text in enumerate(SENTENCES)]
    found, expected = (distill.evaluate({"model": model}, rows) for rows in (tensors, ROWS))
    assert found[0]["scores"] == expected[0]["scores"]
    assert distill.prune(model, tensors, layers=1).config.num_hidden_layers == 1


def test_a_batch_that_is_not_padded_is_refused() -> None:
    with pytest.raises(DataError, match=r"^dataset: got a batch with texts of different lengths; must be padded; pass"):
        distill.evaluate({"model": classifier(num_labels=3)}, Dataset.from_list(ROWS).iter(4))


def test_pairs_of_texts_are_timed_as_pairs() -> None:
    model, pairs = classifier(num_labels=3), [(SENTENCES[0], SENTENCES[1]), [SENTENCES[2], SENTENCES[3]]]
    seen: set[tuple[int, ...]] = set()

    def note(module: Any, given: Any, named: dict[str, Any]) -> None:
        for ids, mask in zip(named["input_ids"], named["attention_mask"], strict=True):
            seen.add(tuple(ids[mask == 1].tolist()))

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    rows = distill.benchmark({"a": model}, shapes=[], texts=pairs, tokenizer=TOKENIZER, repeats=1)  # type: ignore[arg-type]
    hook.remove()
    assert [row["input"] for row in rows] == ["texts"]
    assert seen == {tuple(TOKENIZER(*pair).input_ids) for pair in pairs}


@pytest.mark.parametrize("shape", [(1, 10_000), (0, 8), (1, 0)])
def test_shapes_that_no_model_reads_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match=r"^shapes: got \(\d+, \d+\); must be a batch size and 1 to \d+ tokens, the"):
        distill.benchmark({"a": classifier(num_labels=3)}, shapes=[shape], repeats=1)


def test_what_is_no_list_of_batches_is_refused() -> None:
    (batch,) = [dict(DataCollatorWithPadding(TOKENIZER)(ROWS))]
    for given in (batch, {"train": ROWS}, pd.DataFrame(ROWS), [tuple(batch.values())]):
        with pytest.raises(DataError, match=r"^calibration: got a .* as a batch; must be a mapping with input_ids"):
            distill.prune(classifier(num_labels=3), given, layers=1)  # type: ignore[arg-type]


def test_what_is_no_student_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model: got None; must be the student; load it, and leave model_init out"):
        distill.DistillationTrainer(None, classifier(), [terms.SoftTargets()], model_init=classifier)  # type: ignore[arg-type]
    for given in (["recipe=task"], {"recipe": "task"}, tmp_path):
        with pytest.raises(ConfigError, match=rf"^run: got a {type(given).__name__}; must be texts such as 'seed=1'"):
            distill.run(given)  # type: ignore[arg-type]
    adapted = classifier()
    adapted.merge_and_unload = None
    with pytest.raises(ConfigError, match=r"^teacher: got a .*; must be a model without adapters; merge them"):
        distill.student(adapted)
    with pytest.raises(ConfigError, match=r"^model: got a .*; must be a model without adapters; merge them"):
        distill.quantize(adapted, "bitsandbytes", out=tmp_path / "out")


def test_a_width_at_which_a_projection_is_lost_is_refused() -> None:
    model = classifier("electra", num_labels=3, hidden_size=64, embedding_size=32, num_attention_heads=4)
    with pytest.raises(
        ConfigError, match=r"^hidden: got 32, the width of the embeddings, at which electra has no proj"
    ):
        distill.prune(model, ROWS, hidden=32)
    with pytest.raises(ConfigError, match=r"with embeddings as wide as its layers; .*; set another width"):
        distill.student(model, hidden=32)


def test_a_run_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import logging

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\n")
    verbosity, bars, threads = logging.get_verbosity(), logging.is_progress_bar_enabled(), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("high")  # as no run on a CPU sets it
    try:
        with pytest.raises((ConfigError, DataError)):
            distill.run("recipe=quantize", "tasks.train=t.csv", "limit=smoke", "threads=1", "device=cpu")
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (3, "high")
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (verbosity, bars)
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


def test_a_trainer_of_sentence_transformers_puts_its_model_into_the_loss() -> None:
    """Under data parallelism it replaces the child `model`, whose gradients are then exchanged."""
    loss = distill.EmbeddingLoss(*(embedder(seed) for seed in (0, 1)), [terms.Vectors()])
    assert loss.student is loss.model
    assert [name for name, _ in loss.named_children()] == ["model"]


def embedder(seed: int, tokenizer: Any = TOKENIZER) -> Any:
    from sentence_transformers import SentenceTransformer
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(seed)
            self.table, self.dropout = nn.Embedding(len(TOKENIZER) + 3, 8), nn.Dropout(0.5)
            self.tokenizer = tokenizer

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            return features | {"sentence_embedding": self.dropout(self.table(features["input_ids"])).mean(1)}

        def get_embedding_dimension(self) -> int:
            return 8

    assert SentenceTransformer
    return Encoder()


def test_an_embedder_with_other_tokens_is_refused_and_a_teacher_has_no_dropout() -> None:
    class Other:
        def get_vocab(self) -> dict[str, int]:
            return {token: number + 1 for token, number in TOKENIZER.get_vocab().items()}

    with pytest.raises(ConfigError, match=r"^teacher: got a tokenizer in which .* has another number"):
        distill.EmbeddingLoss(embedder(0), embedder(1, Other()), [terms.Vectors()])
    student, teacher = embedder(0).eval(), embedder(1)
    loss = distill.EmbeddingLoss(student, teacher, [terms.Vectors()])
    batch = [{"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}]
    first = loss(batch)
    teacher.train()
    torch.testing.assert_close(loss(batch), first)
    assert Trainer


def test_a_term_that_is_called_loss_is_logged_beside_the_loss(tmp_path: Path) -> None:
    def loss(ours: Tensor, theirs: Tensor) -> Tensor:
        return (ours - theirs).abs().mean(-1)

    wanted = [loss, terms.Supervised(weight=0.5)]
    trainer = trained(tmp_path, classifier(num_labels=3), classifier(num_labels=3, seed=1), wanted, ROWS, max_steps=1)
    first = trainer.state.log_history[0]
    assert first["loss"] == pytest.approx(first["term_loss"] + 0.5 * first["supervised"], rel=1e-3)
