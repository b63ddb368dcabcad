"""`distill recipes` says what a recipe's settings say."""

from __future__ import annotations

import re

import pytest

from distill import config, losses
from distill.cli.recipes import explained, header, listed, main
from distill.config import load_config, recipes
from distill.config.baselines import expanded


def test_every_recipe_is_listed_with_the_papers_of_its_own_header() -> None:
    text = "\n".join(listed())
    parts = {part.split("\n")[0]: part for part in re.split(r"\n(?=\S)", text)}
    assert [*parts] == [*recipes()]
    for name, path in recipes().items():
        papers = set(re.findall(r"\d{4}\.\d{5}", path.read_text()))
        assert papers <= set(re.findall(r"\d{4}\.\d{5}", parts[name]))
    assert "2012.15828, arXiv 1910.01108" in " ".join(parts["minilmv2"].split()), "and of the recipe that it extends"


@pytest.mark.parametrize("name", ["distilbert", "patient_kd", "tinybert"])
def test_stages_weights_and_losses_are_those_of_the_settings(name: str) -> None:
    lines = list(explained(name))
    assert max(map(len, lines[:-4])) <= 100
    text = " ".join(" ".join(lines).split())
    settings = expanded(load_config([f"recipe={name}"]))
    stages = text.partition("Stages, in this order:")[2].partition("Losses, each of a row")
    places = [stages[0].index(f"{number}. {stage}:") for number, stage in enumerate(settings.pipeline, 1)]
    assert places == sorted(places)
    for start, end, stage in zip(places, [*places[1:], None], settings.pipeline, strict=True):
        part, terms = stages[0][start:end], getattr(settings.stages[stage], "terms", {})
        told = re.findall(r"([\d.]+) x (\w+): .*?\(loss (\w+)", part)
        weighted = {label: term for label, term in terms.items() if term.weight > 0}
        assert told == [(f"{t.weight:g}", label, t.loss["_target_"].split(".")[-1]) for label, t in weighted.items()]
        files = {label: config.folder("conf") / "term" / f"{label}.yaml" for label in weighted}
        assert all(header(file)[0] in part for file in files.values() if file.is_file())
    explained_losses = re.findall(r"(\w+): ", stages[2])
    assert {*explained_losses} & {*losses.__all__} == {*re.findall(r"\(loss (\w+)", stages[0])}


def test_the_learning_rate_of_a_pruned_model_is_named_with_its_compression() -> None:
    text = " ".join(" ".join(explained("prune")).split())
    assert "learning rate 0.0001 at width 384 x how many times fewer weights its layers have ^ 0.75" in text
    assert "learning rate 0.0001 at width 384 1 x supervised:" in text, "the teacher is not pruned"


def test_an_unknown_recipe_is_refused_with_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tinbert"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.endswith("did you mean tinybert?\n")
