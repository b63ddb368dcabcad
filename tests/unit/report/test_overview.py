"""The page on several runs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from distill.errors import DataError
from distill.report import html, markdown, model_rows, overview, page, write, write_overview
from distill.report.__main__ import main
from distill.report.seeds import over_seeds
from distill.runtime.storage.atomic import write_json
from tests.decoded import decoded, decoded_all
from tests.enriched import without_plotly

Results = dict[str, Any]
IDENTITY = ("name", "role", "step", "target", "scheme", "backend")


def seeded(results: Results, seed: int, retained: float, speedup: float) -> Results:
    """The same run with another seed, whose int8 student has these numbers."""
    run = copy.deepcopy(results)
    run["seeds"] = [seed]
    run["command"] = f"python -m distill recipe=distilbert seed={seed} tasks=glue output=somewhere/{seed}"
    run["models"][8]["retained"] |= {"headline": retained}
    run["models"][8]["speedup"] |= {"best_teacher": speedup}
    return run


def test_seeds_that_leave_out_other_tasks_are_averaged_over_the_same_ones(results: Results) -> None:
    """The teacher of seed 1 scores nothing on a task, so that the share of this seed alone was without it."""
    runs = [seeded(results, 0, 92.0, 5.0), seeded(results, 1, 94.0, 6.0)]
    for model in runs[1]["models"]:
        if model["retained"]:
            model["retained"]["left_out"] = ["cola"]
    first, second = decoded_all(runs)
    teacher = model_rows.reference_teacher(first)
    assert teacher is not None
    ours, theirs = (model_rows.task_scores(model.scores or {}) for model in (first.models[8], teacher))
    counted = theirs.keys() - {"cola", "wnli"}
    share = 100 * sum(ours[task] for task in counted) / sum(theirs[task] for task in counted)
    table = overview.table(overview.entries([first, second]))
    assert table.rows[4][5] == f"{share:.1f} ({share:.1f}, {share:.1f})"  # both runs have the same scores
    assert any("retained % is without cola in every seed" in note for note in table.notes)
    alike = overview.table(overview.entries([second, decoded(runs[1] | {"seeds": [2]})]))
    assert alike.rows[4][5].startswith("94.0 [")
    assert not any("in every seed" in note for note in alike.notes)


def test_seeds_are_aggregated(results: Results) -> None:
    runs = [seeded(results, 0, 92.0, 5.0), seeded(results, 1, 94.0, 6.0)]
    shown = overview.entries(decoded_all(runs))
    assert len(shown) == 7
    row = overview.table(shown).rows[4]
    # As both runs have the same interval over rows: from 92 to 94.
    low, high = over_seeds([92.0, 94.0], [(92.0, 94.0)] * 2) or (0.0, 0.0)
    assert low < 92.0 < 94.0 < high
    assert row[:7] == (
        *("5", "distilbert", "student", "onnxruntime", "int8"),
        *(f"93.0 [{low:.1f}, {high:.1f}] (92.0, 94.0)", "5.50x (5.00, 6.00)"),
    )
    assert row[-1] == "0, 1"
    whole = results["models"][8]["parameters"] / 1e6
    assert row[-2] == f"{whole:.2f} M"
    runs[0]["models"][8]["parameters"] += 1_500_000  # each seed is pruned to another shape
    assert overview.table(overview.entries(decoded_all(runs))).rows[4][-2] == f"{whole:.2f} to {whole + 1.5:.2f} M"
    assert overview.table(shown).notes[0] == "Settings of every run: tasks=glue."
    point = overview.points(shown)[4]
    assert (point.label, point.speedup, point.retained) == ("int8 onnxruntime", 5.5, 93.0)
    assert point.retained_interval == (low, high)
    assert point.speedup_interval == (5.0, 6.0)


def test_the_same_seed_twice_is_not_averaged(results: Results) -> None:
    shown = overview.entries(decoded_all([seeded(results, 0, 92.0, 5.0), seeded(results, 0, 94.0, 6.0)]))
    assert [row[5] for row in overview.table(shown).rows[4::7]] == ["92.0 [92.0, 94.0]", "94.0 [92.0, 94.0]"]


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": "other"},
        {"command": "python -m distill recipe=distilbert temperature=3"},
        {"environment": None},
        {"fingerprints": {"teacher": "0f0f"}},
        {"fingerprints": {"teacher": "ffff", "tasks": "0f0f"}},
    ],
)
def test_other_runs_are_not_aggregated(results: Results, change: dict[str, Any]) -> None:
    results["fingerprints"] = {"teacher": "ffff", "tasks": "ffff", "distill": "0.1.0 (ffff)"}
    for row in results["coverage"]:
        row["limited"] = False
    other = seeded(results, 1, 94.0, 6.0) | change
    if other["environment"] is None:
        other["environment"] = results["environment"] | {"cpu": "another"}
    shown = overview.entries(decoded_all([seeded(results, 0, 92.0, 5.0), other]))
    assert len(shown) == 14
    assert {entry.series for entry in shown} == {0, 1}
    assert overview.table(shown).rows[4][5] == "92.0 [92.0, 94.0]"


def test_sampled_training_rows_may_differ_between_seeds(results: Results) -> None:
    results["fingerprints"] = {"teacher": "ffff", "tasks": "ffff"}
    (train, *_) = (row for row in results["coverage"] if row["split"] == "train")
    train["limited"] = True
    other = seeded(results, 1, 94.0, 6.0) | {"fingerprints": {"teacher": "ffff", "tasks": "0f0f"}}
    shown = overview.entries(decoded_all([seeded(results, 0, 92.0, 5.0), other]))
    assert {entry.series for entry in shown} == {0}


def test_runs_of_other_versions_are_averaged_with_a_note(results: Results) -> None:
    results["fingerprints"] = {"teacher": "ffff", "tokenizer": "ffff", "distill": "0.1.0 (ffff)", "torch": "2.13.0"}
    runs = [seeded(results, 0, 92.0, 5.0), seeded(results, 1, 94.0, 6.0)]
    runs[1] |= {"version": "0.2.0", "fingerprints": results["fingerprints"] | {"distill": "0.2.0 (0f0f)"}}
    runs[1]["environment"] |= {"python": "3.13.1", "onnxruntime": "1.32.0", "commit": "0f0f"}
    table = overview.table(overview.entries(decoded_all(runs)))
    assert [row[5] for row in table.rows][4].startswith("93.0 [")
    assert (
        "distilbert: its runs were made with different versions of distill (0.1.0 (ffff), 0.2.0 (0f0f)), python "
        "(absent, 3.13.1), onnxruntime (1.31.0, 1.32.0)."
    ) in table.notes
    alone = overview.table(overview.entries(decoded_all(runs[:1])))
    assert not any("versions" in note for note in alone.notes)


def test_page_of_a_folder(results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = seeded(results, 0, 92.0, 5.0)
    write_json(tmp_path / "a" / "0" / "results.json", first)
    write_json(tmp_path / "a" / "0" / "evaluate" / "results.json", first)  # the same run once more
    write_json(tmp_path / "a" / "1" / "results.json", seeded(results, 1, 94.0, 6.0))
    (tmp_path / ".half").mkdir()
    (tmp_path / ".half" / "results.json").write_text("{")
    assert main([str(tmp_path)]) == 0
    assert str(tmp_path / "report.html") in capsys.readouterr().out
    document, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert "2 runs: 7 variants" in text
    assert "(92.0, 94.0) |" in text
    assert text.count("The same student trained without a teacher retains 87.6%") == 2
    shown = without_plotly(document)
    assert "2 runs" in shown
    assert f"{tmp_path}/a/0: recipe" in shown  # the run's own folder, not that of its stage
    assert shown.count("The same student trained without a teacher retains 87.6%") == 2
    first_made = hash(document)
    assert main([str(tmp_path)]) == 0  # its own output is not a run
    assert hash((tmp_path / "report.html").read_text()) == first_made


def test_smoke_runs_do_not_mix_with_real_ones(results: Results) -> None:
    smoke = copy.deepcopy(results) | {"smoke": True, "recipe": "smoked"}
    blocks, pictures = page.overview_page(decoded_all([results, smoke]))
    drawn = "".join(pictures.values())
    text = markdown.text(blocks)
    assert "Not shown: 1 run with limit=smoke" in text
    assert "smoked" not in text
    assert "SMOKE RUN" not in text + drawn
    blocks, pictures = page.overview_page(decoded_all([smoke]))
    drawn = "".join(pictures.values())
    assert all("SMOKE RUN" in shown for shown in (markdown.text(blocks), html.document("All", blocks), drawn))


def test_failed_model_stays(results: Results) -> None:
    results["models"][8] = {key: results["models"][8][key] for key in IDENTITY}
    results["models"][8]["failed"] = "out of memory"
    table = overview.table(overview.entries(decoded_all([results])))
    assert table.rows[4][5:8] == ("failed", "-", "-")
    assert "#5 failed: out of memory" in table.notes


def test_the_reports_of_a_single_run_are_written_again(results: Results, tmp_path: Path) -> None:
    paths = write(decoded(results), tmp_path)
    before = paths["page"].read_text()
    paths["page"].unlink()
    paths["results"].write_text(json.dumps(results))
    assert main([str(tmp_path)]) == 0
    assert paths["page"].read_text() == before
    assert paths["results"].read_text() == json.dumps(results)  # unchanged


def test_errors_are_one_line(tmp_path: Path, results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main([str(tmp_path / "absent")]) == 2
    assert "got a folder without any results.json" in capsys.readouterr().err
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.json").write_text("{")
    assert main([str(tmp_path)]) == 2
    assert "must be JSON" in capsys.readouterr().err
    (tmp_path / "a" / "results.json").write_text(json.dumps(results | {"schema": 5}))
    assert main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "a" / "results.json") in error
    assert error.count("\n") == 1
    with pytest.raises(DataError):
        write_overview(tmp_path)


def test_shape_of_the_speedups(results: Results) -> None:
    other = seeded(results, 1, 94.0, 6.0) | {"recipe": "other"}
    for model in other["models"]:
        model["latency_ms"] = model["latency_ms"][:1]
    alone, both = overview.entries(decoded_all([results])), overview.entries(decoded_all([results, other]))
    assert overview.table(alone).columns[6] == "Speedup at 8x128"
    assert overview.table(both).columns[6] == "Speedup at the inputs of its run"
    assert {point.shape for point in overview.points(both)} == {"8x128", "1x128"}


def test_rows_on_the_cpu(results: Results) -> None:
    notes = overview.table(overview.entries(decoded_all([results]))).notes
    assert not any("on the CPU" in note for note in notes)
    results["environment"]["gpu"] = "Example GPU 5"
    notes = overview.table(overview.entries(decoded_all([results]))).notes
    assert [note for note in notes if "on the CPU" in note] == [
        f"#{row} ran on the CPU, not on the Example GPU 5." for row in (3, 5, 7)
    ]
    said = "Speedup: over that teacher's fastest variant in 32 or 16 bits, on the machine"
    assert any(said in note for note in notes)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("frontier", "recipe frontier"),
        ("frontier importance@stages.prune.importance=taylor", "importance taylor"),
        ("prune stages.prune.dimensions=[layers,ffn] temperature=4", "dimensions layers, ffn, temperature 4"),
    ],
)
def test_legends_have_no_raw_overrides(run: str, name: str) -> None:
    assert overview.plain_name(run) == name


def test_every_group_of_comparable_runs_has_its_picture(results: Results, tmp_path: Path) -> None:
    other = seeded(results, 1, 94.0, 6.0) | {"teacher_name": "another"}
    for name, run in (("a", results), ("b", other)):
        write_json(tmp_path / name / "results.json", run)
    assert main([str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    for name in ("frontier.svg", "frontier-2.svg"):
        assert f"]({name})" in text
        assert (tmp_path / name).is_file()
    assert "; teacher another; " in text


def test_names_in_a_legend_are_short_and_differ(results: Results) -> None:
    words = "stages.finetune.epochs=3 stages.finetune.min_steps=300 stages.recover.min_steps=300 target.retained=97"
    every = [
        f"seed={n} {words} {more}" for n, more in enumerate(["", "temperature=2", "limit.steps=9", "limit.steps=9"])
    ]
    runs = [
        results | {"command": f"python -m distill recipe=distilbert {text}", "seeds": [n]}
        for n, text in enumerate(every)
    ]
    for n, run in enumerate(runs):
        run["environment"] = results["environment"] | {"threads": n}  # none is averaged with another
        run["command"] += f" stages.evaluate.repeats={n}"
    shown = overview.points(overview.entries(decoded_all(runs)))
    legend = list(dict.fromkeys(point.group for point in shown))
    assert len(legend) == 4
    assert "temperature 2" in legend[1]
    assert all(len(name) < 60 for name in legend)
    assert not any("repeats" in name for name in legend)
