"""The plan of a recipe: its steps, their order, their inputs and their lineage."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from distill import config
from distill.config import Baseline, Config, Evaluate, Prune, Target, Train, recipes
from distill.config.baselines import expanded, trained
from distill.config.feature_kinds import FEATURE_KINDS
from distill.config.loads import load_of
from distill.config.plan import STUDENT, TEACHER, Given, Plan, Step, compared, resolve, targets
from distill.config.stages import Gates
from distill.config.together import together
from distill.pipeline.context.folder import RunFolder


def composed(*overrides: str) -> Config:
    return config.load_config(["recipe=prune", *overrides])


def planned(*overrides: str) -> dict[str, Step]:
    """Folder -> step."""
    return {step.folder: step for step in resolve(composed(*overrides)).steps}


@pytest.mark.parametrize(
    ("override", "labels"),
    [
        ("target.speedup=2.0", [""]),
        ("target.speedup=[1.5,2,10]", ["1.5x", "2x", "10x"]),
        ("target.latency_ms=[5,2.5]", ["5ms", "2.5ms"]),
        ("target.size_mib=[20,10]", ["20MiB", "10MiB"]),
    ],
)
def test_a_list_gives_several_targets(override: str, labels: list[str]) -> None:
    plan = resolve(composed("target.speedup=null", override))
    assert list(plan.targets) == labels
    assert plan.has_target


def test_each_target_has_its_own_number_and_the_rest_of_the_settings() -> None:
    settings = composed("target.speedup=[2,4]", "target.size_mib=50", "target.shape=[1,32]")
    by_label = targets(settings.target, settings.budget)
    assert by_label["2x"] == Target(speedup=2, size_mib=50, shape=[1, 32])
    assert by_label["4x"] == Target(speedup=4, size_mib=50, shape=[1, 32])


def test_with_one_target_each_stage_is_one_step() -> None:
    settings = composed()
    steps = resolve(settings).steps
    assert [(step.folder, step.target) for step in steps] == [(name, "") for name in settings.pipeline]
    assert all(step.settings == trained(settings, step.stage) for step in steps if step.kind == "train")


def test_stages_after_pruning_have_a_step_for_each_target() -> None:
    steps = planned("target.speedup=[2,4]")
    assert list(steps) == [
        "finetune_teacher",
        *("prune/2x", "prune/4x"),
        *("recover/2x", "recover/4x"),
        *("recover_baseline/2x", "recover_baseline/4x"),
        *("quantize/2x", "quantize/4x"),
        "evaluate",
        *("export/2x", "export/4x"),
    ]
    recover = steps["recover/4x"]
    assert (recover.stage, recover.target, recover.goal.speedup) == ("recover", "4x", 4)
    assert (recover.start, recover.teacher) == (steps["prune/4x"], steps["finetune_teacher"])
    assert steps["quantize/2x"].start is steps["recover/2x"]
    export = steps["export/2x"]
    assert (export.source("quantized"), export.source("evaluated")) == (steps["quantize/2x"], steps["evaluate"])


def test_a_step_refers_to_its_own_target_and_an_evaluation_to_all() -> None:
    steps = planned("target.speedup=[2,4]")

    def inputs(name: str) -> list[str]:
        return [step.folder for step in steps[name].inputs]

    assert inputs("evaluate") == [
        "finetune_teacher",
        *("recover/2x", "recover/4x"),
        *("recover_baseline/2x", "recover_baseline/4x"),
        *("quantize/2x", "quantize/4x"),
    ]
    assert inputs("recover/2x") == ["prune/2x", "finetune_teacher"]
    assert inputs("prune/2x") == ["finetune_teacher"]
    each = compared(steps["evaluate"])
    assert [(c.target, c.student.folder) for c in each] == [("2x", "recover/2x"), ("4x", "recover/4x")]
    assert [(c.controls, c.quantized, c.pruned) for c in each] == [
        ({"baseline": steps[f"recover_baseline/{t}"]}, steps[f"quantize/{t}"], None) for t in ("2x", "4x")
    ]


def test_lineage_and_tokenizer_of_steps() -> None:
    settings = config.load_config(["recipe=distil_prune_int8"])
    plan = resolve(settings)
    steps = {step.folder: step for step in plan.steps}
    after_vocabulary = ["vocabulary", "prune", "recover", "recover_baseline", "quantize", "export"]
    assert [name for name, step in steps.items() if step.of_student] == ["pretrain", "finetune", *after_vocabulary]
    assert [name for name, step in steps.items() if step.tokenizer is steps["vocabulary"]] == after_vocabulary
    assert {steps[name].tokenizer for name in ("pretrain", "finetune", "finetune_teacher")} == {TEACHER}
    assert [step.folder for step in steps["recover"].ancestors] == [
        *("recover", "prune", "vocabulary", "finetune", "pretrain")
    ]
    assert steps["recover"].lineage[-1] is TEACHER
    assert (steps["recover"].builder, steps["recover"].pruner) == (steps["pretrain"], steps["prune"])
    assert plan.builds == ["pretrain"]


def test_a_given_student_has_its_own_tokenizer() -> None:
    plan = resolve(config.load_config(["recipe=task"]))
    steps = {step.folder: step for step in plan.steps}
    assert plan.given_student
    assert steps["finetune"].start is STUDENT
    assert {name for name, step in steps.items() if step.tokenizer is STUDENT} == {
        *("finetune", "finetune_baseline", "quantize", "export")
    }
    assert not resolve(config.load_config(["recipe=distilbert"])).given_student


def test_a_model_trained_on_the_corpus_is_exported_as_an_embedder() -> None:
    plan = resolve(config.load_config(["recipe=embedder"]))
    assert [step.folder for step in plan.steps if step.embeds] == ["export_embedder"]


def test_references_to_no_earlier_stage_are_left_out() -> None:
    settings = composed("stages.recover.start=export", "stages.recover.teacher=nobody", "pipeline=[recover,evaluate]")
    (recover, evaluate) = resolve(settings).steps
    assert recover.source("start") is recover.source("teacher") is None
    assert recover.lineage == (recover,)
    assert compared(evaluate)[0].student is recover
    assert isinstance(evaluate.settings, Evaluate)
    assert isinstance(resolve(settings), Plan)
    assert isinstance(TEACHER, Given)


@pytest.mark.parametrize(
    ("recipe", "taught"),
    [("distilbert", False), ("prune", False), ("vocabulary", False), ("cofi", True), ("distil_prune_int8", True)],
)
def test_a_baseline_that_starts_from_a_distilled_student_is_marked(recipe: str, taught: bool) -> None:
    assert resolve(config.load_config([f"recipe={recipe}"])).taught_start == taught


@pytest.mark.parametrize(
    ("recipe", "baselines"),
    [
        (
            "distilbert",
            {
                "pretrain_baseline": ("adapt", True, "mlm"),
                "finetune_baseline": ("pretrain_baseline", False, "supervised"),
            },
        ),
        ("embedder", {"pretrain_baseline": ("teacher", True, "mlm")}),
        ("vocabulary", {"recover_baseline": ("vocabulary", False, "supervised")}),
    ],
)
def test_a_baseline_differs_from_its_student_only_in_what_needs_a_teacher(
    recipe: str, baselines: dict[str, tuple[str, bool, str]]
) -> None:
    settings = config.load_config([f"recipe={recipe}"])
    for name, (start, builds, term) in baselines.items():
        student = settings.stages[name.removesuffix("_baseline")]
        assert isinstance(student, Train)
        student.steps, student.clip, student.dropout, student.batch.tokens = 7, 2.0, 0.3, 512
        assert trained(settings, name.removesuffix("_baseline")) is student
        baseline = trained(settings, name)
        differ = {f.name for f in fields(Train) if getattr(baseline, f.name) != getattr(student, f.name)}
        assert differ - {"start", "transfer"} == {"role", "teacher", "terms"}
        assert (baseline.role, baseline.teacher) == ("baseline", None)
        assert (baseline.start, baseline.build_student) == (start, builds)
        # With another weight, clipping would change the numbers of committed results.
        parts = {label: (part.weight, part.compare_with) for label, part in baseline.terms.items()}
        assert parts == {term: (1.0, "labels")}


UNCONTROLLED = ("auto", "layer_drop", "quantize", "theseus", "paper/theseus")
"""Recipes that may have no self-trained student: without a student, or with students that mostly learn no outputs."""


ON_LABELS = ["recipe=prune", "stages.recover.terms.soft_targets.weight=0", "stages.recover.terms.supervised.weight=1"]


@pytest.mark.parametrize(
    ("settings", "embeds", "untaught"),
    [
        (["recipe=layer_drop"], False, True),
        (["recipe=theseus"], False, False),
        (["recipe=distilbert"], False, False),
        (["recipe=prune"], False, False),
        (ON_LABELS, False, True),
        (ON_LABELS, True, False),
        ([*ON_LABELS, "stages.recover.terms.vectors.weight=0"], True, True),
    ],
)
def test_a_student_that_no_teacher_taught_is_marked(settings: list[str], embeds: bool, untaught: bool) -> None:
    """A teacher with which no term compares teaches nothing. Terms on vectors train embedders alone."""
    assert resolve(config.load_config(settings)).untaught(embeds) == untaught


@pytest.mark.quick(8)
@pytest.mark.parametrize("recipe", config.recipes())
def test_a_self_trained_student_differs_from_the_student_only_in_its_teacher_its_labels_and_its_start(
    recipe: str,
) -> None:
    """It learns the same rows with the student's terms on outputs, and the labels as the baseline does."""
    settings = config.load_config([f"recipe={recipe}"])
    name = str(getattr(settings.stages.get("evaluate"), "student", ""))
    if f"{name}_self_trained" not in settings.stages:
        assert recipe in UNCONTROLLED
        return
    student, baseline, control = (trained(settings, f"{name}{end}") for end in ("", "_baseline", "_self_trained"))
    differ = {f.name for f in fields(Train) if getattr(control, f.name) != getattr(student, f.name)}
    assert differ - {"start", "terms"} == {"role", "teacher"}
    assert (control.role, control.teacher, control.start) == ("self-trained", f"{name}_baseline", baseline.start)
    assert control.transfer == student.transfer
    of_outputs = {
        label: term
        for label, term in student.terms.items()
        if term.compare_with == "teacher" and FEATURE_KINDS[term.features].head
    }
    assert sum(term.weight for term in of_outputs.values()) > 0
    assert control.terms == of_outputs | baseline.terms


def test_self_trained_students_of_a_chain_are_pruned_one_from_the_other() -> None:
    stages = "finetune_teacher,prune,recover,recover_baseline,recover_self_trained,evaluate"
    plan = resolve(
        composed(
            *("target.speedup=[8,4]", "target.chain=true", f"pipeline=[{stages}]"),
            *("stages.evaluate.quantized=null", "stages.evaluate.self_trained=recover_self_trained"),
        )
    )
    steps = {step.folder: step for step in plan.steps}
    slow, fast = steps["recover_self_trained/4x"], steps["recover_self_trained/8x"]
    assert slow.start is steps["prune/4x"]
    assert (slow.teacher, fast.teacher) == (steps["recover_baseline/4x"], steps["recover_baseline/8x"])
    assert fast.ancestors[:3] == [fast, steps["prune_recover_self_trained/8x"], slow]
    assert fast.pruner is steps["prune/8x"]
    assert steps["prune/8x"].start is steps["recover/4x"], "students start from students"
    assert {each.target: each.controls for each in compared(steps["evaluate"])} == {
        t: {"baseline": steps[f"recover_baseline/{t}"], "self-trained": steps[f"recover_self_trained/{t}"]}
        for t in ("4x", "8x")
    }


def test_a_baseline_has_no_gates_and_no_simulated_int8_and_is_not_skipped() -> None:
    student = Train(gates=Gates("l0"), quantization_aware=True, replacing=0.3, skip_if_mlm_head=True, epochs=5.0)
    settings = Config(stages={"student": student, "baseline": Baseline(baseline_of="student")})
    assert trained(settings, "baseline") == Train(role="baseline", start="teacher", epochs=5.0)


def test_expanding_changes_neither_an_invalid_baseline_nor_the_config_itself() -> None:
    stages = {"whole": Baseline(baseline_of="student"), "broken": Baseline(baseline_of="nothing"), "student": Train()}
    settings = Config(stages=dict(stages))
    after = expanded(settings).stages
    assert after == stages | {"whole": Train(role="baseline")}
    assert list(after) == list(stages) == list(settings.stages)
    assert settings.stages == stages


def test_a_model_for_all_tasks_has_the_shape_of_its_target() -> None:
    plan = resolve(config.load_config(["recipe=prune_general", "target.speedup=[2,4]"]))
    steps = {step.folder: step for step in plan.steps}
    for label in ("2x", "4x"):
        prune, general, recover = (steps[f"{stage}/{label}"] for stage in ("prune", "general", "recover"))
        assert general.on_corpus
        assert general.start is TEACHER
        assert general.cutter is general
        assert recover.cutter is general
        assert {prune.pruner, general.pruner, recover.pruner} == {prune}
        assert prune in general.inputs
        assert not recover.of_student
        assert steps[f"recover_baseline/{label}"].cutter is prune
    assert steps["finetune_teacher"].cutter is steps["finetune_teacher"].pruner is None


def test_with_a_budget_a_single_speedup_has_half_of_it_beside_it() -> None:
    speedups = {"4": ["2x", "4x"], "2.5": ["1.25x", "2.5x"], "[2,8]": ["2x", "8x"], "1.2": ["1.2x"]}
    for wish, labels in speedups.items():
        plan = resolve(config.load_config(["recipe=auto", f"target.speedup={wish}"]))
        assert list(plan.targets) == labels
        assert [step.target for step in plan.steps if step.kind == "prune"] == labels
        assert [step.target for step in plan.steps if step.stage == "recover"] == labels


def test_a_plan_of_some_targets_compares_and_exports_these() -> None:
    plan = resolve(config.load_config(["recipe=auto", "target.speedup=[2,4,8]"])).only(["2x", "8x"])
    folders = [step.folder for step in plan.steps]
    before, of_targets = ["finetune_teacher", "quantize_teacher"], ("prune", "recover", "quantize")
    assert folders[:2] == before
    assert folders[2:8] == [f"{stage}/{label}" for stage in of_targets for label in ("2x", "8x")]
    assert folders[8:] == ["evaluate", "export/2x", "export/8x"]
    evaluate = plan.of(Evaluate)[0]
    assert [each.target for each in compared(evaluate)] == ["2x", "8x"] == list(plan.targets)
    every = set(plan.steps)
    assert all(source in every for step in plan.steps for source in step.inputs)


def test_the_teacher_is_exported_beside_slower_students() -> None:
    plan = resolve(config.load_config(["recipe=auto", "target.speedup=[2,4,8]"])).only(["4x"]).with_teacher()
    *_, evaluate, students, teachers = plan.steps
    assert (students.folder, teachers.folder) == ("export/4x", "export_teacher")
    assert teachers.start is plan.steps[0]
    assert teachers.source("evaluated") is evaluate
    assert teachers.source("quantized") is evaluate.source("whole") is plan.steps[1]
    assert plan.with_teacher() is plan


@pytest.mark.parametrize("settings", [["recipe=quantize"], ["recipe=prune", "pipeline=[finetune_teacher,prune]"]])
def test_a_teacher_is_exported_once_and_only_as_it_was_measured(settings: list[str]) -> None:
    plan = resolve(config.load_config(settings))
    assert plan.with_teacher() is plan


def test_a_plan_of_no_target_exports_the_teacher() -> None:
    plan = resolve(config.load_config(["recipe=auto"])).only([])
    assert [step.folder for step in plan.steps] == ["finetune_teacher", "quantize_teacher", "evaluate", "export"]
    teacher, quantized, evaluate, export = plan.steps
    (each,) = compared(evaluate)
    assert (each.student, each.quantized, each.controls) == (teacher, quantized, {})
    assert (export.start, export.source("quantized"), export.source("evaluated")) == (teacher, quantized, evaluate)


@pytest.mark.parametrize(
    "overrides",
    [
        ("target.speedup=[8,4,12]",),
        ("target.speedup=null", "target.latency_ms=[5,10,2.5]"),
        ("target.speedup=2", "target.size_mib=[20,40,10]"),
    ],
)
def test_in_a_chain_each_target_is_pruned_from_the_one_before_it(overrides: tuple[str, ...]) -> None:
    plan = resolve(composed(*overrides, "target.chain=true"))
    second, first, third = plan.targets
    stages = ("prune", "recover", "recover_baseline", "quantize")
    expected = [f"{stage}/{label}" for label in (first, second, third) for stage in stages]
    for label in (second, third):
        expected.insert(expected.index(f"recover_baseline/{label}"), f"prune_recover_baseline/{label}")
    assert [step.folder for step in plan.steps][1:15] == expected
    steps = {step.folder: step for step in plan.steps}
    starts = [getattr(steps[f"prune/{label}"].start, "folder", "") for label in (first, second, third)]
    assert starts == ["finetune_teacher", f"recover/{first}", f"recover/{second}"]
    for label in (first, second, third):
        assert steps[f"prune/{label}"].first_pruner is steps[f"prune/{first}"]
        assert steps[f"recover/{label}"].pruner is steps[f"recover_baseline/{label}"].pruner is steps[f"prune/{label}"]
        assert steps[f"export/{label}"].start is steps[f"recover/{label}"]
    every = set(plan.steps)
    assert all(source in every for step in plan.steps for source in step.inputs)


def test_a_chain_of_one_target_is_that_target() -> None:
    for override in ("target.speedup=4", "target.speedup=null"):
        alone, chained = (resolve(composed(override, f"target.chain={chain}")) for chain in ("false", "true"))
        assert [step.folder for step in chained.steps] == [step.folder for step in alone.steps]
        starts = [[getattr(step.source("start"), "folder", None) for step in plan.steps] for plan in (alone, chained)]
        assert starts[0] == starts[1]


def test_in_a_chain_baselines_are_pruned_one_from_the_other_and_never_from_a_student() -> None:
    plan = resolve(composed("target.speedup=[8,4]", "target.chain=true"))
    steps = {step.folder: step for step in plan.steps}
    slow, fast = steps["recover_baseline/4x"], steps["recover_baseline/8x"]
    assert slow.start is steps["prune/4x"]
    assert [step.folder for step in fast.ancestors] == [
        *("recover_baseline/8x", "prune_recover_baseline/8x", "recover_baseline/4x", "prune/4x", "finetune_teacher")
    ]
    cut = steps["prune_recover_baseline/8x"]
    assert cut.pruner is fast.pruner is steps["prune/8x"], "it has the shape of the student"
    assert cut.first_pruner is steps["prune/4x"]
    assert plan.pruners == [steps["prune/4x"], steps["prune/8x"]]
    assert not plan.taught_start


def test_measurements_are_shared_by_targets_that_prune_the_same_models(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for chain, names in (("false", ["prune.measured"] * 2), ("true", ["prune.measured", "prune/4x.measured"])):
        plan = resolve(composed("target.speedup=[2,4]", f"target.chain={chain}"))
        assert [folder.measured(step) for step in plan.pruners] == [tmp_path / name for name in names]
        assert {folder.times(step) for step in plan.pruners} == {tmp_path / "prune.measured"}
        cut = [folder.measured(step) for step in plan.of(Prune) if step not in plan.pruners]
        assert cut == ([tmp_path / "prune_recover_baseline/4x.measured"] if chain == "true" else [])


def test_gates_are_trained_for_each_target_and_measured_apart(tmp_path: Path) -> None:
    settings = config.load_config(["recipe=cofi", "target.speedup=[2,4]"])
    steps = {step.folder: step for step in resolve(settings).steps}
    folder = RunFolder(tmp_path)
    for label, speedup in (("2x", 2.0), ("4x", 4.0)):
        gated, prune = steps[f"gated/{label}"], steps[f"prune/{label}"]
        assert gated.goal.speedup == speedup
        assert prune.start is prune.gated is gated
        assert folder.measured(prune) == tmp_path / f"prune/{label}.measured"
        assert folder.times(prune) == tmp_path / "prune.measured"
    single = {step.folder: step for step in resolve(config.load_config(["recipe=cofi"])).steps}
    assert single["prune"].gated is single["gated"]
    assert single["recover"].gated is None
    assert folder.measured(single["prune"]) == tmp_path / "prune.measured"


@pytest.mark.parametrize(
    ("given", "load"),
    [
        ([], "batch"),
        (["target.load=single"], "single"),
        (["target.speedup=null", "target.latency_ms=5"], "single"),
        (["target.shape=[8,64]"], "batch"),
        (["target.speedup=null", "target.latency_ms=5", "target.shape=[8,64]"], "batch"),
        (["target.shape=[1,64]"], "single"),
    ],
)
def test_the_load_that_a_target_is_about(given: list[str], load: str) -> None:
    assert load_of(composed(*given).target) == load


@pytest.mark.parametrize("recipe", recipes())
def test_steps_that_train_together_need_none_of_each_other(recipe: str) -> None:
    plan = resolve(composed(f"recipe={recipe}"))
    for step in plan.steps:
        found = together(plan, step)
        assert step in found
        assert all(together(plan, other) == found for other in found)
        before = {*plan.steps[: plan.steps.index(found[0])]}
        assert all({*other.inputs} <= before for other in found)
        assert sum(other.teacher is not None for other in found) <= 1 or len(found) == 1


def test_a_student_trains_beside_its_baseline_and_what_its_baseline_teaches_after_it() -> None:
    plan = resolve(
        composed("recipe=task", "pipeline=[finetune_teacher,finetune,finetune_baseline,finetune_self_trained]")
    )
    folders = {step.folder: [other.folder for other in together(plan, step)] for step in plan.steps}
    assert folders == {
        "finetune_teacher": ["finetune_teacher"],
        "finetune": ["finetune", "finetune_baseline"],
        "finetune_baseline": ["finetune", "finetune_baseline"],
        "finetune_self_trained": ["finetune_self_trained"],
    }
