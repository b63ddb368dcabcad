"""Spans by type against the definitions, span by span, and against `span_f1`."""

from __future__ import annotations

import numpy as np
import pytest

from distill.data.task_types.spans import TAGGED, codes
from distill.evaluation.entities import entities, together
from distill.evaluation.metrics import METRICS

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
Span = tuple[int, int, int, str]
"""Text, first and last word, type."""


def tagged(tags: list[list[str]]) -> np.ndarray:
    words = np.zeros(sum(map(len, tags)), TAGGED)
    words["label"] = codes(TAGS)[[TAGS.index(tag) for text in tags for tag in text]]
    words["group"] = np.repeat(np.arange(len(tags)), [len(text) for text in tags])
    return words


def spans_of(tags: list[list[str]]) -> list[Span]:
    """The spans of tags, read word by word. A span also begins where the type changes."""
    found: list[Span] = []
    for number, text in enumerate(tags):
        before = ""
        for place, tag in enumerate(text):
            kind = tag[2:]
            if kind and (tag.startswith("B-") or kind != before):
                found.append((number, place, place, kind))
            elif kind:
                found[-1] = (*found[-1][:2], place, kind)
            before = kind
    return found


def random_tags(seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [[str(tag) for tag in random.choice(TAGS, random.integers(1, 12))] for _ in range(60)]


def mixed(tags: list[list[str]], seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [[tag if random.random() < 0.7 else str(random.choice(TAGS)) for tag in text] for text in tags]


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_definitions(seed: int) -> None:
    true_tags = random_tags(seed)
    predicted_tags = mixed(true_tags, seed + 100)
    found = entities(tagged(predicted_tags)["label"], tagged(true_tags), TAGS)
    true, predicted = spans_of(true_tags), spans_of(predicted_tags)
    for kind in ("PER", "LOC", "ORG"):
        own, each = [span for span in true if span[3] == kind], found[kind]
        exact = [span for span in own if span in predicted]
        overlapping = [
            span
            for span in own
            if span not in predicted
            and any(p[3] == kind and p[0] == span[0] and p[1] <= span[2] and span[1] <= p[2] for p in predicted)
        ]
        mistyped = [span for span in own if any(p[:3] == span[:3] and p[3] != kind for p in predicted)]
        of_type = sum(span[3] == kind for span in predicted)
        assert (each.true, each.predicted, each.exact) == (len(own), of_type, len(exact))
        assert (each.overlapping, each.mistyped) == (len(overlapping), len(mistyped))
        assert each.exact + each.overlapping + each.mistyped <= each.true
        assert each.precision == pytest.approx(100 * len(exact) / of_type)
        assert each.recall == pytest.approx(100 * len(exact) / len(own))
        assert each.f1 == pytest.approx(2 * each.precision * each.recall / (each.precision + each.recall))
    whole = together(found.values())
    assert whole.f1 == pytest.approx(100 * METRICS["span_f1"](tagged(predicted_tags)["label"], tagged(true_tags)))
    assert sum(each.overlapping for each in found.values()) > 0 < sum(each.mistyped for each in found.values())


def test_parts_of_one_long_span_overlap_and_neighbouring_texts_do_not() -> None:
    truth = [["B-PER", "I-PER", "O", "B-PER"], ["B-PER", "O"]]
    long = [["B-PER", "I-PER", "I-PER", "I-PER"], ["O", "B-PER"]]
    found = entities(tagged(long)["label"], tagged(truth), TAGS)["PER"]
    assert (found.true, found.predicted, found.exact, found.overlapping, found.mistyped) == (3, 2, 0, 2, 0)
    assert (found.precision, found.recall, found.f1) == (0, 0, 0)


def test_types_that_are_only_predicted_are_listed_and_absent_ones_not() -> None:
    found = entities(tagged([["B-LOC", "O"]])["label"], tagged([["B-PER", "O"]]), TAGS)
    assert found.keys() == {"PER", "LOC"}
    assert (found["PER"].mistyped, found["LOC"].true, found["LOC"].predicted) == (1, 0, 1)
    assert entities(tagged([["O"]])["label"], tagged([["O"]]), TAGS) == {}
