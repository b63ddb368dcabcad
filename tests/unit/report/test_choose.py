"""Choice of a variant: against brute force over the models, its words, its sentences and the files of all variants."""

from __future__ import annotations

import copy
import csv
import itertools
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from distill.config.loads import SINGLE_TEXTS
from distill.errors import ConfigError
from distill.report import export, figure, headline, model_rows
from distill.report.__main__ import main
from distill.report.choose import Ask, choice, least_of, offered, parsed
from distill.report.loading import loading
from distill.report.seeds import over_seeds
from distill.report.table import models_table
from distill.report.variants import Run, groups, speedups, variants
from distill.report.verdict import between
from distill.report.web.data import page_data
from distill.runtime.storage.atomic import write_json
from tests.decoded import decoded, model_of
from tests.enriched import enriched

Results = dict[str, Any]


def only(results: Results, folder: str = "outputs/a") -> list[Run]:
    return [Run(folder, decoded(results))]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("retained=97 speedup=max", Ask(97.0)),
        ("mib=20 above_chance=98.5 ms=5", Ask(98.5, True, 5.0, 20.0)),
        ("size=min", Ask(0.0, goal="size")),
        ("above_chance=max mib=3", Ask(0.0, True, None, 3.0, "above_chance")),
        ("load=single retained=97", Ask(97.0, load="single")),
    ],
)
def test_words(words: str, expected: Ask) -> None:
    assert parsed(words.split()) == expected


@pytest.mark.parametrize(
    "words",
    [
        "speed=max",
        "retained=x",
        "retained=-1",
        "ms=5 ms=6",
        "speedup=max size=min",
        "retained=9 above_chance=9",
        "load=9",
        "load=single load=batch",
    ],
)
def test_other_words_are_refused_in_one_line(words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(words.split())
    (message,) = refused.value.messages
    assert message.startswith("--choose: got ")
    assert "must be" in message


def brute_force(results: Results, ask: Ask, name: str) -> list[tuple[str, str, str]]:
    """Every eligible model of one run, the best first, computed from the rows of results.json alone."""
    found = []
    for model in results["models"]:
        kept, faster = model["retained"] or {}, model["speedup"] or {}
        value = kept.get("above_chance" if ask.above else "headline")
        speed = (faster.get("by_input") or {}).get(name, {}).get("median")
        times = [
            row["median"] for row in model["latency_ms"] if name in (row.get("name"), f"{row['batch']}x{row['length']}")
        ]
        if model["role"] not in ("student", "teacher") or value is None or speed is None or value < ask.least:
            continue
        if (ask.ms is not None and times[0] > ask.ms) or (ask.mib is not None and model["size_mib"] > ask.mib):
            continue
        if model["role"] == "teacher" and ask.goal == "speedup" and speed <= 1:
            continue  # in float32 it would be faster
        size = -model["size_mib"]
        keys = {
            "speedup": (speed, value),
            "size": (size, value),
            "retained": (value, speed),
            "above_chance": (value, speed),
        }
        found.append((keys[ask.goal], (model["name"], model["scheme"], model["backend"])))
    return [identity for _, identity in sorted(found, key=lambda pair: pair[0], reverse=True)]


@pytest.mark.parametrize("goal", ["speedup", "retained", "above_chance", "size"])
def test_the_choice_is_that_of_brute_force(results: Results, goal: str) -> None:
    results = enriched(results)
    runs = only(results)
    (group,) = groups(runs)
    assert group.input == "own lengths"
    chosen = set()
    for above, least, ms, mib in itertools.product([False, True], [0, 90, 93, 95, 99], [None, 10, 20], [None, 30, 80]):
        ask = Ask(least, above, ms, mib, goal)
        found = [variant.first for variant in offered(variants(runs), group, ask)]
        expected = brute_force(results, ask, "own lengths")
        assert [(m.name, m.scheme, m.backend) for m in found] == expected
        chosen.add(expected[0] if expected else None)
    assert len(chosen) > 2


def test_the_default_is_what_the_runs_were_made_for(results: Results) -> None:
    at_95, at_90 = (decoded(results | {"least_retained": least}) for least in (95.0, 90.0))
    assert least_of([decoded(results)]) == 97.0
    assert least_of([at_95] * 2) == 95.0
    assert least_of([at_95, at_90]) == 97.0


def test_forms_of_the_teacher_are_not_called_students(results: Results) -> None:
    """A run without a student reports them in its place."""
    results["models"] = [m | {"step": "finetune_teacher"} for m in results["models"] if m["role"] != "baseline"]
    runs = only(results)
    first, second = choice(runs, variants(runs), groups(runs)[0], Ask(93.0))["sentences"]
    assert first.startswith("Ship teacher, int8 onnxruntime, the fastest of the variants that retain at least 93%")
    assert "student" not in first + second
    models = [(row["name"], row["role"]) for row in export.rows(runs)]
    assert {*models} == {("teacher", "teacher")}


def test_the_verdict_names_the_choice_its_test_and_its_folder(results: Results) -> None:
    results = enriched(results)
    results["stages"].append(results["stages"][0] | {"name": "export", "kind": "export"})
    runs = only(results)
    found = choice(runs, variants(runs), groups(runs)[0], Ask(93.0))
    first, second = found["sentences"]
    assert first.startswith("Ship student, int8 onnxruntime, the fastest of the variants that retain at least 93%")
    assert "retains 93.1% (92.0 to 94.0) of the teacher's score at 4.68x" in first
    assert "The next best, student, bf16 torch" in second
    row = between(decoded(results), found["variant"].first, found["next"].first)
    assert row is not None
    assert f"{row.difference:+.1f} points" in second
    assert ("are not distinguishable" in second) is not row.distinguishable
    assert "on the development rows" not in first
    assert found["loading"]["command"].startswith(
        "python -m distill.predict outputs/a/export/cola --backend onnxruntime"
    )
    nothing = choice(runs, variants(runs), groups(runs)[0], Ask(99.95, mib=1.0))
    assert nothing["variant"] is None
    assert nothing["sentences"][0] == "There are no variants that retain at least 99.95% and have at most 1 MiB."


def test_where_no_variant_meets_all_the_nearest_are_named(results: Results) -> None:
    runs = only(enriched(results))
    every, group = variants(runs), groups(runs)[0]
    kept = sorted(
        (variant.retained.value, variant.mib)
        for variant in offered(every, group, Ask(0.0, goal="retained"))
        if variant.retained
    )
    most, size = kept[-1][0], min(mib for _, mib in kept if mib)
    nothing = choice(runs, every, group, Ask(round(most + 0.1, 3), mib=size + 0.1))
    none, quality = nothing["sentences"]
    assert none.startswith("There are no variants")
    best = max(value for value, mib in kept if mib and mib <= size + 0.1)
    assert f"retains the most: it retains {best:.1f}%" in quality
    smaller = choice(runs, every, group, Ask(round(most - 0.01, 3), mib=size - 0.1))["sentences"]
    least = min(mib for value, mib in kept if mib and value >= most - 0.01)
    assert len(smaller) == 2
    assert f"Of those that retain at least {round(most - 0.01, 3):g}%, " in smaller[1]
    assert "is the smallest" in smaller[1]
    assert f"{least:.1f} MiB" in smaller[1]


def test_without_a_test_overlapping_intervals_show_no_difference(results: Results) -> None:
    runs = only(results)
    sentence = choice(runs, variants(runs), groups(runs)[0], Ask(95.0))["sentences"][1]
    assert "their intervals overlap, so no difference in score is shown" in sentence
    for model in results["models"]:
        if model["scheme"] == "bf16" and model["role"] == "student":
            model["retained"]["ci95"] = [95.05, 95.15]
        elif model["role"] == "student" and model["backend"] == "torch":
            model["retained"]["ci95"] = [99.0, 99.5]
            model["speedup"]["best_teacher"] = 2.9
    runs = only(results)
    assert "their intervals do not overlap" in choice(runs, variants(runs), groups(runs)[0], Ask(95.0))["sentences"][1]


def test_a_teacher_that_is_chosen_is_named_as_one_beside_the_best_student(results: Results) -> None:
    results = enriched(results)
    for model in results["models"]:
        if model["role"] == "student" and model["retained"]:
            model["retained"]["headline"] = 90.0 + model["speedup"]["best_teacher"] / 10
    teacher = copy.deepcopy(next(m for m in results["models"] if m["role"] == "student" and m["scheme"] == "int8"))
    step = next(m["step"] for m in results["models"] if m["role"] == "teacher")
    teacher |= {"name": "teacher", "role": "teacher", "step": step}
    teacher["retained"]["headline"] = 99.0
    results["models"].append(teacher)
    teacher["path"] = "evaluate/teacher/cola/model_int8.onnx"
    runs = only(results)
    every, group = variants(runs), groups(runs)[0]
    found = choice(runs, every, group, Ask(97.0))
    assert found["variant"].first.role == "teacher"
    students = [variant for variant in offered(every, group, Ask(0.0)) if variant.first.role == "student"]
    assert found["sentences"][2].startswith(f"No student does; of the students, {students[0].name} is the fastest")
    made = " With the settings of this run's tasks added, this command exports it: python -m distill recipe=quantize "
    assert loading(runs[0], model_of(teacher))["note"] == (
        "This is your model in int8 bitsandbytes, which the run does not export. The evaluate stage made its file: "
        f"outputs/a/evaluate/teacher/cola/model_int8.onnx.{made}"
        "teacher.name=outputs/a/models/teacher 'stages.quantize.schemes=[bitsandbytes]'"
    )
    assert len(choice(runs, every, group, Ask(80.0))["sentences"]) == 2
    # A folder that a run names by its settings.
    command = loading(replace(runs[0], folder="outputs/prune/tasks.train=a.csv,seed=1"), model_of(teacher))["note"]
    assert command is not None
    typed = shlex.split(command.partition("python -m distill ")[2])
    assert (
        OverridesParser.create().parse_override(typed[1]).value()
        == "outputs/prune/tasks.train=a.csv,seed=1/models/teacher"
    )


def test_groups_under_the_current_rules_come_first(results: Results) -> None:
    older = copy.deepcopy(results) | {"older_rules": "Made under older rules."}
    current = copy.deepcopy(results) | {"teacher_name": "another"}
    runs = [Run("a", decoded(older)), Run("b", decoded(current)), Run("c", decoded(older | {"seeds": [1]}))]
    assert [group.runs for group in groups(runs)] == [(1,), (0, 2)]


def test_runs_with_other_tasks_in_the_headline_are_apart(results: Results) -> None:
    other = copy.deepcopy(results) | {"seeds": [1]}
    for row in other["coverage"]:
        row["in_headline"] = True
    assert [group.runs for group in groups([Run("a", decoded(results)), Run("b", decoded(other))])] == [(0,), (1,)]


def test_seeds_are_averaged_and_other_tasks_are_apart(results: Results) -> None:
    second = copy.deepcopy(results)
    second |= {"seeds": [1], "command": results["command"].replace("seed=0", "seed=1")}
    second["models"][8]["retained"]["headline"] += 2.0
    other = copy.deepcopy(results) | {"teacher_name": "another"}
    runs = [Run("a", decoded(results)), Run("b", decoded(other)), Run("c", decoded(second))]
    assert [group.runs for group in groups(runs)] == [(0, 2), (1,)]
    variant = next(f for f in variants(runs) if f.group == 0 and f.name == "student, int8 onnxruntime")
    assert variant.runs == (0, 2)
    assert variant.retained is not None
    assert variant.retained.value == pytest.approx(94.1)
    ends = [m.retained.ci95 for m in variant.models if m.retained]
    assert variant.retained.interval == over_seeds([m.retained.headline for m in variant.models], ends)
    assert not variant.retained.spread
    fast = variant.speedup["8x128"]
    assert (fast.interval, fast.spread) == ((5.2, 5.2), True)  # of the seeds: their intervals are over rounds
    assert "x (seeds 1.65 to 1.65) the speed" in choice(runs, variants(runs), groups(runs)[0], Ask())["sentences"][0]


def test_speedups_that_were_measured_at_one_input(results: Results) -> None:
    run = Run("a", decoded(results))
    assert run.input == "8x128"
    assert run.fastest["1x128"] == pytest.approx(13.2)
    found = speedups(run.results.models[8], run)
    assert found["8x128"].value == 5.2  # as reported
    assert found["8x128"].interval is not None
    assert found["1x128"].value == pytest.approx(13.2 / (0.2 * 12.7))
    assert found["1x128"].interval is None


@pytest.mark.parametrize(
    ("scheme", "backend", "words"),
    [
        ("int8", "onnxruntime", "--backend onnxruntime --scheme int8"),
        ("bf16", "torch", "--backend torch --scheme bf16"),
        ("bf16_compiled", "torch", "--backend torch --scheme bf16"),
        ("fp32", "openvino", "--backend openvino --scheme fp32"),
        ("bf16", "openvino", "--backend openvino --scheme bf16"),
        ("int8_bf16", "openvino", "--backend openvino --scheme int8_bf16"),
    ],
)
def test_loading_of_an_export(results: Results, scheme: str, backend: str, words: str) -> None:
    """`distill.load` runs the variants that the run scored, and reads the ONNX file of others in openvino alone."""
    stage = results["stages"][0] | {"name": "export", "target": "2x", "kind": "export"}
    results["stages"].append(stage)
    model = results["models"][8] | {"scheme": scheme, "backend": backend, "target": "2x"}
    load = loading(Run("a b", decoded(results)), model_of(model))
    assert "a b/export/2x/cola" in (load["path"] or "")
    assert words in (load["command"] or "")
    assert "distill.load does not compile" in (load["note"] or "") or not scheme.endswith("compiled")
    dashed = loading(Run("-x", decoded(results)), model_of(model))["command"]
    assert (dashed is None) == (load["command"] is None)
    assert dashed is None or dashed.startswith("python -m distill.predict ./-x/export/2x/cola --backend ")
    if backend == "openvino":
        unscored = loading(Run("a b", decoded(results)), model_of(model | {"scores": {}}))
        assert (unscored["command"], "onnx/model.onnx" in (unscored["code"] or "")) == (None, True)
    unexported = loading(Run("a", decoded(results)), model_of(model | {"target": "3x"}))
    assert (unexported["command"] is None) == (backend != "torch")


def test_the_command_line(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str], small_disk: Any
) -> None:
    write_json(tmp_path / "a" / "results.json", results)
    files = ["--csv", str(tmp_path / "f.csv"), "--json", str(tmp_path / "f.json")]
    assert main([str(tmp_path), "--choose", "retained=93", "mib=30", "speedup=max", *files]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "Ship student, int8 onnxruntime, the fastest of the variants that retain at least 93% and have at most 30 MiB"
    )
    assert not (tmp_path / "report.html").exists()
    records = json.loads((tmp_path / "f.json").read_text())
    with (tmp_path / "f.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(records) == len(lines) == len(results["models"])
    assert float(lines[8]["speedup.8x128"]) == results["models"][8]["speedup"]["best_teacher"]
    assert float(lines[8]["score.cola.matthews"]) == results["models"][8]["scores"]["cola"]["matthews"]
    assert lines[3]["retained"] == ""
    assert main([str(tmp_path), "--choose", "speed=max"]) == 2
    assert capsys.readouterr().err.startswith("--choose: got speed=max; must be")
    with small_disk(10):
        assert main([str(tmp_path), "--csv", str(tmp_path / "g.csv")]) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'g.csv'}: got File too large after 0.0 MiB of it")
    assert next(iter(export.rows(only(results))))["run"] == "outputs/a"


def test_a_choice_for_single_texts_is_by_their_times(results: Results) -> None:
    """By the stored ratio or, where a run has none, by the ratio of the medians of single texts."""
    results = enriched(results)
    single = {"median": 30.0, "ci95": [29.0, 31.0]}
    results["models"][6]["speedup"]["by_input"][SINGLE_TEXTS] = single
    results["models"][6]["requests"]["p50"] = 0.5
    runs = only(results)
    every, group = variants(runs), groups(runs)[0]
    found = choice(runs, every, group, Ask(90.0, load="single"))
    assert found["variant"].first == runs[0].results.models[6]
    assert "at 30.00x (29.00 to 31.00) the speed of" in found["sentences"][0]
    assert f"with {SINGLE_TEXTS})." in found["sentences"][0].partition("(0.500 ms, ")[2]
    assert choice(runs, every, group, Ask(90.0, load="batch")) == choice(runs, every, group, Ask(90.0))
    reference, own = 2.0, 2.0 + 8  # of the teacher in torch, and of the ninth model
    assert every[8].speedup[SINGLE_TEXTS].value == pytest.approx(reference / own)
    assert every[8].speedup[SINGLE_TEXTS].interval is None


def test_a_run_for_single_texts_names_the_same_variant_everywhere(results: Results) -> None:
    results = enriched(results) | {"load": "single"}
    for number, model in enumerate(results["models"]):
        if ways := model.get("speedup"):
            ratio = {"median": 30.0 - number, "ci95": [29.0 - number, 31.0 - number]}
            ways["by_input"][SINGLE_TEXTS], ways["best_teacher"], ways["ci95"] = ratio, ratio["median"], ratio["ci95"]
    runs = only(results)
    (group,) = groups(runs)
    found = choice(runs, variants(runs), group, Ask(90.0))["variant"].first
    first = model_rows.first_student(runs[0].results)
    assert group.input == SINGLE_TEXTS
    teachers = [m for m in runs[0].results.models if m.role == "teacher" and m.retained]
    assert found == max([first, *teachers], key=model_rows.speedup)
    assert "with single texts" in headline.headline(runs[0].results)
    point = max((p for p in figure.points(runs[0].results) if p.role == "student"), key=lambda p: p.speedup)
    assert (point.label, point.speedup) == (model_rows.variant(first), model_rows.speedup(first))


def test_a_choice_by_score_is_made_on_the_development_rows(results: Results) -> None:
    results = enriched(results)
    students = [model for model in results["models"] if model["role"] in ("student", "teacher") and model["retained"]]
    for model in students:
        model["retained"] |= {"development": 90.0, "at_least": 91.5}
    slow = next(model for model in students if model["backend"] == "bitsandbytes")
    slow["retained"]["development"] = 98.0
    runs = only(results)
    found = choice(runs, variants(runs), groups(runs)[0], Ask(93.0))
    assert found["variant"].first == model_of(slow)
    text = found["sentences"][0]
    assert "that retain at least 93% on the development rows (98.0% there): it retains 94.4%" in text
    assert text.endswith(" That it keeps at least 93% is not shown: the one-sided 95% interval begins at 91.5%.")
    assert "same scores" not in text
    other = next(model for model in students if model["role"] == "student" and model is not slow)
    for model in students:
        model["retained"]["development_above_chance"] = 80.0 + 10 * (model is other)
    runs = only(results)
    above = choice(runs, variants(runs), groups(runs)[0], Ask(85.0, above=True))
    assert above["variant"].first == model_of(other)
    assert "85% on the development rows (90.0% there)" in above["sentences"][0]
    del students[0]["retained"]["development"]  # not all have it: nothing is chosen by it
    runs = only(results)
    assert "development" not in choice(runs, variants(runs), groups(runs)[0], Ask(93.0))["sentences"][0]


def test_what_is_judged_on_the_development_rows_is_said_of_these(results: Results) -> None:
    """The share that is shown beside it is that of the reported rows, and may be on the other side of the limit."""
    teacher, students = copy.deepcopy(results), enriched(results)
    models = [model for model in students["models"] if model["role"] in ("student", "teacher") and model["retained"]]
    for model in models:
        model["retained"]["development"] = 90.0
    slow = next(model for model in models if model["backend"] == "bitsandbytes")
    slow["retained"] |= {"development": 98.0, "headline": 99.5}
    runs = only(students)
    none, nearest = choice(runs, variants(runs), groups(runs)[0], Ask(99.0))["sentences"]
    assert none == "There are no variants that retain at least 99% on the development rows."
    assert " retains the most on the development rows (98.0% there): it retains 99.5% " in nearest
    (small,) = choice(runs, variants(runs), groups(runs)[0], Ask(97.0, mib=0.1))["sentences"][1:]
    assert small.startswith("Of those that retain at least 97% on the development rows, ")
    closest = choice(runs, variants(runs), groups(runs)[0], Ask(0.0, goal="retained"))["sentences"][0]
    assert ", the closest to its teacher on the development rows (98.0% there): it retains 99.5% " in closest
    for ask, said in (
        (Ask(0.0, mib=90.0, goal="retained"), " of the variants that have at most 90 MiB: "),
        (Ask(97.0, mib=90.0), " and have at most 90 MiB: "),
    ):
        ship = choice(runs, variants(runs), groups(runs)[0], ask)["sentences"][0]
        assert f" on the development rows (98.0% there){said}" in ship
    for model in teacher["models"]:
        if model["retained"] and model["role"] != "baseline":
            model["retained"]["development"] = 98.2 if model["role"] == "teacher" else 96.4
    runs = only(teacher)
    last = choice(runs, variants(runs), groups(runs)[0], Ask(97.0))["sentences"][-1]
    assert last.startswith("No student does; of the students, ")
    assert " is the fastest, with 96.4% on the development rows: it retains " in last


@pytest.mark.parametrize(
    ("ask", "selected"),
    [(Ask(93.0), True), (Ask(0.0, goal="retained"), True), (Ask(0.0), False), (Ask(0.0, mib=50.0), False)],
)
def test_a_choice_by_the_reported_scores_is_called_one(ask: Ask, selected: bool, results: Results) -> None:
    runs = only(enriched(results))
    text = choice(runs, variants(runs), groups(runs)[0], ask)["sentences"][0]
    assert text.endswith("so that they look better than they are.") == selected


def test_of_several_seeds_a_run_that_meets_the_condition_is_named(results: Results) -> None:
    """And the paired tests of its variants are counted."""
    results = enriched(results)
    second = copy.deepcopy(results) | {"seeds": [1], "command": results["command"].replace("seed=0", "seed=1")}
    for model in second["models"]:
        if model["retained"]:
            model["retained"]["headline"] += 2.0
    runs = [Run("a", decoded(results)), Run("b", decoded(second))]
    found = choice(runs, variants(runs), groups(runs)[0], Ask(94.0))
    first, other = found["sentences"]
    assert found["variant"].retained.value == pytest.approx(94.1)
    assert "(mean of 2 seeds; b retains the most)" in first
    assert found["loading"]["note"] is None or "a/" not in found["loading"]["note"]
    row = between(decoded(results), found["variant"].first, found["next"].first)
    assert row is not None
    count = 2 if row.distinguishable else 0
    assert f"their scores differ in {count} of 2 runs by the paired test ({row.difference:+.1f}, " in other


@pytest.mark.parametrize(("worse", "said"), [(20.0, True), (0.5, False)])
def test_teachers_that_are_not_equally_good_are_told(results: Results, worse: float, said: bool) -> None:
    """A student that retains all of a bad teacher's score is no better than one that retains most of a good one's."""
    other = copy.deepcopy(results) | {"command": f"{results['command']} stages.finetune_teacher.epochs=1"}
    for model in other["models"]:
        if model["role"] == "teacher":
            model["scores"] = {t: {n: v - worse for n, v in each.items()} for t, each in model["scores"].items()}
        elif model["role"] == "student" and model["scheme"] == "int8" and model["backend"] == "onnxruntime":
            model["retained"]["headline"] = 100.0
    runs = [Run("a", decoded(results)), Run("b", decoded(other))]
    (group,) = groups(runs)
    first, second, *_ = choice(runs, variants(runs), group, Ask())["sentences"]
    assert first.startswith("Ship student, int8 onnxruntime (b), ")
    numbers = re.search(r"macro scores are ([\d.]+) to ([\d.]+), and ([\d.]+) in the run of the choice\.", second)
    assert (numbers is not None) == said
    if numbers is not None:
        low, high, own = map(float, numbers.groups())
        assert (high - low, own) == (pytest.approx(worse, abs=0.11), low)
    alone = choice(runs[1:], variants(runs[1:]), groups(runs[1:])[0], Ask())["sentences"]
    assert "equally good" not in " ".join(alone)


def test_a_variant_that_failed_with_the_first_seed_is_taken_from_another(results: Results) -> None:
    second = copy.deepcopy(results) | {"seeds": [1], "command": results["command"].replace("seed=0", "seed=1")}
    kept = ("name", "role", "step", "target", "scheme", "backend")
    results["models"][8] = {key: results["models"][8][key] for key in kept} | {"failed": "no memory"}
    runs = [Run("a", decoded(results)), Run("b", decoded(second))]
    found = choice(runs, variants(runs), groups(runs)[0], Ask(93.0))
    assert "(1 seed of 2, in the others it failed; b retains the most)" in found["sentences"][0]
    assert "failed" not in (found["loading"]["note"] or "")
    (shown,) = (each for each in page_data(runs)["variants"] if each.get("failed"))
    assert shown["failed"] == "no memory"
    assert shown["raw"][0] == 93.1
    assert shown["loading"] == found["loading"]


def test_a_time_far_below_a_millisecond_is_not_rounded_to_nothing(results: Results) -> None:
    results["models"][8]["latency_ms"][1]["median"] = 0.04
    runs = only(results)
    assert "(0.040 ms, 22.9 MiB with 8x128)" in choice(runs, variants(runs), groups(runs)[0], Ask(93.0))["sentences"][0]
    assert models_table(runs[0].results).rows[8][6] == "0.040"


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.7, 0.9), "onnxruntime, slower than your model, and the fastest of the variants"),
        ((0.7, 1.1), " This is no measurable speedup: the interval includes 1."),
    ],
)
def test_a_choice_that_is_no_faster_is_told(results: Results, ends: tuple[float, float], words: str) -> None:
    for model in results["models"]:
        if model["speedup"] and model["role"] == "student":
            model["speedup"] |= {"best_teacher": 0.8, "ci95": list(ends)}
    runs = only(results)
    assert words in choice(runs, variants(runs), groups(runs)[0], Ask(93.0))["sentences"][0]


def test_the_command_line_tells_where_the_teacher_is_near_chance(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results |= {"chance": {"rte": {"accuracy": 52.7}}, "near_chance": ["rte"]}
    write_json(tmp_path / "a" / "results.json", results)
    assert main([str(tmp_path), "--choose", "retained=93"]) == 0
    assert "Your model is near chance on rte: a share of that says little." in capsys.readouterr().out
