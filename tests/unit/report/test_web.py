"""The page as text: self-contained, escaped, within its policy, and with the same choice as the command line."""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import json
import re
from typing import Any

import pytest

from distill.report.choose import Ask, choice, offered
from distill.report.variants import Run, groups, variants
from distill.report.web import embedded, page
from distill.report.web.data import chance_retained, page_data
from tests.decoded import decoded
from tests.enriched import EVIL, Parsed, disagreeing, enriched, without_plotly

Results = dict[str, Any]


def runs_of(results: Results) -> list[Run]:
    return [Run("outputs/a", decoded(results), disagreeing(["cola", "rte"]))]


def test_the_page_loads_nothing(results: Results) -> None:
    text = page(runs_of(enriched(results)), "A run")
    document = Parsed(without_plotly(text))
    assert document.open == []
    assert not {tag for tag, _ in document.tags} & {"link", "iframe", "object", "embed", "img", "base", "form"}
    references = [v for _, attrs in document.tags for k, v in attrs.items() if k in ("src", "href", "action", "srcset")]
    assert references == ["#choose"]
    assert not re.search(r"url\(|@import|https?://", without_plotly(text))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "@import" not in style


def test_a_failed_variant_names_its_reason(results: Results) -> None:
    for stage in results["stages"]:
        stage["kind"] = "export"
    kept = ("name", "role", "step", "target", "scheme", "backend")
    students = [i for i, m in enumerate(results["models"]) if m["role"] == "student"]
    index = next(i for i in students if results["models"][i]["backend"] == "torch")
    model = {key: results["models"][index][key] for key in kept}
    results["models"][index] = model | {"scheme": "bf16", "failed": "no such kernel"}
    variant = next(variant for variant in page_data(runs_of(results))["variants"] if variant.get("failed"))
    assert variant["loading"]["command"] is None
    assert variant["loading"]["note"] == "This variant failed: no such kernel"


def test_only_its_own_scripts_may_run(results: Results) -> None:
    document = Parsed(page(runs_of(results), "A run"))
    (policy,) = (
        attrs["content"] for tag, attrs in document.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy
    assert "unsafe-eval" not in policy
    run = [text for attributes, text in document.scripts if attributes.get("type") != "application/json"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run}
    assert len(run) == 2
    assert hashes == set(re.findall(r"'sha256-([^']+)'", policy))


def test_texts_cannot_become_markup(results: Results) -> None:
    results = enriched(results)
    for key in ("recipe", "command", "teacher_name"):
        results[key] = EVIL
    results["notes"] = [EVIL]
    results["models"][8]["name"] = results["models"][8]["scheme"] = results["environment"]["cpu"] = EVIL
    results["stages"][0]["name"] = EVIL
    document = Parsed(without_plotly(page([Run(EVIL, decoded(results), disagreeing([EVIL]))], EVIL)))
    assert not {tag for tag, _ in document.tags} & {"img"}
    assert len(document.scripts) == 3
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on")]
    data = json.loads(document.scripts[0][1])
    assert data["runs"][0]["command"] == EVIL
    assert data["runs"][0]["disagreements"][0]["text"] == EVIL
    for name in ("beside", "detection", "entities", "vectors"):
        assert EVIL in data["variants"][8][name][EVIL]
    assert any(EVIL in words for words in document.words)


def test_json_in_the_page_reads_back() -> None:
    data = {"text": "</script><!--<script>&amp;\u2028\u2029é", "n": [1.5, None, True]}
    text = embedded(data)
    assert json.loads(text) == data
    assert not set("<>&\u2028\u2029") & set(text)
    with pytest.raises(ValueError, match="JSON compliant"):
        embedded({"n": float("nan")})


def test_the_numbers_are_those_of_the_results(results: Results) -> None:
    results = enriched(results)
    data = page_data(runs_of(results))
    assert len(data["variants"]) == len(results["models"])
    for variant, model in zip(data["variants"], results["models"], strict=True):
        assert variant["scores"] == {
            task: {metric: pytest.approx(value, rel=1e-4) for metric, value in metrics.items()}
            for task, metrics in model["scores"].items()
        }
        if model["retained"]:
            assert variant["raw"][:3] == pytest.approx(
                [model["retained"]["headline"], *model["retained"]["ci95"]], rel=1e-4
            )
        if model["speedup"]:
            assert variant["speedup"]["1x128"][0] == pytest.approx(
                model["speedup"]["by_input"]["1x128"]["median"], rel=1e-4
            )


def left_of(data: dict[str, Any], share: str) -> list[dict[str, Any]]:
    """The variants that the script offers without a condition, the best first."""
    (group,) = data["groups"]
    ranked = [data["variants"][place] for place in group["ranked"][share][group["input"]]]
    return [one for one in ranked if one["offered"] and (not one["faster"] or one["speedup"][group["input"]][0] > 1)]


def test_the_first_that_the_script_leaves_is_the_choice(results: Results) -> None:
    """The script keeps those of `ranked` that are offered and meet the sliders, in this order."""
    runs = runs_of(enriched(results))
    every, (group,), data = variants(runs), groups(runs), page_data(runs)
    chosen = set()
    for share, least, mib in itertools.product(("raw", "above"), (0.0, 90.0, 95.0, 99.0), (None, 30.0, 80.0)):
        left = [one for one in left_of(data, share) if one[share][0] >= least and (mib or 1e9) >= one["mib"]]
        best = choice(runs, every, group, Ask(least, share == "above", None, mib))["variant"]
        assert (data["variants"].index(left[0]) if left else None) == (None if best is None else every.index(best))
        chosen.add(best and best.name)
    assert len(chosen) > 2


def test_a_share_just_below_the_limit_is_not_offered_as_at_the_limit(results: Results) -> None:
    model = next(model for model in results["models"] if model["role"] == "student" and model["retained"])
    model["retained"]["headline"] = 96.9996
    shown = page_data(runs_of(results))["variants"][results["models"].index(model)]
    assert shown["raw"][0] == 96.9996


def test_forms_of_the_teacher_in_place_of_a_student_are_offered_whatever_their_speed(results: Results) -> None:
    """A run without a student has no others, and the command line names them."""
    for model in results["models"]:
        if model["role"] == "student":
            model["step"] = "finetune_teacher"
            model["speedup"] |= {"best_teacher": 1.0, "ci95": [1.0, 1.0]}
    runs = runs_of(results)
    every, (group,), data = variants(runs), groups(runs), page_data(runs)
    left = [data["variants"].index(one) for one in left_of(data, "raw")]
    assert left == [every.index(one) for one in offered(every, group, Ask(0.0))]
    assert {data["variants"][place]["role"] for place in left} == {"teacher"}
    assert len(left) == 6


def test_chance_is_the_same_ratio_as_retained(results: Results) -> None:
    assert chance_retained(decoded(results)) is None
    teacher = next(m for m in results["models"] if m["role"] == "teacher" and m["scores"])
    whole = enriched(results) | {"chance": teacher["scores"]}
    assert chance_retained(decoded(whole)) == pytest.approx(100.0)
    half = {task: {metric: value / 2 for metric, value in of.items()} for task, of in teacher["scores"].items()}
    assert chance_retained(decoded(whole | {"chance": half})) == pytest.approx(50.0)


def test_chance_counts_no_task_on_which_the_teacher_scores_nothing(results: Results) -> None:
    """As retained %, which has no ratio there."""
    teachers = [m["scores"] for m in results["models"] if m["role"] == "teacher" and m["scores"]]
    chance = copy.deepcopy(teachers[0])
    for scores in teachers:
        scores["rte"] = dict.fromkeys(scores["rte"], 0.0)
    assert chance_retained(decoded(enriched(results) | {"chance": chance})) == pytest.approx(100.0)


def test_a_page_on_many_runs_has_few_disagreeing_rows(results: Results) -> None:
    rows = disagreeing(["cola", "rte"], 30)
    other = copy.deepcopy(results) | {"recipe": "other"}
    run = Run("a", decoded(results), rows)
    one, many = page_data([run]), page_data([run, Run("b", decoded(other))])
    assert len(one["runs"][0]["disagreements"]) == 60
    assert len(many["runs"][0]["disagreements"]) == 20
    assert many["runs"][0]["disagreeing"] == {"cola": 30, "rte": 30}


def test_results_without_scores_have_a_page(results: Results) -> None:
    for model in results["models"]:
        model |= {"scores": {}, "retained": None, "speedup": None, "latency_ms": [], "size_mib": None}
    text = without_plotly(page(runs_of(results), "A run"))
    assert "so there is no choice" in text
