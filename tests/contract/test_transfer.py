"""Every kind of task has a transfer set: rows of every source, without labels, which its teacher labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from accelerate import Accelerator
from rich.console import Console

from distill.config import TRANSFER_SOURCES, Config, Limit, Transfer, load_config
from distill.data import files
from distill.data.collate import task_batch
from distill.data.held_out import Apart, parts_of
from distill.data.near import normalized
from distill.data.task_model import load_for
from distill.data.task_types import TASK_TYPES, labelled
from distill.data.task_types.layout import SECONDS
from distill.data.tasks import TaskData, check_files, load_tasks, targets_of
from distill.data.transfer import Row, texts_of
from distill.errors import ConfigError, DataError
from distill.pipeline.artefacts import TransferSet
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps import tasks, transfer
from distill.pipeline.train_steps.teacher_logits import Labeller, logits_of, teacher_logits
from distill.runtime.machine import Machine
from distill.runtime.storage import run_folder
from tests import tiny

TOKENIZER = tiny.tokenizer()
WORDS = [word for sentence in tiny.SENTENCES for word in sentence.split()]
COUNT = 80
LABELS: dict[str, Any] = {
    "classification": lambda n: {"label": "xy"[n % 2]},
    "multi_label": lambda n: {"label": [["x"], ["x", "y"], []][n % 3]},
    "regression": lambda n: {"label": n / 7},
    "reranking": lambda n: {"label": n % 2},
    "token_classification": lambda n: {
        "text": [*text(n, 7).split(), "e.g."],
        "label": ["B-THING", "I-THING", *"OOOO", "B-PLACE", "O"],
    },
    "multiple_choice": lambda n: {"choices": [text(n + k, 3) for k in (100, 200, 300)], "label": n % 3},
    "question_answering": lambda n: {"label": text(n + 500).split()[2]},
    "embedding": lambda n: {"label": n % 6},
    "retrieval": lambda n: {"label": n % 2},
}
SOURCES = {
    "multiple_choice": ("tasks", "pairs", "edits"),
    "question_answering": ("files", "tasks", "pairs", "edits"),
    "token_classification": ("files", "tasks", "corpus", "spans", "edits"),
    **dict.fromkeys(("embedding", "retrieval", "reranking"), ("files", "tasks", "corpus", "pairs", "edits")),
}
"""Of kinds of one text, the sources are all but pairs."""


def text(seed: int, words: int = 8) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def settings_of(folder: Path, name: str, kind: str, start: int = 0, *more: str) -> Config:
    """Settings of a task with invented rows."""
    pair = kind in SOURCES and kind not in ("token_classification", "multiple_choice")
    numbers = range(start, start + COUNT)
    rows = [{"text": text(n), **({"other": text(n + 500)} if pair else {}), **LABELS[kind](n)} for n in numbers]
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    own = [f"tasks.train={file}", f"tasks.name={name}", f"tasks.kind={kind}", "tasks.text=text", "tasks.label=label"]
    own += ["tasks.text_pair=other"] if pair else ["tasks.choices=choices"] if kind == "multiple_choice" else []
    own += ["tasks.range=[0,5]"] if kind == "embedding" else []
    return load_config(["recipe=task", *own, *more])


def load(folder: Path, name: str, kind: str, start: int = 0) -> tuple[TaskData, Apart]:
    """A task with invented rows, and what is in its development and reported splits."""
    config = settings_of(folder, name, kind, start)
    loaded = load_tasks(config.tasks, config.limit, 0, transfer=True)
    return loaded.tasks[name], loaded.held_out


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    run_folder.claim(tmp_path / "run")
    machine = Machine(Accelerator(cpu=True), Console(quiet=True), "fp32", 1, 1, fast_float32=False)
    return Runtime(machine, tmp_path / "run", seed=0, limit=Limit(smoke=True), longest=24)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_rows_of_every_source_get_the_outputs_of_the_teacher_and_no_label(
    kind: str, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_words", lambda *_: {})
    data, held_out = load(tmp_path, "a", kind)
    # Rows of the same kind, and single texts of another.
    others = {"b": load(tmp_path, "b", kind, 2000)[0], "c": load(tmp_path, "c", "classification", 3000)[0]}
    columns = {name: [text(n + 4000 + 500 * place) for n in range(40)] for place, name in enumerate(data.task.columns)}
    (tmp_path / "more.jsonl").write_text(
        "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
    )
    settings = Transfer(times=1.0, sources=dict.fromkeys(TRANSFER_SOURCES, 1.0))
    more = files.read(str(tmp_path / "more.jsonl"), "transfer.files", None)
    sentences = [f"{text(n + 6000)}." for n in range(300)]
    masked = str(tiny.save(tmp_path / "masked", "bert", "MaskedLM"))
    sources = transfer.Sources(
        settings, {"a": data, **others}, held_out, more, lambda: sentences, "", TOKENIZER, masked
    )
    longer, made = transfer.extended(sources, data, 40, runtime)

    expected = SOURCES.get(kind, ("files", "tasks", "corpus", "edits"))
    assert made.sources.keys() == {*expected}
    assert made.used == 40
    assert made.predicted is not None
    assert made.predicted > 0.7  # all but e.g.
    own, new = len(data.train), longer.train.select(range(len(data.train), len(longer.train)))
    assert len(new) == 40
    assert longer.train.select(range(own)).to_dict() == data.train.select_columns(longer.train.column_names).to_dict()
    assert not labelled(targets_of(new)).any()
    rows = parts_of(data.task, new)
    assert held_out.texts.isdisjoint(normalized(each) for row in rows for each in texts_of(row))
    assert len({*rows}) == 40
    assert {*map(shape, rows)} <= {*map(shape, parts_of(data.task, data.train))}

    encoded = longer.encoded(longer.train, TOKENIZER, runtime.longest)
    first = len(data.encoded(data.train, TOKENIZER, runtime.longest))
    batch, numbers = task_batch(encoded, range(first, len(encoded)), TOKENIZER.pad_token_id)
    assert encoded.labels is not None
    assert len(batch["input_ids"]) >= 40
    assert not labelled(data.task.kind.loss_targets(encoded.labels[numbers])).any()

    given = tiny.save(tmp_path / "given", "bert", "MaskedLM")
    model = load_for(data.task, given, pad_id=TOKENIZER.pad_token_id)
    model.save_pretrained(runtime.folder / "teacher" / "a")
    models = Checkpoints("teacher", {"a": [runtime.folder / "teacher" / "a"]}, {"a": [1.0]}, [TOKENIZER])
    labels = Labeller(models, None, {}, lambda: None)
    alone = logits_of(model, TOKENIZER, longer, new, None, runtime)
    for part in (data, longer, longer, data):  # of stages with fewer rows and with more
        logits = teacher_logits(labels, part, runtime)
        whole = logits_of(model, TOKENIZER, part, part.train, None, runtime)
        np.testing.assert_allclose(cut(logits[: len(whole)], whole.shape[1], kind), whole, atol=1e-5)
        assert TASK_TYPES[kind].extractive or len(logits) == len(whole)
        if part is longer:
            np.testing.assert_allclose(cut(logits[-len(alone) :], alone.shape[1], kind), alone, atol=1e-5)
    other = replace(longer, train=longer.train.select([*range(1, len(longer.train)), 0]))
    logits = teacher_logits(labels, other, runtime)  # stored logits of other rows are not taken
    np.testing.assert_allclose(logits, logits_of(model, TOKENIZER, other, other.train, None, runtime), atol=1e-5)


def shape(row: Row) -> tuple[Any, ...]:
    """Whether each part is a text or has several, and how many choices there are."""
    return tuple(type(part) if len(row) == 1 or isinstance(part, str) else len(part) for part in row)


def cut(logits: np.ndarray, width: int, kind: str) -> np.ndarray:
    """Without the places that only longer windows have."""
    if not TASK_TYPES[kind].extractive:
        return logits
    return logits.reshape(len(logits), 2, -1)[:, :, : width // 2].reshape(len(logits), -1)


def test_files_of_texts_or_of_words_are_read_for_rows_in_words(tmp_path: Path) -> None:
    data, _ = load(tmp_path, "a", "token_classification")
    rows: list[Any] = [{"text": ["Two", "words"]}, {"text": []}, {"text": None}]
    assert of_files(tmp_path, data, rows) == [(("Two", "words"),)]
    assert of_files(tmp_path, data, [{"text": "Two words."}]) == [(("Two", "words", "."),)]


def test_lists_of_words_are_no_rows_of_other_kinds(tmp_path: Path) -> None:
    data, _ = load(tmp_path, "a", "classification")
    assert of_files(tmp_path, data, [{"text": ["Two", "words"]}, {"text": None}]) == []
    assert of_files(tmp_path, data, [{"text": "Two words."}, {"text": " "}]) == [("Two words.",)]


@pytest.mark.parametrize(("kind", "expected"), [("embedding", [("0", "1"), ("2", "3")]), ("reranking", [])])
def test_texts_of_a_file_with_one_column_are_paired_for_embedders_alone(
    kind: str, expected: list[Row], tmp_path: Path
) -> None:
    data, _ = load(tmp_path, "a", kind)
    assert of_files(tmp_path, data, [{"text": str(n)} for n in range(5)]) == expected
    more = settings_of(tmp_path, "a", kind, 0, f"transfer.files={tmp_path / 'more.jsonl'}")
    if expected:
        check_files(more, None)
    else:
        with pytest.raises(DataError, match="must have the text columns of a task"):
            check_files(more, None)


def of_files(folder: Path, data: TaskData, rows: list[Any]) -> list[Row]:
    """The rows that a task reads from a file of rows."""
    making = data.task.kind.layout.making
    assert making is not None
    (folder / "more.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = files.read(str(folder / "more.jsonl"), "transfer.files", None)
    found = transfer._of_files(table, data.task.columns, making, parts_of(data.task, data.train))
    return [row for row in found if all(row)]


def test_rows_are_in_words_only_if_their_file_divides_them_otherwise() -> None:
    texts = ["Two words", "don't stop"]
    divided = [[0, 3, 4, 9], [0, 3, 3, 4, 4, 5, 6, 10]]
    making = TASK_TYPES["token_classification"].layout.making
    assert making is not None
    assert making.read(texts, divided) == [(text,) for text in texts]
    assert making.read(texts, [divided[0], [0, 5, 6, 10]]) == [(("Two", "words"),), (("don't", "stop"),)]


def test_a_second_text_is_before_each_choice_once(tmp_path: Path) -> None:
    """Also in a row that was made, and without a second text in the choices that are exchanged."""
    making = TASK_TYPES["multiple_choice"].layout.making
    assert making is not None
    given = {"first": ["One", "Two"], "second": ["Then", ""], SECONDS: [["Then a", "Then b"], [" c", " d"]]}
    rows = making.read(*given.values())
    assert rows == [("One", "Then", ("a", "b")), ("Two", "", ("c", "d"))]
    assert making.columns(("first", "second"), rows) == given
    alone = {"first": ["One"], SECONDS: [["a", "b"]]}
    assert making.columns(("first",), making.read(*alone.values())) == alone


@pytest.mark.parametrize(("given", "named"), [({}, ""), ({"masked_lm": "a/b"}, "transfer.masked_lm")])
def test_a_stage_without_steps_for_such_rows_says_so(
    given: dict[str, Any], named: str, tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, held_out = load(tmp_path, "a", "classification")
    said: list[str] = []
    monkeypatch.setattr(Machine, "log", lambda self, line: said.append(line))
    sources = transfer.Sources(Transfer(times=5, **given), {}, held_out, None, list, "", TOKENIZER)

    def length(epochs: int) -> Any:
        return SimpleNamespace(steps=lambda batch, seed, lengths, groups: epochs * -(-len(lengths) // batch.examples))

    def rows(epochs: int) -> Any:
        return tasks.rows_of(
            SimpleNamespace(
                name="finetune", tokenizer=TOKENIZER, holds_out=False, window=None, transfer=sources, seed=0,
                length=length(epochs),
            ),
            SimpleNamespace(batch=SimpleNamespace(examples=8, tokens=1000)), runtime, data, False,
        )  # type: ignore[arg-type] # fmt: skip

    assert rows(3).transfer is None
    assert len(said) == bool(named)
    if named:
        assert said[0].startswith(f"finetune/a: {named} not used, because no steps are left for rows without labels")
        assert "beyond 3 passes" in said[0]


def test_more_rows_left_out_than_kept_are_explained() -> None:
    few, many = (transfer.described("a", TransferSet(own=9, sources={"pairs": 5}, held_out=n)) for n in (5, 6))
    assert few.endswith("because one of their texts is, or is nearly, a text of a development or reported split")
    assert many.startswith(few.replace("5 others", "6 others"))
    assert "more than are kept" in many


def test_files_that_no_task_reads_are_refused(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("text\none\n")
    more = [f"transfer.files={tmp_path / 'more.csv'}"]
    check_files(settings_of(tmp_path, "a", "classification", 0, *more), None)
    with pytest.raises(
        ConfigError, match=r"transfer\.files: got .*; must be left out for tasks of the kind multiple_choice"
    ):
        check_files(settings_of(tmp_path, "a", "multiple_choice", 0, *more), None)
