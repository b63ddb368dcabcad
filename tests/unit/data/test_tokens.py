"""The identity of a tokenizer: another for each change after which it may make other tokens, and for nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from tokenizers import AddedToken, normalizers, processors

from distill.data.encode import STORED, encode_task, encode_texts
from distill.data.task_types import SECONDS
from distill.data.tokens import identity
from distill.models import teacher
from distill.runtime.storage import cache
from tests import tiny

WORDS = " ".join(tiny.SENTENCES).split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.tokenizer().save_pretrained(tmp_path / "one")
    (tmp_path / "one" / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path / "one"


def changed(folder: Path, **settings: Any) -> Any:
    """The tokenizer of a copy of the folder with other settings in tokenizer_config.json."""
    other = folder.with_name("other")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    tiny.change(other / "tokenizer_config.json", **settings)
    return teacher.load_tokenizer(other)


def test_it_is_the_same_for_the_same_files_in_another_folder(folder: Path) -> None:
    words = teacher.load_tokenizer(folder)
    words(["a"], truncation=True, max_length=3)
    words.backend_tokenizer.no_truncation()
    assert identity(words) == identity(teacher.load_tokenizer(folder)) == identity(changed(folder))
    assert words.backend_tokenizer.truncation is None


@pytest.mark.parametrize(
    "settings",
    [
        {"truncation_side": "left"},
        {"padding_side": "left"},
        {"model_input_names": ["input_ids", "attention_mask"]},
        {"do_lower_case": False},
        {"split_special_tokens": True},
        {"tokenizer_class": "BertTokenizer"},
        {"sep_token": "[MASK]"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_setting_outside_of_tokenizer_json_changes_it(settings: dict[str, Any], folder: Path) -> None:
    assert identity(changed(folder, **settings)) != identity(teacher.load_tokenizer(folder))


def _without_special_tokens(words: Any) -> None:
    words.backend_tokenizer.post_processor = processors.TemplateProcessing("$A", "$A $B:1", [])


def _cased(words: Any) -> None:
    words.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)


def _with_a_token(words: Any) -> None:
    words.add_tokens([AddedToken("boat", lstrip=True)])


@pytest.mark.parametrize("change", [_without_special_tokens, _cased, _with_a_token])
def test_another_vocabulary_or_processing_changes_it(change: Callable[[Any], None], folder: Path) -> None:
    words = teacher.load_tokenizer(folder)
    change(words)
    assert identity(words) != identity(teacher.load_tokenizer(folder))


def test_other_versions_of_the_libraries_change_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(words := teacher.load_tokenizer(folder))
    monkeypatch.setattr("tokenizers.__version__", "0")
    assert identity(words) != before


def rows(count: int, length: int = 24) -> list[str]:
    return [" ".join(WORDS[(row * 7 + number) % len(WORDS)] for number in range(length)) for row in range(count)]


def test_a_tokenizer_that_cuts_on_the_left_gets_its_own_tokens(folder: Path, tmp_path: Path) -> None:
    texts = rows(STORED)
    right, left = teacher.load_tokenizer(folder), changed(folder, truncation_side="left")
    expected = [encode_texts([texts], words, 12).ids for words in (right, left)]
    assert not np.array_equal(*expected)
    with cache.using(str(tmp_path / "cache")):
        for _ in range(2):
            for words, ids in zip((right, left), expected, strict=True):
                encoded = encode_task(Dataset.from_dict({"text": texts}), ("text",), words, 12)
                assert np.array_equal(encoded.ids, ids)
    assert len(list((tmp_path / "cache" / "encoded").iterdir())) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"text": ["a\0b", "c"]}, {"text": ["a", "b\0c"]}),
        ({"text": ["a\1", "b"]}, {"text": ["a", "\1b"]}),
        ({"text": ["ab", ""]}, {"text": ["a", "b"]}),
        ({"text": ["é", "e"]}, {"text": ["e\u0301", "e"]}),
        ({"text": ["a b", "c"], "other": ["d", "e"]}, {"text": ["a", "c"], "other": ["b d", "e"]}),
        ({"text": ["a", "b"], "other": ["c", "d"]}, {"text": ["c", "d"], "other": ["a", "b"]}),
        ({"text": ["a", "b"], SECONDS: [["c", "d"], ["e"]]}, {"text": ["a", "b"], SECONDS: [["c"], ["d", "e"]]}),
    ],
)
def test_texts_that_are_divided_otherwise_get_their_own_tokens(
    first: dict[str, list[Any]], second: dict[str, list[Any]], folder: Path, tmp_path: Path
) -> None:
    words = teacher.load_tokenizer(folder)
    columns = [name for name in first if name != SECONDS]

    def encoded(start: dict[str, list[Any]]) -> Any:
        every = {
            name: [*values, *([["x"]] if name == SECONDS else ["x"]) * (STORED - 2)] for name, values in start.items()
        }
        return encode_task(Dataset.from_dict(every), columns, words, 30)

    with cache.using(str(tmp_path / "one")):
        expected = encoded(second)
    with cache.using(str(tmp_path / "both")):
        encoded(first)
        found = encoded(second)
    assert np.array_equal(found.ids, expected.ids)
    assert np.array_equal(found.offsets, expected.offsets)
    assert len(list((tmp_path / "both" / "encoded").iterdir())) == 2
