"""Every recipe there is composes, passes the checks and runs from its settings to its report at smoke size."""

from __future__ import annotations

import functools
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import distill
from distill import config, report
from distill.cli import help_text
from distill.config import Baseline, Config, Evaluate, Export, Prune, Train
from distill.config.backends import BACKENDS
from distill.config.baselines import expanded
from distill.config.plan import STATIC, Plan, resolve
from distill.data.task import chosen
from distill.deploy.export import proof, record
from distill.models.student import half_depth
from distill.models.teacher import read_config
from distill.pipeline import validation
from distill.pipeline.context.given import SMOKE_LAYERS
from distill.pipeline.validation import rules
from distill.runtime.storage import atomic, run_folder

FILES = sorted(config.folder("recipes").rglob("*.yaml"))
NAMES = sorted(config.recipes())
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
MSE = "distill.losses.mse"


@dataclass(frozen=True)
class Finished:
    """A run that is done."""

    recipe: str
    overrides: list[str]
    home: Path
    folder: Path
    settings: Config
    plan: Plan
    results: dict[str, Any]


@functools.cache
def composed(recipe: str) -> Config:
    """The settings of a recipe as it stands."""
    return config.load_config([f"recipe={recipe}"])


def few_tasks(recipe: str) -> list[str]:
    """Pairs in classes and pairs with a number: both for the recipe of the demo; to save time the former alone for a
    recipe that extends another, and the latter for the rest.
    """
    pairs = {name: task.kind for name, task in chosen(composed(recipe).tasks).items() if task.text_pair}
    classes, number = (
        next(name for name, kind in pairs.items() if kind == wanted) for wanted in ("classification", "regression")
    )
    if recipe == "distilbert":
        return [classes, number]
    return [classes] if extends(recipe) else [number]


def extends(recipe: str) -> bool:
    """Whether a recipe says only in what it differs from another."""
    return "/recipe/" in str(yaml.safe_load(config.recipes()[recipe].read_text())["defaults"])


def cuts_otherwise(recipe: str) -> bool:
    """Whether a recipe differs from another in what its prune stage cuts and in nothing else."""
    written = yaml.safe_load(config.recipes()[recipe].read_text())
    stages = written.pop("stages", {})
    same = written.pop("defaults") == ["/recipe/prune", "_self_"] and written.keys() <= {"target"}
    return same and stages.keys() == {"prune"} and recipe != "frontier"


TRAINED_LIKE = {
    **dict.fromkeys(("adapt", "electra_small", "minilm", "minilmv2"), "distilbert"),
    **dict.fromkeys(("paper/distilbert", "paper/distilroberta", "paper/minilmv2"), "distilbert"),
    **dict.fromkeys(("dist", "patient_kd", "rkd"), "prune"),
    "paper/theseus": "theseus",
    "paper/tinybert": "tinybert",
}
"""Recipe -> the one from which it differs up to its last training alone."""
WHOLE = [name for name in NAMES if not cuts_otherwise(name) and name not in TRAINED_LIKE]
"""Recipes that are sent the whole way; of the others it is seen what they cut, or how they train."""


WITHOUT_BASELINE = ("auto", "layer_drop", "quantize", "self_distill")
"""Recipes that spend the whole of their budget on students, whose student has no teacher itself or is the teacher, or
whose teacher is what a baseline would be."""

OF_ONE_SIZE = ("quantize", "self_distill")
"""Recipes whose student has its teacher's shape."""

SETTINGS_ALONE = ("cofi", "embedder", "frontier", "layer_drop", "prune_general", "theseus", "tinybert")
"""Recipes whose students are of the shapes of distilbert's or prune's: their ONNX files are not made once more."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in NAMES if cuts_otherwise(name)])
def test_nothing_is_cut_but_what_the_recipe_says(recipe: str, run: Any, tmp_path: Path) -> None:
    """The tiny model is never 30 times as fast, so that all is cut that may be."""
    few = ["limit=smoke", "tasks.names=[order]", "target.shape=[1,16]", "target.speedup=30", "output=out"]
    few += ["target.scheme=fp32", "tasks.max_length=32"]
    run(tmp_path, recipe, *few, "pipeline=[finetune_teacher,prune]")
    found = atomic.read_json(tmp_path / "out" / "prune" / run_folder.MANIFEST)
    may = composed(recipe).stages["prune"].dimensions  # type: ignore[attr-defined]
    whole = read_config(str(tmp_path / "out" / "finetune_teacher" / "order"))
    full = {"layers": whole.num_hidden_layers, "hidden": whole.hidden_size, "ffn": whole.intermediate_size}
    cut = {name for name, size in found["shape"].items() if size < full[name]}
    assert cut
    assert cut <= set(may) < {"layers", "hidden", "ffn"}


def small(recipe: str) -> list[str]:
    """Settings with which a recipe takes seconds."""
    tasks = f"tasks.names=[{','.join(few_tasks(recipe))}]"
    shapes = ["stages.evaluate.shapes=[[1,16],[2,32]]", "target.shape=[1,16]"]
    shapes += ["tasks.max_length=32", "corpus.max_length=32", "transfer.most=200"]
    overrides = ["limit=smoke", "limit.documents=60", "limit.repeats=1", *shapes, tasks]
    if recipe in SETTINGS_ALONE or recipe in TRAINED_LIKE:
        overrides += ["stages.quantize.schemes=[bitsandbytes]"]
        overrides += ["limit.steps=3"] * (recipe != "cofi")  # whose gates close over the steps
    elif extends(recipe) or recipe == "task":
        overrides += ["stages.quantize.schemes=[onnxruntime]"]
    if composed(recipe).student.embedding_size is not None:
        overrides += ["student.embedding_size=16"]  # the tiny teachers are as narrow
    if composed(recipe).student.hidden_size is not None:
        # A random teacher is twice as wide. Both widths are multiples of the heads of the papers' terms.
        overrides += ["student.hidden_size=48", "student.intermediate_size=96"]
    if composed(recipe).student.layers:
        overrides += ["student.layers=[0,3]"]  # of teachers of four layers, not of twelve
    return overrides


def layers_of(settings: Config) -> int:
    """Layers of a student that is built."""
    wanted = settings.student
    return wanted.num_hidden_layers or len(wanted.layers or half_depth(SMOKE_LAYERS))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TRAINED_LIKE)
def test_a_recipe_that_differs_in_its_trainings_alone_is_trained(recipe: str, run: Any, tmp_path: Path) -> None:
    """No term but those that it sets counts, and its student loads with transformers alone. How such a student is
    quantized, scored, exported and reported is seen of the other recipe, with the same settings."""
    from transformers import AutoModelForSequenceClassification

    own, other = composed(recipe), composed(TRAINED_LIKE[recipe])
    assert own.pipeline == other.pipeline
    first = own.pipeline.index("quantize")
    for name in own.pipeline[first:]:
        ours, theirs = (vars(each.stages[name]) | {"shapes": []} for each in (own, other))
        assert ours == theirs
    overrides = [*small(recipe), f"pipeline=[{','.join(own.pipeline[:first])}]", "output=out"]
    run(tmp_path, recipe, *overrides)
    settings, out = config.load_config([f"recipe={recipe}", *overrides]), tmp_path / "out"
    (task,) = few_tasks(recipe)
    for step in resolve(settings).of(Train):
        made = atomic.read_json(out / step.folder / ("" if step.on_corpus else task) / run_folder.MANIFEST)
        if "skipped" not in made:
            terms = made["log"][-1]["terms"]
            assert terms
            assert terms.keys() <= {name for name, term in step.settings.terms.items() if term.weight}  # type: ignore[attr-defined]
            assert np.isfinite([*terms.values()]).all()
    student = out / str(own.stages["evaluate"].student) / task  # type: ignore[attr-defined]
    model, told = AutoModelForSequenceClassification.from_pretrained(student, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    cut = out / "prune" / run_folder.MANIFEST
    layers = atomic.read_json(cut)["shape"]["layers"] if cut.is_file() else layers_of(settings)
    assert model.config.num_hidden_layers == layers


PARAMS = [pytest.param(name, marks=[pytest.mark.slow] * (name != "distilbert")) for name in WHOLE]


@pytest.fixture(scope="session", params=PARAMS)
def finished(request: pytest.FixtureRequest, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    recipe, home = request.param, tmp_path_factory.mktemp("home")
    overrides = small(recipe)
    if recipe == "prune":
        # In every scheme, a graph of each depth is resized to the widths; `frontier` searches all sizes.
        overrides += ["stages.prune.finalists=2", "stages.prune.dimensions=[layers,hidden]"]
    if recipe in ("auto", "distil_prune_int8"):  # test_budget and test_pairs cut more sizes of such students
        overrides += ["stages.prune.dimensions=[layers]"]
    if recipe == "task":
        stages = [*composed(recipe).pipeline]
        stages.insert(stages.index("finetune_baseline") + 1, "finetune_self_trained")
        overrides += [f"pipeline=[{','.join(stages)}]", "stages.evaluate.self_trained=finetune_self_trained"]
    if len(resolve(composed(recipe)).targets) > 1:
        overrides += ["target.speedup=[1.1,30]"]  # int8 alone may reach the slower one
    results = run(home, recipe, *overrides, onnx=recipe not in SETTINGS_ALONE)
    settings = config.load_config([f"recipe={recipe}", *overrides])
    folder, plan = home / run_folder.run_folder(recipe, overrides, None), resolve(settings)
    if settings.budget.minutes is not None:
        tried = {model["target"] for model in results["models"] if model["role"] == "student"}
        plan = plan.only([label for label in plan.targets if label in tried]).chained()
    return Finished(recipe, overrides, home, folder, settings, plan, results)


def test_every_file_is_a_recipe() -> None:
    assert NAMES
    assert {"distilbert", "paper/distilbert", "task"} <= set(NAMES)
    assert [str(file.relative_to(config.folder("recipes")).with_suffix("")) for file in FILES] == NAMES
    assert {*TRAINED_LIKE} < {*NAMES}
    assert {*TRAINED_LIKE.values()} < {*WHOLE}


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", NAMES)
def test_composes_and_passes_every_check(name: str) -> None:
    settings = composed(name)
    assert validation.settings(settings, name) == []
    assert set(settings.pipeline) <= set(settings.stages)  # a recipe that extends another may leave stages out
    assert len(settings.pipeline) == len(set(settings.pipeline))
    assert {"evaluate", "export"} <= {stage.kind for stage in settings.stages.values()}


@pytest.mark.parametrize("name", NAMES)
def test_says_its_command_first_then_what_it_is_for_and_then_what_it_is(name: str) -> None:
    lines = config.recipes()[name].read_text().splitlines()
    assert lines[0] == f"# python -m distill recipe={name}"
    assert len(lines[2]) > 10
    assert lines[2].startswith("# ")
    assert len(lines) <= 40
    purpose, cost = help_text.purpose(config.recipes()[name]).split("; ")
    assert lines[1] == f"# For: {purpose}; {cost}"
    assert re.match("took|takes|costs|needs", cost)
    assert ("took" in cost) == (name in TOOK)


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_a_header_stand_for_themselves(name: str) -> None:
    """Pages show them after the text, so that no sentence may lead into one. A shell reads brackets without quotes."""
    lines = [line for line in config.recipes()[name].read_text().splitlines() if line[:1] == "#"]
    for before, line in itertools.pairwise(lines):
        if line.startswith(("# python -m ", "# torchrun ")):
            assert not before.endswith(":")
            typed = line.partition("     #")[0].split()
            assert [word for word in typed if "[" in word and not word.startswith("'")] == []


TOOK = {
    "distilbert": ["docstrings-distilbert"],
    "embedder": ["glue-embedder-roberta"],
    "frontier": ["frontier/seed0", "frontier/seed1", "frontier/seed2"],
    "prune": [
        *("own-answers", "own-judged", "own-sentiment", "own-similar"),
        *(f"kinds/{kind}/seed0" for kind in ("guard", "intents", "names", "reader", "reranker")),
    ],
}
"""Recipe -> the committed runs that its time is from: that of all stages of a run, from the fastest to the slowest."""
CORES = {1: "one CPU thread", 2: "two CPU cores"}


@pytest.mark.parametrize("name", TOOK)
def test_the_time_that_a_recipe_states_is_that_of_committed_results(name: str) -> None:
    runs = [atomic.read_json(RESULTS / folder / "results.json") for folder in TOOK[name]]
    ((recipe, threads, gpu),) = {
        (run["recipe"], run["environment"]["threads"], run["environment"]["gpu"]) for run in runs
    }
    assert (recipe, gpu) == (name, None)
    minutes = sorted(round(sum(stage["seconds"] for stage in run["stages"]) / 60) for run in runs)
    span = " to ".join(map(str, dict.fromkeys((minutes[0], minutes[-1]))))
    assert re.search(rf"took {span} minutes on {CORES[threads]}\b", help_text.purpose(config.recipes()[name]))


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", sorted({*NAMES} - {*WITHOUT_BASELINE}))
def test_every_student_has_its_baseline(name: str) -> None:
    settings = composed(name)
    compared = settings.stages["evaluate"]
    assert isinstance(compared, Evaluate)
    baseline = settings.stages[str(compared.baseline)]
    assert isinstance(baseline, Baseline)
    assert baseline.baseline_of == compared.student
    assert compared.baseline in settings.pipeline


def test_terms_are_changed_from_the_command_line() -> None:
    """Those of `pretrain` stand in the recipe, the others come from the presets of their stages."""
    pretrain, finetune, baseline = (f"stages.{name}.terms" for name in ("pretrain", "finetune", "finetune_baseline"))
    settings = config.load_config(
        [
            "recipe=distilbert",
            *(f"term@{pretrain}.cosine=mse", f"+term@{pretrain}.more=attention", f"~{pretrain}.soft_targets"),
            *(f"term@{finetune}.soft_targets=mse", f"+term@{finetune}.more=hidden", f"~{finetune}.supervised"),
            f"term@{baseline}.supervised=mlm",
        ]
    )
    terms = {name: getattr(stage, "terms", {}) for name, stage in settings.stages.items()}
    functions = {name: {label: term.loss["_target_"] for label, term in parts.items()} for name, parts in terms.items()}
    assert functions["pretrain"] == {"mlm": "distill.losses.mlm", "cosine": MSE, "more": MSE}
    others = {"margins": MSE, "vectors": "distill.losses.cosine"}
    assert functions["finetune"] == {"soft_targets": MSE, "more": MSE} | others
    assert functions["finetune_baseline"] == {"supervised": "distill.losses.mlm"}
    assert (terms["pretrain"]["cosine"].weight, terms["pretrain"]["more"].features) == (1.0, "scores")


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        (
            "distilbert",
            {
                "stages.pretrain.steps=500": ("pretrain.steps", 500),
                "stages.finetune.optimizer.lr=1e-5": ("finetune.optimizer.lr", 1e-5),
                "schedule@stages.finetune.schedule=constant": (
                    "finetune.schedule._target_",
                    "distill.training.schedule.constant",
                ),
            },
        ),
        (
            "prune",
            {
                "stages.recover.batch.tokens=2048": ("recover.batch.tokens", 2048),
                "importance@stages.prune.importance=taylor": (
                    "prune.importance._target_",
                    "distill.compression.pruning.importance.taylor",
                ),
            },
        ),
    ],
)
def test_a_stage_is_changed_with_its_baseline_and_nothing_else_is(
    recipe: str, changes: dict[str, tuple[str, Any]]
) -> None:
    before, after = (
        rules.flatten(expanded(config.load_config([f"recipe={recipe}", *overrides])).stages)
        for overrides in ([], changes)
    )
    expected = {
        f"{name}.{setting}": value
        for key, value in changes.values()
        for stage, _, setting in [key.partition(".")]
        for name in (stage, f"{stage}_baseline", f"{stage}_self_trained")
        if f"{name}.{setting}" in before
    }
    assert len(expected) > len(changes)
    assert {key: after[key] for key in after if after[key] != before.get(key)} == expected
    assert before.keys() == after.keys()


def test_another_stage_is_added_from_the_command_line() -> None:
    own = ["stages.second.start=finetune", "stages.second.teacher=finetune", "stages.second.epochs=2"]
    settings = config.load_config(["recipe=distilbert", "+stage@stages.second=distil_tasks", *own])
    settings.pipeline.append("second")
    assert validation.settings(settings, "distilbert") == []


def test_runs_to_valid_results(finished: Finished) -> None:
    written = json.loads((finished.folder / "results.json").read_text())
    assert report.validate(written) == []
    assert written == finished.results
    assert written["smoke"]
    assert written["recipe"] == finished.recipe
    roles = {"teacher", "student"} | ({"baseline"} if finished.recipe not in WITHOUT_BASELINE else set())
    if finished.recipe == "task":
        roles |= {"self-trained"}
        control = next(step for step in finished.plan.of(Train) if step.stage == "finetune_self_trained")
        assert control.teacher is not None
        assert control.teacher.stage == "finetune_baseline"  # type: ignore[union-attr]
    assert {model["role"] for model in written["models"]} == roles
    assert {model["scheme"] for model in written["models"]} >= {"fp32", "int8"}
    scored = [model["scores"] for model in written["models"] if model["scores"]]
    assert scored
    assert all(list(scores) == finished.settings.tasks.names for scores in scored)
    steps = [(step.stage, step.target or None, step.kind) for step in finished.plan.steps]
    assert [(stage["name"], stage["target"], stage["kind"]) for stage in written["stages"]] == steps


def test_a_student_in_float32_that_is_the_teacher_is_measured_once(finished: Finished) -> None:
    if finished.recipe != "quantize":
        pytest.skip("its student is not its teacher")
    rows = {(model["role"], model["backend"], model["scheme"]): model for model in finished.results["models"]}
    same = [form for role, *form in rows if role == "teacher"]
    assert ["torch", "fp32"] in same
    for form in same:
        teacher, student = rows["teacher", *form], rows["student", *form]
        assert teacher["latency_ms"] == student["latency_ms"]
        assert teacher["requests"] == student["requests"]
    assert ("student", "onnxruntime", "int8") in rows


def test_the_report_states_what_the_baseline_starts_from(finished: Finished) -> None:
    notes, steps = " ".join(finished.results["notes"]), finished.plan.of(Train)
    baseline = any(step.settings.role == "baseline" for step in steps)
    general = [step for step in steps if step.source("shape_of") is not None]
    tokens = max((atomic.read_json(finished.folder / s.folder / "manifest.json")["tokens"] for s in general), default=0)
    assert (f"distilled on {tokens:,} tokens of a corpus before it learned" in notes) == bool(general and baseline)
    chained = len(finished.plan.pruners) < len(finished.plan.of(Prune))
    assert ("is cut from the baseline of the target before it" in notes) == (baseline and chained)
    assert ("with the same initial weights" in notes) == (baseline and not general and not chained)
    assert bool(general) == bool(tokens)


def test_the_student_is_smaller(finished: Finished) -> None:
    """For a target that int8 alone reaches on the machine, nothing is cut; for the fastest, something is."""
    size = {(model["role"], model["target"]): model["parameters"] for model in finished.results["models"]}
    students = {label or None: size["student", label or None] for label in finished.plan.targets}
    assert max(students.values()) <= size["teacher", None]
    assert (min(students.values()) < size["teacher", None]) == (finished.recipe not in OF_ONE_SIZE)
    for target, student in students.items():
        assert size.get(("baseline", target), student) == student


def test_every_stage_leaves_its_manifest_and_nothing_half_done(finished: Finished) -> None:
    for step in finished.plan.of(Train):
        for task in [] if step.on_corpus else finished.settings.tasks.names or []:
            assert run_folder.finished(finished.folder / step.folder / task)
    for step in finished.plan.steps:
        manifest = atomic.read_json(finished.folder / step.folder / run_folder.MANIFEST)
        assert manifest["record"]["key"].keys() >= {"inputs", "given", "versions"}
    left = [p for p in finished.folder.rglob("*") if p.name.endswith((".state", "-tmp")) or "tmp." in p.name]
    assert left == []
    before = yaml.safe_load((finished.folder / "config.json").read_text())
    assert before["pipeline"] == finished.settings.pipeline


def test_leaves_the_report_in_every_form(finished: Finished) -> None:
    page = (finished.folder / "report.html").read_text()
    for part in ('<script type="application/json" id="data">', 'id="plotly"', "<table"):
        assert part in page, "a part of the page"
    assert "| student" in (finished.folder / "report.md").read_text()
    assert (finished.folder / "frontier.svg").read_text().rstrip().endswith("</svg>")
    assert (finished.folder / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_the_student_of_every_task_loads_with_transformers_alone(finished: Finished) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    plan, layers = finished.plan, layers_of(finished.settings)
    if not plan.given_student and not plan.builds:
        layers = SMOKE_LAYERS
    layers = 0 if finished.settings.student.init == STATIC else layers
    exports = [step for step in plan.of(Export) if not step.embeds]  # tests/contract/test_embedder.py
    for export, task in itertools.product(exports, finished.settings.tasks.names or []):
        folder = finished.folder / export.folder / task
        if export.pruner is not None:
            pruned = finished.folder / export.pruner.folder / run_folder.MANIFEST
            layers = atomic.read_json(pruned)["shape"]["layers"]
        model, told = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
        assert not told["missing_keys"]
        assert not told["unexpected_keys"]
        assert model.config.num_hidden_layers == layers
        batch = AutoTokenizer.from_pretrained(folder)(["a kettle sings"], ["the tea is ready"], return_tensors="pt")
        with torch.no_grad():
            logits = model.eval()(**batch).logits
        assert logits.shape == (1, len(chosen(finished.settings.tasks)[task].labels or [0]))
        assert torch.isfinite(logits).all()
        assert (folder / "README.md").is_file()
        proofs = atomic.read_json(finished.folder / export.folder / run_folder.MANIFEST)["proofs"][task]
        if finished.recipe in SETTINGS_ALONE:
            assert set(proofs) == {"torch float", "bitsandbytes int8"}
        else:
            assert {"model.onnx", "model_int8.onnx"} <= {file.name for file in (folder / "onnx").iterdir()}
            assert {"torch float", "onnxruntime fp32", "onnxruntime int8"} <= set(proofs)
        assert max(proof["largest_difference"] for proof in proofs.values()) <= 1e-5


def test_every_exported_artifact_is_loaded_to_predict(finished: Finished) -> None:
    export = next(step for step in finished.plan.of(Export) if not step.embeds)
    task = (finished.settings.tasks.names or [])[0]
    folder, runtime = finished.folder / export.folder / task, {name: b.runtime for name, b in BACKENDS.items()}
    described, texts = record.read(folder), [("a kettle sings", "the tea is ready"), ("two goats", "on the roof")]
    assert described is not None
    students = [m for m in finished.results["models"] if m["target"] == (export.target or None)]
    students = [m for m in students if m["role"] == "student" and "failed" not in m]
    times = {(m["backend"], m["scheme"]): [row["median"] for row in m["latency_ms"]] for m in students}
    for entry in described.artifacts:
        assert entry.ms in times[entry.backend, entry.scheme]
        model = distill.load(folder, backend=entry.backend, scheme=entry.scheme, threads=1)
        path = proof.Artifact(runtime[entry.backend], folder / entry.path, folder)
        expected = proof.logits_of(path, [list(pair) for pair in texts], described.max_length)
        # The proof of bf16 is that of its float32 file, from whose logits it differs by its rounding.
        allowed = 0.05 if entry.scheme.endswith("bf16") else proof.TOLERANCE
        assert np.abs(model.outputs(texts) - expected).max() <= allowed
    fastest = min(described.artifacts, key=lambda entry: entry.time(described.load) or 0.0)
    assert (distill.load(folder).backend, distill.load(folder).scheme) == (fastest.backend, fastest.scheme)


def test_the_same_command_again_does_nothing_again(finished: Finished, run: Any, capsys: pytest.CaptureFixture) -> None:
    stages = [finished.folder / step.folder / run_folder.MANIFEST for step in finished.plan.steps]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in stages]
    assert run(finished.home, finished.recipe, *finished.overrides) == finished.results
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in stages] == before
    told = capsys.readouterr().out.splitlines()
    assert [f"{step.folder}: finished earlier, skipped" for step in finished.plan.steps] == [
        line for line in told if line.endswith("skipped")
    ]
