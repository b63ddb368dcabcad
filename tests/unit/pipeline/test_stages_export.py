"""A failed export leaves no folder; which shapes are timed; which evaluation a card reports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from msgspec.structs import replace

from distill import config
from distill.config.loads import BATCH
from distill.config.plan import resolve
from distill.config.schemes import file_of
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.tasks import TaskData
from distill.deploy.export.artifacts import Proof
from distill.evaluation.results import Origin, Statistics
from distill.inference import timing
from distill.pipeline import collect
from distill.pipeline.artefacts import Cost, Evaluated, Key, Record
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import evaluated, export
from distill.runtime.storage import atomic, run_folder, structs
from tests.decoded import decoded
from tests.enriched import enriched
from tests.unit.report.conftest import complete


def test_a_failed_export_leaves_no_unverified_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exported(inputs: Any, settings: Any, longest: int, task: str, out: Path) -> list[Any]:
        if task == "second":
            raise OSError("no space left")
        out.mkdir(parents=True)
        return []

    monkeypatch.setattr(export, "_export", exported)
    rows = Dataset.from_dict({"text": ["a kettle sings"]})
    data = TaskData(
        Task("first", TASK_TYPES["classification"], ("text",), ("a", "b"), ()), rows, {"validation": rows}, {}
    )
    run_folder.claim(tmp_path / "run")
    models = Checkpoints("finetune", {}, {}, [])
    began = Origin(recipe="task", command="", version="0", seeds=[0])
    inputs = export.ExportInputs(
        *("export", "student", "", models), shared=False, tasks={"first": data, "second": data}, quantized=None,
        schemes=[], teachers=[], origin=began, measured=None, forms={}, made_by=[],
    )  # fmt: skip
    settings = config.load_config(["recipe=task", "limit=smoke"])
    machine: Any = SimpleNamespace(log=print)
    runtime = Runtime(machine, tmp_path / "run", 0, settings.limit, 128)
    with pytest.raises(OSError, match="no space left"):
        export.run(inputs, config.Export(start="finetune"), runtime)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [atomic.CLAIM]


@pytest.mark.parametrize(
    ("shapes", "target", "timed"),
    [
        ([[1, 128], [8, 128], [32, 128]], [16, 256], [[16, 256], [1, 128], [8, 128], [32, 128]]),
        ([[1, 128], [8, 128], [32, 128]], [8, 128], [[1, 128], [8, 128], [32, 128]]),
        ([[8, 128], [1, 16], [8, 128]], None, [[8, 128], [1, 16]]),
        ([], [8, 128], [[8, 128]]),
        ([], None, []),
    ],
)
def test_the_shape_of_a_target_is_timed_too(
    shapes: list[list[int]], target: list[int] | None, timed: list[list[int]]
) -> None:
    assert timing.shapes(shapes, target) == timed


def test_an_exported_folder_has_the_times_of_both_loads() -> None:
    made = enriched(complete())
    student = made["models"][8]
    student["requests"] |= {"p50": 0.75}
    measured = decoded(made | {"load": "single"})
    artifact: Any = SimpleNamespace(task="cola", backend="onnxruntime", scheme="int8", path="onnx/a", name="a")
    proofs = {"a": Proof(agreement=0.5)}
    forms = evaluated.forms(measured, "student", "")
    entry = next(evaluated.entries(measured, forms, [artifact], proofs))
    own = next(row["median"] for row in student["latency_ms"] if row.get("name") == "own lengths")
    assert (entry.ms, entry.single_ms, entry.agreement) == (own, 0.75, 0.5)
    assert [evaluated.load(each) for each in (None, decoded(made), measured)] == ["batch", "batch", "single"]
    untimed = next(evaluated.entries(None, {}, [artifact], proofs))
    assert (untimed.ms, untimed.single_ms) == (None, None)


def test_an_exported_folder_has_the_thresholds_of_its_own_variant() -> None:
    made = enriched(complete())
    numbers = {"positives": 3, "negatives": 90, "roc_auc": 91.0, "average_precision": 80.0}
    numbers |= {"recall": 66.0, "false_positives": 1.1, "chosen_on": 90}
    for model, own in zip(made["models"][4:9], (0.5, 0.6, 0.7, 0.8, 0.9), strict=True):
        model["detection"] = {"cola": {"bad": numbers | {"threshold": own}, "none": numbers | {"threshold": None}}}
    students = evaluated.forms(decoded(made), "student", "")
    for (backend, scheme), model in students.items():
        found = evaluated.chosen(students, "cola", backend, scheme)["thresholds"]
        assert found == {"bad": model.detection["cola"]["bad"].threshold}
    assert evaluated.chosen(students, "none", "onnxruntime", "int8") == {"temperature": None, "thresholds": None}
    whole = next(name for name in students if name[1] == "fp32")
    timed_only = {**students, whole: replace(students[whole], detection={})}
    others = [m.detection["cola"]["bad"].threshold for (_, s), m in timed_only.items() if s == "fp32" and m.detection]
    found = evaluated.chosen(timed_only, "cola", *whole)["thresholds"]
    assert found == ({"bad": others[0]} if others else None)


@pytest.mark.parametrize(("evaluation", "command"), [("evaluate", "first"), ("again", "second"), (None, "second")])
def test_results_are_those_of_the_given_evaluation(
    evaluation: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model card has those of the evaluation that its export names; the report has those of the last one."""
    settings = config.load_config(["recipe=task", "limit=smoke"])
    settings.stages["again"] = settings.stages["evaluate"]
    settings.pipeline.insert(settings.pipeline.index("export"), "again")
    key = Key(inputs={}, given={}, versions={}, packages="")
    record = Record(key=key, cost=Cost(seconds=1.0, peak_memory_mib=None))
    facts: dict[str, Any] = {"environment": {}, "models": [], "coverage": [], "statistics": Statistics()}
    measured = Evaluated(record=record, command="", version="0", load=BATCH, **facts)
    for name, text in (("evaluate", "first"), ("again", "second")):
        structs.write(tmp_path / name / run_folder.MANIFEST, replace(measured, command=text))
    monkeypatch.setattr(
        collect,
        "origin",
        lambda given, recipe, command, embeds: Origin(recipe=recipe, command=command, version="0", seeds=[0]),
    )
    plan = resolve(settings)
    steps = {step.stage: step for step in plan.steps}
    given = SimpleNamespace(teachers=["x"], teacher="x", config=settings, is_random=lambda folder: True)
    ctx: Any = SimpleNamespace(
        folder=RunFolder(tmp_path),
        config=settings,
        plan=plan,
        tasks={},
        embeds=False,
        notes=[],
        given=given,
        shared=False,
        recipe="r",
    )
    content = collect.results(ctx, evaluation and steps[evaluation])
    assert content is not None
    assert content.command == command


@pytest.mark.parametrize(
    ("form", "file"),
    [
        (("torch", "fp32"), ("torch", "fp32")),
        (("torch", "bf16"), ("torch", "fp32")),
        (("onnxruntime", "fp32"), ("onnxruntime", "fp32")),
        (("openvino", "fp32"), ("onnxruntime", "fp32")),
        (("openvino", "bf16"), ("onnxruntime", "fp32")),
        (("openvino", "int8_bf16"), ("openvino", "int8")),
        (("openvino", "int8"), ("openvino", "int8")),
        (("bitsandbytes", "nf4"), ("bitsandbytes", "nf4")),
        (("onnxruntime", "int8_static"), ("onnxruntime", "int8_static")),
        (("bitsandbytes", "fp32"), None),
        (("onnxruntime", "bf16"), None),
        (("onnxruntime_cuda", "fp32"), None),
        (("torch", "fp32_compiled"), None),
        (("torch", "fp16"), None),
        (("torchao", "int8_bf16"), None),
    ],
)
def test_the_file_that_a_form_is_run_from(form: tuple[str, str], file: tuple[str, str] | None) -> None:
    assert file_of(*form) == file
