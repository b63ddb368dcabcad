"""Files that differ a little from the usual ones: hidden labels, names in another column, splits in file names, tags in
other schemes, ends that are last characters, quotes behind spaces, missing values and labels in two spellings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from unicodedata import normalize

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill import config
from distill.cli.compare.rows import read_rows
from distill.config import load_config
from distill.data.files import expand
from distill.data.labelled import Labelled
from distill.data.splits import targets_of
from distill.data.task_types.spans import half_read, parted, scheme_of
from distill.data.tasks import read_task
from distill.errors import UserError
from distill.models.families.head import Head
from tests.parcels import splits_of

pytestmark = pytest.mark.usefixtures("own_cache")

COUNT = 60
TEXTS = [f"The otter {i} sleeps beside the river {i * 7 % 61}" for i in range(COUNT)]
KINDS = ("billing", "fraud", "other")
TOPICS = ("Tech", "World", "Sports", "Business")
OF_TEACHER = Head(4, ("World", "Sports", "Business", "Tech"), None)


def load(train: Path | list[str], head: Head | None = None, **settings: Any) -> Labelled:
    files = [str(train)] if isinstance(train, Path) else train
    task = config.Task(train=files if len(files) > 1 else files[0], **settings)
    return read_task("otters", task, config.Tasks(train=task.train), head, stand_in=False)


def labels(rows: Labelled) -> dict[str, Any]:
    """First text -> its label as a name or, of words and sets, the names of all."""
    found = {}
    for part in splits_of(rows).values():
        texts = part.table.take(part.rows)[rows.task.columns[0]].to_pylist()
        for text, target in zip(texts, targets_of(part), strict=True):
            names = [rows.task.labels[n] if n >= 0 else None for n in target.ravel().tolist()]
            found[text] = names if target.shape else names[0]
    return found


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


# ---- hidden labels


def split(kind: str, name: str, hidden: bool) -> datasets.Dataset:
    texts = [f"{name} {text}" for text in TEXTS]
    if kind == "regression":
        return datasets.Dataset.from_dict({"text": texts, "label": [-1.0 if hidden else i / 13 for i in range(COUNT)]})
    if kind == "multi_label":
        values = [[] if hidden else [KINDS[i % 3]] for i in range(COUNT)]
        features = datasets.Features(
            {"text": datasets.Value("string"), "labels": datasets.List(datasets.Value("string"))}
        )
        return datasets.Dataset.from_dict({"text": texts, "labels": values}, features)
    if kind == "token_classification":
        tags = [["O", "O", "O" if hidden else "B-PLACE"] for _ in texts]
        return datasets.Dataset.from_dict({"tokens": [[name, str(i), "Oslo"] for i in range(COUNT)], "ner_tags": tags})
    found = {"text": [] if hidden else ["river"], "answer_start": [] if hidden else [len(name) + 30]}
    questions = {"question": [f"Where is {text}?" for text in texts], "context": [], "answers": []}
    for text in texts:
        start = text.index("river")
        questions["context"].append(text)
        questions["answers"].append(found | {"answer_start": [] if hidden else [start]})
    strings, numbers = datasets.List(datasets.Value("string")), datasets.List(datasets.Value("int32"))
    features = datasets.Features(
        {"question": datasets.Value("string"), "context": datasets.Value("string")}
        | {"answers": {"text": strings, "answer_start": numbers}}
    )
    return datasets.Dataset.from_dict(questions, features)


@pytest.mark.parametrize("kind", ["regression", "multi_label", "token_classification", "question_answering"])
def test_a_split_with_hidden_labels_is_not_scored(kind: str, tmp_path: Path) -> None:
    splits = {"train": split(kind, "a", False), "validation": split(kind, "b", False), "test": split(kind, "c", True)}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "all"))
    rows = load(tmp_path / "all", kind=kind)
    assert {*rows.reported} == {"validation"}
    assert any("split test is left out, as each of its rows has" in note for note in rows.notes)
    splits["test"].to_parquet(str(tmp_path / "hidden.parquet"))
    with pytest.raises(
        UserError, match=r"hidden.parquet: got rows of which each has .*hidden labels.* leave tasks\.test"
    ):
        load(tmp_path / "all", kind=kind, test=str(tmp_path / "hidden.parquet"))


def test_rows_without_labels_are_scored_where_they_are_usual(tmp_path: Path) -> None:
    """Sets of labels of which half are empty: six empty test rows are chance."""
    rows = [{"text": text, "labels": [KINDS[i % 3]] if i % 2 else []} for i, text in enumerate(TEXTS)]
    test = [{"text": f"x {text}", "labels": []} for text in TEXTS[:6]]
    train, file = lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", test)
    assert len(load(train, kind="multi_label", test=str(file)).reported["test"].rows) == 6


@pytest.mark.parametrize("value", ["-1", "-9", "-99", "-999"])
def test_a_number_for_no_label_is_refused(value: str, tmp_path: Path) -> None:
    file = table(
        tmp_path / "a.csv", "text,score", [f"{t},{value if i % 9 == 0 else i % 7}" for i, t in enumerate(TEXTS)]
    )
    with pytest.raises(
        UserError, match=rf"got {value} in 7 rows, and no other number below 0 .*tasks\.range=\[{value}"
    ):
        load(file, kind="regression")
    assert load(file, kind="regression", range=[float(value), 6]).task.range == (float(value), 6)


def test_minus_one_is_no_choice(tmp_path: Path) -> None:
    rows = [{"question": text, "choices": ["he fell", "she ran"], "label": i % 3 - 1} for i, text in enumerate(TEXTS)]
    found = load(lines(tmp_path / "a.jsonl", rows), kind="multiple_choice")
    known = {text: i % 3 - 1 for i, text in enumerate(TEXTS)}
    for part in splits_of(found).values():
        texts = part.table.take(part.rows)["question"].to_pylist()
        assert [known[t] for t in texts] == [-1 if n < 0 else n for n in targets_of(part).tolist()]


def test_an_impossible_question_has_no_answer(tmp_path: Path) -> None:
    """KLUE and others have a plausible answer beside."""
    rows = [
        {"question": f"Where? {i}", "context": text, "is_impossible": i % 3 == 0}
        | {"answers": {"text": ["river"], "answer_start": [text.index("river")]}}
        for i, text in enumerate(TEXTS)
    ]
    found = load(lines(tmp_path / "a.jsonl", rows))
    for part in splits_of(found).values():
        asked = part.table.take(part.rows)["question"].to_pylist()
        for question, target in zip(asked, targets_of(part), strict=True):
            assert (target[0] == -1) == (int(question.split()[1]) % 3 == 0)


# ---- names beside numbers


@pytest.mark.parametrize("form", ["a class is absent", "a slip of case", "from 1", "without a label", "SetFit"])
def test_names_beside_numbers_decide(form: str, tmp_path: Path) -> None:
    numbers = [i % 4 for i in range(COUNT)]
    names = [TOPICS[n] for n in numbers]
    if form == "a class is absent":
        numbers = [(0, 1, 3)[i % 3] for i in range(COUNT)]
        names = [TOPICS[n] for n in numbers]
    written, shown = list(numbers), list(names)
    if form == "a slip of case":
        shown[17] = shown[17].lower()
    if form == "from 1":
        written = [n + 1 for n in numbers]
    if form == "without a label":
        written, shown = [-1, *written[1:]], ["unlabeled", *shown[1:]]
    rows = [{"text": t, "label": n, "label_text": s} for t, n, s in zip(TEXTS, written, shown, strict=True)]
    found = load(lines(tmp_path / "a.jsonl", rows), OF_TEACHER)
    expected = dict(zip(TEXTS, names, strict=True)) | ({TEXTS[0]: None} if form == "without a label" else {})
    assert labels(found) == expected


def test_names_that_contradict_numbers_are_refused(tmp_path: Path) -> None:
    rows = [{"text": t, "label": i % 4, "label_text": TOPICS[i % 4 if i != 6 else 0]} for i, t in enumerate(TEXTS)]
    with pytest.raises(UserError, match=r"a\.jsonl, label and label_text: got 2 beside 'Sports' and beside 'Tech'"):
        load(lines(tmp_path / "a.jsonl", rows), OF_TEACHER)
    rows = [{"text": text, "label": i % 4, "class_name": TOPICS[i % 4]} for i, text in enumerate(TEXTS)]
    file = lines(tmp_path / "b.jsonl", rows)
    with pytest.raises(UserError, match=r"0 is beside 'Tech' in class_name, .* set tasks\.label=class_name"):
        load(file, OF_TEACHER)
    assert labels(load(file, OF_TEACHER, label="class_name")) == {t: TOPICS[i % 4] for i, t in enumerate(TEXTS)}


# ---- splits by the names of files and in columns


@pytest.mark.parametrize("form", ["csv", "hub"])
def test_a_folder_of_splits_is_named_split_by_split(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("rows") / "data" if form == "hub" else Path("rows")
    folder.mkdir(parents=True)
    Path("rows/README.md").write_text("# Rows")
    for name in ("train", "dev", "test"):
        frame = pd.DataFrame({"text": [f"{name} {t}" for t in TEXTS], "label": [KINDS[i % 3] for i in range(COUNT)]})
        if form == "csv":
            frame.to_csv(folder / f"{name}.csv", index=False)
        else:
            frame.to_parquet(folder / f"{name}-00000-of-00001.parquet")
    with pytest.raises(UserError, match="got the folder rows; must be files") as refused:
        load(Path("rows"))
    advised = dict(word.split("=") for word in str(refused.value).rpartition("; set ")[2].split())
    assert [*advised] == ["tasks.train", "tasks.validation", "tasks.test"]
    found = load(Path(advised["tasks.train"]), validation=advised["tasks.validation"], test=advised["tasks.test"])
    assert {name: len(part.rows) for name, part in splits_of(found).items()} == dict.fromkeys(
        ("train", "validation", "test"), COUNT
    )
    ending = "csv" if form == "csv" else "parquet"
    with pytest.raises(
        UserError, match=r"which matches dev\S* and test\S* too; must be training rows alone"
    ) as refused:
        load(Path(f"{folder}/*.{ending}"))
    assert str(refused.value).endswith(" ".join(f"{key}={value}" for key, value in advised.items()))
    every = load(sorted(str(file) for file in folder.glob(f"*.{ending}")))
    assert any("all of its files are used for training" in note for note in every.notes)


@pytest.mark.parametrize(
    ("column", "values", "splits"),
    [
        ("split", ("train", "eval"), ("train", "validation")),
        ("split", ("train", "validation_matched"), ("train", "validation")),
        ("split", ("Train", "holdout"), ("train", "test")),
        ("ML_USE", ("TRAINING", "TEST"), ("train", "test")),
        ("is_valid", ("False", "True"), ("train", "validation")),
        ("is_test", ("0", "1"), ("train", "test")),
        ("is_test", ("f", "t"), ("train", "test")),
        ("is_valid", ("no", "Yes"), ("train", "validation")),
        ("is_train", ("Y", "N"), ("train", "validation")),
    ],
)
def test_a_column_of_splits_divides_the_rows(
    column: str, values: tuple[str, str], splits: tuple[str, str], tmp_path: Path
) -> None:
    rows = [f"{text},{KINDS[i % 3]},{values[i % 5 == 0]}" for i, text in enumerate(TEXTS)]
    found = load(table(tmp_path / "a.csv", f"text,label,{column}", rows))
    other = splits_of(found)[splits[1]]
    assert sorted(other.table.take(other.rows)["text"].to_pylist()) == sorted(TEXTS[::5])


def test_a_column_with_training_rows_and_unknown_ones_is_refused(tmp_path: Path) -> None:
    rows = [f"{text},{KINDS[i % 3]},{'trial' if i % 5 == 0 else 'train'}" for i, text in enumerate(TEXTS)]
    with pytest.raises(UserError, match="got train and 'trial' in column split, which seems to divide the rows"):
        load(table(tmp_path / "a.csv", "text,label,split", rows))


@pytest.mark.parametrize("column", ["SemEval_set", "fold_name", "OriginalSplit"])
def test_a_column_of_splits_may_have_a_name_of_its_own(column: str, tmp_path: Path) -> None:
    rows = [f"{text},{KINDS[i % 3]},{('dev', 'Train', 'test', 'Train')[i % 4]}" for i, text in enumerate(TEXTS)]
    file = table(tmp_path / "a.csv", f"text,label,{column}", rows)
    found = load(file)
    assert any(f"column {column} divides the rows ({COUNT // 2} train, " in note for note in found.notes)
    for split, first in (("validation", 0), ("test", 2)):
        part = splits_of(found)[split]
        assert sorted(part.table.take(part.rows)["text"].to_pylist()) == sorted(TEXTS[first::4])
    assert len(read_rows(str(file), config.Task(), ())) == COUNT // 4


@pytest.mark.parametrize("names", [["stage"], ["set_of_a", "set_of_b"]])
def test_columns_that_may_state_splits_are_said(names: list[str], tmp_path: Path) -> None:
    values = [("train", "test")[i % 2] for i in range(COUNT)]
    rows = [f"{text},{KINDS[i % 3]}{f',{values[i]}' * len(names)}" for i, text in enumerate(TEXTS)]
    found = load(table(tmp_path / "a.csv", ",".join(["text", "label", *names]), rows))
    said = f"the values of {' and '.join(names)} are names of splits, by which no rows are divided"
    assert any(note.startswith(said) for note in found.notes)
    assert len(labels(found)) == COUNT
    alone = [f"{text},{value}" for text, value in zip(TEXTS, values, strict=True)]
    assert load(table(tmp_path / "b.csv", f"text,{names[0]}", alone)).task.labels == ("test", "train")


# ---- tags and spans


@pytest.mark.parametrize(
    "form", ["{p}-{t}", "{p}|{t}", "{t}.{p}", "{t}|{p}", "{p} {t}", "{t}({p})", "{p}\u2013{t}", "lower"]
)
def test_tags_are_prefixes_and_types_in_any_of_these_forms(form: str) -> None:
    pairs = [("B", "PER"), ("I", "PER"), ("B", "LOC")]
    tags = [f"{p}-{t}".lower() if form == "lower" else form.format(p=p, t=t) for p, t in pairs]
    expected = [(p, t.lower() if form == "lower" else t) for p, t in pairs]
    assert parted(tags) == expected
    scheme = scheme_of(tags)
    assert [scheme.tag(*pair) for pair in expected] == tags
    assert half_read(tags) == []


@pytest.mark.parametrize(
    ("tags", "wrong"),
    [
        (["B-PER", "I-PER", "X", "[SEP]"], ["X", "[SEP]"]),
        (["B-PER", "B-LOC", "UNK"], ["UNK"]),
        (["begin-PER", "inside-PER", "end-PER"], ["begin-PER", "end-PER", "inside-PER"]),
        (["b:PER", "I:PER"], ["I:PER", "b:PER"]),
        (["PER", "LOC", "E-MAIL", "PHONE"], []),
        (["PHONE", "E-MAIL"], []),
        (["first name", "last name"], []),
        (["B-PER", "I-PER", "B-O"], ["B-O"]),
        (["PER-START", "PER-END", "LOC-START"], ["LOC-START", "PER-END", "PER-START"]),
        (["<PER>", "</PER>"], ["</PER>"]),
        (["B1-PER", "I1-PER"], ["B1-PER", "I1-PER"]),
        (["\u0412-PER", "I-PER"], ["\u0412-PER"]),
        (["NOUN", "VERB", "PUNCT"], []),
        (["first-name", "last-name"], []),
    ],
)
def test_tags_that_would_be_types_by_mistake_are_found(tags: list[str], wrong: list[str]) -> None:
    assert sorted(half_read(tags)) == sorted(wrong)


def tagged(tmp_path: Path, tags: tuple[str, ...]) -> Labelled:
    rows = [{"tokens": ["Anna", f"Berg{i}", "sleeps", "Oslo"], "ner_tags": [*tags]} for i in range(COUNT)]
    rows[0]["ner_tags"] = [tags[0], tags[1], tags[2], tags[2]]
    return load(lines(tmp_path / "a.jsonl", rows))


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        (("b-per", "i-per", "o", "b-loc"), ["b-per", "i-per", "O", "b-loc"]),
        (("B-PER", "I-PER", "_", "B-LOC"), ["B-PER", "I-PER", "O", "B-LOC"]),
        (("B-PER", "I-PER", "0", "B-LOC"), ["B-PER", "I-PER", "O", "B-LOC"]),
        (("B-PER", "I-PER", "o", "B-LOC"), ["B-PER", "I-PER", "O", "B-LOC"]),
        (("B-PER", "I-PER", "O", "-"), ["B-PER", "I-PER", "O", None]),
        (("PER", "PER", "NONE", "LOC"), ["PER", "PER", "O", "LOC"]),
    ],
)
def test_other_tags_for_outside_are_no_types(tags: tuple[str, ...], read: list[str | None], tmp_path: Path) -> None:
    assert labels(tagged(tmp_path, tags))["Anna Berg7 sleeps Oslo"] == read


def test_words_without_a_tag_are_counted(tmp_path: Path) -> None:
    said = "words whose tag in ner_tags is - have no tag, and count as outside of spans in scores"
    assert f"otters: {COUNT - 1} {said}" in tagged(tmp_path, ("B-PER", "I-PER", "O", "-")).notes


def test_tags_beside_a_scheme_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got the tags \[SEP\] beside B-PER, I-PER in column ner_tags"):
        tagged(tmp_path, ("B-PER", "I-PER", "O", "[SEP]"))


def test_tokens_of_a_pipeline_are_no_spans(tmp_path: Path) -> None:
    rows = [
        {
            "text": f"Anna Berg sleeps {i}",
            "entities": [
                {"entity": e, "word": w, "start": s, "end": s + 4}
                for e, w, s in (("B-PER", "Anna", 0), ("I-PER", "Berg", 5))
            ],
        }
        for i in range(COUNT)
    ]
    with pytest.raises(UserError, match=r"got spans of B-PER, I-PER .*aggregation_strategy='simple'"):
        load(lines(tmp_path / "a.jsonl", rows))


@pytest.mark.parametrize("key", ["text", "word", "entity", "name", "exact"])
def test_ends_that_are_last_characters_are_known_by_the_words(key: str, tmp_path: Path) -> None:
    """Each Chinese character is a word, so that spans fit words wherever they end."""
    names = ("叶老桂", "浙商银行")
    rows = [
        {
            "text": f"昨天{name}在北京说了{i}句话",
            "entities": [{"start": 2, "end": 1 + len(name), "type": "person", key: name}],
        }
        for i in range(COUNT)
        for name in [names[i % 2]]
    ]
    found = load(lines(tmp_path / "a.jsonl", rows))
    assert any("the ends of spans in entities are their last characters" in note for note in found.notes)
    for text, tags in labels(found).items():
        name = names[int(text[len("昨天") :].startswith(names[1]))]
        assert tags[2 : 2 + len(name)] == ["B-person", *["I-person"] * (len(name) - 1)]
        assert tags.count("O") == len(tags) - len(name)


# ---- quotes, missing values and names


def test_quotes_behind_spaces_enclose_values(tmp_path: Path) -> None:
    rows = [f'"{text}, ok", "{KINDS[i % 3]}"' for i, text in enumerate(TEXTS)]
    file = table(tmp_path / "a.csv", '"text", "label"', rows)
    expected = pd.read_csv(file, skipinitialspace=True)
    assert labels(load(file)) == dict(zip(expected["text"], expected["label"], strict=True))


def test_labels_in_other_quotes_are_refused(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "text,label", [f"'{text}','{KINDS[i % 3]}'" for i, text in enumerate(TEXTS)])
    with pytest.raises(UserError, match="got 'billing' as a label in label, and quotes around all others"):
        load(file)


@pytest.mark.parametrize("value", ["#NULL!", ".", "nan", "None", r"\N", "#N/A", "#REF!"])
def test_what_other_tools_write_for_no_value_is_no_label(value: str, tmp_path: Path) -> None:
    kinds = KINDS if value in ("#N/A", "#REF!") else "012"
    expected = {text: None if i % 6 == 5 else kinds[i % 3] for i, text in enumerate(TEXTS)}
    file = table(tmp_path / "a.csv", "text,label", [f"{text},{label or value}" for text, label in expected.items()])
    assert labels(load(file)) == expected


@pytest.mark.parametrize("quoted", [False, True])
def test_na_without_quotes_is_missing_where_texts_are_quoted(quoted: bool, tmp_path: Path) -> None:
    """R's `write.csv` quotes all strings but a missing one."""
    expected = {text: "NA" if i % 6 == 5 else KINDS[i % 3] for i, text in enumerate(TEXTS)}
    rows = [
        f'"{n}","{t}",' + ("NA" if v == "NA" and not quoted else f'"{v}"') for n, (t, v) in enumerate(expected.items())
    ]
    file = table(tmp_path / "a.csv", '"","text","label"', rows)
    if not quoted:
        expected = {text: None if label == "NA" else label for text, label in expected.items()}
    assert labels(load(file)) == expected


def test_letters_that_are_composed_otherwise_are_the_same(tmp_path: Path) -> None:
    names = ("Réclam", normalize("NFD", "Réclam"), "other\u200b", "\ufeffother")
    header = f"{normalize('NFD', 'Überschrift')},label"
    file = table(tmp_path / "a.csv", header, [f"{text},{names[i % 4]}" for i, text in enumerate(TEXTS)])
    found = load(file, text=normalize("NFC", "Überschrift"))
    assert found.task.labels == (normalize("NFC", "Réclam"), "other")
    head = Head(2, ("other", normalize("NFD", "Réclam")), None)
    assert load(file, head, text=normalize("NFC", "Überschrift")).task.labels == head.labels


def test_two_spellings_are_refused_unless_they_are_listed(tmp_path: Path) -> None:
    names = ("Billing", "billing", "other")
    file = table(tmp_path / "a.csv", "text,label", [f"{text},{names[i % 3]}" for i, text in enumerate(TEXTS)])
    with pytest.raises(
        UserError, match=r"has 'Billing' and 'billing'; .* set 'tasks\.labels=\[Billing,billing,other\]'"
    ):
        load(file)
    assert labels(load(file, labels=[*names])) == {text: names[i % 3] for i, text in enumerate(TEXTS)}


def test_another_split_may_spell_labels_otherwise(tmp_path: Path) -> None:
    """A column of booleans in parquet, and True in CSV."""
    pq.write_table(pa.table({"text": TEXTS, "label": [i % 2 == 0 for i in range(COUNT)]}), tmp_path / "a.parquet")
    rows = [f"x {text},{i % 2 == 0}" for i, text in enumerate(TEXTS)]
    found = load(tmp_path / "a.parquet", test=str(table(tmp_path / "b.csv", "text,label", rows)))
    assert found.task.labels == ("false", "true")
    assert targets_of(found.reported["test"]).tolist() == [int(i % 2 == 0) for i in range(COUNT)]


@pytest.mark.parametrize(
    ("header", "second"),
    [("ID,What went wrong?,Category", ",Open-Ended Response,Response"), ("a,b,c", "id,text,label")],
)
def test_a_second_line_of_names_is_no_row(header: str, second: str, tmp_path: Path) -> None:
    rows = [second, *(f"{i},{text},{KINDS[i % 3]}" for i, text in enumerate(TEXTS))]
    with pytest.raises(UserError, match=r"row 1: got .*, which seem to be names of columns"):
        load(table(tmp_path / "a.csv", header, rows))


def test_a_line_below_the_names_is_no_row(tmp_path: Path) -> None:
    rows = ["----,-----", *(f"{text},{KINDS[i % 3]}" for i, text in enumerate(TEXTS))]
    assert labels(load(table(tmp_path / "a.csv", "text,label", rows))) == {t: KINDS[i % 3] for i, t in enumerate(TEXTS)}


# ---- columns


def test_the_text_is_the_column_with_the_most_different_letters(tmp_path: Path) -> None:
    """As files of instructions have it."""
    rows = [
        {"instruction": f"Task {i % 4}: sort the ticket into billing, fraud or other, in one word", "input": text}
        | {"output": KINDS[i % 3]}
        for i, text in enumerate(TEXTS)
    ]
    assert load(lines(tmp_path / "a.jsonl", rows), label="output").task.columns == ("input",)


def test_a_choice_may_be_called_by_its_column(tmp_path: Path) -> None:
    rows = [
        {"question": t, "option_a": f"he fell {i}", "option_b": f"she ran {i}", "answer": f"option_{'ab'[i // 2 % 2]}"}
        for i, t in enumerate(TEXTS)
    ]
    found = load(lines(tmp_path / "a.jsonl", rows))
    assert found.task.kind.name == "multiple_choice"
    for part in splits_of(found).values():
        texts = part.table.take(part.rows)["question"].to_pylist()
        assert targets_of(part).tolist() == [TEXTS.index(text) // 2 % 2 for text in texts]


@pytest.mark.parametrize("mark", [", ", "\n"])
def test_two_labels_in_a_cell_are_refused_even_if_they_are_the_only_two(mark: str, tmp_path: Path) -> None:
    names = ("billing", "fraud", f"billing{mark}fraud", "other")
    pd.DataFrame({"text": TEXTS, "label": [names[i % 4] for i in range(COUNT)]}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        UserError, match=r"may be one label, or the labels billing and fraud, which other rows have too"
    ):
        load(tmp_path / "a.csv")
    found = labels(load(tmp_path / "a.csv", kind="multi_label"))
    assert {*found} == {*TEXTS}
    several = load(tmp_path / "a.csv", kind="multi_label")
    assert several.task.labels == ("billing", "fraud", "other")


def test_an_empty_part_of_several_files_is_left_out(tmp_path: Path) -> None:
    table(tmp_path / "part-0.csv", "text,label", [])
    table(tmp_path / "part-1.csv", "text,label", [f"{text},{KINDS[i % 3]}" for i, text in enumerate(TEXTS)])
    found = load(tmp_path / "part-*.csv")
    assert any("1 files without rows beside it are left out" in note for note in found.notes)
    assert len(labels(found)) == COUNT


def test_text_in_an_encoding_with_escapes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,label\nかわうそ,a\n".encode("iso2022_jp"))
    with pytest.raises(UserError, match="row 1: got an escape sequence of ISO-2022-JP or the like; must be UTF-8"):
        load(tmp_path / "a.csv")


# ---- the second look: what is meant otherwise


@pytest.mark.parametrize(("numbers", "form"), [(range(20), "texts"), (range(1, 10), "texts"), (range(4), "either")])
def test_choices_that_are_numbers_are_one_reading_for_the_whole_file(numbers: range, form: str, tmp_path: Path) -> None:
    random, rows = np.random.default_rng(3), []
    for text in TEXTS:
        choices = [str(n) for n in random.permutation(numbers)[:4]]
        rows.append({"question": text, "choices": choices, "answer": choices[int(random.integers(4))]})
    file = lines(tmp_path / "a.jsonl", rows)
    if form == "either":
        with pytest.raises(UserError, match="which may be the text of a choice, or its number or letter"):
            load(file, kind="multiple_choice")
        return
    for part in splits_of(load(file, kind="multiple_choice")).values():
        texts = part.table.take(part.rows)["question"].to_pylist()
        expected = [rows[TEXTS.index(t)]["choices"].index(rows[TEXTS.index(t)]["answer"]) for t in texts]
        assert targets_of(part).tolist() == expected


def test_a_flag_of_most_rows_is_no_split(tmp_path: Path) -> None:
    """`is_valid` may say that a row is right."""
    rows = [f"{text},{KINDS[i % 3]},{i % 10 != 0}" for i, text in enumerate(TEXTS)]
    found = load(table(tmp_path / "a.csv", "text,label,is_valid", rows))
    assert "column is_valid is not taken for a split, as most rows would then not be for training" in found.notes
    assert len(labels(found)) == COUNT


@pytest.mark.parametrize("kind", ["E-MAIL", "I-94", "B-2", "S-Bahn"])
def test_a_type_with_a_letter_and_a_hyphen_is_a_type(kind: str, tmp_path: Path) -> None:
    rows = [
        {"text": f"Ann{i} is here", "spans": [{"start": 0, "end": 3 + len(str(i)), "label": kind}]}
        for i in range(COUNT)
    ]
    assert load(lines(tmp_path / "a.jsonl", rows)).task.labels == ("O", f"B-{kind}", f"I-{kind}")


def test_a_word_of_a_span_counts_only_where_it_stands(tmp_path: Path) -> None:
    """`name` may be the name of what is meant, which the text has elsewhere too."""
    rows = [
        {
            "text": f"Smith{i} is at the office",
            "spans": [{"start": 0, "end": 5 + len(str(i)), "label": "PER", "name": "office"}],
        }
        for i in range(COUNT)
    ]
    assert labels(load(lines(tmp_path / "a.jsonl", rows)))["Smith7 is at the office"][:2] == ["B-PER", "O"]
    rows = [
        {"text": f"Ann in Oslo {i}", "spans": [{"start": 7, "end": 11, "entity": "Oslo", "category": "LOC"}]}
        for i in range(COUNT)
    ]
    assert load(lines(tmp_path / "b.jsonl", rows)).task.labels == ("O", "B-LOC", "I-LOC")


def test_a_tag_of_most_words_may_stand_for_outside(tmp_path: Path) -> None:
    rows = [
        {
            "tokens": ["Anna", f"Berg{i}", "sleeps", "in", "her", "Oslo"],
            "ner_tags": ["PER", "PER", "x", "x", "x", "LOC"],
        }
        for i in range(COUNT)
    ]
    rows += [{"tokens": ["it", f"rains{i}"], "ner_tags": ["x", "x"]} for i in range(COUNT)]
    with pytest.raises(UserError, match="got the tag 'x' for 62% of the words, and no tag O"):
        load(lines(tmp_path / "a.jsonl", rows))
    assert load(tmp_path / "a.jsonl", labels=["x", "LOC", "PER"]).task.labels == ("x", "LOC", "PER")


@pytest.mark.parametrize("joined", ["a、b", "a，b", "a；b", "a،b", "a/b", "a & b", "a+b", "a b", "a\tb"])
def test_labels_between_other_marks_are_not_a_class_of_their_own(joined: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "label": [("a", "b", joined)[i % 3] for i in range(COUNT)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(UserError, match=r"may be one label, or the labels a and b, which other rows have too"):
        load(tmp_path / "a.csv")
    assert load(tmp_path / "a.csv", kind="multi_label").task.labels == ("a", "b")


@pytest.mark.parametrize(
    "cell", ['c("a", "b")', "frozenset({'a', 'b'})", "{a,b}", "WrappedArray(a, b)", "Index(['a'])"]
)
def test_lists_of_other_languages_are_no_names(cell: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "label": [(cell, "c", "d")[i % 3] for i in range(COUNT)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        UserError, match=r"must be names of labels, and not lists or objects|may be one label, or the labels"
    ):
        load(tmp_path / "a.csv")


@pytest.mark.parametrize("code", [-100, -9, -99])
def test_a_code_for_no_label_is_no_class_in_silence(code: int, tmp_path: Path) -> None:
    rows = [{"text": text, "label": (0, 1, code)[i % 3]} for i, text in enumerate(TEXTS)]
    with pytest.raises(UserError, match=f"got {code} in 20 rows, beside 0, 1"):
        load(lines(tmp_path / "a.jsonl", rows))
    rows = [{"text": text, "labels": [0, 1, (1, 0, code)[i % 3]]} for i, text in enumerate(TEXTS)]
    if code == -100:
        with pytest.raises(UserError, match="a number below 0 may stand for a label that is not known"):
            load(lines(tmp_path / "b.jsonl", rows))


def test_cells_and_lines_of_programs_are_no_rows(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", "text,label", [f'{text},="{KINDS[i % 3]}"' for i, text in enumerate(TEXTS)])
    with pytest.raises(UserError, match="as a label in label, and quotes around all others"):
        load(file)
    rows = [f"{text},{KINDS[i % 3]}" for i, text in enumerate(TEXTS)]
    with pytest.raises(UserError, match="row 1: got varchar and varchar, which seem to be names of columns"):
        load(table(tmp_path / "b.csv", "text,label", ["varchar,varchar", *rows]))
    with pytest.raises(
        UserError, match=r"row 61: got '\(60 rows affected\)' alone, which seems to be the number of rows"
    ):
        load(table(tmp_path / "c.csv", "text,label", [*rows, "(60 rows affected),"]))
    numbers = [f"{text},{str(i / 7 - 3)[:5].replace('-', chr(0x2212))}" for i, text in enumerate(TEXTS)]
    assert load(table(tmp_path / "d.csv", "text,score", numbers)).task.kind.name == "regression"


def test_a_decision_about_one_span_is_not_about_the_other_words(tmp_path: Path) -> None:
    rows = [
        {
            "text": f"Anna{i} met Tom",
            "spans": [{"start": 0, "end": 4 + len(str(i)), "label": "PER"}],
            "_is_binary": True,
            "answer": "accept",
        }
        for i in range(COUNT)
    ]
    with pytest.raises(UserError, match="got _is_binary true, a decision about a single span of each text"):
        load(lines(tmp_path / "a.jsonl", rows))


def test_ratings_with_names_stay_numbers_where_numbers_are_wanted(tmp_path: Path) -> None:
    names = ("awful", "bad", "fair", "good", "great")
    rows = [{"text": text, "label": i % 5 + 1, "label_text": names[i % 5]} for i, text in enumerate(TEXTS)]
    file = lines(tmp_path / "a.jsonl", rows)
    assert load(file, kind="regression").task.kind.name == "regression"
    assert load(file, Head(1, (), "regression")).task.kind.name == "regression"
    assert load(file, labels=["1", "2", "3", "4", "5"]).task.labels == ("1", "2", "3", "4", "5")


def test_a_file_of_rows_without_labels_is_scored_where_some_training_rows_are_such(tmp_path: Path) -> None:
    rows = [{"text": text, "labels": [] if i % 10 == 0 else [KINDS[i % 3]]} for i, text in enumerate(TEXTS)]
    test = [{"text": f"x {text}", "labels": []} for text in TEXTS[:12]]
    train, file = lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", test)
    assert len(load(train, kind="multi_label", test=str(file)).reported["test"].rows) == 12


@pytest.mark.parametrize(
    "names",
    [
        ("train.csv", "dev.csv", "eval.csv", "test.csv"),
        ("data_train.csv", "data_test.csv"),
        ("train/reviews.csv", "train/test_orders.csv", "test/reviews.csv"),
    ],
)
def test_the_settings_that_a_message_advises_name_each_file_once(names: tuple[str, ...], tmp_path: Path) -> None:
    from distill.data.inside import settings_of
    from distill.data.split_names import by_split

    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = [str(tmp_path / name) for name in names]
    advised = load_config(shlex.split(settings_of(by_split(files), "tasks.train"))).tasks
    found = [
        file
        for part in (advised.train, advised.validation, advised.test)
        if part
        for file in expand(part, "tasks.train")
    ]
    assert sorted(found) == sorted(files)
    assert [*expand(advised.train, "tasks.train")] == [
        file for file in files if "train" in Path(file).parent.name or "train" in Path(file).stem
    ]


def test_texts_that_look_like_the_lines_of_programs_are_rows(tmp_path: Path) -> None:
    """Logs of terminals have escape sequences, and a text may be a number of rows."""
    rows = [f"{text},{KINDS[i % 3]}" for i, text in enumerate(TEXTS)]
    rows += ["\x1b(B\x1b[m done,billing", "60 rows affected,fraud"]
    found = labels(load(table(tmp_path / "a.csv", "text,label", rows)))
    assert (found["\x1b(B\x1b[m done"], found["60 rows affected"], len(found)) == ("billing", "fraud", COUNT + 2)
