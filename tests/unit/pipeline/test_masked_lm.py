"""The masked language model of edits: which steps depend on it, where it is found, and what is said of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distill import config
from distill.config.plan import resolve
from distill.data.near import NearCopies
from distill.data.transfer import HeldOut, Pool, Row, made
from distill.pipeline.artefacts import TransferSet
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.context.given import GivenModels
from distill.pipeline.context.keys import Keys, needed
from distill.pipeline.train_steps.transfer import described
from tests import tiny

GIVEN = ("recipe=prune", "teacher=hub", "teacher.name=given", "tasks.train=rows.csv", "transfer.masked_lm=a/b")
NOTHING = HeldOut(NearCopies([]))


def test_students_of_tasks_depend_on_it_and_no_other_step() -> None:
    loaded = config.load_config([*GIVEN])
    found = {step.stage for step in resolve(loaded).steps if "masked_lm" in needed(step, loaded)}
    assert found == {"recover"}
    without = config.load_config([*GIVEN, "transfer=none"])
    assert not any("masked_lm" in needed(step, without) for step in resolve(without).steps)


def test_other_files_of_it_make_other_models(tmp_path: Path) -> None:
    loaded = config.load_config([*GIVEN])
    machine: Any = SimpleNamespace(
        device=SimpleNamespace(type="cpu"), precision="fp32", fast_float32=False, threads=2,
        accelerator=SimpleNamespace(num_processes=1),
    )  # fmt: skip
    run = Keys(loaded, resolve(loaded), machine, RunFolder(tmp_path), {}, None, "fingerprint of {}".format)
    other = dataclasses.replace(
        run, fingerprint=lambda name: "another" if name == "masked_lm" else run.fingerprint(name)
    )
    for stage, differs in (("recover", True), ("finetune_teacher", False)):
        step = next(step for step in run.plan.steps if step.stage == stage)
        one, two = (
            each.of(step) if stage == "finetune_teacher" else each.without_settings(step) for each in (run, other)
        )
        assert (one != two) is differs


def test_a_smoke_run_downloads_none(tmp_path: Path) -> None:
    machine = tiny.machine()
    for name, expected in (("a/b", tmp_path / "random_masked_lm_1"), (str(tmp_path), tmp_path)):
        loaded = config.load_config([*GIVEN[:4], "limit=smoke", f"transfer.masked_lm={name}"])
        given = GivenModels(loaded, machine, tmp_path, lambda: tiny.SENTENCES, False)
        assert given.masked_lm == str(expected)
    assert GivenModels(config.load_config([*GIVEN[:4]]), machine, tmp_path, list, False).masked_lm is None


def test_a_report_says_how_many_words_it_predicted() -> None:
    plain = described("a", TransferSet(own=9, sources={"edits": 5}, held_out=0))
    assert "transfer.masked_lm" not in plain
    said = described("a", TransferSet(own=9, sources={"edits": 5}, held_out=0, predicted=0.831))
    assert said.startswith(f"{plain}. transfer.masked_lm predicted 83% of the words")


OWN: dict[str, list[Row]] = {
    "one text": [(text,) for text in tiny.SENTENCES],
    "pairs": [(one, two) for one in tiny.SENTENCES for two in tiny.SENTENCES if one != two],
    "words": [(tuple(text.split()),) for text in tiny.SENTENCES],
    "choices": [(text, tuple(text.split()[:3])) for text in tiny.SENTENCES],
}


@pytest.mark.parametrize("kind", OWN)
def test_predicted_words_replace_others_in_the_rows_of_every_layout(kind: str) -> None:
    """Words without predictions are replaced by similar ones, and the rest of a row stays in its form."""
    asked: list[tuple[str, Any]] = []

    def predicted(texts: Any) -> Any:
        asked.extend(texts)
        return [{n: [f"new{n}"] for n in numbers if text.split()[n] != "the"} for text, numbers in texts]

    similar = {"the": ["similar"]}

    def rows(seed: int) -> list[Row]:
        pool = Pool(OWN[kind], words=similar, predicted=predicted)
        return made(pool, {"edits": 1.0}, 60, NOTHING, np.random.default_rng(seed)).rows

    found = rows(0)
    assert len(found) == 60
    assert found == rows(0) != rows(1)
    assert {tuple(map(type, row)) for row in found} == {tuple(map(type, row)) for row in OWN[kind]}
    known = {word for text in tiny.SENTENCES for word in text.split()}
    texts = [" ".join(" ".join(part) if isinstance(part, tuple) else part for part in row) for row in found]
    words = {word for text in texts for word in text.split()} - known
    assert all(word == "similar" or word.startswith("new") for word in words)
    assert len(words) > 3
    assert "similar" in words or kind == "choices"
    # Words are asked for by their numbers in the texts of the task, not of texts that are edited already.
    whole = {text for row in OWN[kind] for part in row for text in ([part] if isinstance(part, str) else part)}
    assert {text for text, _ in asked} <= (whole if kind != "words" else {*tiny.SENTENCES})


def test_words_without_predictions_and_similar_words_stay() -> None:
    """With a masked language model no word is put in at random, as without one."""
    texts = [" ".join(f"w{number}x{place}" for place in range(8)) for number in range(20)]
    pool = Pool([(text,) for text in texts], words={"w0x0": ["similar"]})
    for predicted, random in ((lambda asked: [{} for _ in asked], False), (None, True)):
        given = dataclasses.replace(pool, predicted=predicted)
        rows = made(given, {"edits": 1.0}, 60, NOTHING, np.random.default_rng(0)).rows
        kept = [len({word.partition("x")[0] for word in text.split() if word != "similar"}) == 1 for (text,) in rows]
        assert len(rows) == 60
        assert all(kept) is not random


def test_the_rows_that_are_made_are_counted() -> None:
    told: list[int] = []
    found = made(Pool(OWN["one text"]), {"edits": 1.0}, 60, NOTHING, np.random.default_rng(0), told.append)
    assert sum(told) == len(found.rows) == 60


def test_a_predicted_word_stands_where_it_was_predicted() -> None:
    """Unless it is swapped with the next, it follows the same word as the word that it replaces."""

    def predicted(texts: Any) -> Any:
        return [{n: [f"{text.split()[n - 1] if n else 'first'}NEXT"] for n in numbers} for text, numbers in texts]

    pool = Pool(OWN["one text"], predicted=predicted)
    rows = made(pool, {"edits": 1.0}, 60, NOTHING, np.random.default_rng(0)).rows
    right = wrong = 0
    for (text,) in rows:
        words = text.split()
        for number, word in enumerate(words):
            if word.endswith("NEXT"):
                before = words[number - 1] if number else "first"
                right += word == f"{before}NEXT"
                wrong += word != f"{before}NEXT"
    assert right > 3 * wrong > 0
