"""Random models of a run are made anew for another corpus, whose words are their vocabulary; and a student's own
tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors

from distill import config
from distill.data.encode import separator_of
from distill.pipeline.context.given import GivenModels
from distill.runtime.storage import run_folder
from tests import tiny


def a_machine() -> Any:
    from accelerate import Accelerator
    from rich.console import Console

    from distill.runtime.machine import Machine

    return Machine(Accelerator(cpu=True), Console(quiet=True), "fp32", 1, 1, fast_float32=False)


def test_a_random_teacher_has_the_words_of_the_corpus_of_today(tmp_path: Path) -> None:
    machine = a_machine()
    text = tmp_path / "corpus.txt"
    loaded = config.load_config(["recipe=distilbert", "limit=smoke", "corpus=text", f"corpus.path={text}"])
    run_folder.claim(tmp_path / "run")

    def made() -> tuple[Any, int]:
        given = GivenModels(loaded, machine, tmp_path / "run", lambda: [text.read_text()], False)
        return given.tokenizer.get_vocab(), (Path(given.teacher) / "model.safetensors").stat().st_mtime_ns

    text.write_text("one harbour")
    first = made()
    assert made() == first, "it is kept"
    text.write_text("two harbour")
    words, _ = made()
    assert {"one", "two"} & {*first[0]} == {"one"}
    assert {"one", "two"} & {*words} == {"two"}


@pytest.mark.parametrize("separated", [True, False])
def test_a_students_own_tokenizer_tells_the_texts_of_a_pair_apart(separated: bool, tmp_path: Path) -> None:
    words = tiny.tokenizer()
    if not separated:
        words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    words.save_pretrained(tmp_path / "words")
    loaded = config.load_config(["recipe=distilbert", "limit=smoke", f"student.tokenizer={tmp_path / 'words'}"])
    given = GivenModels(loaded, a_machine(), tmp_path / "run", list, False)
    assert separator_of(given.student_tokenizer) == ("" if separated else "\n")
