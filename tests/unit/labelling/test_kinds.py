"""Every kind of teacher labels files with what transformers outputs, and a run reads it as the teacher's outputs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from scipy.special import log_softmax, softmax

import distill
from distill import config, labelling
from distill.data.encode import Encoded
from distill.data.soft_labels import aligned
from distill.data.task_types import ABSENT, TASK_TYPES
from distill.data.tasks import TaskData, load_tasks, soft_outputs_of
from distill.deploy.export.record import Entry, Record
from distill.deploy.export.record import write as write_record
from distill.errors import UserError
from distill.models.families.head import stored_head
from tests import tiny

SENTENCES = tiny.SENTENCES
COUNT = 24
TAGS = ("O", "B-PER", "I-PER")
NAMES = {"id2label": dict(enumerate(TAGS)), "label2id": {name: i for i, name in enumerate(TAGS)}}
HEADS = {
    "classification": ("SequenceClassification", NAMES),
    "token_classification": ("TokenClassification", NAMES),
    "multiple_choice": ("MultipleChoice", {}),
    "question_answering": ("QuestionAnswering", {}),
}
LENGTH = 32


def row(kind: str, number: int) -> dict[str, Any]:
    words = [*SENTENCES[number % 8].split(), f"day{number}"]
    if kind == "token_classification":
        return {"tokens": words, "ner_tags": [TAGS[number % 2], *["O"] * (len(words) - 1)]}
    if kind == "classification":
        return {"text": " ".join(words), "label": TAGS[number % 3]}
    if kind == "multiple_choice":
        return {"question": f"what {number}", "choices": words[: 2 + number % 3], "answer": "AB"[number % 2]}
    return {"question": f"what {number}", "context": " ".join(words), "answers": [words[number % 3]]}


def write(folder: Path, kind: str) -> Path:
    file = folder / "t.jsonl"
    file.write_text("".join(json.dumps(row(kind, number)) + "\n" for number in range(COUNT)))
    return file


def teacher(folder: Path, kind: str) -> Path:
    head, settings = HEADS[kind]
    return tiny.save(folder / "model", "bert", head, std=0.4, **settings)


def labelled(folder: Path, kind: str, **options: Any) -> labelling.Labelled:
    settings = labelling.Options(threads=1, rows=7, tokens=256, max_length=LENGTH, **options)
    return labelling.label(teacher(folder, kind), str(write(folder, kind)), folder / "out", settings)


def soft_of(folder: Path) -> list[Any]:
    return [each for file in sorted(folder.glob("*.parquet")) for each in pq.read_table(file)["soft"].to_pylist()]


def task_of(found: labelling.Labelled, folder: Path) -> TaskData:
    """The task, as the settings that are printed read it."""
    settings = {key.removeprefix("tasks."): value for key, value in found.settings.items()}
    loaded = load_tasks(config.Tasks(**settings), config.Limit(), 0, stored_head(folder / "model"))
    return next(iter(loaded.tasks.values()))


def asked(folder: Path, head: str, *texts: Any) -> Any:
    """What transformers outputs for each row, one after the other, with its tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder / "model").eval()
    for given in zip(*texts, strict=True):
        tokens = tokenizer(*given, return_tensors="pt", return_offsets_mapping=True, padding=True)
        offsets = tokens.pop("offset_mapping").numpy()
        with torch.no_grad():
            batch = {k: v[None] for k, v in tokens.items()} if head == "MultipleChoice" else tokens
            yield model(**batch), offsets[0], tokens.sequence_ids(0)


def test_words_have_the_probabilities_of_their_first_tokens(tmp_path: Path) -> None:
    found = labelled(tmp_path, "token_classification")
    assert (found.rows, found.units, found.made) == (COUNT, 4, COUNT)
    given, soft = [row("token_classification", n) for n in range(COUNT)], soft_of(tmp_path / "out")
    logits = dict[str, np.ndarray]()
    texts = [" ".join(each["tokens"]) for each in given]
    for each, label, (out, offsets, _) in zip(given, soft, asked(tmp_path, "TokenClassification", texts), strict=True):
        starts = list(itertools.accumulate((len(word) + 1 for word in each["tokens"]), initial=0))[:-1]
        firsts = [next(n for n, (a, b) in enumerate(offsets) if a == start and b > a) for start in starts]
        own = out.logits[0].numpy()[firsts]
        logits[" ".join(each["tokens"])] = own
        assert [[*word] for word in label] == [list(TAGS)] * len(firsts)
        np.testing.assert_allclose([[*word.values()] for word in label], softmax(own, axis=1), atol=1e-5)
    data = task_of(found, tmp_path)
    values, tokenizer = soft_outputs_of(data.train), tiny.tokenizer()
    assert values is not None
    outputs = aligned(data.task.kind.architecture, values, data.encoded(data.train, tokenizer, LENGTH))
    wanted = np.concatenate([log_softmax(logits[text], axis=1) for text in data.train["tokens"]])
    np.testing.assert_allclose(outputs, wanted, atol=1e-4)


def test_every_word_of_a_long_text_has_a_soft_label(tmp_path: Path) -> None:
    folder = teacher(tmp_path, "token_classification")
    texts = [SENTENCES[0].split() * 4, SENTENCES[1].split(), SENTENCES[2].split() * 3]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"tokens": text}) + "\n" for text in texts))
    options = labelling.Options(max_length=12, text="tokens")
    found = labelling.label(folder, tmp_path / "t.jsonl", tmp_path / "out", options)
    assert (found.rows, found.units) == (3, 1)
    soft = soft_of(tmp_path / "out")
    assert [*map(len, soft)] == [*map(len, texts)]
    expected = softmax(distill.load(folder, max_length=12).outputs(texts), axis=1)
    np.testing.assert_allclose([[*word.values()] for each in soft for word in each], expected, atol=1e-5)


def test_texts_with_spans_are_labelled_by_word(tmp_path: Path) -> None:
    folder = teacher(tmp_path, "token_classification")
    lines = [{"text": SENTENCES[n % 8], "spans": []} for n in range(8)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    labelling.label(folder, str(tmp_path / "t.jsonl"), tmp_path / "out")
    from distill.data.task_types.words import words_of

    assert [len(each) for each in soft_of(tmp_path / "out")] == [len(words_of(each["text"])) for each in lines]


def test_choices_have_their_probabilities(tmp_path: Path) -> None:
    found = labelled(tmp_path, "multiple_choice")
    given, soft = [row("multiple_choice", n) for n in range(COUNT)], soft_of(tmp_path / "out")
    questions = [[each["question"]] * len(each["choices"]) for each in given]
    outputs = asked(tmp_path, "MultipleChoice", questions, [each["choices"] for each in given])
    logits = [out.logits[0].numpy() for out, _, _ in outputs]
    for label, own in zip(soft, logits, strict=True):
        np.testing.assert_allclose(label, softmax(own), atol=1e-5)
    data = task_of(found, tmp_path)
    values = soft_outputs_of(data.train)
    assert values is not None
    outputs = aligned(data.task.kind.architecture, values, data.encoded(data.train, tiny.tokenizer(), LENGTH))
    own = {each["question"]: each for each in (row("multiple_choice", n) | {"l": logits[n]} for n in range(COUNT))}
    for question, output in zip(data.train["question"], outputs, strict=True):
        wanted = own[question]["l"]
        np.testing.assert_allclose(output[: len(wanted)], log_softmax(wanted), atol=1e-4)
        assert (output[len(wanted) :] == ABSENT).all()


def test_candidates_are_the_best_spans_with_their_probabilities(tmp_path: Path) -> None:
    """Every span of at most 30 tokens is listed by loops, and the 20 best are compared, and no answer."""
    found = labelled(tmp_path, "question_answering")
    given, soft = [row("question_answering", n) for n in range(COUNT)], soft_of(tmp_path / "out")
    texts = [[each[name] for each in given] for name in ("question", "context")]
    for label, (out, offsets, sequences) in zip(soft, asked(tmp_path, "QuestionAnswering", *texts), strict=True):
        start, end = out.start_logits[0].tolist(), out.end_logits[0].tolist()
        inside = [n for n, sequence in enumerate(sequences) if sequence == 1]
        pairs = [(a, b) for a in inside for b in inside if a <= b < a + 30]
        every = [(start[a] + end[b], int(offsets[a][0]), int(offsets[b][1])) for a, b in pairs]
        best = [*sorted(every, key=lambda one: -one[0])[:20], (start[0] + end[0], None, None)]
        shares = softmax([score for score, *_ in best])
        assert [(each["start"], each["end"]) for each in label] == [(a, b) for _, a, b in best]
        np.testing.assert_allclose([each["score"] for each in label], shares, atol=1e-5)
    data = task_of(found, tmp_path)
    values, tokenizer = soft_outputs_of(data.train), tiny.tokenizer()
    assert values is not None
    encoded = data.encoded(data.train, tokenizer, LENGTH)
    shares = softmax(aligned(data.task.kind.architecture, values, encoded).reshape(len(encoded), 2, -1), axis=2)
    own = {each["question"]: label for each, label in zip(given, soft, strict=True)}
    for question, (start, end), at in zip(data.train["question"], shares, encoded.offsets, strict=False):
        places = encoded.spans.characters[at : at + len(start)] if encoded.spans is not None else np.zeros((0, 2))
        for side, by_token, name in ((0, start, "start"), (1, end, "end")):
            wanted = dict[Any, float]()
            for each in own[question]:
                wanted[each[name]] = wanted.get(each[name], 0.0) + each["score"]
            found_at = {int(place[side]): float(share) for place, share in zip(places, by_token, strict=False) if share}
            found_at[-1] = float(by_token[0])
            assert found_at == pytest.approx({-1 if k is None else k: v for k, v in wanted.items()}, abs=1e-5)


def test_a_long_context_has_candidates_of_all_windows(tmp_path: Path) -> None:
    folder = teacher(tmp_path, "question_answering")
    context = " ".join(SENTENCES)
    (tmp_path / "t.jsonl").write_text(json.dumps({"question": "what", "context": context}) + "\n")
    labelling.label(folder, str(tmp_path / "t.jsonl"), tmp_path / "out", labelling.Options(max_length=24))
    (soft,) = soft_of(tmp_path / "out")
    assert len(soft) == 21
    assert sum(each["score"] for each in soft) == pytest.approx(1)
    assert len({(each["start"], each["end"]) for each in soft}) == 21
    assert max(each["end"] or 0 for each in soft) <= len(context)


def test_what_has_no_soft_labels_is_refused(tmp_path: Path) -> None:
    """Of kinds that a model states."""
    without = [name for name, kind in TASK_TYPES.items() if kind.soft is None or kind.soft_column is None]
    assert {*without} <= {"embedding", "retrieval"}
    folder = teacher(tmp_path, "question_answering")
    twice = {"id2label": {0: "O", 1: "B-PER ", 2: "B-PER"}, "label2id": {"O": 0, "B-PER ": 1, "B-PER": 2}}
    other = tiny.save(tmp_path / "other", "bert", "TokenClassification", **twice)
    with pytest.raises(UserError, match=r"label\.teacher: got two labels of one name"):
        labelling.label(other, str(write(tmp_path, "token_classification")), tmp_path / "out")
    with pytest.raises(UserError, match=r"label\.text: got nothing; must be a column of"):
        labelling.label(
            folder, str(write(tmp_path, "question_answering")), tmp_path / "out", labelling.Options(text="nothing")
        )
    assert not (tmp_path / "out").exists()


def test_wrong_choices_and_words_are_refused_with_their_row(tmp_path: Path) -> None:
    choices = teacher(tmp_path, "multiple_choice")
    lines = [row("multiple_choice", n) for n in range(8)]
    lines[5]["choices"] = ["one"]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(UserError, match=r"c\.jsonl, row 6: got 1 choices in choices; must be two or more"):
        labelling.label(choices, str(file), tmp_path / "out")
    tagger = teacher(tmp_path / "b", "token_classification")
    for words, message in ((["a", None], "row 2: got null in tokens"), ([], "row 2: got no text in tokens")):
        file.write_text("".join(json.dumps({"tokens": each}) + "\n" for each in (["a"], words)))
        with pytest.raises(UserError, match=message):
            labelling.label(tagger, str(file), tmp_path / "out")


def test_a_folder_is_not_gone_on_with_another_reading_of_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill.data import files

    folder = tiny.save(tmp_path / "model", "bert", "SequenceClassification", num_labels=2)
    (tmp_path / "t.csv").write_text("text;label\n" + "".join(f"{sentence};a\n" for sentence in SENTENCES))

    def label(**options: Any) -> labelling.Labelled:
        return labelling.label(folder, [tmp_path / "t.csv"], tmp_path / "out", labelling.Options(**options))

    assert label(text="text", separator=";").made == len(SENTENCES)
    assert label(text="text", separator=";").made == 0
    with pytest.raises(UserError, match=r"which was begun with separator ;, and not None; must be the same"):
        label(text="text")
    monkeypatch.setattr(files, "readers", lambda: ["another"])
    with pytest.raises(UserError, match=r"t\.csv as another version of distill or of pyarrow reads it; must be"):
        label(text="text", separator=";")


def test_options_that_are_no_numbers_of_anything_are_refused() -> None:
    for name in ("threads", "max_length", "tokens", "rows", "tries", "lease"):
        with pytest.raises(UserError, match=rf"label\.{name}: got 0; must be 1 or more"):
            labelling.Options(**{name: 0})
    choices: Any = "ab"
    with pytest.raises(UserError, match=r"label\.choices: got 'ab'; must be a tuple of names of columns"):
        labelling.Options(choices=choices)


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("soft_label", {"soft_label": "text"}),
        ("label", {"label": "b", "text_pair": "b"}),
        ("text_pair", {"text_pair": "text"}),
    ],
)
def test_a_name_of_two_columns_is_refused_by_its_setting(setting: str, options: dict[str, str]) -> None:
    from distill.labelling.engine import _check_names
    from distill.labelling.plan import Columns

    given = {"text": "text", "label": "c", "soft_label": "soft"} | options
    text = tuple(filter(None, (given["text"], given.get("text_pair"))))
    with pytest.raises(UserError, match=rf"label\.{setting}: got (text|b), which stands for two columns"):
        _check_names(Columns(text, given["label"], given["soft_label"]))


@pytest.mark.parametrize(("names", "as_scored"), [(("text", "text_pair"), True), (("query", "document"), False)])
def test_pairs_have_the_scores_of_the_library_of_cross_encoders(
    names: tuple[str, str], as_scored: bool, tmp_path: Path
) -> None:
    """A reranker learns the outputs before the activation; a file of scored pairs has what the library gives."""
    from sentence_transformers import CrossEncoder

    folder = tiny.save(tmp_path / "model", "bert", "SequenceClassification", num_labels=1, std=0.4)
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "5.0.0"}
    tiny.change(folder / "config.json", sentence_transformers=activation)
    pairs = [(SENTENCES[n % 8], SENTENCES[(n + 3) % 8]) for n in range(8)]
    rows = (json.dumps(dict(zip(names, pair, strict=True)) | {"score": 0.5}) for pair in pairs)
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    labelling.label(folder, str(tmp_path / "t.jsonl"), tmp_path / "out")
    library = CrossEncoder(str(folder), device="cpu")
    expected = library.predict(pairs, activation_fn=None if as_scored else torch.nn.Identity())
    np.testing.assert_allclose(np.ravel(soft_of(tmp_path / "out")), expected, atol=1e-5)


def test_an_exported_reranker_writes_its_outputs_whatever_its_columns_are_called(tmp_path: Path) -> None:
    """The settings that are printed make the student a reranker, which learns them by squared error."""
    from sentence_transformers import CrossEncoder

    folder = tiny.save(tmp_path / "model", "bert", "SequenceClassification", num_labels=1, std=0.4)
    activation = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "5.0.0"}
    tiny.change(folder / "config.json", sentence_transformers=activation)
    entries = (Entry("torch", "fp32", "."),)
    write_record(folder, Record("found", TASK_TYPES["reranking"], (), ("query", "text"), LENGTH, entries))
    pairs = [(SENTENCES[n % 8], SENTENCES[(n + 3) % 8]) for n in range(8)]
    rows = (json.dumps({"query": query, "text": text, "score": n % 2}) for n, (query, text) in enumerate(pairs))
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    found = labelling.label(folder, str(tmp_path / "t.jsonl"), tmp_path / "out")
    assert found.settings["tasks.kind"] == "reranking"
    expected = CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(np.ravel(soft_of(tmp_path / "out")), expected, atol=1e-5)


def without_tokens(encoded: Encoded, row: int) -> Encoded:
    """The tokens of rows, of which one has none."""
    sequences, windows = np.array([row]), encoded.words or encoded.spans
    if windows is not None:
        sequences = np.flatnonzero(windows.owners == row)
    elif encoded.groups is not None:
        sequences = np.arange(*encoded.groups[row : row + 2])
    sizes = np.diff(encoded.offsets)
    gone = np.isin(np.arange(len(sizes)), sequences)
    kept = np.repeat(~gone, sizes)
    assert encoded.segments is not None
    made = replace(
        encoded,
        ids=encoded.ids[kept],
        segments=encoded.segments[kept],
        offsets=np.cumsum([0, *np.where(gone, 0, sizes)]),
    )
    if encoded.spans is not None:
        return replace(made, spans=replace(encoded.spans, characters=encoded.spans.characters[kept]))
    if encoded.words is None:
        return made
    return replace(made, words=encoded.words.only(np.repeat(~gone, np.diff(encoded.words.offsets))))


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(each)
    else:
        yield -1.0 if value is None else float(value)


@pytest.mark.parametrize("kind", HEADS)
def test_a_row_without_a_token_has_no_soft_label_and_changes_no_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a tokenizer that drops characters, and adds no special tokens."""
    from distill.labelling import teacher as asking

    folder, file, said = teacher(tmp_path, kind), str(write(tmp_path, kind)), list[str]()
    options = labelling.Options(threads=1, rows=6, max_length=LENGTH)
    labelling.label(folder, file, tmp_path / "whole", options)
    encode = asking.encode
    monkeypatch.setattr(asking, "encode", lambda *given: without_tokens(encode(*given), 3))
    labelling.label(folder, file, tmp_path / "out", options, log=said.append)
    assert [line.partition(": ")[2] for line in said if "no soft label" in line] == [
        "1 rows have no soft label (null): no token in the text"
    ] * 4
    for row, (found, whole) in enumerate(zip(soft_of(tmp_path / "out"), soft_of(tmp_path / "whole"), strict=True)):
        if row % 6 == 3:
            assert found is None
        else:
            np.testing.assert_allclose([*numbers_in(found)], [*numbers_in(whole)], atol=1e-5)
