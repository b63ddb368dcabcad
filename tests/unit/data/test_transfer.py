"""Rows without labels: from every source, never a text of a held-out split, and texts that are similar."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from distill.config import TRANSFER_SOURCES, load_config
from distill.data.edits import edited, replaced
from distill.data.near import NearCopies, normalized
from distill.data.similar import Index, similar_words
from distill.data.transfer import SOURCES, HeldOut, Pool, key, made

NAMES = tuple(
    f"{first}{second}" for first in ("pars", "sock", "buff", "curs", "kern") for second in ("er", "et", "or", "el")
)
VERBS = ("reads", "closes", "copies", "opens", "checks", "splits", "merges", "sorts")
OWN = [(f"The {a} {v} a {b}.", f"A {b} is what the {a} {v}.") for a, b in itertools.pairwise(NAMES) for v in VERBS]
OTHER = [(f"This {a} waits for the {b}.", f"Here a {b} waits.") for a in NAMES for b in NAMES if a != b]
SENTENCES = [f"Whoever {v} the {a} also {v} its {b}." for a in NAMES for b in NAMES for v in VERBS]


NOTHING = HeldOut(NearCopies([]))


def pool(texts: int = 2) -> Pool:
    files = [(f"Row {n} of the user's file about a {NAMES[n % 20]}.", f"Its number {n}.") for n in range(30)]
    own, given, others = ([row[:texts] for row in rows] for rows in (OWN, files, OTHER))
    spans = [[(4, 4 + len(row[0].split()[1]), 0)] for row in own]
    words = {"parser": ["lexer"], "reads": ["loads", "scans"]}
    return Pool(own, given, others, SENTENCES, words, spans if texts == 1 else ())


def run(shares: dict[str, float], count: int = 60, held_out: tuple[str, ...] = (), seed: int = 0, texts: int = 2):
    return made(pool(texts), shares, count, HeldOut(NearCopies(held_out)), np.random.default_rng(seed))


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_makes_new_rows(source: str, texts: int) -> None:
    result = run({source: 1.0}, 20, texts=texts)
    if (source, texts) in (("pairs", 1), ("spans", 2)):
        assert result.rows == []  # there is nothing to pair, and no span in pairs
        return
    assert result.counts == {source: 20}
    keys = [tuple(map(normalized, row)) for row in result.rows]
    assert len({*keys}) == 20
    assert {len(row) for row in result.rows} == {texts}
    assert {*keys}.isdisjoint(tuple(map(normalized, row[:texts])) for row in OWN)


@pytest.mark.parametrize("source", SOURCES)
def test_no_text_of_a_held_out_split_is_in_any_row(source: str) -> None:
    texts = 1 if source == "spans" else 2
    without = run({source: 1.0}, 25, texts=texts)
    held_out = without.rows[3]
    copied = tuple(text.upper().replace(" ", "  ") + " !" for text in held_out)
    result = run({source: 1.0}, 25, copied, texts=texts)
    assert result.held_out > 0
    found = [text for row in result.rows for text in row]
    assert {*map(normalized, found)}.isdisjoint(map(normalized, held_out))
    assert not NearCopies(held_out).find(found).any()


def test_a_row_that_is_nearly_held_out_is_left_out() -> None:
    given = "The ferry to the northern islands left the harbour an hour late because of the storm"
    others = ("The train to the coast was full of people who had missed the bus", "Nobody waits here.")
    rows = Pool([("something", "else")], [(f"{given} today.", others[0]), (others[1], others[0])])
    result = made(rows, {"files": 1.0}, 9, HeldOut(NearCopies([given])), np.random.default_rng(0))
    assert result.rows == [(others[1], others[0])]
    assert result.held_out == 1


def test_a_context_or_words_that_are_nearly_held_out_are_left_out() -> None:
    context = (
        "The ferry to the northern islands left the harbour an hour late, and some passengers who had waited went home."
    )
    near, other = context.replace("some", "many"), "Trains to the coast were on time all day."
    held_out = HeldOut(NearCopies([context]))
    pairs = Pool([("Why?", "Because.")], [("Who went home?", near), ("Who went home?", other)])
    assert made(pairs, {"files": 1.0}, 9, held_out, np.random.default_rng(0)).rows == [("Who went home?", other)]
    words = Pool([(("a", "b"),)], [(tuple(near.split()),), (tuple(other.split()),)])
    assert made(words, {"files": 1.0}, 9, held_out, np.random.default_rng(0)).rows == [(tuple(other.split()),)]


def test_texts_that_the_training_rows_share_with_held_out_rows_stay() -> None:
    """Questions that are the same in all splits, and documents. The held-out rows themselves are left out, and so are
    held-out texts that no training row has."""
    questions = ("Who is the seller?", "When does the contract end?", "What is the price?")
    documents = [f"The {a} {v} a {b}, and the contract ends soon." for a, b in itertools.pairwise(NAMES) for v in VERBS]
    train = [(questions[n % 3], document) for n, document in enumerate(documents[:60])]
    reported = [(questions[(n + 1) % 3], document) for n, document in enumerate(documents[:30])]
    new = [(questions[n % 3], f"A clause that only reported rows have: number {n}.") for n in range(9)]
    held_out = HeldOut(
        NearCopies([text for row in [*reported, *new] for text in row]),
        {key(row) for row in [*reported, *new]},
        {normalized(text) for row in train for text in row},
    )
    result = made(Pool(train, files=new), {"files": 1.0, "pairs": 9.0}, 20, held_out, np.random.default_rng(0))
    assert result.counts.keys() == {"pairs"}
    assert len(result.rows) > 10
    assert {*result.rows} <= {(q, d) for q in questions for d in documents[:60]} - {*train, *reported}
    assert result.held_out > len(new)
    single = Pool([(text,) for _, text in train], files=[(reported[0][1],)])
    alone = HeldOut(held_out.texts, known=held_out.known)
    assert made(single, {"files": 1.0}, 9, alone, np.random.default_rng(0)).rows == []


def test_a_held_out_pair_in_the_other_order_is_left_out() -> None:
    texts = ["The ferry is late today.", "A ferry came too late.", "Nobody reads the letter."]
    held_out = HeldOut(NearCopies(texts[:2]), {key((texts[0], texts[1]))}, {*map(normalized, texts)})
    pairs = Pool([("something", "else")], [(texts[1], texts[0]), (texts[1], texts[2])])
    result = made(pairs, {"files": 1.0}, 9, held_out, np.random.default_rng(0))
    assert (result.rows, result.held_out) == ([(texts[1], texts[2])], 1)


def test_each_text_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    copies = NearCopies(["something"])
    monkeypatch.setattr(copies, "find", lambda texts: asked.extend(texts) or np.zeros(len(texts), np.bool_))
    made(pool(), {"pairs": 1.0}, 200, HeldOut(copies), np.random.default_rng(0))
    assert len(asked) == len({*asked}) > 0


def test_spans_are_exchanged_for_others_of_their_type() -> None:
    """In words and in characters alike. Nothing else of a text changes."""
    names, places = ("Ada", "Kurt", "Emmy", "Alan"), ("Rome", "New York", "Bonn", "Ulm")
    texts = [f"In {place} , {name} met {other} ." for place, name, other in zip(places, names, names[1:], strict=False)]
    spans = [
        [(3, 3 + len(p), 1), (6 + len(p), 6 + len(p) + len(a), 0), (11 + len(p) + len(a), len(text) - 2, 0)]
        for text, p, a in zip(texts, places, names, strict=False)
    ]
    assert [texts[1][a:b] for a, b, _ in spans[1]] == ["New York", "Kurt", "Emmy"]
    in_words = [
        [(len(text[:a].split()), len(text[:b].split()), kind) for a, b, kind in row]
        for text, row in zip(texts, spans, strict=True)
    ]
    pattern = re.compile(rf"In ({'|'.join(places)}) , ({'|'.join(names)}) met ({'|'.join(names)}) \.")
    characters = Pool([(text,) for text in texts], spans=spans)
    words = Pool([(tuple(text.split()),) for text in texts], spans=in_words)
    for pool in (characters, words):
        rows = made(pool, {"spans": 1.0}, 20, NOTHING, np.random.default_rng(0)).rows
        found = [text if isinstance(text, str) else " ".join(text) for (text,) in rows]
        assert len({*found}) == 20
        assert all(pattern.fullmatch(text) for text in found), found
        assert {*found}.isdisjoint(texts)


def test_choices_are_mixed_and_a_question_keeps_their_number() -> None:
    own = [(f"Who {v} the {a}?", (f"the {a}", f"a {b}", v)) for a, b in itertools.pairwise(NAMES) for v in VERBS]
    result = made(Pool(own), {"pairs": 1.0}, 50, NOTHING, np.random.default_rng(0))
    known, given = {choice for _, choices in own for choice in choices}, dict(own)
    assert len(result.rows) == 50
    for question, choices in result.rows:
        assert len({*choices}) == 3
        assert known >= {*choices} != {*given[question]}
        kept = [new == old for new, old in zip(choices, given[question], strict=True)]
        assert not all(kept)


@pytest.mark.parametrize("source", ["pairs", "edits"])
def test_a_second_text_is_one_part_beside_all_choices(source: str) -> None:
    rows = [
        (a, f"So the {b}", (f"{v} it.", "does not.", f"waits for {a}."))
        for a, b, v in zip(NAMES, NAMES[1:], VERBS * 3, strict=False)
    ]
    held_out = HeldOut(NearCopies([rows[2][1]]))
    found = made(Pool(rows), {source: 1.0}, 30, held_out, np.random.default_rng(0)).rows
    assert len(found) == 30
    assert {len(row) for row in found} == {3}
    assert all(isinstance(second, str) and normalized(second) != normalized(rows[2][1]) for _, second, _ in found)
    if source == "pairs":
        assert {row[:2] for row in found} <= {row[:2] for row in rows}


def test_an_edited_text_in_words_stays_in_words() -> None:
    own = [(tuple(row[0].split()),) for row in OWN]
    rows = made(Pool(own), {"edits": 1.0}, 30, NOTHING, np.random.default_rng(0)).rows
    assert len(rows) == 30
    assert all(word and " " not in word for (words,) in rows for word in words)


def test_shares_are_kept_and_a_source_that_runs_out_leaves_its_share_to_the_others() -> None:
    assert run({"tasks": 1, "pairs": 1, "edits": 2}, 80).counts == {"tasks": 20, "pairs": 20, "edits": 40}
    assert run({"files": 9, "pairs": 1}, 100).counts == {"files": 30, "pairs": 70}
    assert run({"files": 1}, 100).counts == {"files": 30}
    assert run({}, 10).rows == []


def test_few_rows_of_ones_own_do_not_exhaust_a_corpus() -> None:
    few = Pool(own=[(row[0],) for row in OWN[:4]], corpus=SENTENCES)
    found = made(few, {"corpus": 1.0}, 300, NOTHING, np.random.default_rng(0))
    assert found.counts["corpus"] > 200  # of 24 that are nearest to any of them
    nearest = {SENTENCES[n] for n in Index(SENTENCES).nearest([text for (text,) in few.own], 8).ravel()}
    (first,) = made(few, {"corpus": 1.0}, 1, NOTHING, np.random.default_rng(0)).rows
    assert first[0] in nearest


def test_rows_depend_on_the_seed_alone_and_are_mixed() -> None:
    shares = dict.fromkeys(SOURCES, 1.0)
    assert run(shares, 50).rows == run(shares, 50).rows != run(shares, 50, seed=1).rows
    of_files = {row for row in pool().files}
    assert any(row in of_files for row in run(shares, 50).rows[25:])


def test_settings_name_every_source() -> None:
    assert tuple(SOURCES) == TRANSFER_SOURCES
    assert {*load_config(["recipe=prune"]).transfer.sources} == {*SOURCES}


@pytest.mark.parametrize("seed", range(5))
def test_an_edited_text_keeps_most_words_and_their_punctuation(seed: int) -> None:
    text = "The parser (which reads slowly) opens 12 files, then closes them."
    random = np.random.default_rng(seed)

    def new(_: int, word: str) -> str:
        return replaced(word, (), {"parser": ["lexer"], "slowly": ["lazily"]}, ["other"], random)

    changed = [edited(text, new, random) for _ in range(50)]
    assert any("lexer" in other for other in changed)
    assert any("lazily)" in other for other in changed)
    kept = [len({*text.split()} & {*other.split()}) / len(text.split()) for other in changed]
    assert 0.6 < np.mean(kept) < 0.95
    assert min(map(len, changed)) > 0
    assert edited("one", new, random) in ("one", "other")  # the only word is not dropped


def agrees_with_scikit_learn(texts: list[str], queries: list[str], **how: Any) -> bool:
    """Whether the nearest texts have the largest similarities, and some of these are above 0."""
    found = Index(texts).nearest(queries, 5)
    # The same weights: no smoothing, and no words that are in more than a tenth of the texts.
    oracle = TfidfVectorizer(smooth_idf=False, binary=True, max_df=6, norm=None, **how)
    left = oracle.fit(texts).transform(queries).toarray()
    oracle.idf_ -= 1  # scikit-learn adds 1
    right, left = oracle.transform(texts).toarray(), oracle.transform(queries).toarray()
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9) for rows in (left, right)]
    similarity = unit[0] @ unit[1].T
    best = -np.sort(-similarity, axis=1)[:, :5]
    np.testing.assert_allclose(-np.sort(-np.take_along_axis(similarity, found, 1), axis=1), best, atol=1e-5)
    return bool(best.any())


def test_nearest_texts_are_those_of_scikit_learn() -> None:
    random, words = np.random.default_rng(0), [f"word{number}" for number in range(150)]
    texts = [", ".join(random.choice(words, 6)) for _ in range(100)]
    assert agrees_with_scikit_learn(texts[:60], texts[60:], token_pattern=r"\w+")


def test_texts_without_spaces_are_compared_by_two_letters() -> None:
    random, letters = np.random.default_rng(0), [chr(0x4E00 + number) for number in range(25)]
    texts = ["".join(random.choice(letters, 9)) for _ in range(100)]
    assert agrees_with_scikit_learn(
        texts[:60], texts[60:], analyzer=lambda text: [text[n : n + 2] for n in range(len(text))]
    )


def test_texts_that_share_no_word_with_any_are_not_all_near_to_the_same() -> None:
    index = Index([f"word{number}" for number in range(50)])
    assert len(np.unique(index.nearest(["other"] * 40, 2))) > 20
    assert all(7 in row for row in index.nearest(["word7"] * 9, 2).tolist())


def test_fewer_texts_than_are_wanted() -> None:
    assert Index(["one", "two"]).nearest(["two"], 8).shape == (1, 2)


def test_similar_words_are_those_with_the_largest_cosine() -> None:
    angles = np.array([0.0, 0.1, 0.3, 2.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[1.0], [5.0], [0.1], [2.0]])
    found = similar_words(["a", "b", "c", "d"], vectors, 2)
    assert {word: {*others} for word, others in found.items()} == {
        "a": {"b", "c"}, "b": {"a", "c"}, "c": {"b", "a"}, "d": {"c", "b"}
    }  # fmt: skip
    assert similar_words(["a"], vectors[:1], 2) == {}
