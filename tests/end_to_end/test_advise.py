"""Which speedups are within reach, on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from distill.cli import advise
from distill.compression.pruning.search import Shape
from distill.errors import ConfigError
from distill.inference import latency
from distill.runtime import quoting
from tests import tiny

classifier, sentences = tiny.classifier, tiny.sentences
ERRORS = [
    (["{teacher}", "--speedup", "0.5"], "--speedup: got 0.5; must be a number above 1; e.g. 4"),
    (["{teacher}", "--speedup", "fast"], "--speedup: got fast; must be a number above 1; e.g. 4"),
    (["{teacher}", "--text", "body"], "--text: got body; must be used with FILE; name the file"),
    (["nowhere/at-all"], "teacher.name: got nowhere/at-all"),
    (["{teacher}", "nothing.csv"], "FILE: got nothing.csv"),
    (["{teacher}", "nowhere/at-all", "nothing.csv"], "teacher.name: got nowhere/at-all"),
    (["{teacher}", "nowhere/at-all"], "teacher.name: got nowhere/at-all"),
]


@pytest.mark.parametrize(("asked", "speedup"), [([8.0], 8.0), ([2.0, 2.0], 2.0), ([2.0, 4.0], [2.0, 4.0])])
def test_one_speedup_is_a_number_and_several_are_a_list(asked: list[float], speedup: Any, classifier: Any) -> None:
    assert advise.settings(str(classifier()), None, asked, "batch", {}).target.speedup == speedup


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_bad_input_is_one_message(
    arguments: list[str], message: str, classifier: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert advise.main([part.format(teacher=classifier()) for part in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1]
    assert "Traceback" not in error


def test_the_last_of_several_words_is_a_file_if_it_is_written_as_one(tmp_path: Path) -> None:
    texts, model = tmp_path / "texts", tmp_path / "model.csv"
    texts.write_text("a")
    model.mkdir()
    assert advise._divided(["a", "b"]) == (["a", "b"], None)
    assert advise._divided(["a", "b", "c.jsonl"]) == (["a", "b"], "c.jsonl")
    assert advise._divided(["a.csv"]) == (["a.csv"], None)
    url = "https://example.org/tickets.csv"
    assert advise._divided(["a", url]) == (["a"], url)
    assert advise._divided(["a", str(texts)]) == (["a"], str(texts))
    assert advise._divided(["a", str(model)]) == (["a", str(model)], None)
    saved = tmp_path / "saved-by-datasets"
    datasets.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(saved)
    assert advise._divided(["a", str(saved)]) == (["a"], str(saved))
    with pytest.raises(ConfigError, match=r"TEACHER: got the file .*texts; must be a model; quote a pattern"):
        advise._divided(["a", str(texts), "b.csv"])


@pytest.mark.parametrize(("family", "share"), [("bert", 0.5), ("albert", 1.0)])
def test_layers_that_share_their_weights_count_once(family: str, share: float) -> None:
    whole, half = Shape(12, 64, 128), Shape(6, 64, 128)
    search: Any = SimpleNamespace(config=SimpleNamespace(model_type=family), full=whole, size=lambda shape: 1.0)
    assert advise._row(search, half, "torch fp32", 1.0, 2.0).weights == share


def test_teachers_stand_side_by_side_each_with_its_models(capsys: pytest.CaptureFixture[str]) -> None:
    row = advise.Row("the teacher", "torch fp32", 8.0, 1.0, 1.0, 90.0)
    small = advise.Row("3 layers, 64 wide, FFN 96", "onnxruntime int8", 2.0, 4.0, 0.25, 30.0)
    advise.show_beside({"one": advise.Advice([row, small], False, {}), "two": advise.Advice([row], False, {})})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[2:5]] == ["one", "3", "two"]
    assert lines[3][-4:] == ["2.00", "4.00x", "25%", "30"]


@pytest.mark.parametrize(
    ("file", "load", "unit"),
    [
        (True, "batch", ["ms per text", "(batches of up to 8)"]),
        (True, "single", ["ms of one text"]),
        (False, "batch", ["ms of 8 x 128 tokens"]),
        (False, "single", ["ms of 1 x 128 tokens"]),
    ],
)
def test_a_table_says_what_its_milliseconds_are_of(
    file: bool, load: str, unit: list[str], classifier: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.csv").write_text("text,label\na,b\n")
    config = advise.settings(str(classifier()), str(tmp_path / "texts.csv") if file else None, [4.0], load, {})
    row = advise.Row("12 layers, 1024 wide, FFN 4096", "onnxruntime int8_bf16", 8.0, 1.0, 1.0, 90.0)
    advice = advise.Advice([row], True, {}, unit=advise.unit_of(config.target))
    advise.show(advice, "")
    alone = capsys.readouterr().out.splitlines()
    advise.show_beside({"one": advice})
    beside = capsys.readouterr().out.splitlines()
    assert all(any(part in line for line in shown[:3]) for shown in (alone, beside) for part in unit)
    assert any(row.model in line and row.form in line for line in alone), "which is not broken"


def test_a_name_with_brackets_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    row = advise.Row("the teacher", "torch fp32", 8.0, 1.0, 1.0, 90.0)
    names = ["bert[v2]", "a[/b]", "c:x:d"]
    advise.show_beside({name: advise.Advice([row], False, {8.0: 5.5}) for name in names})
    out = capsys.readouterr().out
    for name in names:
        assert out.count(name) == 2
        assert f"\n{name}: 8x is out of reach" in out


def test_a_name_is_no_command_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    row = advise.Row("the teacher", "torch fp32", 8.0, 1.0, 1.0, 90.0)
    advise.show_beside({"a\x1b]0;x\x07\u202e": advise.Advice([row], False, {8.0: 5.5})})
    out = capsys.readouterr().out
    assert out.count(r"a\x1b]0;x\x07\u202e") == 2
    assert not [character for character in out if not character.isprintable() and character != "\n"]


def test_what_no_size_of_a_teacher_reaches_is_said_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    row = advise.Row("the teacher", "torch fp32", 8.0, 1.0, 1.0, 90.0)
    advise.show_beside({"one": advise.Advice([row], False, {}), "two": advise.Advice([row], True, {8.0: 5.5})})
    out = capsys.readouterr().out
    assert "two: 8x is out of reach: the smallest model is estimated at 5.5x." in out
    assert "two (estimates)" in out


def test_all_teachers_are_checked_before_the_first_is_timed(
    classifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = classifier(), tmp_path / "bad"
    shutil.copytree(good, bad)
    tiny.change(bad / "config.json", quantization_config={"quant_method": "gptq"})
    timed: list[str] = []
    monkeypatch.setattr(advise, "_advise", lambda ctx, tasks, shown: timed.append(ctx.config.teacher.name))
    assert advise.main([str(good), str(bad)]) == 2
    assert "a quantized model" in capsys.readouterr().err
    assert timed == []


@pytest.mark.parametrize(
    ("family", "settings", "got"),
    [
        *((family, {}, f"a model of type {family}; must be one of bert, ") for family in ("t5", "bart", "xlnet")),
        ("deberta-v2", {"conv_kernel_size": 3}, "a model with conv_kernel_size 3; must be 0 for its width "),
    ],
)
def test_a_teacher_that_cannot_be_pruned_is_refused_as_by_a_run(
    family: str, settings: Any, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(advise, "_advise", lambda *_: pytest.fail("it is timed"))
    folder = tiny.save(tmp_path / "m", family, "SequenceClassification", length=130, num_labels=2, **settings)
    assert advise.main([str(folder)]) == 2
    assert f"teacher.name: got {got}" in capsys.readouterr().err


def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The context and the tasks of each teacher that would be timed."""
    found: list[tuple[Any, Any]] = []

    def measured(ctx: Any, tasks: Any, shown: Any) -> None:
        found.append((ctx, tasks))
        shown(advise.Advice([], False, {}, [4.0]))

    monkeypatch.setattr(advise, "_advise", measured)
    return found


def test_texts_that_are_cut_are_counted_and_may_be_read_further(
    classifier: Any, sentences: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found, texts = advised(monkeypatch), tmp_path / "texts.csv"
    texts.write_text("text,label\n" + "".join(f"{sentences[row % 8]} {row},{row % 2}\n" for row in range(40)))
    given = [str(classifier()), str(texts)]
    assert advise.main([*given, "--max-length", "8"]) == 0
    cut = " ".join(capsys.readouterr().out.split())
    assert " training texts have more than 8 tokens, at most " in cut
    assert "texts: text from text, label from label: classification with 2 labels" in cut
    assert cut.endswith(f"{quoting.setting('tasks.train', str(texts))} tasks.max_length=8 target.speedup=4")
    assert advise.main([*given, "--max-length", "64"]) == 0
    assert "have more than" not in capsys.readouterr().out
    assert [ctx.runtime.longest for ctx, _ in found] == [8, 64]
    assert [len(tasks["texts"].train) > 0 for _, tasks in found] == [True, True]


@pytest.mark.parametrize(
    ("header", "labels"),
    [("text", [""] * 40), ("text,label", [",0", ",1", ",0"]), ("text,label", [",red", ",green", ",blue"] * 9)],
    ids=["no labels", "few rows", "other labels"],
)
def test_texts_are_timed_though_a_run_could_not_use_their_labels(
    header: str, labels: list[str], classifier: Any, sentences: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    found, texts = advised(monkeypatch), tmp_path / "texts.csv"
    written = [f"{sentences[row % 8]} {row}" for row in range(len(labels))]
    texts.write_text("\n".join([header, *map("".join, zip(written, labels, strict=True))]) + "\n")
    assert advise.main([str(classifier()), str(texts)]) == 0
    assert "texts: the texts in text alone are timed. A run would refuse the file: " in capsys.readouterr().out
    ((_, tasks),) = found
    assert [each.parts for each in tasks["texts"].asked(tasks["texts"].train)] == [(text,) for text in written]
    assert advise.main([str(classifier()), str(texts), "--label", "colour"]) == 2
    assert "--label: got colour; must be " in capsys.readouterr().err


def test_without_a_file_the_length_is_that_of_each_text(
    classifier: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found = advised(monkeypatch)
    assert advise.main([str(classifier()), "--max-length", "64"]) == 0
    assert capsys.readouterr().out.split()[-3:] == ["tasks.train=FILE", "tasks.max_length=64", "target.speedup=4"]
    ((ctx, tasks),) = found
    assert (ctx.config.target.shape, tasks) == ([8, 64], {})
    assert advise.main([str(classifier()), "--max-length", "1000"]) == 2
    assert "must be <= 130, the maximum length of teacher and student" in capsys.readouterr().err


def test_the_first_teacher_is_shown_where_the_second_fails(
    classifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = advise.Row("the teacher", "torch fp32", 8.0, 1.0, 1.0, 90.0)
    one, two = str(classifier()), str(shutil.copytree(classifier(), tmp_path / "second"))

    def measured(ctx: Any, tasks: Any, shown: Any) -> None:
        if ctx.config.teacher.name == two:
            raise KeyboardInterrupt
        shown(advise.Advice([row], False, {}))

    monkeypatch.setattr(advise, "_advise", measured)
    assert advise.main([one, two]) == 130
    assert "8.00" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("shapes_once")
def test_models_that_reach_a_speedup_are_timed(classifier: Any, monkeypatch: Any, capsys: Any) -> None:
    """With a file, tests/docs/test_first.py does it."""
    monkeypatch.setitem(advise.SHAPES, "single", (1, 16))
    monkeypatch.setattr(latency, "LEAST_MS", 10.0)
    assert advise.main([str(classifier()), "--load", "single", "--speedup", "1.01", "100000"]) == 0
    out = capsys.readouterr().out
    estimates, timed = out.split("These models are now timed themselves")
    for part in (estimates, timed):
        reference, served, *_ = (line for line in part.splitlines() if line.startswith(" the teacher"))
        assert "fp32" in reference
        assert "1.00x" in reference
        assert "100%" in served
    (name,) = {line.split("ms, ")[1] for line in timed.splitlines() if line.startswith("prune: the teacher: ")}
    assert name in served, "the form that was the fastest"
    assert "100000x is out of reach: the smallest model is estimated at " in out
    teacher = quoting.setting("teacher.name", str(classifier()))
    assert f"python -m distill recipe=auto {teacher} tasks.train=FILE target.load=single target.speedup=" in out
