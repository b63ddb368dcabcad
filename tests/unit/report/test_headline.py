"""Each sentence agrees with the numbers, losses included."""

from __future__ import annotations

from typing import Any

import pytest

from distill.config.loads import SINGLE_TEXTS
from distill.report import averages, detail, figure, footnotes, headline, model_card, model_rows, table, verdict
from distill.report.checked import validate
from distill.report.decision import decided
from distill.report.loads_table import loads_table
from distill.report.variants import Run
from tests.decoded import decoded, model_of
from tests.enriched import enriched

Results = dict[str, Any]


def models(results: Results, role: str, scheme: str) -> list[dict[str, Any]]:
    return [m for m in results["models"] if m["role"] == role and m["scheme"] == scheme]


def test_gain(results: Results) -> None:
    text = headline.headline(decoded(results))
    assert text.startswith("The int8 student (onnxruntime) retains 93.1% (95% interval 92.0 to 94.0) of the teacher's")
    speed = "at 5.20x (95% interval 5.04 to 5.41) the speed of the teacher's fastest float32 variant"
    assert f"{speed} at 8x128 (batch x length)." in text
    gain = "distillation gained 5.5 percentage points."
    assert text.endswith(f"The same student trained without a teacher retains 87.6%: {gain}")


@pytest.mark.parametrize(
    ("least", "said"), [(90.0, "The fastest student that retains at least 90%"), (99.9, "No student retains 99.9%")]
)
def test_a_single_student_may_be_asked_to_retain_a_share(least: float, said: str, results: Results) -> None:
    results["least_retained"] = least
    assert f" {said}" in headline.headline(decoded(results))


def test_costs_of_shared_heads_are_those_of_all_tasks(results: Results) -> None:
    count = len(model_rows.task_names(decoded(results)))
    assert "together" not in " ".join([headline.headline(decoded(results)), *footnotes.coverage(decoded(results))])
    results["heads"] = "shared"
    assert validate(results) == []
    assert f"at 8x128 (batch x length), for its {count} tasks together." in headline.headline(decoded(results))
    (line,) = [line for line in footnotes.coverage(decoded(results)) if "one encoder" in line]
    assert f"the teacher has {count} models, which run one after the other on the same batch." in line
    assert f"the speedup is about 1/{count} of the one reported" in line


def test_a_baseline_with_a_start_of_its_own_is_another_student(results: Results) -> None:
    """What differs between the two is not distillation alone."""
    results["own_baseline"] = True
    assert validate(results) == []
    text = headline.headline(decoded(results))
    start = "Another student, which starts from other weights and which no teacher taught, retains 87.6%:"
    assert text.endswith(f"{start} the student retains 5.5 percentage points more than it.")
    assert {point.role for point in figure.points(decoded(results))} >= {"other", "student"}
    made = decided(Run("", decoded(results | {"least_retained": 93})))
    assert made.sentences[1].startswith(start)
    assert "another without a teacher" in [str(row[0]) for row in made.table.rows]


def test_loss_against_the_baseline(results: Results) -> None:
    models(results, "baseline", "int8")[0]["retained"] |= {"headline": 95.6, "ci95": [94.5, 96.5]}
    text = headline.headline(decoded(results))
    assert "distillation LOST 2.5 percentage points" in text
    assert "gained" not in text


def test_a_task_without_a_ratio_is_named_and_the_sign_is_that_of_the_test(results: Results) -> None:
    """The shares leave out a task in which the teacher has no skill; the test of the macro scores has all tasks."""
    task = model_rows.task_names(decoded(results))[0]
    for model in results["models"]:
        if model.get("retained"):
            model["retained"]["left_out"] = [task]
    compared = model_rows.pair(decoded(results))
    assert compared is not None
    ends = {
        side: {"name": each.name, "scheme": each.scheme, "backend": each.backend}
        for side, each in zip("ab", compared, strict=True)
    }
    test = {"scope": None, "test": "bootstrap", "difference": -25.7, "ci95": [-30.0, -21.4], "p": 1e-4}
    results["tests"] = [ends | test | {"p_corrected": 2e-4, "distinguishable": True}]
    text = headline.headline(decoded(results))
    assert f" without {task}, where that is not above 0" in text
    assert "over all tasks, the student's score is 25.7 points lower." in text
    assert "gained" not in text


def test_scores_without_a_share_are_still_a_result(results: Results) -> None:
    for model in results["models"]:
        if model.get("retained"):
            model["retained"] |= {"headline": None, "ci95": None}
    text = headline.headline(decoded(results))
    assert "so that no share of it is defined. The " in text
    assert "No student was scored" not in text


def test_the_splits_of_all_tasks_are_named(results: Results) -> None:
    first = model_rows.task_names(decoded(results))[0]
    for row in results["coverage"]:
        if row["task"] == first and row["split"].startswith("validation"):
            row["split"] = "test"
    assert "on its test and validation splits." in footnotes.coverage(decoded(results))[0]


def test_overlap_of_intervals(results: Results) -> None:
    models(results, "baseline", "int8")[0]["retained"] |= {"headline": 92.5, "ci95": [91.5, 93.5]}
    assert headline.headline(decoded(results)).endswith("gained 0.6 percentage points. The two 95% intervals overlap.")


def test_slower_student(results: Results) -> None:
    students = [model for model in results["models"] if model["role"] == "student" and model.get("speedup")]
    for model in students:
        model["speedup"] |= {"best_teacher": 0.8, "ci95": [0.75, 0.85]}
    assert "but is slower: 0.80x" in headline.headline(decoded(results))
    for model in students:
        model["speedup"] |= {"best_teacher": 1.02, "ci95": [0.95, 1.08]}
    assert "no measurable speedup" in headline.headline(decoded(results))


def test_baseline_in_another_variant_is_compared_in_that_variant(results: Results) -> None:
    results["models"].remove(models(results, "baseline", "int8")[0])
    assert headline.headline(decoded(results)).endswith(
        "Compared as fp32 torch, the distilled student retains 95.2% and the same student trained without a teacher "
        "88.4%: distillation gained 6.8 percentage points."
    )


def test_no_or_failed_baseline(results: Results) -> None:
    baselines = [m for m in results["models"] if m["role"] == "baseline"]
    for model in baselines:
        model |= {"failed": "out of memory", "retained": None}
    assert "The baseline failed" in headline.headline(decoded(results))
    results["models"] = [m for m in results["models"] if m not in baselines]
    assert headline.headline(decoded(results)).endswith(headline.NO_BASELINE)


def test_without_a_teacher_there_is_no_gain_to_be_known(results: Results) -> None:
    """Such a student learns from the labels alone, as its baseline does, or is only pruned."""
    run = decoded(results | {"untaught": True})
    without = [m for m in results["models"] if m["role"] != "baseline"]
    alone = decoded(results | {"untaught": True, "models": without})
    for each in (run, alone):
        text = headline.headline(each)
        assert text.endswith(f"(batch x length). {headline.UNTAUGHT}")
        assert "gained" not in text
        assert detail.gain_tables(each) == []
    shipped = decoded(results | {"untaught": True, "least_retained": 93.0})
    assert decided(Run("", shipped)).sentences[-1] == headline.UNTAUGHT


def test_no_student(results: Results) -> None:
    for model in (m for m in results["models"] if m["role"] == "student"):
        model |= {"failed": "out of memory", "retained": None}
    assert headline.headline(decoded(results)).startswith(headline.NO_STUDENT)


@pytest.fixture
def itself(results: Results) -> Results:
    """Of `recipe=quantize`, which reports forms of the teacher as those of the student."""
    results["models"] = [m | {"step": "finetune_teacher"} for m in results["models"] if m["role"] != "baseline"]
    return results


def test_forms_of_your_own_model_are_not_called_a_student(itself: Results) -> None:
    assert headline.headline(decoded(itself)) == (
        "Your model in int8 (onnxruntime) retains 93.1% (95% interval 92.0 to 94.0) of its float32 macro score without "
        "wnli at 5.20x (95% interval 5.04 to 5.41) the speed of its fastest float32 variant at 8x128 (batch x length)."
    )
    chosen = headline.headline(decoded(itself | {"least_retained": 93.0}))
    assert chosen.endswith(
        " The fastest form of your model that retains at least 93% is int8 onnxruntime: 93.1% at 5.20x. It was "
        "selected by the same scores that are reported here, so that they look better than they are."
    )
    assert headline.headline(decoded(itself | {"least_retained": 99.9}), "The model").endswith(
        " No form of the model retains 99.9%."
    )
    said = "The run has no student: the rows of the student are the teacher itself in several forms."
    assert said in table.models_table(decoded(itself)).notes


def test_a_form_of_your_own_model_without_a_share_is_not_called_a_student(itself: Results) -> None:
    for model in itself["models"]:
        if model.get("retained"):
            model["retained"] |= {"headline": None, "ci95": None}
    assert "is defined. Your model in fp32 (torch) has 75.9, at 2.01x the speed" in headline.headline(decoded(itself))


def test_the_card_of_your_own_model_calls_it_no_student(itself: Results) -> None:
    card = model_card(decoded(itself), None, "cola")
    assert "# teacher: cola\n" in card
    assert "The model in int8 (onnxruntime) retains 93.1%" in card
    assert "name: teacher-cola" in card
    assert "Your model" not in card


def test_choice_ignores_scores(results: Results) -> None:
    slow, fast = models(results, "student", "int8")
    slow["retained"]["headline"] = 99.9
    assert model_rows.chosen(decoded(results)) == model_of(fast)
    fast["scheme"] = "int8_static"
    assert model_rows.chosen(decoded(results)) == model_of(fast)
    for model in (slow, fast):
        model["failed"] = "no such kernel"
    chosen = model_rows.chosen(decoded(results))
    assert chosen is not None
    assert model_rows.variant(chosen) == "bf16 torch"


def test_name_of_the_average(results: Results) -> None:
    assert averages.average_name(decoded(results)) == "GLUE (9 tasks)"
    row = next(r for r in results["coverage"] if r["split"] == "validation_mismatched")
    row["rows"] = 0
    assert averages.average_name(decoded(results)) == "Partial GLUE (8 of 9 tasks complete)"
    assert any("mnli validation_mismatched 0 of 9,832 rows" in line for line in footnotes.coverage(decoded(results)))
    results["coverage"] = [r for r in results["coverage"] if r["task"] not in ("mnli", "qqp")]
    for model in results["models"]:
        model["scores"] = {task: scores for task, scores in model["scores"].items() if task not in ("mnli", "qqp")}
    assert averages.average_name(decoded(results)) == "Partial GLUE (7 of 9 tasks)"
    assert "Not in the average: qqp, mnli." in footnotes.coverage(decoded(results))
    for row in results["coverage"]:
        row["task"] = f"own_{row['task']}"
    for model in results["models"]:
        model["scores"] = {f"own_{task}": scores for task, scores in model["scores"].items()}
    assert averages.average_name(decoded(results)) == "Average (7 tasks)"
    results["coverage"][1]["rows"] = 5
    assert averages.average_name(decoded(results)) == "Partial average (7 tasks)"
    results["coverage"][1]["stand_in"] = True
    assert averages.average_name(decoded(results)) == "Stand-in average (7 tasks)"


def test_own_tasks_with_names_of_published_ones_are_own(results: Results) -> None:
    for row in results["coverage"]:
        row["official_rows"] = None
    assert averages.average_name(decoded(results)) == "Average (9 tasks)"
    text = " ".join(footnotes.coverage(decoded(results)))
    assert "GLUE" not in text
    for row in results["coverage"]:
        row["task"] = "order"
    for model in results["models"]:
        model["scores"] = {"order": next(iter(model["scores"].values()))} if model["scores"] else {}
    assert averages.average_name(decoded(results)) == "Score of order"
    assert "docstrings" not in " ".join(footnotes.coverage(decoded(results)))


def test_only_tasks_outside_the_headline_are_said_to_be(results: Results) -> None:
    """Whatever they are called."""
    assert "of the teacher's macro score without wnli at" in headline.headline(decoded(results))
    for row in results["coverage"]:
        row["in_headline"] = row["task"] not in ("cola", "rte")
    assert model_rows.macro_score(decoded(results)) == "macro score without cola and rte"
    for row in results["coverage"]:
        row["in_headline"] = True
    notes = [*table.models_table(decoded(results)).notes, *detail.retained_table(decoded(results)).notes]
    assert "without" not in " ".join([headline.headline(decoded(results)).partition("The same")[0], *notes])
    assert model_rows.macro_score(decoded(results)) == "macro score"


def test_capped_training_is_named(results: Results) -> None:
    assert "Training is partial: sst2 10,000 of 67,349 rows." in footnotes.coverage(decoded(results))
    chosen = next(row for row in results["coverage"] if (row["task"], row["split"]) == ("sst2", "train"))
    results["coverage"].append(chosen | {"split": "development", "rows": 890, "official_rows": None})
    assert "Training is partial: sst2 10,000 of 67,349 rows, and 890 as development rows." in footnotes.coverage(
        decoded(results)
    )
    chosen["rows"] = 67_349 - 890  # all rows of the file, of which none trains that choices are made on
    assert not any(line.startswith("Training is partial") for line in footnotes.coverage(decoded(results)))


@pytest.mark.parametrize("own", ["", "own_"])
def test_a_task_without_scores_is_not_in_the_average(results: Results, own: str) -> None:
    """A task with validation rows but no training rows has no model."""
    for row in results["coverage"]:
        if row["task"] == "rte" and row["split"] == "train":
            row["rows"] = 0
        row["task"] = own + row["task"]
    for model in results["models"]:
        model["scores"] = {own + task: scores for task, scores in model["scores"].items() if task != "rte"}
    assert averages.average_name(decoded(results)) == ("Average (8 tasks)" if own else "Partial GLUE (8 of 9 tasks)")
    first, second, *_ = footnotes.coverage(decoded(results))
    assert "rte" not in first
    assert second == f"Not in the average: {own}rte."


def test_scores_of_any_model_count(results: Results) -> None:
    results["models"][0]["scores"] = {}
    assert averages.average_name(decoded(results)) == "GLUE (9 tasks)"
    for model in results["models"]:
        model["scores"] = {}
    assert averages.average_name(decoded(results)) == "Average (0 tasks)"


def test_shape_of_the_speedup(results: Results) -> None:
    for model in results["models"]:
        for row in model["latency_ms"]:
            row["length"] = row["length"] and 64
    assert "the teacher's fastest float32 variant at 8x64 (batch x length)." in headline.headline(decoded(results))
    for model in results["models"]:
        model["latency_ms"] = []
    assert "the teacher's fastest float32 variant." in headline.headline(decoded(results))


def test_a_row_on_the_cpu_of_a_run_with_a_gpu(results: Results) -> None:
    assert "on the CPU" not in headline.headline(decoded(results))
    results["environment"]["gpu"] = "Example GPU 5"
    for times, fastest, expected in (
        (10, "onnxruntime", "int8 student (onnxruntime, on the CPU)"),
        (1000, "torch", "bf16 student (torch)"),
    ):
        for model in results["models"]:
            if model["role"] == "student" and model["backend"] == fastest:
                for row in model["latency_ms"] or ():
                    row["median"] /= times
        assert headline.headline(decoded(results)).startswith(f"The {expected} retains")
    results["models"] = [m for m in results["models"] if m["backend"] != "onnxruntime"]
    assert model_rows.on_the_cpu(decoded(results)) == []


def test_timing_describes_the_protocol(results: Results) -> None:
    text = footnotes.timing(decoded(results))
    for part in (
        "in random order",
        "An untimed call of the same variant",
        "until a timing took some tens of milliseconds",
    ):
        assert part in text
    assert "There were 20 rounds, with 2 threads, on Example CPU 9000 (2 cores)." in text
    assert "pinned" not in text


def test_the_waterfall_has_what_each_step_gave_alone_and_with_those_before(results: Results) -> None:
    steps = [("teacher", 0.8, 100.0), ("depth", 1.6, 97.0), ("int8", 3.2, None)]
    rows = [{"step": step, "speedup": speedup, "retained": kept} for step, speedup, kept in steps]
    results["waterfall"] = [row | {"target": None} for row in rows]
    table = detail.waterfall_table(decoded(results))
    assert table is not None
    assert table.rows == [
        ("teacher", "-", "0.80x", "100.0"),
        ("depth", "2.00x", "1.60x", "97.0"),
        ("int8", "2.00x", "3.20x", "-"),
    ]
    results["waterfall"] += [row | {"target": "4x"} for row in rows[:2]]
    table = detail.waterfall_table(decoded(results))
    assert table is not None
    assert [row[:3] for row in table.rows[2:]] == [
        ("no target", "int8", "2.00x"),
        ("4x", "teacher", "-"),
        ("4x", "depth", "2.00x"),
    ]


def test_the_fastest_variant_of_the_teacher_that_keeps_its_score_is_named(results: Results) -> None:
    assert "your model" not in headline.headline(decoded(results))
    for model in results["models"]:
        if ways := model["speedup"]:
            median = ways["best_teacher"] / 1.65
            ends = [0.9 * median, 1.1 * median]
            ways["over_kept"] = {"scheme": "bf16", "backend": "torch", "median": median, "ci95": ends}
    assert validate(results) == []
    run = decoded(results)
    assert (
        " It is 3.15x (95% interval 2.84 to 3.47) the speed of your model in bf16 torch, the teacher's"
        in headline.headline(run)
    )
    shown = table.models_table(run)
    cells = [row[shown.columns.index("Over your model in bf16 torch [95%]")] for row in shown.rows]
    assert cells[8] == "3.15x [2.84, 3.47]"
    assert cells[2] == "1.00x [0.90, 1.10]"
    (note,) = [line for line in shown.notes if line.startswith("Your model in bf16 torch: ")]
    assert note.endswith(", with the load of the run.")
    (seen,) = [line for line in table.models_table(decoded(results | {"seen": ["rte"]})).notes if note in line]
    known = "Your model may have learned the development rows of rte before this run: on these rows its forms may keep"
    assert seen.startswith(f"{note} {known}")
    assert figure.second(run) == figure.Second("your model in bf16 torch", 1.65)
    assert "speedup over your model in bf16 torch" in figure.svg(figure.points(run), below=figure.second(run))
    for model in results["models"]:  # the reference itself is the fastest that keeps its score
        if ways := model["speedup"]:
            ways["over_kept"] = {
                "scheme": "fp32",
                "backend": "openvino",
                "median": ways["best_teacher"],
                "ci95": [0, 9],
            }
    assert "your model" not in headline.headline(decoded(results))
    assert figure.second(decoded(results)) is None


def test_both_loads_are_side_by_side(results: Results) -> None:
    results = enriched(results)
    model = results["models"][8]
    model["requests"] |= {"count": 300, "distinct": 250}
    own = {"p95": 3.0, "p99": 4.0, "tokenizer": 0.25, "speedup": {"median": 3.0, "ci95": [2.5, 3.5]}}
    model["from_text"] = {"own lengths": own | {"median": 8.0}, SINGLE_TEXTS: own | {"median": 2.0}}
    model["speedup"]["by_input"][SINGLE_TEXTS] = {"median": 1.5, "ci95": [1.4, 1.6]}
    assert validate(results) == []
    shown = loads_table(decoded(results))
    assert shown is not None
    batch, single = ("4.68x [4.45, 4.91]", "1.50x [1.40, 1.60]")
    text = "3.00x [2.50, 3.50], {} ms, tokenizer 25%"
    expected = ("7.69", batch, text.format("8.00"), "10.00", "11.00", "13.00", single, text.format("2.00"))
    assert shown.rows[8][3:] == expected
    assert shown.rows[5][-1] == "-"
    assert "300 texts or 300 texts, 250 different, one at a time" in shown.notes[0]
    said = headline.headline(decoded(results))
    assert (
        " From texts, with the tokenizer, it is 3.00x. It is 1.50x (95% interval 1.40 to 1.60) with single texts."
        in said
    )
    for each in results["models"]:
        ratios = (each["speedup"] or {}).get("by_input", {})
        for name in [name for name in ratios if "x128" in name]:  # no fixed shape is timed unless one is asked for
            del ratios[name]
    short = headline.headline(decoded(results))
    assert ". From texts, with the tokenizer, it is 3.00x. It is 1.50x (95% interval 1.40 to 1.60) with single" in short
    assert " With texts of a fixed length " in said
    assert " With texts of a fixed length " not in short


def test_whether_a_share_is_shown_to_be_kept(results: Results) -> None:
    """By the lower end of the one-sided interval, whatever the value is; not where the reported rows chose it."""
    results["least_retained"] = 93.0
    models(results, "student", "int8")[1]["retained"]["at_least"] = 94.0
    assert "is shown" not in headline.headline(decoded(results))
    for model in results["models"]:
        if model["role"] == "student" and model["retained"]:
            model["retained"]["development"] = model["retained"]["headline"]
    for end, said in ((92.9, "is not shown"), (92.96, "is not shown"), (93.0, "is shown")):
        models(results, "student", "int8")[1]["retained"]["at_least"] = end
        text = headline.headline(decoded(results))
        assert f"That it keeps at least 93% {said}: the one-sided 95% interval begins at {end}%." in text


def test_what_a_test_shows(results: Results) -> None:
    """Nothing is claimed where the interval excludes 0 and p, corrected, is not below 0.05."""
    results = enriched(results)
    ends = {
        "differ": (True, [-1.0, -0.1]),
        "not distinguishable": (False, [-1.0, 0.1]),
        "undecided": (False, [-1.0, -0.1]),
    }
    for test, (said, (distinguishable, interval)) in zip(results["tests"], ends.items(), strict=False):
        test |= {"distinguishable": distinguishable, "ci95": interval}
        assert verdict.word(decoded(results).tests[list(ends).index(said)]) == said
