"""A run reads what was labelled as it reads the files themselves: the same rows and labels in each split."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill import config, labelling
from distill.data.soft_labels import of_column
from distill.data.task_types.task_type import SOFT
from distill.data.tasks import load_tasks, targets_of
from distill.errors import ConfigError, DataError
from distill.models.families.head import stored_head
from tests import tiny

COUNT = 60
CLASSES, TAGS = ("anger", "joy", "sadness"), ("O", "B-LOC", "I-LOC")
TEXTS = [f"{tiny.SENTENCES[n % 8]} day{n}" for n in range(COUNT)]


def teacher(folder: Path, tags: bool) -> Path:
    names = TAGS if tags else CLASSES
    labels = {
        "num_labels": 3,
        "id2label": dict(enumerate(names)),
        "label2id": {name: n for n, name in enumerate(names)},
    }
    return tiny.save(folder / "model", "bert", "TokenClassification" if tags else "SequenceClassification", **labels)


def lines(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def numbers_beside_names(folder: Path) -> str:
    order = ("sadness", "joy", "anger")  # not the teacher's
    rows = [{"text": text, "label": n % 3, "label_text": order[n % 3]} for n, text in enumerate(TEXTS)]
    return lines(folder / "t.jsonl", rows)


def rejected(folder: Path) -> str:
    rows = [
        {"text": t, "label": CLASSES[n % 3], "answer": "accept" if n % 5 else "reject"} for n, t in enumerate(TEXTS)
    ]
    return lines(folder / "t.jsonl", rows)


def chosen(folder: Path) -> str:
    """As by Prodigy."""
    decided = [([CLASSES[n % 3]], "accept") if n % 5 else ([], "ignore") for n in range(COUNT)]
    rows = [{"text": t, "accept": labels, "answer": a} for t, (labels, a) in zip(TEXTS, decided, strict=True)]
    return lines(folder / "t.jsonl", rows)


def flags(folder: Path) -> str:
    """As by spaCy."""
    rows = [{"text": t, "cats": {c: float(c == CLASSES[n % 3]) for c in CLASSES}} for n, t in enumerate(TEXTS)]
    return lines(folder / "t.jsonl", rows)


def beside_objects(folder: Path) -> str:
    """Under names of statements about a row. Those of Label Studio are statements too."""
    decided = [{"choices": ["accept" if n % 5 else "reject"]} for n in range(COUNT)]
    rows = [
        {"text": t, "label": CLASSES[n % 3], "status": {"by": "me", "at": n}, "answer": decided[n]}
        for n, t in enumerate(TEXTS)
    ]
    return lines(folder / "t.jsonl", rows)


def divided(folder: Path) -> str:
    rows = {"text": TEXTS, "label": [CLASSES[n % 3] for n in range(COUNT)], "split": ["train"] * 40 + ["test"] * 20}
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def in_folders(folder: Path) -> str:
    rows = {"text": TEXTS, "label": [CLASSES[n % 3] for n in range(COUNT)], "source": ["a", "b"] * (COUNT // 2)}
    pd.DataFrame(rows).to_parquet(folder / "t", partition_cols=["label"])
    return str(folder / "t" / "**" / "*.parquet")


def of_two_types(folder: Path, large: bool) -> str:
    numbers = [n % 3 for n in range(COUNT)]
    pq.write_table(pa.table({"text": TEXTS[:40], "label": numbers[:40]}), folder / "a.parquet")
    last = [str(n) for n in numbers[40:]]
    if large:  # as of polars
        pq.write_table(pa.table({"text": TEXTS[40:], "label": pa.array(last, pa.large_string())}), folder / "b.parquet")
    else:
        lines(folder / "b.jsonl", [{"text": t, "label": n} for t, n in zip(TEXTS[40:], last, strict=True)])
    return str(folder / "[ab].*")


def checked_without_spans(folder: Path) -> str:
    spans = [[{"start": 0, "end": len(text.split()[0]), "labels": ["LOC"]}] for text in TEXTS]
    rows = [{"text": t, "label": spans[n] if n % 2 else None, "annotation_id": n} for n, t in enumerate(TEXTS)]
    return lines(folder / "t.jsonl", rows)


def words() -> list[tuple[list[str], list[str]]]:
    every = [["U.S.", *text.split()] for text in TEXTS]
    return [(each, ["B-LOC", *["O"] * (len(each) - 1)]) for each in every]


def a_word_in_each_row(folder: Path) -> str:
    rows = [(n, *pair) for n, each in enumerate(words()) for pair in zip(*each, strict=True)]
    pd.DataFrame(rows, columns=["sentence_id", "words", "labels"]).to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


def words_in_a_cell(folder: Path) -> str:
    cells = [(" ".join(text), " ".join(tags)) for text, tags in words()]
    pd.DataFrame(cells, columns=["text", "labels"]).to_csv(folder / "t.csv", index=False)
    return str(folder / "t.csv")


FORMS = {form: False for form in (numbers_beside_names, rejected, chosen, flags, beside_objects, divided, in_folders)}
FORMS |= {form: True for form in (checked_without_spans, a_word_in_each_row, words_in_a_cell)}


def splits(settings: dict[str, Any], model: Path) -> dict[str, dict[str, Any]]:
    """Split -> text -> targets."""
    (data,) = load_tasks(config.Tasks(**settings), config.Limit(), 0, stored_head(model)).tasks.values()
    every = {"train": data.train, **data.development, **data.reported}
    (column,) = data.task.columns
    found = {}
    for split, rows in every.items():
        targets = [np.asarray(target).tolist() for target in targets_of(rows)]
        found[split] = dict(zip(rows[column], targets, strict=True))
    values = data.train.with_format("arrow")[SOFT][:] if SOFT in data.train.column_names else None
    if values is not None:
        assert not any(np.isnan(each).any() for each in of_column(values))
    return found


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_rows_and_labels_of_each_split_are_those_of_the_files(form: Any, tmp_path: Path) -> None:
    model, files = teacher(tmp_path, FORMS[form]), form(tmp_path)
    found = labelling.label(model, files, tmp_path / "out", labelling.Options(threads=1, rows=25))
    after = {key.removeprefix("tasks."): value for key, value in found.settings.items()}
    stated = {"label": "label"} if form is in_folders else {}
    assert splits(after, model) == splits({"train": files, "kind": after["kind"], **stated}, model)
    assert found.rows == COUNT


@pytest.mark.parametrize("large", [False, True])
def test_labels_of_two_types_are_written_as_text(large: bool, tmp_path: Path) -> None:
    model, files = teacher(tmp_path, False), of_two_types(tmp_path, large)
    found = labelling.label(model, files, tmp_path / "out", labelling.Options(threads=1))
    after = {key.removeprefix("tasks."): value for key, value in found.settings.items()}
    every = {text: label for rows in splits(after, model).values() for text, label in rows.items()}
    assert every == {text: n % 3 for n, text in enumerate(TEXTS)}


def test_lists_and_objects_of_labels_beside_single_ones_are_refused_before_the_work(tmp_path: Path) -> None:
    model = teacher(tmp_path, False)
    lines(tmp_path / "a.jsonl", [{"text": "the boat", "label": ["joy"]}])
    lines(tmp_path / "b.jsonl", [{"text": "the snow", "label": "joy"}])
    with pytest.raises(ConfigError, match=r"^label.label: got label, which is list<.*> and string in different files"):
        labelling.label(model, [str(tmp_path / f"{n}.jsonl") for n in "ab"], tmp_path / "out")
    lines(tmp_path / "a.jsonl", [{"text": "the boat", "label": {"name": "joy"}}])
    with pytest.raises(ConfigError, match=r"^label.label: got label, which is string and struct<.*> in different fil"):
        labelling.label(model, [str(tmp_path / f"{n}.jsonl") for n in "ab"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_process_that_comes_later_writes_the_columns_of_the_folders_too(tmp_path: Path) -> None:
    model, files = teacher(tmp_path, False), in_folders(tmp_path)
    options = labelling.Options(threads=1, rows=25)
    labelling.label(model, files, tmp_path / "out", options)
    first, *_ = sorted((tmp_path / "out").glob("*.parquet"))
    before = pq.read_table(first).select(["text", "label"])
    assert before["label"].to_pylist() == ["anger"] * 20
    first.unlink()  # as if the first process had been interrupted
    assert labelling.label(model, files, tmp_path / "out", options).made == 20
    assert pq.read_table(first).select(["text", "label"]).to_pylist() == before.to_pylist()
    (tmp_path / "t" / "label=anger").rename(tmp_path / "t" / "label=fear")
    with pytest.raises(ConfigError, match=r"begun with label=anger in the folders of .*, and not label=fear"):
        labelling.label(model, files, tmp_path / "out", options)


def test_files_without_rows_are_left_out_as_by_a_run(tmp_path: Path) -> None:
    model, said = teacher(tmp_path, False), list[str]()
    empty = pa.table({"text": pa.array([], pa.string()), "label": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "a.parquet")
    lines(tmp_path / "b.jsonl", [{"text": t, "label": CLASSES[n % 3]} for n, t in enumerate(TEXTS)])
    (tmp_path / "c.csv").write_text("text,label\n")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.jsonl", "c.csv")]
    assert labelling.label(model, files, tmp_path / "out", log=said.append).rows == COUNT
    assert "2 files without rows are left out" in said
    assert labelling.label(model, files, tmp_path / "out").made == 0
    with pytest.raises(DataError, match=r"c\.csv: got no rows; must have a row at least"):
        labelling.label(model, [files[0], files[2]], tmp_path / "other")


def test_decisions_about_single_spans_are_refused_after_the_labelling_too(tmp_path: Path) -> None:
    model = teacher(tmp_path, True)
    rows = [
        {"text": t, "spans": [{"start": 0, "end": len(t.split()[0]), "label": "LOC"}], "_is_binary": True}
        for t in TEXTS
    ]
    found = labelling.label(model, lines(tmp_path / "t.jsonl", rows), tmp_path / "out", labelling.Options(threads=1))
    after = {key.removeprefix("tasks."): value for key, value in found.settings.items()}
    with pytest.raises(DataError, match="got _is_binary true, a decision about a single span of each text"):
        splits(after, model)


def test_numbers_in_another_order_than_the_names_beside_them_are_refused_as_by_a_run(tmp_path: Path) -> None:
    """The column of names is not copied, so that no run could see it."""
    model, order = teacher(tmp_path, False), ("sadness", "joy", "anger")
    file = lines(tmp_path / "t.jsonl", [{"text": t, "label": n % 3, "felt": order[n % 3]} for n, t in enumerate(TEXTS)])
    message = "label: got label, in which 0 is beside 'sadness' in felt, and the teacher's output 0 is anger; must be"
    with pytest.raises(ConfigError, match=f"^tasks.{message}"):
        splits({"train": file}, model)
    with pytest.raises(ConfigError, match=f"^label.{message}.* set label.label=felt"):
        labelling.label(model, file, tmp_path / "out", labelling.Options(threads=1))
    found = labelling.label(model, file, tmp_path / "out", labelling.Options(threads=1, label="felt"))
    assert found.settings["tasks.label"] == "felt"


def test_the_settings_name_the_files_of_a_folder_whose_name_could_be_a_glob(tmp_path: Path) -> None:
    model, file = teacher(tmp_path, False), divided(tmp_path)
    (tmp_path / "out1").mkdir()
    (tmp_path / "out1" / "other.parquet").write_bytes(b"")
    found = labelling.label(model, file, tmp_path / "out[1]", labelling.Options(threads=1))
    assert glob.glob(found.settings["tasks.train"]) == [str(tmp_path / "out[1]" / "000000.parquet")]
