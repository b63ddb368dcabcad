"""Every recipe there is composes, passes the checks and runs from its settings to its report at smoke size."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from distill import check, checkpoint, config, errors, report
from distill.check import rules
from distill.config import Config, Export, Train
from distill.data import tasks
from distill.plan import embeds, given_student, goals, unrolled
from distill.stages.context import SMOKE_LAYERS
from distill.student import half_depth

FILES = sorted(config.folder("recipes").rglob("*.yaml"))
NAMES = sorted(config.recipes())
TABLES = {"glue": tasks.GLUE, "docstrings": tasks.DOCSTRINGS}


@dataclass(frozen=True)
class Finished:
    """A run that is done."""

    recipe: str
    overrides: list[str]
    home: Path
    folder: Path
    settings: Config
    results: dict[str, Any]


@functools.cache
def composed(recipe: str) -> Config:
    """The settings of a recipe as it stands."""
    return config.load_config([f"recipe={recipe}"])


def few_tasks(recipe: str) -> list[str]:
    """Pairs in classes and pairs with a number: both for the recipe of the demo; to save time the former alone for a
    recipe that extends another, and the latter for the rest.
    """
    kind = composed(recipe).tasks.kind
    pairs = [task for task in TABLES[kind].values() if len(task.columns) == 2]
    classes, number = (next(t.name for t in pairs if (t.num_labels == 1) == one) for one in (False, True))
    if recipe == "distilbert":
        return [classes, number]
    return [classes] if extends(recipe) else [number]


def extends(recipe: str) -> bool:
    """Whether a recipe says only in what it differs from another."""
    return "/recipe/" in str(yaml.safe_load(config.recipes()[recipe].read_text())["defaults"])


def cuts_otherwise(recipe: str) -> bool:
    """Whether a recipe differs from another in what its prune stage cuts and in nothing else."""
    settings = composed(recipe)
    parent = unrolled(composed("prune"))
    if unrolled(settings).pipeline != parent.pipeline or recipe == "prune":
        return False
    one, other = rules.flatten(settings), rules.flatten(parent)
    changed = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    return all(key.startswith(("target.", "stages.prune.")) for key in changed)


WHOLE = [name for name in NAMES if not cuts_otherwise(name)]
"""Recipes that are sent the whole way; of the others it is seen what they cut."""


SETTINGS_ALONE = ("cofi", "embedder", "frontier", "minilmv2", "paper/distilbert")
"""Recipes whose students are of the shapes of distilbert's or prune's: their ONNX files are not made once more."""


@pytest.mark.parametrize("recipe", [name for name in NAMES if cuts_otherwise(name)])
def test_nothing_is_cut_but_what_the_recipe_says(recipe: str, run: Any, tmp_path: Path) -> None:
    few = ["limit=smoke", "tasks.names=[order]", "target.shape=[1,16]", "target.speedup=1.01", "output=out"]
    run(tmp_path, recipe, *few, "pipeline=[finetune_teacher,prune]")
    found = checkpoint.read_json(tmp_path / "out" / "prune" / checkpoint.MANIFEST)
    may = composed(recipe).stages["prune"].dimensions  # type: ignore[attr-defined]
    cut = {name for name, size in found["shape"].items() if size < found["full"][name]}
    assert cut
    assert cut <= set(may) < {"layers", "hidden", "ffn"}


@pytest.fixture(scope="session", params=[pytest.param(name, marks=pytest.mark.slow) for name in WHOLE])
def finished(request: pytest.FixtureRequest, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    recipe, home = request.param, tmp_path_factory.mktemp("home")
    tasks = f"tasks.names=[{','.join(few_tasks(recipe))}]"
    small = ["stages.evaluate.shapes=[[1,16],[2,32]]", "target.shape=[1,16]"]
    overrides = ["limit=smoke", "limit.documents=60", "limit.repeats=1", *small, tasks]
    if recipe in SETTINGS_ALONE:
        overrides += ["stages.quantize.schemes=[bitsandbytes]"]
    elif extends(recipe):
        overrides += ["stages.quantize.schemes=[onnxruntime]"]
    if composed(recipe).student.embedding_size is not None:
        overrides += ["student.embedding_size=16"]  # the tiny teachers are as narrow
    if composed(recipe).student.layers:
        overrides += ["student.layers=[0,3]"]  # of teachers of four layers, not of twelve
    if len(goals(composed(recipe))) > 1:
        overrides += ["target.speedup=[1.1,1.2]"]
    results = run(home, recipe, *overrides)
    settings = unrolled(config.load_config([f"recipe={recipe}", *overrides]))
    return Finished(recipe, overrides, home, home / config.run_folder(recipe, overrides, None), settings, results)


def test_every_file_is_a_recipe() -> None:
    assert NAMES
    assert {"distilbert", "paper/distilbert", "task"} <= set(NAMES)
    assert [str(file.relative_to(config.folder("recipes")).with_suffix("")) for file in FILES] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_composes_and_passes_every_check(name: str) -> None:
    assert check.settings(composed(name), name) == []


@pytest.mark.parametrize("name", NAMES)
def test_says_its_command_first_and_then_what_it_is(name: str) -> None:
    lines = config.recipes()[name].read_text().splitlines()
    assert lines[0] == f"# python -m distill recipe={name}"
    assert lines[1] == "#"
    assert len(lines[2]) > 10
    assert lines[2].startswith("# ")


@pytest.mark.parametrize("name", NAMES)
def test_pipeline_is_all_the_stages_in_their_order(name: str) -> None:
    settings = composed(name)
    assert set(settings.pipeline) <= set(settings.stages)  # a recipe that extends another may leave stages out
    assert len(settings.pipeline) == len(set(settings.pipeline))
    assert {"evaluate", "export"} <= {stage.kind for stage in settings.stages.values()}


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_differs_in_nothing_but_the_teacher(name: str) -> None:
    """Teacher, start, role and terms apart, a stage `x_baseline` has the settings of stage `x`."""
    settings = composed(name)
    twins = [(s, s.removesuffix("_baseline")) for s in settings.stages if s.endswith("_baseline")]
    assert twins
    for baseline, student in twins:
        one, other = (rules.flatten(settings.stages[s]) for s in (baseline, student))
        own = {k for k in one.keys() | other.keys() if k.split(".")[0] not in ("role", "start", "teacher", "terms")}
        assert {k: one.get(k) for k in own} == {k: other.get(k) for k in own}
        terms = settings.stages[baseline].terms  # type: ignore[attr-defined]
        assert {term.against for term in terms.values()} == {"labels"}


def test_runs_to_valid_results(finished: Finished) -> None:
    written = json.loads((finished.folder / "results.json").read_text())
    assert report.validate(written) == []
    assert written == finished.results
    assert written["smoke"]
    assert written["recipe"] == finished.recipe
    assert {model["role"] for model in written["models"]} == {"teacher", "student", "baseline"}
    assert {model["scheme"] for model in written["models"]} >= {"fp32", "fp32_medium", "int8"}
    scored = [model["scores"] for model in written["models"] if model["scores"]]
    assert scored
    assert all(list(scores) == finished.settings.tasks.names for scores in scored)
    assert [stage["name"] for stage in written["stages"]] == finished.settings.pipeline


def test_the_student_is_smaller(finished: Finished) -> None:
    size = {model["name"]: model["parameters"] for model in finished.results["models"]}
    for label in goals(finished.settings):
        student, baseline = (" ".join((role, *label.split())) for role in ("student", "baseline"))
        assert size[student] == size[baseline] < size["teacher"]


def test_every_stage_leaves_its_manifest_and_nothing_half_done(finished: Finished) -> None:
    for name in finished.settings.pipeline:
        stage = finished.settings.stages[name]
        assert checkpoint.finished(finished.folder / name)
        if isinstance(stage, Train) and stage.data == "tasks":
            assert all(
                checkpoint.finished(finished.folder / name / task) for task in finished.settings.tasks.names or []
            )
    left = [p for p in finished.folder.rglob("*") if p.name.endswith((".state", ".tmp")) or ".tmp." in p.name]
    assert left == []
    before = yaml.safe_load((finished.folder / "config.json").read_text())
    assert before["pipeline"] == composed(finished.recipe).pipeline


def test_leaves_the_report_in_every_form(finished: Finished) -> None:
    page = (finished.folder / "report.html").read_text()
    assert "<svg" in page
    assert "<table" in page
    assert "| student" in (finished.folder / "report.md").read_text()
    assert (finished.folder / "frontier.svg").read_text().rstrip().endswith("</svg>")
    assert (finished.folder / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_the_student_of_every_task_loads_with_transformers_alone(finished: Finished) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    wanted = finished.settings.student
    stages = [finished.settings.stages[name] for name in finished.settings.pipeline]
    prunes = any(stage.kind == "prune" for stage in stages)
    layers = len(wanted.layers or half_depth(SMOKE_LAYERS))
    if not given_student(finished.settings) and not any(getattr(stage, "build_student", False) for stage in stages):
        layers = SMOKE_LAYERS
    exports = [name for name in finished.settings.pipeline if isinstance(finished.settings.stages[name], Export)]
    exports = [name for name in exports if not embeds(finished.settings, name)]  # tests/contract/test_embedder.py
    for export, task in itertools.product(exports, finished.settings.tasks.names or []):
        folder = finished.folder / export / task
        if prunes:
            pruned = finished.folder / export.replace("export", "prune") / checkpoint.MANIFEST
            layers = checkpoint.read_json(pruned)["shape"]["layers"]
        model, told = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
        assert not told["missing_keys"]
        assert not told["unexpected_keys"]
        assert model.config.num_hidden_layers == layers
        batch = AutoTokenizer.from_pretrained(folder)(["a kettle sings"], ["the tea is ready"], return_tensors="pt")
        with torch.no_grad():
            logits = model.eval()(**batch).logits
        assert logits.shape == (1, TABLES[finished.settings.tasks.kind][task].num_labels)
        assert torch.isfinite(logits).all()
        assert (folder / "README.md").is_file()
        proofs = checkpoint.read_json(finished.folder / export / checkpoint.MANIFEST)["proofs"][task]
        if finished.recipe in SETTINGS_ALONE:
            assert set(proofs) == {"torch float", "bitsandbytes int8"}
        else:
            assert {"model.onnx", "model_int8.onnx"} <= {file.name for file in (folder / "onnx").iterdir()}
            assert {"torch float", "onnxruntime fp32", "onnxruntime int8"} <= set(proofs)
        assert max(proof["largest_difference"] for proof in proofs.values()) <= 1e-5


def test_the_same_command_again_does_nothing_again(finished: Finished, run: Any, capsys: pytest.CaptureFixture) -> None:
    stages = [finished.folder / name / checkpoint.MANIFEST for name in finished.settings.pipeline]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in stages]
    assert run(finished.home, finished.recipe, *finished.overrides) == finished.results
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in stages] == before
    told = capsys.readouterr().out.splitlines()
    assert [f"{name}: finished earlier, skipped" for name in finished.settings.pipeline] == [
        line for line in told if line.endswith("skipped")
    ]


def test_other_settings_in_the_same_folder_are_refused(finished: Finished, run: Any) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        run(finished.home, finished.recipe, *finished.overrides, "temperature=3", f"output='{finished.folder}'")
    assert f"temperature: got 3.0; must be 2.0 as when {finished.folder} was begun; set output=NEW_FOLDER" in (
        caught.value.messages
    )
