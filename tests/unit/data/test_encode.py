"""Encoding, against the tokenizer's own answer for each text."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split, Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from distill.data.encode import PAIR_SEPARATOR, STORED, Encoded, encode_task
from distill.data.sequences import encode_corpus, stored_corpus
from distill.runtime.storage import cache

WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture(params=["bert", "roberta"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """One with special tokens as BERT has them, one as RoBERTa has (two between the texts of a pair)."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    plain = Tokenizer(WordLevel({n: i for i, n in enumerate(names)}, unk_token="[UNK]"))
    plain.pre_tokenizer = Whitespace()
    bert = request.param == "bert"
    plain.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if bert else "[CLS] $A [SEP] [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip


def words(count: int, start: int = 0) -> str:
    return " ".join(WORDS[(start + i) % 40] for i in range(count))


def rows(encoded: Any) -> list[list[int]]:
    return [part.tolist() for part in np.split(encoded.ids, encoded.offsets[1:-1])]


def corpus(*settings: Any, **more: Any) -> Encoded:
    """Encoded, written and read again."""
    with TemporaryDirectory() as folder:
        tokens = encode_corpus(Path(folder), *settings, **more)
        encoded = stored_corpus(Path(folder))
        assert len(encoded.ids) == tokens
        return encoded


def test_short_documents_equal_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [words(12, 3), words(20), words(14, 9)]
    encoded = corpus(texts, tokenizer, 32)
    assert rows(encoded) == tokenizer(texts)["input_ids"]
    assert (encoded.ids.dtype, encoded.offsets.dtype) == (np.int32, np.int64)
    assert encoded.segments is None
    assert encoded.labels is None
    assert len(encoded) == 3
    assert encoded.lengths.tolist() == [14, 22, 16]


def test_a_long_document_is_cut_into_pieces_with_their_own_special_tokens(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    encoded = corpus([words(50), "", words(15)], tokenizer, 22)
    body = tokenizer(words(50), add_special_tokens=False)["input_ids"]
    expected = [[2, *body[:20], 3], [2, *body[20:40], 3], [2, *body[40:], 3]]
    assert rows(encoded) == [*expected, *tokenizer([words(15)])["input_ids"]]


def test_short_and_unknown_sequences_are_dropped(tokenizer: PreTrainedTokenizerFast) -> None:
    assert corpus([words(9), words(10)], tokenizer, 32).lengths.tolist() == [12]
    # 16 tokens with the special ones: 8 unknown are half of them.
    half, less = "zz " * 8 + words(6), "zz " * 7 + words(7)
    assert rows(corpus([half, less], tokenizer, 32)) == tokenizer([less])["input_ids"]


def test_max_tokens_stops_with_the_row_that_reaches_it(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [words(18)] * 3000
    for most, expected in [(60, 3), (61, 4), (1024 * 20, 1024), (1024 * 20 + 1, 1025)]:
        assert len(corpus(texts, tokenizer, 32, max_tokens=most)) == expected
    assert len(corpus(texts, tokenizer, 32)) == 3000


def test_truncation_and_padding_left_in_the_tokenizer_do_no_harm(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    expected = rows(corpus([words(30), words(12)], tokenizer, 64))
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert rows(corpus([words(30), words(12)], tokenizer, 64)) == expected


def test_no_text_gives_no_rows(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(corpus([], tokenizer, 32)) == 0


def test_tasks_equal_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    first, second = [words(5), words(30)], [words(9, 3), words(4)]
    data = Dataset.from_dict({"a": first, "b": second, "label": [1, 0]})
    encoded = encode_task(data, ("a", "b"), tokenizer, 16)
    expected = tokenizer(first, second, truncation=True, max_length=16, return_token_type_ids=True)
    assert rows(encoded) == expected["input_ids"]
    assert encoded.segments is not None
    assert encoded.labels is not None
    assert encoded.segments.tolist() == [kind for row in expected["token_type_ids"] for kind in row]
    assert encoded.labels.tolist() == [1, 0]
    assert encoded.labels.dtype == np.int64
    assert encoded.lengths.max() == 16


def test_tokens_of_many_rows_are_stored_and_made_again_if_they_are_damaged(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    data = Dataset.from_dict({"a": [words(3 + number % 5, number) for number in range(STORED)]})
    with cache.using(tmp_path):
        first = rows(encode_task(data, ("a",), tokenizer, 16))
        (file,) = (tmp_path / "encoded").rglob("*.int32")
        before = file.read_bytes()
        assert rows(encode_task(data, ("a",), tokenizer, 16)) == first
        file.unlink()  # arrays of the first call may be mapped to it
        file.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        assert rows(encode_task(data, ("a",), tokenizer, 16)) == first
        assert file.read_bytes() == before


def test_a_task_leaves_no_truncation_behind(tokenizer: PreTrainedTokenizerFast) -> None:
    encode_task(Dataset.from_dict({"a": [words(30)]}), ("a",), tokenizer, 16)
    assert tokenizer.backend_tokenizer.truncation is None


def test_regression_labels_are_float32_and_labels_may_be_missing(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    data = Dataset.from_dict({"a": [words(5)], "label": [2.5]})
    labels = encode_task(data, ("a",), tokenizer, 16).labels
    assert labels is not None
    assert labels.dtype == np.float32
    assert labels.tolist() == [2.5]
    assert encode_task(data.remove_columns("label"), ("a",), tokenizer, 16).labels is None


def test_pairs_without_a_separator_get_the_one_that_is_kept_with_the_tokenizer() -> None:
    bare = Tokenizer(WordLevel({"a": 0, "b": 1, "\n": 2, "[UNK]": 3}, unk_token="[UNK]"))
    bare.pre_tokenizer = Split(Regex(r"\S|\n"), "removed", invert=True)
    plain = PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="[UNK]", pad_token="[UNK]")
    data = Dataset.from_dict({"one": ["a b"], "two": ["b"], "label": [0]})
    assert encode_task(data, ("one", "two"), plain, 9).ids.tolist() == [0, 1, 1]
    plain.init_kwargs[PAIR_SEPARATOR] = "\n"
    assert encode_task(data, ("one", "two"), plain, 9).ids.tolist() == [0, 1, 2, 1]
    assert encode_task(data, ("one",), plain, 9).ids.tolist() == [0, 1]
