"""Random models of a run are made anew for another corpus, whose words are their vocabulary, and for other sizes; and a
student's own tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors

from distill import config
from distill.data.encode import separator_of
from distill.pipeline.context.given import GivenModels
from distill.runtime.storage import run_folder
from tests import tiny


def given(tmp_path: Path, *settings: str) -> GivenModels:
    """Those of a smoke run on the corpus `corpus.txt`, in the same folder each time."""
    text = tmp_path / "corpus.txt"
    own = ["recipe=distilbert", "limit=smoke", "corpus=text", f"corpus.path={text}"]
    run_folder.claim(tmp_path / "run")
    loaded = config.load_config([*own, *settings])
    return GivenModels(loaded, tiny.machine(), tmp_path / "run", lambda: [text.read_text()], False)


def test_a_random_teacher_has_the_words_of_the_corpus_of_today(tmp_path: Path) -> None:
    def made() -> tuple[Any, int]:
        models = given(tmp_path)
        return models.tokenizer.get_vocab(), (Path(models.teacher) / "model.safetensors").stat().st_mtime_ns

    (tmp_path / "corpus.txt").write_text("one harbour")
    first = made()
    assert made() == first, "it is kept"
    (tmp_path / "corpus.txt").write_text("two harbour")
    words, _ = made()
    assert {"one", "two"} & {*first[0]} == {"one"}
    assert {"one", "two"} & {*words} == {"two"}


def test_a_random_teacher_is_wider_than_the_student_of_the_settings_of_today(tmp_path: Path) -> None:
    """A refused run leaves one in its folder, in which the user tries other settings."""
    (tmp_path / "corpus.txt").write_text("one harbour")
    widths = []
    for width in (32, 64):
        folder = Path(given(tmp_path, f"student.hidden_size={width}").teacher)
        widths.append(json.loads((folder / "config.json").read_text())["hidden_size"])
    assert widths == [64, 128]


@pytest.mark.parametrize("separated", [True, False])
def test_a_students_own_tokenizer_tells_the_texts_of_a_pair_apart(separated: bool, tmp_path: Path) -> None:
    words = tiny.tokenizer()
    if not separated:
        words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    words.save_pretrained(tmp_path / "words")
    loaded = config.load_config(["recipe=distilbert", "limit=smoke", f"student.tokenizer={tmp_path / 'words'}"])
    models = GivenModels(loaded, tiny.machine(), tmp_path / "run", list, False)
    assert separator_of(models.student_tokenizer) == ("" if separated else "\n")
