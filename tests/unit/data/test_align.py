"""Two tokenizers on one text: pieces and pairs against the characters themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from distill.data.align import Aligned, encode_aligned, pad_aligned, stored_aligned
from distill.data.sequences import SHORTEST
from tests import tiny

TEXTS = [" ".join(tiny.SENTENCES), "short one", "a kettle, zyxw; and the quiet harbour before dawn. " * 9]


def bpe() -> Any:
    """Bytes, and a few merges across the letters of words: tokens unlike the other tokenizer's."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("o", "r"), ("i", "n"), ("in", "g"), ("a", "n"), ("an", "d")]
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, *("".join(pair) for pair in merges)]
    backend = Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, merges))  # type: ignore[arg-type]
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return bpe(), tiny.tokenizer()


def encoded(folder: Path, pair: tuple[Any, Any], length: int = 40, **more: Any) -> Aligned:
    tokens = encode_aligned(folder, TEXTS, *pair, length, **more)
    found = stored_aligned(folder)
    assert len(found.student.ids) == tokens
    return found


def row(encoded: Any, number: int) -> list[int]:
    return encoded.ids[encoded.offsets[number] : encoded.offsets[number + 1]].tolist()


def characters(tokenizer: Any, ids: list[int]) -> str:
    return "".join(tokenizer.decode(ids, skip_special_tokens=True).lower().split()).replace("##", "")


def test_rows_of_a_pair_have_the_same_text_and_fit(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = encoded(tmp_path, pair)
    assert len(found.student) == len(found.teacher) == len(found.offsets) - 1 > 8
    for number in range(len(found.student)):
        mine, theirs = row(found.student, number), row(found.teacher, number)
        assert SHORTEST <= len(mine) <= 40
        assert len(theirs) <= 40
        assert (mine[0], mine[-1]) == (0, 2)
        assert (theirs[0], theirs[-1]) == (0, 2)
        known = [t for t in theirs if t != pair[1].unk_token_id]
        if len(known) == len(theirs):
            assert characters(pair[0], mine) == characters(pair[1], theirs)


def test_a_pair_ends_at_the_same_character(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = encoded(tmp_path, pair)
    seen = 0
    for number in range(len(found.student)):
        mine, theirs = row(found.student, number), row(found.teacher, number)
        if pair[1].unk_token_id in theirs:
            continue
        pairs = found.pairs[found.offsets[number] : found.offsets[number + 1]]
        assert (np.diff(pairs, axis=0) > 0).all()
        for one, other in pairs:
            assert characters(pair[0], mine[: one + 1]) == characters(pair[1], theirs[: other + 1])
            seen += 1
        # The last tokens before the closing ones always are a pair.
        assert pairs[-1].tolist() == [len(mine) - 2, len(theirs) - 2]
    assert seen > 50


def test_equal_tokenizers_pair_every_token(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = encoded(tmp_path, (pair[1], pair[1]))
    assert np.array_equal(found.student.ids, found.teacher.ids)
    assert (found.pairs[:, 0] == found.pairs[:, 1]).all()
    assert len(found.pairs) == len(found.student.ids) - 2 * len(found.student)


def test_it_stops_at_max_tokens(pair: tuple[Any, Any], tmp_path: Path) -> None:
    texts = tiny.SENTENCES[:1] * 3000
    some = encode_aligned(tmp_path, texts, *pair, 64, 1000)
    assert 1000 <= some < encode_aligned(tmp_path, texts, *pair, 64)


def test_flat_positions_are_those_of_the_paired_tokens(pair: tuple[Any, Any], tmp_path: Path) -> None:
    found = encoded(tmp_path, pair)
    rows = np.array([3, 0, 5])
    width = int(found.student.lengths[rows].max()) + 3
    batch = pad_aligned(found, rows, width, pad_id=1)
    at = 0
    for line, number in enumerate(rows):
        for one, other in found.pairs[found.offsets[number] : found.offsets[number + 1]]:
            assert batch["aligned"][at] == line * width + one
            token = batch["teacher_input_ids"].flatten()[batch["teacher_aligned"][at]]
            assert token == row(found.teacher, number)[other]
            at += 1
    assert at == len(batch["aligned"]) == len(batch["teacher_aligned"])
