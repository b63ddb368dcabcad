"""Schemas 1 and 2 of `results.json`, and their upgrade to schema 3.

Schema 1, which distill 0.1 wrote, has no `step`, `target` and `kind`. Only this module infers them from the names of
models and stages. Schema 2 lacks the keys that are optional in schema 3, and `rules`: it was measured under the rules
before those of schema 3.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from distill.report.schema import SCHEMA, Results

BEFORE = (
    "Made under the rules of before: what was chosen by scores, such as modules left in float and the student of "
    "target.retained, was chosen on the rows that are reported, and the teacher was not measured in every scheme."
)
"""What a report adds to results that were upgraded."""

_SCORE = {
    "type": "object",
    "properties": {
        "mean": {"type": "number"},
        "std": {"type": ["number", "null"]},
        "by_seed": {"type": "array", "items": {"type": "number"}},
    },
    "required": ["mean", "std", "by_seed"],
    "additionalProperties": False,
}
_KINDS = ("prune", "vocabulary", "quantize", "evaluate", "export")
"""Kinds that stages were named after; a stage with another name trained a model."""


def _schema_2() -> dict[str, Any]:
    schema = deepcopy(SCHEMA)
    schema["properties"]["schema"] = {"const": 2}
    del schema["properties"]["rules"]
    schema["required"].remove("rules")
    return schema | {"title": "results.json, schema 2"}


def _schema_1() -> dict[str, Any]:
    schema = _schema_2()
    top = schema["properties"]
    model, stage, pruned = (top[name]["items"] for name in ("models", "stages", "pruned"))
    for part, new in ((model, ("step", "target", "member")), (stage, ("target", "kind")), (pruned, ("step",))):
        for key in new:
            del part["properties"][key]
        part["required"] = [key for key in part["required"] if key not in new]
    del top["fingerprints"]
    del top["heads"]
    top["schema"] = {"const": 1}
    model["properties"]["scores"]["additionalProperties"]["additionalProperties"] = _SCORE
    model["properties"] |= {"peak_memory_mib": {"type": ["number", "null"]}, "note": {"type": "string"}}
    stage["properties"]["energy_joules"] = {"type": ["number", "null"]}
    return schema | {"title": "results.json, schema 1"}


SCHEMA_1, SCHEMA_2 = _schema_1(), _schema_2()
SCHEMAS = {1: SCHEMA_1, 2: SCHEMA_2, 3: SCHEMA}
"""Number -> schema of every results.json that is read."""


def upgraded(results: Results) -> Results:
    """Valid results of schema 1 or 2, converted to schema 3; results of schema 3 unchanged."""
    if results["schema"] == 3:
        return results
    return (results if results["schema"] == 2 else _to_2(results)) | {"schema": 3, "rules": "before"}


def _to_2(results: Results) -> Results:
    stages = [_stage(stage) for stage in results["stages"]]
    changed = {"schema": 2, "models": [_model(model, stages) for model in results["models"]], "stages": stages}
    if "pruned" in results:
        changed["pruned"] = [{"step": _step("pruned", stages), **row} for row in results["pruned"]]
    return results | changed


def _stage(stage: dict[str, Any]) -> dict[str, Any]:
    name, _, target = stage["name"].partition("/")
    kind = next((kind for kind in _KINDS if name.startswith(kind)), "train")
    unchanged = {key: value for key, value in stage.items() if key not in ("name", "energy_joules")}
    return {"name": name, "target": target or None, "kind": kind, **unchanged}


def _model(model: dict[str, Any], stages: list[dict[str, Any]]) -> dict[str, Any]:
    """`student 2x` was a student for the target 2x, `member 1` the first model of an ensemble."""
    label, role = model["name"].partition(" ")[2], model["role"]
    upgraded = {key: value for key, value in model.items() if key not in ("peak_memory_mib", "note")}
    if "scores" in model:
        upgraded["scores"] = {
            task: {metric: score["mean"] for metric, score in metrics.items()}
            for task, metrics in model["scores"].items()
        }
    target = label if label and role in ("student", "pruned", "baseline") else None
    member = {"member": int(label)} if role == "member" and label.isdecimal() else {}
    return upgraded | {"step": _step(role, stages), "target": target} | member


def _step(role: str, stages: list[dict[str, Any]]) -> str:
    """The last stage that made models of a role, inferred from the stage names of the recipes; else the role itself."""
    endings = {"teacher": "_teacher", "member": "_teacher", "baseline": "_baseline"}
    kinds = {"pruned": ("prune",), "student": ("train", "prune", "vocabulary")}.get(role, ("train",))
    others = ("_teacher", "_baseline") if role == "student" else ()
    names = [stage["name"] for stage in stages if stage["kind"] in kinds]
    names = [name for name in names if name.endswith(endings.get(role, "")) and not name.endswith(others)]
    return names[-1] if names else role
