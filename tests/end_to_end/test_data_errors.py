"""Errors in data, teacher or tokenizer are one line with file and row, before any training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.errors import UserError
from distill.models import teacher
from distill.pipeline.context.folder import BEGUN
from distill.runtime.storage import atomic, checksums, run_folder

COUNT = 40
ANIMALS = ("heron", "otter", "badger", "newt")


def sentence(number: int) -> str:
    animal = ANIMALS[number % len(ANIMALS)]
    return f"On day {number} of the long winter the old {animal} slept under the bridge and woke for supper."


def rte(split: str) -> dict[str, list[Any]]:
    """Invented rows in the columns of GLUE's RTE."""
    first = 0 if split == "train" else COUNT
    rows = range(first, first + COUNT)
    pairs = {"sentence1": [sentence(i) for i in rows], "sentence2": [sentence(i + 1) for i in rows]}
    return pairs | {"label": [i % 2 for i in rows], "idx": list(rows)}


def stsb(split: str) -> dict[str, list[Any]]:
    return rte(split) | {"label": [float(i % 6) for i in range(COUNT)]}


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    for task, rows in {"rte": rte, "stsb": stsb}.items():
        for split in ("train", "validation"):
            write(tmp_path / "glue", task, split, rows(split))
    return tmp_path / "glue"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"text": [sentence(i) for i in range(200)]}), tmp_path / "corpus" / "train.parquet")
    return tmp_path / "corpus"


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A tiny encoder of four layers without a language-model head, with its tokenizer."""
    from transformers import AutoModel

    whole = teacher.random_teacher(tmp_path / "whole", 4, [sentence(i) for i in range(9)])
    AutoModel.from_pretrained(whole).save_pretrained(tmp_path / "given")
    teacher.load_tokenizer(whole).save_pretrained(tmp_path / "given")
    return tmp_path / "given"


def place(folder: Path, task: str, split: str) -> Path:
    return folder / task / f"{split}-00000-of-00001.parquet"


def write(folder: Path, task: str, split: str, columns: dict[str, list[Any]]) -> Path:
    file = place(folder, task, split)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return file


def cut(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])


def settings(glue: Path, corpus: Path, given: Path) -> list[str]:
    return [
        "limit=smoke", "teacher=hub", f"teacher.name={given}", "corpus=parquet", f"corpus.path={corpus}",
        "tasks=glue", f"tasks.path={glue}", "tasks.names=[rte,stsb]", "output=out",
    ]  # fmt: skip


@pytest.fixture
def refusal(run: Any, glue: Path, corpus: Path, given: Path, tmp_path: Path) -> Callable[..., str]:
    """`refusal(*overrides)`: the one-line error of a run that is refused before it trains anything."""

    def refused(*overrides: str) -> str:
        with pytest.raises(UserError) as caught:
            run(tmp_path, "distilbert", *settings(glue, corpus, given), *overrides)
        begun = [str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").iterdir()]
        assert set(begun) <= {atomic.CLAIM, run_folder.LOCK, checksums.SUMS, "config.json", BEGUN}
        (line,) = caught.value.messages
        assert "\n" not in line
        assert ": got " in line
        assert "; must " in line
        return line

    return refused


def test_truncated_weights_are_refused(given: Path, refusal: Callable[..., str]) -> None:
    file = given / "model.safetensors"
    cut(file)
    assert refusal().startswith(f"{file}: got a damaged file (")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(given: Path, refusal: Callable[..., str]) -> None:
    tokenizer = teacher.load_tokenizer(given)
    known = len(tokenizer)
    tokenizer.add_tokens(["otterish", "heronlike"])
    tokenizer.save_pretrained(given)
    line = refusal()
    assert line.startswith(f"teacher.name: got a tokenizer of {known + 2} tokens and a model of {known}; must be ")


def test_layers_that_the_teacher_does_not_have_are_refused(refusal: Callable[..., str]) -> None:
    line = refusal("student.layers=[0,4]")
    assert line.startswith("student.layers: got [0,4]; must be distinct ascending layer numbers of the teacher, 0 to 3")


def test_a_classifier_of_other_classes_is_refused(given: Path, refusal: Callable[..., str]) -> None:
    from transformers import AutoModelForSequenceClassification

    AutoModelForSequenceClassification.from_pretrained(given, num_labels=3).save_pretrained(given)
    assert refusal().startswith(
        "teacher.name: got a classifier of 3 outputs; must have a head for the labels of rte: entailment, "
        "not_entailment; stsb: a number, or none; "
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", ["corpus.max_length=513", "tasks.max_length=513", "stages.evaluate.shapes=[[1,16],[8,513]]"]
)
def test_sequences_longer_than_the_teachers_maximum_are_refused(setting: str, refusal: Callable[..., str]) -> None:
    line = refusal(setting)
    assert setting.partition("=")[0].removeprefix("stages.") in line
    assert ": got 513; must be <= 512, the maximum length of teacher and student; " in line


@pytest.mark.slow
def test_a_refused_run_starts_once_its_settings_are_corrected(
    run: Any, refusal: Callable[..., str], glue: Path, corpus: Path, given: Path, tmp_path: Path
) -> None:
    assert refusal("student.layers=[0,4]")
    mended = ["student.layers=[0,3]", "pipeline=[finetune_teacher]", "limit.steps=1"]
    run(tmp_path, "distilbert", *settings(glue, corpus, given), *mended)
    assert (tmp_path / "out" / "finetune_teacher" / "manifest.json").is_file()
