"""Pairs of segments of a corpus, against the tokenizer's own pairs and the two papers' rules."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.data.encode import Encoded, Sentences
from distill.data.segments import (
    check_pairs,
    draw,
    encode_segments,
    frame_of,
    paired,
    pieces,
    sentence_ends,
    stored_segments,
)
from distill.errors import DataError
from tests import tiny

SENTENCES: list[str] = tiny.SENTENCES
LENGTH = 40


def bert_like() -> Any:
    words = tiny.tokenizer()
    words.add_tokens(["."])
    return words


def roberta_like() -> Any:
    """A tokenizer with two special tokens between texts, and no token types."""
    from tokenizers import processors

    words = bert_like()
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    return words


TOKENIZERS = {"bert": bert_like, "roberta": roberta_like}


def document(random: np.random.Generator, sentences: int) -> str:
    return " ".join(f"{random.choice(SENTENCES).capitalize()}." for _ in range(sentences))


def documents(count: int = 60, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [document(random, int(random.integers(1, 9))) for _ in range(count)]


@pytest.fixture(params=sorted(TOKENIZERS))
def words(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


def encoded(tmp_path: Path, words: Any, texts: list[str], length: int = LENGTH) -> Encoded:
    encode_segments(tmp_path, texts, words, length)
    return stored_segments(tmp_path)


def row(corpus: Encoded, number: int) -> np.ndarray:
    return corpus.ids[corpus.offsets[number] : corpus.offsets[number + 1]]


def invented(count: int, documents: int = 20, seed: int = 0) -> Encoded:
    """Rows of 3 special tokens around 8 to 30 others, of up to 5 sentences, without tokens of their own."""
    random = np.random.default_rng(seed)
    lengths = random.integers(8, 31, count)
    starts = [np.sort(random.choice(np.arange(1, n), random.integers(0, 5), replace=False)) for n in lengths]
    sentences = Sentences(
        np.concatenate(starts).astype(np.int32),
        np.cumsum([0, *map(len, starts)]),
        np.sort(random.integers(0, documents, count)),
    )
    offsets = np.cumsum([0, *(lengths + 3)])
    return Encoded(np.zeros(offsets[-1], np.int32), offsets, None, None, sentences=sentences)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One is here. Two is there! Is three? Yes.", ["One is here.", "Two is there!", "Is three?", "Yes."]),
        ("It is 3.5 m long, e.g. here. Next", ["It is 3.5 m long, e.g. here.", "Next"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("first line\nsecond line\n\nthird", ["first line", "second line", "third"]),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("no end at all", ["no end at all"]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text: str, parts: list[str]) -> None:
    ends = [0, *sentence_ends(text), len(text)]
    assert [part for a, b in pairwise(ends) if (part := text[a:b].strip())] == parts


@pytest.mark.parametrize("seed", range(30))
def test_pieces_are_whole_sentences_as_far_as_they_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, room = int(random.integers(1, 200)), int(random.integers(1, 30))
    starts = sorted({*random.integers(1, count + 1, random.integers(0, 40)).tolist()} - {count})
    spans = list(pieces(starts, count, room))
    assert [at for begin, end in spans for at in range(begin, end)] == list(range(count))
    bounds = {0, *starts, count}
    for (begin, end), following in zip(spans, [*spans[1:], (count, count)], strict=True):
        assert end - begin <= room
        inside = [at for at in starts if begin < at < end]
        if not {begin, end} <= bounds:  # a part of a sentence that is longer than a piece
            whole = max(at for at in bounds if at <= begin), min(at for at in bounds if at >= end)
            assert whole[1] - whole[0] > room
            assert not inside
        elif following[1] in bounds and following[0] in bounds:
            assert min(at for at in bounds if at > end) - begin > room if end < count else True


@pytest.mark.parametrize("prefix", [True, False])
def test_the_first_token_does_not_tell_whether_segments_were_swapped(prefix: bool, tmp_path: Path) -> None:
    """Byte-level BPE has other tokens for a word that begins a text than for one after a space, and for line breaks."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)  # type: ignore[assignment]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    backend.train_from_iterator([f" {sentence}" for sentence in SENTENCES], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=prefix)  # type: ignore[assignment]
    names = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    words = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>", **names)
    texts = [text.replace(". ", ".\n" if number % 2 else ".  ") for number, text in enumerate(documents(200))]
    corpus = encoded(tmp_path, words, texts, 60)
    batch = paired(corpus, "sentence_order", words, seed=1)(np.arange(len(corpus)), 0)
    firsts = words.convert_ids_to_tokens(batch["input_ids"][batch["pairs"], 1].tolist())
    assert 0.3 < batch["pair_labels"].mean() < 0.7
    assert {token[0] for token in firsts} == {"Ġ"}
    assert "Ċ" not in {*words.convert_ids_to_tokens(corpus.ids.tolist())}


def test_a_frame_is_what_the_tokenizer_puts_around_a_pair(words: Any) -> None:
    frame = frame_of(words)
    first, second = (words(text, add_special_tokens=False)["input_ids"] for text in SENTENCES[:2])
    expected = words(*SENTENCES[:2], return_token_type_ids=True)
    ids, types = frame.around(np.array(first, np.int32), np.array(second, np.int32))
    assert ids.tolist() == expected["input_ids"]
    assert types.tolist() == expected["token_type_ids"]
    assert frame.content(frame.around(np.array([7, 8], np.int32), np.array([], np.int32))[0]).tolist() == [7, 8]


def test_rows_are_whole_sentences_and_nothing_is_lost_or_doubled(words: Any, tmp_path: Path) -> None:
    texts = [*documents(), "The boat.", "A storm."]
    corpus, frame = encoded(tmp_path, words, texts), frame_of(words)
    assert corpus.sentences is not None
    assert corpus.lengths.max() <= LENGTH
    found: dict[int, list[int]] = {}
    for number, document in enumerate(corpus.sentences.documents.tolist()):
        pair = corpus.sentences.offsets[number] < corpus.sentences.offsets[number + 1]
        found.setdefault(document, []).extend(
            (frame.content(row(corpus, number)) if pair else row(corpus, number)[1:-1]).tolist()
        )
    of_texts = words(texts, add_special_tokens=False)["input_ids"]
    # Two documents are too short, and no sentence of the others is.
    assert found == {number + 1: tokens for number, tokens in enumerate(of_texts) if len(tokens) > 3}
    assert len(found) == len(texts) - 2


@pytest.mark.parametrize("kind", ["sentence_order", "next_sentence"])
def test_a_batch_is_what_the_tokenizer_makes_of_the_pairs(kind: str, words: Any, tmp_path: Path) -> None:
    corpus = encoded(tmp_path, words, documents())
    frame, collate = frame_of(words), paired(corpus, kind, words, seed=3)
    rows = np.random.default_rng(1).permutation(len(corpus))[:40]
    for epoch in range(2):
        batch, drawn = collate(rows, epoch), draw(corpus, kind, frame.size, seed=3, epoch=epoch)
        assert batch["pairs"].tolist() == np.flatnonzero(drawn.cuts[rows]).tolist()
        labels = dict(zip(batch["pairs"].tolist(), batch["pair_labels"].tolist(), strict=True))
        assert {*labels.values()} == {0, 1}
        for place, number in enumerate(rows):
            real = batch["attention_mask"][place].astype(bool)
            ids, types = batch["input_ids"][place][real].tolist(), batch["token_type_ids"][place][real].tolist()
            if place not in labels:
                assert ids == row(corpus, number).tolist()
                assert types == [0] * len(ids)
                continue
            other, cut = drawn.seconds[number], drawn.cuts[number]
            first = frame.content(row(corpus, number))[:cut]
            second = frame.content(row(corpus, other))[drawn.cuts[other] :]
            texts = [words.decode(part) for part in (first, second)]
            expected = words(*texts[:: -1 if drawn.swapped[number] else 1], return_token_type_ids=True)
            assert (ids, types) == (expected["input_ids"], expected["token_type_ids"])
            assert labels[place] == (other != number or bool(drawn.swapped[number]))
            assert len(ids) <= corpus.lengths[number]
            assert [part[-1] for part in texts] == [".", "."]  # both are whole sentences


def test_a_row_is_the_same_in_every_batch(words: Any, tmp_path: Path) -> None:
    """So that neither the number of processes, nor resuming, nor smaller parts change anything."""
    corpus = encoded(tmp_path, words, documents())
    one, other = (paired(corpus, "next_sentence", words, seed=5) for _ in range(2))
    rows = np.arange(20)
    whole = one(rows, 4)
    one(rows, 5)
    for place in (19, 3, 0):
        alone = other(rows[[place]], 4)
        width = int(alone["attention_mask"].sum())
        assert whole["input_ids"][place, :width].tolist() == alone["input_ids"][0, :width].tolist()
    assert one(rows, 4)["input_ids"].tolist() == whole["input_ids"].tolist()
    assert one(rows, 5)["input_ids"].tolist() != whole["input_ids"].tolist()


def test_half_of_the_pairs_are_swapped() -> None:
    corpus = invented(4000)
    draws = [draw(corpus, "sentence_order", 3, seed=1, epoch=epoch) for epoch in range(3)]
    for drawn in draws:
        pairs = drawn.cuts > 0
        assert (pairs == (np.diff(corpus.sentences.offsets) > 0)).all()  # type: ignore[union-attr]
        assert not drawn.changed[~pairs].any()
        assert 0.46 < drawn.swapped[pairs].mean() < 0.54
        assert (drawn.seconds == np.arange(4000)).all()
    assert 0.4 < (draws[0].swapped == draws[1].swapped).mean() < 0.8
    again = draw(corpus, "sentence_order", 3, seed=1, epoch=0)
    assert (again.swapped == draws[0].swapped).all()
    assert (again.cuts == draws[0].cuts).all()


def test_every_boundary_is_drawn_alike() -> None:
    sentences = Sentences(np.array([3, 5, 9], np.int32), np.array([0, 3]), np.array([0]))
    corpus = Encoded(np.zeros(15, np.int32), np.array([0, 15]), None, None, sentences=sentences)
    cuts = [draw(corpus, "sentence_order", 3, seed=0, epoch=epoch).cuts[0] for epoch in range(600)]
    assert {cut: 150 < cuts.count(cut) < 250 for cut in (3, 5, 9)} == {3: True, 5: True, 9: True}
    assert {*cuts} == {3, 5, 9}


@pytest.mark.parametrize("documents", [2, 20, 1000])
def test_half_of_the_second_segments_are_of_other_documents(documents: int) -> None:
    corpus = invented(4000, documents)
    drawn, of = draw(corpus, "next_sentence", 3, seed=1, epoch=0), corpus.sentences.documents  # type: ignore[union-attr]
    pairs, changed = drawn.cuts > 0, drawn.changed
    assert 0.46 < changed[pairs].mean() < 0.54
    assert not changed[~pairs].any()
    assert (of[changed] != of[drawn.seconds[changed]]).all()
    after = corpus.lengths - 3 - drawn.cuts
    assert (drawn.cuts[drawn.seconds[changed]] > 0).all()
    shorter = (after - after[drawn.seconds])[changed]
    assert (shorter >= 0).all()
    # Neither the length nor which segments are used tells the replaced ones apart.
    if documents > 2:
        assert shorter.mean() < 0.2
        assert len(np.unique(drawn.seconds[changed])) > 0.9 * changed.sum()


def test_a_corpus_without_pairs_is_refused(tmp_path: Path) -> None:
    words = tiny.tokenizer()
    single = encoded(tmp_path, words, [" ".join(SENTENCES[:2])] * 3)
    assert not len(single.sentences.starts)  # type: ignore[union-attr]
    for kind in ("sentence_order", "next_sentence"):
        with pytest.raises(DataError, match="corpus: got no sequence of two sentences; must have some for a term on"):
            check_pairs(single, kind)
    one = encoded(tmp_path, words, [document(np.random.default_rng(0), 12)])
    check_pairs(one, "sentence_order")
    with pytest.raises(DataError, match="corpus: got 1 document with a pair; must be 2 or more for a term on next_sen"):
        check_pairs(one, "next_sentence")
    check_pairs(encoded(tmp_path, words, documents(5)), "next_sentence")


def test_encoding_stops_at_max_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distill.data.encode._AT_ONCE", 4)
    words, texts = tiny.tokenizer(), documents()
    whole = encode_segments(tmp_path, texts, words, LENGTH)
    part = encode_segments(tmp_path, texts, words, LENGTH, max_tokens=whole // 3)
    assert whole // 3 <= part < whole / 2
    assert len(stored_segments(tmp_path).ids) == part
