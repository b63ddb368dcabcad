"""Windows of questions with their contexts, against transformers' run_qa.py, and the outputs of models on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from distill.data.collate import MULTIPLE, characters, task_batch
from distill.data.encode import PAIR_SEPARATOR
from distill.data.questions import encode_questions
from distill.data.task_types import ABSENT, MISSING
from distill.data.task_types.answers import BEST, COLUMNS, END, FIRST, LONGEST, NONE, NULL, narrowed
from distill.data.task_types.question_answering import QUESTION_ANSWERING as KIND
from distill.data.windows import OVERLAP
from distill.inference.predict import predict, window_logits
from distill.inference.runners import torch_run
from distill.losses import soft_targets, supervised
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models.hooks import outputs_of
from tests import tiny

QUESTIONS = ["crossed the harbour", "smelled of rain", "who", "the goats asleep", "why"]
CONTEXTS = [" ".join(tiny.SENTENCES), tiny.SENTENCES[7], " ".join(tiny.SENTENCES[3:6]), tiny.SENTENCES[6], "  "]


def spans(*pairs: int) -> np.ndarray:
    return np.array(pairs, np.int64)


def answer(row: int, text: str) -> np.ndarray:
    start = CONTEXTS[row].rindex(text)
    return spans(start, start + len(text))


TARGETS = np.empty(5, object)
for number, target in enumerate(
    [answer(0, "the roof"), answer(1, "the orchard"), spans(NONE, NONE), answer(3, "school"), spans()]
):
    TARGETS[number] = target


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def run_qa(tokenizer: Any, row: int, max_length: int, stride: int) -> list[tuple[list[int], int, int]]:
    """Tokens, start and end of each window, as `prepare_train_features` of transformers' run_qa.py finds them, but that
    the search for the start ends with the context."""
    out = tokenizer(
        [QUESTIONS[row]],
        [CONTEXTS[row]],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    tokenizer.backend_tokenizer.no_truncation()
    windows = []
    for number, (ids, offsets) in enumerate(zip(out["input_ids"], out["offset_mapping"], strict=True)):
        sequences, target = out.sequence_ids(number), TARGETS[row]
        start_char, end_char = (-1, -1) if target[0] == NONE else target
        start, end = sequences.index(1), len(ids) - 1
        while sequences[end] != 1:
            end -= 1
        if start_char < 0 or not (offsets[start][0] <= start_char and offsets[end][1] >= end_char):
            windows.append((ids, 0, 0))
            continue
        while sequences[start] == 1 and offsets[start][0] <= start_char:
            start += 1
        while offsets[end][1] >= end_char:
            end -= 1
        windows.append((ids, start - 1, end + 1))
    return windows


@pytest.mark.parametrize("max_length", [16, 24, 40])
def test_windows_and_labels_are_those_of_run_qa(max_length: int, tokenizer: Any) -> None:
    encoded = encode_questions(QUESTIONS, CONTEXTS, tokenizer, max_length, TARGETS)
    assert encoded.spans is not None
    assert encoded.labels is not None
    for row in range(4):
        expected = run_qa(tokenizer, row, max_length, max_length // OVERLAP)
        numbers = np.flatnonzero(encoded.spans.owners == row)
        assert len(numbers) == len(expected)
        for number, (ids, start, end) in zip(numbers, expected, strict=True):
            assert encoded.ids[encoded.offsets[number] : encoded.offsets[number + 1]].tolist() == ids
            assert encoded.labels[number].tolist() == [start, end]
    assert encoded.labels[encoded.spans.owners == 4].tolist() == [[MISSING, MISSING]]
    if max_length == 16:
        whole = encoded.labels[encoded.spans.owners == 0].any(axis=1)
        assert 0 < whole.sum() < len(whole)
    assert encoded.segments is not None
    np.testing.assert_array_equal(encoded.segments[encoded.spans.characters[:, 0] >= 0], 1)


def test_every_token_of_the_context_has_its_characters(tokenizer: Any) -> None:
    encoded = encode_questions(QUESTIONS, CONTEXTS, tokenizer, 16)
    assert encoded.spans is not None
    assert encoded.labels is None
    seen: list[set[int]] = [set() for _ in QUESTIONS]
    for window, owner in enumerate(encoded.spans.owners):
        rows = slice(encoded.offsets[window], encoded.offsets[window + 1])
        for token, (start, end) in zip(encoded.ids[rows], encoded.spans.characters[rows], strict=True):
            if start >= 0:
                piece = tokenizer.convert_ids_to_tokens(int(token)).removeprefix("##")
                assert CONTEXTS[owner][start:end] == piece
                seen[owner].update(range(start, end))
    for places, context in zip(seen, CONTEXTS, strict=True):
        assert places == {number for number, character in enumerate(context) if not character.isspace()}


def test_a_long_question_is_cut_to_half_of_the_window(tokenizer: Any) -> None:
    question = "xyzzy " * 40  # each word has a token for each letter
    encoded = encode_questions([question], [CONTEXTS[0]], tokenizer, 24)
    assert encoded.spans is not None
    assert encoded.lengths.max() <= 24
    places = encoded.spans.characters[: encoded.offsets[1], 0]
    assert np.flatnonzero(places >= 0)[0] == 1 + (24 - 3) // 2 + 1
    assert tokenizer.backend_tokenizer.truncation is None


@pytest.mark.parametrize("max_length", [8, 9, 13])
def test_short_windows(max_length: int, tokenizer: Any) -> None:
    encoded = encode_questions(["xyzzy " * 9, "who"], [CONTEXTS[0]] * 2, tokenizer, max_length)
    assert encoded.lengths.max() <= max_length


class Bytes:
    """A tokenizer of bytes, of which a character may have several, that puts nothing between the texts of a pair."""

    def __new__(cls) -> Any:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="!")


def test_a_tokenizer_without_separators_puts_the_context_behind_the_one_that_is_kept_with_it() -> None:
    tokenizer, context = Bytes(), "né où 😀"
    assert tokenizer.decode(encode_questions(["😀😀"], [context], tokenizer, 40).ids.tolist()) == f"😀😀{context}"
    tokenizer.init_kwargs[PAIR_SEPARATOR] = "\n"
    targets = np.empty(1, object)
    targets[0] = spans(3, 5)
    encoded = encode_questions(["😀😀"], [context], tokenizer, 40, targets)
    assert encoded.spans is not None
    assert encoded.labels is not None
    assert tokenizer.decode(encoded.ids.tolist()) == f"😀😀\n{context}"
    inside = encoded.spans.characters[:, 0] >= 0
    assert inside.sum() == len(context.encode())
    start, end = encoded.labels[0]
    assert encoded.spans.characters[[start, end]].tolist() == [[3, 4], [4, 5]]
    cut = encode_questions(["😀😀"], [context], tokenizer, 9)
    assert cut.spans is not None
    assert tokenizer.decode(cut.ids[: cut.offsets[1]].tolist()).startswith("😀\n")


def model(**settings: Any) -> Any:
    return tiny.model("bert", "QuestionAnswering", std=0.5, vocab_size=150, **settings)


def test_a_batch_has_the_places_where_answers_may_start_and_end(tokenizer: Any) -> None:
    encoded = encode_questions(QUESTIONS, CONTEXTS, tokenizer, 16, TARGETS)
    batch, numbers = task_batch(encoded, [3, 0], tokenizer.pad_token_id)
    assert numbers.tolist() == [3, 0]
    for row, window in enumerate(numbers):
        types, real = batch["token_type_ids"][row], batch["attention_mask"][row].astype(bool)
        context = (types == 1) & (batch["input_ids"][row] != tokenizer.sep_token_id) & real
        context[0] = True
        np.testing.assert_array_equal(batch["places"][row], context)
        np.testing.assert_array_equal(
            characters(encoded, [window], 16)[0, :, 0] >= 0, context & (np.arange(len(context)) > 0)
        )


@pytest.mark.parametrize("tokens", [64, 16384])
def test_predictions_are_those_of_a_slow_search_over_all_windows(tokens: int, tokenizer: Any) -> None:
    created = model()
    encoded = encode_questions(QUESTIONS[:4], CONTEXTS[:4], tokenizer, 16)
    assert encoded.spans is not None
    run = torch_run(created, scheme="fp32", device="cpu", threads=1)
    outputs = predict(run, encoded, pad_id=tokenizer.pad_token_id, tokens=tokens)
    assert outputs.shape == (4, COLUMNS)
    for row, got in enumerate(outputs):
        best, null = (-np.inf, 0, 0), np.inf
        for window in np.flatnonzero(encoded.spans.owners == row):
            rows = slice(encoded.offsets[window], encoded.offsets[window + 1])
            batch = {"input_ids": torch.from_numpy(encoded.ids[rows].astype(np.int64))[None]}
            assert encoded.segments is not None
            batch["token_type_ids"] = torch.from_numpy(encoded.segments[rows].astype(np.int64))[None]
            with torch.no_grad():
                out = created(**batch)
            starts, ends, places = out.start_logits[0], out.end_logits[0], encoded.spans.characters[rows]
            null = min(null, float(starts[0] + ends[0]))
            for start in range(len(places)):
                for end in range(start, min(len(places), start + LONGEST)):
                    if places[start, 0] >= 0 and places[end, 0] >= 0:
                        score = float(starts[start] + ends[end])
                        best = max(best, (score, int(places[start, 0]), int(places[end, 1])))
        assert got[[FIRST, END]].tolist() == list(best[1:])
        np.testing.assert_allclose(got[[BEST, NULL]], [best[0], null], atol=1e-4)


def tensors(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def test_stored_logits_of_a_teacher_are_those_that_it_outputs(tokenizer: Any) -> None:
    created = model()
    encoded = encode_questions(QUESTIONS, CONTEXTS, tokenizer, 30, TARGETS)
    run = torch_run(created, scheme="fp32", device="cpu", threads=1)
    stored = window_logits(run, encoded, pad_id=tokenizer.pad_token_id, tokens=40)
    widest = -(-int(encoded.lengths.max()) // MULTIPLE) * MULTIPLE
    assert stored.shape == (len(encoded), 2 * widest)
    for rows in ([0, 1], [2], range(len(encoded))):
        batch, numbers = task_batch(encoded, rows, tokenizer.pad_token_id)
        with torch.no_grad():
            expected = outputs_of(created, tensors(batch))
        got = narrowed(stored[numbers], batch["input_ids"].shape[1])
        np.testing.assert_allclose(got, expected.numpy(), atol=1e-4)
        outside = np.tile(batch["places"] == 0, 2)
        assert (got[outside] == ABSENT).all()


def test_the_loss_is_the_mean_over_start_and_end_and_soft_targets_ignore_other_places(tokenizer: Any) -> None:
    student, teacher = model(), model(seed=1)
    encoded = encode_questions(QUESTIONS, CONTEXTS, tokenizer, 16, TARGETS)
    assert encoded.labels is not None
    batch, numbers = task_batch(encoded, range(len(encoded)), tokenizer.pad_token_id)
    batch["labels"] = KIND.loss_targets(encoded.labels[numbers])
    given = tensors(batch)
    with torch.no_grad():
        given["teacher_logits"] = outputs_of(teacher, given)
    terms = {
        "supervised": Term(1.0, "logits", "labels", "all", supervised),
        "soft": Term(1.0, "logits", "teacher", "all", lambda s, t: soft_targets(s, t, temperature=2.0)),
    }
    objective = Objective(student, terms, rows=KIND.rows, label_rows=KIND.label_rows)
    with torch.no_grad():
        sums = objective(given)
        inputs = {name: given[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
        outs = [created(**inputs) for created in (student, teacher)]
    hidden = given["places"] == 0
    label = soft = 0.0
    for side, name in enumerate(("start_logits", "end_logits")):
        ours, theirs = (out[name].masked_fill(hidden, -torch.inf) for out in outs)
        targets = torch.from_numpy(encoded.labels[:, side])
        label += float(torch.nn.functional.cross_entropy(ours, targets, ignore_index=MISSING, reduction="sum"))
        p, q = (values.div(2).softmax(-1) for values in (theirs, ours))
        soft += float(4 * torch.where(p > 0, p * (p / q).log(), 0.0).sum())
    np.testing.assert_allclose(sums.numpy(), [label, soft], rtol=1e-3)
