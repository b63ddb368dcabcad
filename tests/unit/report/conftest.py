"""An invented but complete results.json."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from distill.evaluation.results import VERSION

TASKS = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("matched accuracy", "mismatched accuracy"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}
SPLITS = {"mnli": {"validation_matched": 9815, "validation_mismatched": 9832}}
ROWS = dict(zip(TASKS, (1043, 872, 408, 1500, 40430, 0, 5463, 277, 71), strict=True))
STEPS = {"teacher": "finetune_teacher", "student": "finetune", "baseline": "finetune_baseline", "pruned": "prune"}
SHAPES = ((1, 128, None), (8, 128, None), (32, 128, None), (None, None, "task lengths"))


def model(
    name: str,
    role: str,
    backend: str,
    scheme: str,
    score: float,
    milliseconds: float,
    retained: float | None,
    speedup: float | None,
    target: str | None = None,
) -> dict[str, Any]:
    """A row whose task scores are spread around `score`."""
    scores = {
        task: {metric: score + 3 * i - 12 + j for j, metric in enumerate(metrics)}
        for i, (task, metrics) in enumerate(TASKS.items())
    }
    latency = []
    for factor, (batch, length, title) in zip((0.2, 1.0, 3.9, 0.6), SHAPES, strict=True):
        row: dict[str, Any] = {"batch": batch, "length": length, "median": milliseconds * factor}
        row |= {"p90": milliseconds * factor * 1.08, "repeats": 20}
        latency.append(row | ({"name": title} if title else {}))
    kept = retained is not None and {
        "macro": retained - 0.7,
        "headline": retained,
        "mean_of_ratios": retained - 1.2,
        "worst": {"task": "rte", "percent": retained - 9},
        "ci95": [retained - 1.1, retained + 0.9],
        "left_out": [],
    }
    faster = speedup is not None and {
        "same_backend": speedup * 1.6,
        "best_teacher": speedup,
        "ci95": [speedup * 0.97, speedup * 1.04],
    }
    return {
        "name": name,
        "role": role,
        "step": STEPS[role],
        "target": target,
        "scheme": scheme,
        "backend": backend,
        "path": f"models/{name}",
        "parameters": 22_713_728 if role == "teacher" else 17_388_288,
        "size_mib": 86.6 if scheme == "fp32" else 22.9,
        "gmacs": 1.4,
        "latency_ms": latency,
        "throughput_per_second": 8000 / milliseconds,
        "scores": scores,
        "macro": score,
        "calibration_error": 4.2,
        "retained": kept or None,
        "speedup": faster or None,
    }


def complete() -> dict[str, Any]:
    coverage: list[dict[str, Any]] = []
    for task, rows in ROWS.items():
        coverage.append(
            {"task": task, "split": "train", "rows": 10_000, "official_rows": 67_349, "limited": True}
            if task == "sst2"
            else {"task": task, "split": "train", "rows": 2490, "official_rows": 2490}
        )
        for split, count in SPLITS.get(task, {"validation": rows}).items():
            coverage.append({"task": task, "split": split, "rows": count, "official_rows": count})
    for row in coverage:
        row["in_headline"] = row["task"] != "wnli"
    return {
        "schema": VERSION,
        "recipe": "distilbert",
        "command": "python -m distill recipe=distilbert tasks=glue seed=0",
        "version": "0.1.0",
        "seeds": [0],
        "environment": {
            "cpu": "Example CPU 9000 (2 cores)",
            "threads": 2,
            "gpu": None,
            "torch": "2.13.0",
            "transformers": "5.23.0",
            "onnxruntime": "1.31.0",
            "float32_fast_path": True,
        },
        "coverage": coverage,
        "models": [
            model("teacher", "teacher", "torch", "fp32", 80.1, 120, 100.0, 0.55),
            model("teacher", "teacher", "torch", "fp32_medium", 80.1, 66, 100.0, 1.0),
            model("teacher", "teacher", "torch", "bf16", 80.0, 40, 99.9, 1.65),
            model("teacher", "teacher", "onnxruntime", "fp32", 80.1, 72, None, None),
            model("student", "student", "torch", "fp32", 75.9, 33, 95.2, 2.01),
            model("student", "student", "torch", "bf16", 75.8, 21, 95.1, 3.14),
            model("student", "student", "onnxruntime", "fp32", 75.9, 35, 95.2, 1.9),
            model("student", "student", "bitsandbytes", "int8", 75.0, 50, 94.4, 1.3),
            model("student", "student", "onnxruntime", "int8", 74.3, 12.7, 93.1, 5.2),
            model("baseline", "baseline", "torch", "fp32", 70.3, 33, 88.4, 2.0),
            model("baseline", "baseline", "onnxruntime", "int8", 69.5, 12.8, 87.6, 5.1),
        ],
        "stages": [
            {
                "name": name,
                "target": None,
                "kind": kind,
                "seconds": seconds,
                "tokens_per_second": rate,
                "peak_memory_mib": 1800.0,
            }
            for name, kind, seconds, rate in (
                ("pretrain", "train", 310.5, 4210.0),
                ("finetune", "train", 205.1, 6100.0),
                ("evaluate", "evaluate", 80.0, None),
            )
        ],
        "smoke": False,
        "teacher_name": "all-MiniLM-L6-v2",
        "notes": ["The teacher had no language-model head; a first stage fitted one."],
    }


@pytest.fixture
def results() -> dict[str, Any]:
    return copy.deepcopy(complete())
