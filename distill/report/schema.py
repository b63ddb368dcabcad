"""The schema of `results.json`: the contract between the stages, which write it, and the reports, which show it.

Unknown keys are refused, so that a misspelt key is caught. All scores are in percent. What a run with `older_rules` did
not measure is optional.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema

from distill.config.backends import BACKENDS

VERSION = 4
"""Number of the schema, in every results.json. A file with another number is refused."""

Results = dict[str, Any]
Model = dict[str, Any]

_TEXT = {"type": "string", "minLength": 1}
_BACKEND = {"$ref": "#/$defs/backend"}
_NUMBER = {"type": "number"}
_AMOUNT = {"type": "number", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
_INTERVAL = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object with these keys and no other keys."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_LATENCY = _record(
    # batch and length are null if the inputs have different lengths; `name` then describes them
    {
        "batch": _or_null(_COUNT),
        "length": _or_null(_COUNT),
        "median": _AMOUNT,
        "p90": _or_null(_AMOUNT),
        "repeats": _COUNT,
    },
    {"name": _TEXT},
)
_RETAINED = _record(
    {
        # of the macro scores over all tasks, and over the tasks of the headline
        "macro": _or_null(_NUMBER),
        "headline": _or_null(_NUMBER),
        "mean_of_ratios": _or_null(_NUMBER),
        "worst": _or_null(_record({"task": _TEXT, "percent": _NUMBER})),
        "ci95": _or_null(_INTERVAL),
    },
    {
        "left_out": _list(_TEXT),
        # of the scores minus those of the best constant predictor
        "above_chance": _or_null(_NUMBER),
        "above_chance_ci95": _or_null(_INTERVAL),
        # on the rows on which the student is chosen
        "development": _or_null(_NUMBER),
    },
)
_SPEEDUP = _record(
    {
        "same_backend": _or_null(_AMOUNT),
        "best_teacher": _or_null(_AMOUNT),
        "ci95": _or_null(_INTERVAL),
    },
    # name of the timed inputs -> speedup on them; those above are at the tasks' own lengths
    {"by_input": _map(_record({"median": _AMOUNT, "ci95": _INTERVAL}))},
)
_REQUESTS = _record({"count": _COUNT, "p50": _AMOUNT, "p95": _AMOUNT, "p99": _AMOUNT})
_SERVING = {
    # milliseconds of single requests at the tasks' own lengths
    "requests": _or_null(_REQUESTS),
    # of a new process, from its start to its first prediction, and its resident memory then
    "cold_start_ms": _or_null(_AMOUNT),
    "memory_mib": _or_null(_AMOUNT),
    # joules of a request, and why they are null
    "energy_j": _or_null(_AMOUNT),
    "energy_missing": _TEXT,
    # price of a million rows at report.hourly_rate, in its currency
    "cost_per_million": _or_null(_AMOUNT),
}
_IDENTITY = {
    # the label shown to people, e.g. `student 2x`
    "name": _TEXT,
    "role": {"enum": ["teacher", "member", "student", "pruned", "baseline"]},
    # the stage of the recipe that made the model, and the target that it was made for
    "step": _TEXT,
    "target": _or_null(_TEXT),
    "scheme": _TEXT,
    "backend": _BACKEND,
}
_MEASURED = {
    "parameters": _or_null(_COUNT),
    "size_mib": _or_null(_AMOUNT),
    "latency_ms": _list(_LATENCY),
    "scores": _map(_map(_NUMBER)),
    "retained": _or_null(_RETAINED),
    "speedup": _or_null(_SPEEDUP),
}
# mean confidence, accuracy (both 0 to 1) and number of the rows of each bin of confidence that has rows; checked in
# `_meaningless`, because a report has thousands of bins
_BINS: dict[str, Any] = {"type": "array"}
_CALIBRATION = _record(
    # the temperature is null where there is no development split that it could be chosen on
    {"ece": _AMOUNT, "temperature": _or_null(_AMOUNT), "ece_scaled": _or_null(_AMOUNT), "bins": _BINS},
    {"bins_scaled": _BINS},
)
# of the rows whose texts have `from` to `to` tokens
_OF_LENGTH = _record({"from": _COUNT, "to": _COUNT, "rows": _COUNT, "scores": _map(_NUMBER)})
_STATISTICS = {
    # tasks on which at least 99% of the predictions are one class
    "near_constant": _list(_TEXT),
    # task -> metric -> interval
    "score_ci95": _map(_map(_INTERVAL)),
    "calibration": _map(_CALIBRATION),
    "by_length": _map(_list(_OF_LENGTH)),
}
_COMPARED = _record({"name": _TEXT, "scheme": _TEXT, "backend": _BACKEND})
_TEST = _record(
    {
        "a": _COMPARED,
        "b": _COMPARED,
        # score of a minus score of b, in points
        "difference": _NUMBER,
        "ci95": _or_null(_INTERVAL),
        "p": _AMOUNT,
        "test": {"enum": ["mcnemar", "bootstrap"]},
        # whether p, corrected for the number of tests of the report, is below 0.05
        "distinguishable": _FLAG,
        # a task; null for the macro scores over the tasks of the headline
        "scope": _or_null(_TEXT),
    },
    {"p_corrected": _AMOUNT},
)
_MODEL = _record(
    _IDENTITY,
    {
        **_MEASURED,
        # which model of an ensemble, counted from 1
        "member": {"type": "integer", "minimum": 1},
        "path": _or_null(_TEXT),
        "gmacs": _or_null(_AMOUNT),
        "throughput_per_second": _or_null(_AMOUNT),
        # macro score over all tasks
        "macro": _or_null(_NUMBER),
        "calibration_error": _or_null(_AMOUNT),
        # task -> label -> percent
        "recall": _map(_map(_NUMBER)),
        **_STATISTICS,
        **_SERVING,
        "failed": _TEXT,
    },
) | {
    # a failed row has only what was measured before it failed
    "if": {"required": ["failed"]},
    "else": {"required": list(_MEASURED)},
}
_COVERAGE = _record(
    {"task": _TEXT, "split": _TEXT, "rows": _COUNT, "official_rows": _or_null(_COUNT), "in_headline": _FLAG},
    # labels: label -> number of rows, or with spans: type of spans -> number of spans
    {"limited": _FLAG, "stand_in": _FLAG, "labels": _map(_COUNT), "spans": _FLAG},
)
_STAGE = _record(
    {
        "name": _TEXT,
        "target": _or_null(_TEXT),
        "kind": _TEXT,
        "seconds": _or_null(_AMOUNT),
        "tokens_per_second": _or_null(_AMOUNT),
        "peak_memory_mib": _or_null(_AMOUNT),
    },
    # reused: made by an earlier run, whose figures these are; log: [step, training loss] pairs
    {"skipped": _TEXT, "reused": _FLAG, "log": _list(_INTERVAL) | {"maxItems": 50}},
)
_PRUNED = _record(
    {"step": _TEXT, "target": _or_null(_TEXT), "layers": _COUNT, "hidden": _COUNT, "ffn": _COUNT},
    {
        "tried": _COUNT,
        # the variant that was timed; without backend, torch
        "backend": _BACKEND,
        "scheme": _TEXT,
        # both null: texts of their own lengths in batches of up to eight; length alone: one at a time. Times are then
        # those of a text, otherwise of a batch
        "batch": _or_null(_COUNT),
        "length": _or_null(_COUNT),
        "predicted_ms": _AMOUNT,
        "predicted_speedup": _AMOUNT,
        "measured_ms": _or_null(_AMOUNT),
        "measured_speedup": _or_null(_AMOUNT),
    },
)
_MADE_FROM = _record(
    # its repository on the hub, and the licence that its own model card names
    {"name": _TEXT, "hub": _or_null(_TEXT), "license": _or_null(_TEXT)},
    {"license_name": _TEXT, "license_link": _TEXT},
)
# what each change gave, cumulative from the teacher on: depth, width, vocabulary, the runtime, the scheme
_WATERFALL = _record({"step": _TEXT, "speedup": _AMOUNT, "retained": _or_null(_NUMBER)}, {"target": _or_null(_TEXT)})
_FACT = {"type": ["string", "number", "boolean", "null"]}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": f"results.json, schema {VERSION}",
    **_record(
        {
            "schema": {"const": VERSION},
            "recipe": _TEXT,
            "command": {"type": "string"},
            "version": _TEXT,
            "seeds": _list({"type": "integer"}) | {"minItems": 1},
            # the machine and its packages: an open list of facts
            "environment": _map(_FACT) | {"required": ["cpu", "threads", "torch"]},
            "coverage": _list(_COVERAGE) | {"minItems": 1},
            "models": _list(_MODEL) | {"minItems": 1},
            "stages": _list(_STAGE),
        },
        {
            # a sentence on the rules under which it was measured, if they are not the current ones
            "older_rules": _TEXT,
            "smoke": _FLAG,
            "taught_start": _FLAG,
            # the student's tasks share one encoder: sizes and times are those of all tasks together
            "heads": {"const": "shared"},
            "teacher_name": _TEXT,
            "made_from": _list(_MADE_FROM),
            "notes": _list(_TEXT),
            "least_retained": _NUMBER,
            "pruned": _list(_PRUNED),
            # of the data, the models and the code of the run
            "fingerprints": _map(_or_null(_TEXT)),
            # task -> metric -> score of the best constant predictor
            "chance": _map(_map(_NUMBER)),
            # tasks on which the interval of the teacher's score includes chance
            "near_chance": _list(_TEXT),
            "tests": _list(_TEST),
            # task -> smallest difference in points that its rows can show; null where it is not known
            "detectable": _map(_or_null(_AMOUNT)),
            "waterfall": _list(_WATERFALL),
        },
    ),
}


_MOST = 20
"""Violations that are looked for: their messages contain what is wrong, which may be large."""


def validate(results: Any, schema: dict[str, Any] = SCHEMA) -> list[str]:
    """Violations of the schema as `place: message`; empty for valid results."""
    known = {"$defs": {"backend": {"enum": list(BACKENDS)}}}  # as of now: code outside of the package may add some
    validator = jsonschema.Draft202012Validator(schema | known)
    errors = sorted(islice(validator.iter_errors(results), _MOST), key=lambda error: error.json_path)
    messages = [f"{_place(error.json_path)}: {_shortened(error.message)}" for error in errors]
    return messages or list(_meaningless(results, "$"))


def _place(json_path: str) -> str:
    return json_path.removeprefix("$").removeprefix(".") or "results"


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _is_bin(value: Any) -> bool:
    numbers = isinstance(value, list) and all(type(each) in (int, float) for each in value)
    return numbers and len(value) == 3 and all(0 <= share <= 1 for share in value[:2])


def _meaningless(value: Any, place: str) -> Iterator[str]:
    """Violations of rules that a JSON schema cannot express: numbers are finite, intervals are [lower, upper]."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _meaningless(item, f"{place}.{key}")
            if key in ("bins", "bins_scaled") and (wrong := [each for each in item if not _is_bin(each)]):
                yield f"{_place(f'{place}.{key}')}: got {wrong[0]}; must be [confidence, accuracy, rows]"
            if key.endswith("ci95") and isinstance(item, list) and item[0] > item[1]:
                yield f"{_place(f'{place}.{key}')}: got {item}; must be [lower, upper]"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _meaningless(item, f"{place}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{_place(place)}: got {value}; must be a finite number or null"
