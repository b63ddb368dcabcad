"""Markdown, HTML, terminal and card: well-formed, escaped, self-contained, with every row."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console

from distill.report import averages, figure, html, markdown, model_card, show, validate, write
from distill.report import page as pages
from distill.report.detail import by_shape_table, gain_tables, latency_table, recall_table, stages_table, tables
from distill.report.headline import SMOKE
from distill.report.table import models_table
from distill.report.timed import reported_input
from distill.report.variants import Run
from distill.runtime.storage.atomic import CLAIM
from distill.runtime.storage.run_folder import claim
from tests.decoded import decoded
from tests.enriched import Parsed, without_plotly

Results = dict[str, Any]
EVIL = "<script>alert(1)</script> | [x] `y`"


def page_of(results: Results) -> str:
    drawn = figure.svg(figure.points(decoded(results)), bool(results.get("smoke")))
    return html.document("A run", pages.run_page(Run("", decoded(results)), drawn))


def markdown_of(results: Results) -> str:
    return markdown.text(pages.run_page(Run("", decoded(results)), ""))


def failed(results: Results) -> Results:
    """Results in which everything that may be null is null, with a failed row."""
    for model in results["models"][1:4]:
        for key in ("parameters", "size_mib", "gmacs", "macro", "retained", "speedup", "calibration_error"):
            model[key] = None
        model["latency_ms"] = []
        model["scores"] = {}
    row = {"name": "big", "role": "student", "scheme": "int8", "backend": "openvino", "failed": "out of memory"}
    results["models"].append(row | {"step": "finetune", "target": None})
    stage = {"name": "adapt", "target": None, "kind": "train", "skipped": "has a head"}
    results["stages"].append(stage | dict.fromkeys(("seconds", "tokens_per_second", "peak_memory_mib")))
    return results


def test_html_is_well_formed_and_self_contained(results: Results) -> None:
    page = page_of(results)
    document = Parsed(page)
    assert document.open == []
    seen = {tag for tag, _ in document.tags}
    assert {"svg", "table", "style", "figure"} <= seen
    assert not seen & {"script", "link", "img", "iframe"}
    named = [(name, value) for _, attributes in document.tags for name, value in attributes.items()]
    references = [value or "" for name, value in named if name in ("src", "href", "xlink:href")]
    assert references
    assert all(reference.startswith("#") for reference in references)
    assert not re.search(r"url\((?!#)|@import", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_page_says_that_older_rules_applied(results: Results) -> None:
    sentence = "Made under older rules: the teacher was not measured in every scheme."
    assert sentence not in markdown_of(results)
    results["older_rules"] = sentence
    assert sentence in markdown_of(results)


def pipe_tables(text: str) -> list[list[str]]:
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    return [block.strip().split("\n") for block in blocks]


@pytest.mark.parametrize("broken", [False, True])
def test_markdown_columns_are_consistent(results: Results, broken: bool) -> None:
    results["models"][4]["name"] = EVIL
    page = markdown_of(failed(results) if broken else results)
    shown = pipe_tables(page)
    assert len(shown) == 2 + len(tables(decoded(results)))
    for lines in shown:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert len(shown[1]) == 2 + len(results["models"])


def test_nulls_and_failures_stay_in_the_table(results: Results) -> None:
    results = failed(results)
    main = models_table(decoded(results))
    assert main.rows[1] == ("teacher", "teacher", "torch", "fp32_medium", *["-"] * 7)
    assert main.rows[-1] == ("big", "student", "openvino", "int8", "-", "-", "-", "-", "failed", "-", "-")
    assert "big (int8 openvino) failed: out of memory" in main.notes
    assert "skipped: has a head" in markdown_of(results)
    assert all(len(row) == len(table.columns) for table in tables(decoded(results)) for row in table.rows)
    assert Parsed(page_of(results)).open == []


def test_rows_contain_the_numbers(results: Results) -> None:
    row = models_table(decoded(results)).rows[8]
    assert row == (
        *("student", "student", "onnxruntime", "int8", "17.39 M", "22.9", "12.7", "74.3"),
        *("93.1 [92.0, 94.0]", "5.20x [5.04, 5.41]", "8.32x"),
    )
    assert reported_input(decoded(results)) == "8x128"
    (gain,) = gain_tables(decoded(results))
    assert gain.rows[0] == ("cola", "62.3", "57.5", "+4.8")
    assert gain.rows[-1] == ("retained %", "93.1", "87.6", "+5.5")
    by_shape = by_shape_table(decoded(results))
    assert by_shape.columns[3:] == ("1x128", "8x128", "32x128", "task lengths")
    assert by_shape.rows[8][4] == "5.20x"  # 66 ms of fp32_medium over 12.7 ms


def test_the_shape_of_a_speedup_is_in_its_title(results: Results) -> None:
    assert models_table(decoded(results)).columns[-2:] == ("Speedup at 8x128 [95%]", "Speedup, same backend")
    card = model_card(decoded(results), None, "cola")
    assert "Speedup at 8x128 [95%]" in card
    assert "fastest float32 variant at 8x128 (batch x length)." in card
    for model in results["models"]:
        model["latency_ms"] = []
    assert models_table(decoded(results)).columns[-2:] == ("Speedup [95%]", "Speedup, same backend")


def test_rows_on_the_cpu_are_marked(results: Results) -> None:
    note = "Rows with backend onnxruntime ran on the CPU, not on the Example GPU 5."
    assert note not in page_of(results)
    results["environment"]["gpu"] = "Example GPU 5"
    timed = [models_table(decoded(results)), by_shape_table(decoded(results)), latency_table(decoded(results))]
    assert [note in table.notes for table in timed] == [True] * 3
    for text in (page_of(results), markdown_of(results), model_card(decoded(results), None, "cola")):
        assert note in text


def test_stages_have_a_column_of_targets_where_one_has_a_target(results: Results) -> None:
    assert stages_table(decoded(results)).columns[:2] == ("Stage", "Note")
    results["stages"][1] |= {"name": "recover", "target": "2x"}
    table = stages_table(decoded(results))
    assert table.columns[:3] == ("Stage", "Target", "Note")
    assert [row[:2] for row in table.rows] == [("pretrain", ""), ("recover", "2x"), ("evaluate", "")]


def test_fingerprints_are_a_table_of_their_own(results: Results) -> None:
    assert "Fingerprints" not in [table.title for table in tables(decoded(results))]
    results["fingerprints"] = {"data": "a1b2", "teacher": None}
    assert validate(results) == []
    assert tables(decoded(results))[-1].rows == [("data", "a1b2"), ("teacher", "-")]


def printed(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(Run("", decoded(results)), {"report": Path("outputs/report.md")}, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_terminal(results: Results) -> None:
    results["models"][8]["name"] = "[bold]x[/]"
    wide, narrow = printed(results, 200), printed(results, 100)
    assert "[bold]x[/]" in wide
    assert "5.20x [5.04, 5.41]" in wide
    assert "report: outputs/report.md" in wide
    assert re.search(r"\[bold\]x\[/\] +int8 onnxruntime .* 93\.1 +.* 5\.20x", narrow)
    assert max(map(len, narrow.splitlines())) <= 100


def test_smoke_is_on_every_page(results: Results, tmp_path: Path) -> None:
    results["smoke"] = True
    write(decoded(results), tmp_path)
    assert SMOKE in (tmp_path / "report.md").read_text()
    assert SMOKE in without_plotly((tmp_path / "report.html").read_text())
    assert "SMOKE RUN" in (tmp_path / "frontier.svg").read_text()
    assert SMOKE in printed(results, 120)
    card = model_card(decoded(results), None, "cola")
    assert SMOKE in card
    assert "model-index" not in card
    results["smoke"] = False
    assert "SMOKE" not in markdown_of(results) + page_of(results) + printed(results, 120)


def front_matter(card: str) -> dict[str, Any]:
    assert card.startswith("---\n")
    return yaml.safe_load(card.split("---\n")[1])


def test_card(results: Results) -> None:
    card = model_card(decoded(results), None, "mrpc")
    front = front_matter(card)
    assert front["library_name"] == "transformers"
    result = front["model-index"][0]["results"][0]
    assert result["dataset"] == {
        "name": "GLUE mrpc",
        "type": "nyu-mll/glue",
        "config": "mrpc",
        "split": "validation",
    }
    assert [metric["value"] for metric in result["metrics"]] == [69.9, 70.9]
    for part in ("all-MiniLM-L6-v2", "## How it was made", "## Limitations", "| student | student | onnxruntime |"):
        assert part in card
    with pytest.raises(ValueError, match="9x"):
        model_card(decoded(results), "9x", "mrpc")


def test_scores_of_a_card_are_those_of_the_first_variant_that_has_any(results: Results) -> None:
    first, second = (m for m in results["models"][4:6])
    assert first["name"] == second["name"] == "student"
    first |= {"scores": {}, "retained": None, "macro": None}
    (result,) = front_matter(model_card(decoded(results), None, "mrpc"))["model-index"][0]["results"]
    assert [metric["value"] for metric in result["metrics"]] == [69.8, 70.8]
    for model in results["models"]:
        model["scores"] = {}
    assert "model-index" not in front_matter(model_card(decoded(results), None, "mrpc"))


def test_card_of_a_partial_task(results: Results) -> None:
    next(r for r in results["coverage"] if r["task"] == "mrpc" and r["split"] != "train")["rows"] = 40
    front = front_matter(model_card(decoded(results), None, "mrpc"))
    assert front["model-index"][0]["results"][0]["dataset"]["name"] == "GLUE mrpc (partial)"


def test_a_card_names_the_rows_that_were_scored(results: Results) -> None:
    """Choices are made on the validation rows of a task that has test rows, and they may be fewer than there are."""
    validation = next(r for r in results["coverage"] if r["task"] == "mrpc" and r["split"] == "validation")
    results["coverage"].append(validation | {"split": "test", "rows": 1725, "official_rows": 1725})
    validation |= {"rows": 100, "limited": True}
    card = model_card(decoded(results), None, "mrpc")
    assert "It was evaluated on the test rows of mrpc only, not on other texts or languages." in card
    (result,) = front_matter(card)["model-index"][0]["results"]
    assert (result["dataset"]["name"], result["dataset"]["split"]) == ("GLUE mrpc", "test")
    assert averages.evaluated(decoded(results))["mrpc"]


def test_the_card_of_an_exported_teacher_has_its_own_result(results: Results) -> None:
    """It had that of the student, and the student's gain over the baseline."""
    card = model_card(decoded(results), None, "cola", made_by=["finetune_teacher"])
    said = "Results over all tasks of the run, with one fine-tuned model for each task: "
    assert f"{said}The model in bf16 (torch) retains 99.9%" in card
    assert "student (onnxruntime)" not in card
    assert "Gain over" not in card
    other = model_card(decoded(results | {"least_retained": 93}), None, "cola", made_by=["finetune_teacher"])
    assert said not in other, "the run advises the student"


def test_a_card_does_not_call_the_teacher_the_readers_model(results: Results) -> None:
    results["models"][8]["speedup"]["over_kept"] = {"scheme": "bf16", "backend": "torch", "median": 3.2, "ci95": [3, 4]}
    card = model_card(decoded(results | {"seen": ["cola"]}), None, "cola")
    assert "The teacher may have learned the development rows of cola before this run" in card
    assert "the speed of the teacher in bf16 torch, the teacher's fastest variant" in card
    assert "| Over the teacher in bf16 torch [95%] |" in card
    assert "your model" not in card.lower()


def source(**more: str | None) -> dict[str, str | None]:
    return {"name": "bert", "hub": "google/bert", "license": "apache-2.0", **more}


@pytest.mark.parametrize(
    ("sources", "front", "lines"),
    [
        ([source()], {"license": "apache-2.0", "base_model": ["google/bert"]}, ["licence apache-2.0"]),
        (
            [source(), source(hub=None, name="mine", license="mit")],
            {"base_model": ["google/bert"]},
            ["Made from google/bert on the Hugging Face hub", "Made from mine: licence mit"],
        ),
        ([source(license=None)], {"base_model": ["google/bert"]}, ["look it up before you publish"]),
        ([source(), source(license=None)], {"base_model": ["google/bert"]}, ["look it up"]),
        (
            [source(hub=None, license="other", license_name="theirs", license_link="LICENSE")],
            {"license": "other", "license_name": "theirs", "license_link": "LICENSE"},
            ["Made from bert: licence theirs"],
        ),
    ],
)
def test_card_has_the_licences_of_its_sources(
    results: Results, sources: list[dict[str, Any]], front: dict[str, Any], lines: list[str]
) -> None:
    results["made_from"] = sources
    assert validate(results) == []
    card = model_card(decoded(results), None, "cola")
    shown = front_matter(card)
    keys = ("license", "license_name", "license_link", "base_model")
    assert {key: shown[key] for key in keys if key in shown} == front
    assert all(text in card for text in lines)


def test_recall_of_spans_is_named_as_such(results: Results) -> None:
    results["coverage"] += [
        {
            "task": "rte",
            "split": split,
            "rows": 9,
            "official_rows": None,
            "in_headline": True,
            "labels": {"PER": 4, "LOC": 12},
            "spans": True,
        }
        for split in ("train", "validation")
    ]
    for model in results["models"]:
        model["recall"] = {"rte": {"PER": 50.0, "LOC": 75.0}}
    assert validate(results) == []
    table = recall_table(decoded(results))
    assert table is not None
    assert [row[:4] for row in table.rows] == [("rte", "PER", "4", "25.0"), ("rte", "LOC", "12", "75.0")]
    assert table.notes[-1] == "For rte, a label is a type of span, and its rows are the spans of this type."
    card = model_card(decoded(results), None, "rte", "token-classification")
    assert "pipeline_tag: token-classification" in card
    assert "text-classification" not in card
    assert "Usage" not in card


def test_the_card_of_a_reranker_shows_its_use(results: Results) -> None:
    card = model_card(decoded(results), None, "rte", "text-ranking", 96)
    front = front_matter(card)
    assert (front["library_name"], front["pipeline_tag"]) == ("sentence-transformers", "text-ranking")
    assert "cross-encoder" in front["tags"]
    assert 'CrossEncoder("FOLDER_OF_THIS_FILE", max_length=96)' in card


@pytest.mark.parametrize(
    ("pipeline", "call"),
    [
        ("text-classification", 'pair = "a first text", "\\n" + "a second text"'),
        ("multiple-choice", 'pair = "a first text", "\\n" + "a second text"'),
        ("text-ranking", 'rank("a query", ["\\n" + "a document", "\\n" + "another document"])'),
    ],
)
def test_the_card_has_what_is_put_between_the_texts_of_a_pair(pipeline: str, call: str, results: Results) -> None:
    cards = [model_card(decoded(results), None, "rte", pipeline, 96, between=text) for text in ("", "\n")]
    assert [call in card for card in cards] == [False, True]
    (code,) = re.findall(r"```python\n(.*?)```", cards[1], re.DOTALL)
    compile(code, "card", "exec")
    assert "max_length=96" in code


def test_the_card_of_a_model_that_version_4_cannot_read_says_so(results: Results) -> None:
    cards = [model_card(decoded(results), None, "rte", needs_5=flag) for flag in (False, True)]
    assert ["It needs transformers 5. Version 4" in card for card in cards] == [False, True]
    assert ["## Usage" in card for card in cards] == [False, True]


def test_write(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    claim(tmp_path / "run")
    paths = write(decoded(results), tmp_path / "run")
    names = [CLAIM, *(path.name for path in paths.values())]
    assert sorted(names) == sorted(p.name for p in (tmp_path / "run").iterdir())
    assert json.loads(paths["results"].read_text()) == results
    assert len(flushed) == 2 * len(paths)  # each file, and the folder that has its name


def test_write_refuses_what_is_not_valid(results: Results, tmp_path: Path) -> None:
    for wrong in ({"seeds": []}, {"least_retained": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            write(replace(decoded(results), **wrong), tmp_path / "run")
    assert not (tmp_path / "run").exists()
