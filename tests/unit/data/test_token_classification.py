"""Tags, spans and words of token classification: against a slow reading of conlleval's rules, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distill.data.task_types import MISSING, WORDS, Columns
from distill.data.task_types.spans import codes, counts, spans
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION as KIND
from distill.data.task_types.words import from_words, words_of
from distill.errors import DataError
from distill.evaluation.metrics import METRICS

LABELS = {
    "BIO": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "BIOES": ("O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
    "types": ("O", "PER", "LOC"),
}


def conlleval(texts: Sequence[Sequence[str]]) -> set[tuple[int, int, int, str]]:
    """(text, first word, last word, type) of each span, one word after the other, as conlleval finds them."""
    result = set()
    for number, tags in enumerate(texts):
        start, before = None, ("O", "")
        for word, tag in enumerate([*tags, "O"]):
            prefix, _, kind = tag.partition("-") if "-" in tag else ("O" if tag == "O" else "I", "", tag)
            kind = "" if prefix == "O" else kind
            ends = before[0] in "ES" or prefix in "BSO" or kind != before[1]
            if start is not None and ends:
                result.add((number, start, word - 1, before[1]))
                start = None
            if start is None and prefix != "O":
                start = word
            before = (prefix, kind)
    return result


def random_texts(labels: Sequence[str], seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [[labels[n] for n in random.integers(0, len(labels), random.integers(1, 9))] for _ in range(60)]


def tagged(texts: list[list[str]], labels: tuple[str, ...]) -> np.ndarray:
    targets = np.empty(len(texts), object)
    targets[:] = [np.array([labels.index(tag) for tag in tags]) for tags in texts]
    return KIND.truth(targets, [[""] * len(texts)], labels)


@pytest.mark.parametrize("scheme", LABELS)
@pytest.mark.parametrize("seed", range(3))
def test_spans_and_scores_equal_conlleval(scheme: str, seed: int) -> None:
    labels = LABELS[scheme]
    true = random_texts(labels, seed)
    random = np.random.default_rng(9)
    predicted = [[labels[random.integers(len(labels))] if random.random() < 0.2 else t for t in tags] for tags in true]
    truth, guess = tagged(true, labels), tagged(predicted, labels)
    starts = np.searchsorted(truth["group"], truth["group"])
    types = [*dict.fromkeys(label.rpartition("-")[2] for label in labels if label != "O")]
    as_tuples = {
        (int(truth["group"][first]), int(first - starts[first]), int(last - starts[last]), types[kind])
        for first, last, kind in spans(truth["label"], truth["group"])
    }
    ours, theirs = conlleval(predicted), conlleval(true)
    assert as_tuples == theirs
    assert METRICS["span_f1"](guess["label"], truth) == pytest.approx(
        2 * len(ours & theirs) / (len(ours) + len(theirs))
    )
    assert KIND.recalled is not None
    by_text = KIND.recalled(guess["label"], truth, labels)
    for name in types:
        both, every = ([(text, kind) for text, *_, kind in part] for part in (ours & theirs, theirs))
        expected = [[both.count((n, name)), every.count((n, name))] for n in range(60)]
        assert by_text[name].tolist() == expected
    shared, _, total = counts(guess["label"], truth["label"], truth["group"])
    recalls = KIND.recalls(guess["label"], truth, labels)
    for number, name in enumerate(types):
        of_type = {span for span in theirs if span[3] == name}
        assert (shared[number], total[number]) == (len(of_type & ours), len(of_type))
        assert recalls[name] == pytest.approx((100 * len(of_type & ours) / len(of_type), len(of_type)))
    words = [tag for tags in true for tag in tags], [tag for tags in predicted for tag in tags]
    assert METRICS["accuracy"](guess["label"], truth) == pytest.approx(
        np.mean([a == b for a, b in zip(*words, strict=True)])
    )


def test_without_spans_the_score_is_zero() -> None:
    truth = tagged([["O", "O"], ["O"]], LABELS["BIO"])
    assert METRICS["span_f1"](truth["label"], truth) == 0.0


def test_bilou_is_bioes() -> None:
    assert [*codes(("O", "B-X", "I-X", "L-X", "U-X"))] == [*codes(("O", "B-X", "I-X", "E-X", "S-X"))]


def test_words() -> None:
    text = "Dr. Nía-Lee's (2) €"
    assert [text[a:b] for a, b in words_of(text)] == ["Dr", ".", "Nía", "-", "Lee", "'", "s", "(", "2", ")", "€"]
    joined, places = from_words(["U.S.", "", "a b"])
    assert [joined[a:b] for a, b in places] == ["U.S.", "", "a b"]


def where(row: int) -> str:
    return f"file, row {row + 1}"


def prepared(**columns: Any) -> pa.Table:
    (text, label), table = columns, pa.table(columns)
    assert KIND.prepare is not None
    return KIND.prepare(table, Columns((text,), (label,), KIND), where)


def test_words_and_tags_become_texts() -> None:
    table = prepared(
        tokens=[["Anna", "met", "U.S.", "envoys"], [], ["Hm"], ["Ali", "Öz"]],
        tags=[["B-PER", "O", "B-LOC", "O"], [], None, ["B-PER", "I-PER"]],
    )
    texts, places = (table[name].to_pylist() for name in ("tokens", WORDS))
    assert texts == ["Anna met U.S. envoys", "", "Hm", "Ali Öz"]
    words = [
        [text[a:b] for a, b in zip(flat[::2], flat[1::2], strict=True)]
        for text, flat in zip(texts, places, strict=True)
    ]
    assert words == [["Anna", "met", "U.S.", "envoys"], [], ["Hm"], ["Ali", "Öz"]]
    assert table["tags"].to_pylist() == [["B-PER", "O", "B-LOC", "O"], [], [None], ["B-PER", "I-PER"]]
    assert KIND.names(table["tags"]) == {"O", "B-PER", "I-PER", "B-LOC"}
    labels = KIND.order(KIND.names(table["tags"]))
    assert labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    targets = KIND.encode(table["tags"], labels, where, "tasks.label")
    assert [[*row] for row in targets] == [[3, 0, 1, 0], [], [MISSING], [3, 4]]


def test_large_lists_of_large_strings_are_words() -> None:
    words = pa.array([["a", "bc"], ["d"]], pa.large_list(pa.large_string()))
    table = prepared(tokens=words, tags=pa.array([["O", "X"], ["O"]], pa.large_list(pa.large_string())))
    assert table["tokens"].to_pylist() == ["a bc", "d"]
    assert table[WORDS].to_pylist() == [[0, 1, 2, 4], [0, 1]]
    sliced = pa.table({"tokens": words, "tags": [["O", "O"], ["X"]]}).slice(1)
    assert KIND.prepare is not None
    table = KIND.prepare(sliced, Columns(("tokens",), ("tags",), KIND), where)
    assert (table["tokens"].to_pylist(), table["tags"].to_pylist()) == (["d"], [["X"]])


def test_spans_of_characters_become_tags() -> None:
    table = prepared(
        text=["Anna Berg lives in Oslo.", "None", "Unlabelled text"],
        entities=[
            [{"start": 19, "end": 23, "label": "LOC"}, {"start": 0, "end": 9, "label": "PER"}],
            [],
            None,
        ],
    )
    assert table["entities"].to_pylist() == [
        ["B-PER", "I-PER", "O", "O", "B-LOC", "O"],
        ["O"],
        [None, None],
    ]


SPANS: dict[str, tuple[Any, str]] = {
    "inside a word": (
        {"start": 0, "end": 3, "label": "PER"},
        "got the span 'Ann', from 0 to 3; must begin and end with",
    ),
    "after the text": ({"start": 5, "end": 99, "label": "PER"}, "got a span from 5 to 99; must lie in the text's 14 "),
    "backwards": ({"start": 9, "end": 5, "label": "PER"}, "got a span from 9 to 5; must lie in"),
    "without label": ({"start": 0, "end": 4, "label": None}, "must have start, end and label"),
    "null": (None, "got span None; must have start, end and label"),
    "overlap": ({"start": 10, "end": 14, "label": "PER"}, "got spans that overlap at 'Oslo'"),
}


@pytest.mark.parametrize("name", SPANS)
def test_bad_spans_are_refused_with_their_row(name: str) -> None:
    span, message = SPANS[name]
    good = {"start": 5, "end": 14, "label": "LOC"}
    with pytest.raises(DataError) as error:
        prepared(text=["Anna", "Anna from Oslo"], spans=[[], [good, span]])
    assert str(error.value).startswith("file, row 2: got ")
    assert message in str(error.value)


TAGS: dict[str, tuple[Any, str]] = {
    "too few": (["B-PER"], "got 2 words in tokens and 1 tags in tags; must be a tag for each word; "),
    "too many": (["O", "O", "O"], "got 2 words in tokens and 3 tags in tags"),
    "I after O": (
        ["O", "I-PER"],
        "got I-PER at word 2 in tags without B-PER before it; must be tags in the scheme BIO",
    ),
    "I at the start": (["I-PER", "O"], "got I-PER at word 1 in tags without B-PER"),
    "I of another type": (["B-LOC", "I-PER"], "got I-PER at word 2 in tags without B-PER"),
    "null": (["O", None], "got null or -100 among the tags in tags"),
    "a number that losses ignore": (["O", "-100"], "got null or -100 among the tags in tags"),
}


@pytest.mark.parametrize("name", TAGS)
def test_bad_tags_are_refused_with_their_row(name: str) -> None:
    tags, message = TAGS[name]
    with pytest.raises(DataError) as error:
        prepared(tokens=[["a", "b"], ["c"], ["d", "e"]], tags=[["B-PER", "I-PER"], None, tags])
    assert str(error.value).startswith("file, row 3: got ")
    assert message in str(error.value)


def test_tags_without_beginnings_are_taken_as_they_are() -> None:
    table = prepared(tokens=[["a", "b", "c"]], tags=[["I-PER", "O", "I-LOC"]])
    assert KIND.order(KIND.names(table["tags"])) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    table = prepared(tokens=[["a", "b", "c"]], tags=[["PER", "O", "LOC"]])
    assert KIND.order(KIND.names(table["tags"])) == ("O", "LOC", "PER")


def test_an_unknown_tag_is_refused_with_its_row() -> None:
    table = prepared(tokens=[["a", "b"], [], ["c"]], tags=[["O", "O"], [], ["B-ORG"]])
    with pytest.raises(DataError, match=r"file, row 3: got tag 'B-ORG'; must be one of O, B-PER; .* in tasks.labels"):
        KIND.encode(table["tags"], ("O", "B-PER"), where, "tasks.label")


def test_answers_are_spans_of_characters() -> None:
    words = [("Anna Berg, Oslo", words_of("Anna Berg, Oslo")), ("none", words_of("none"))]
    outputs = np.zeros((5, 5), np.float32)
    for word, label in enumerate((1, 2, 0, 3, 0)):
        outputs[word, label] = 3
    one, two = KIND.answer(outputs, LABELS["BIO"], 0.5, words)
    score = pytest.approx(np.exp(3) / (np.exp(3) + 4))
    assert one == {
        "spans": [
            {"text": "Anna Berg", "label": "PER", "start": 0, "end": 9, "score": score},
            {"text": "Oslo", "label": "LOC", "start": 11, "end": 15, "score": score},
        ]
    }
    assert two == {"spans": []}
    assert KIND.answer(np.zeros((0, 5), np.float32), LABELS["BIO"], 0.5, []) == []


def test_a_word_that_was_cut_is_outside() -> None:
    outputs = np.array([[0, 0, 0], [-1, 2, 0]], np.float32)
    assert [*KIND.decode(outputs, ("B-X", "I-X", "O"), 0.5)] == [-1, 1]
