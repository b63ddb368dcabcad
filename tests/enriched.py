"""Results with every key that the page shows, invented for tests of the page only; and a page, taken apart."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

from distill.evaluation.results import Disagreement

Results = dict[str, Any]
EVIL = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'


DETECTION = {"positives": 30, "negatives": 1170, "roc_auc": 91.5, "average_precision": 55.5, "threshold": 1 - 1.23e-7}
DETECTION |= {"chosen_on": 1700, "recall": 61.5, "false_positives": 1.25}
ENTITIES = {"precision": 40.0, "recall": 25.0, "f1": 30.75, "true": 8, "predicted": 5, "exact": 2}
ENTITIES |= {"overlapping": 3, "mistyped": 1}
OF_KINDS: Results = {
    "beside": {EVIL: {EVIL: 60.25}},
    "teachers_index": {EVIL: {EVIL: 60.25}},
    "detection": {EVIL: {EVIL: DETECTION, "none": DETECTION | {"roc_auc": None, "threshold": None, "recall": None}}},
    "entities": {EVIL: {EVIL: ENTITIES, "PER": ENTITIES}},
    "vectors": {
        EVIL: {"float32": {"bytes": 1536, "scores": {EVIL: 80.5}}, EVIL: {"bytes": 48, "scores": {EVIL: 70.25}}}
    },
}
"""What some kinds of tasks have, with names that are markup."""


def without_plotly(page: str) -> str:
    """The page without the script of its drawing library, which has 5 MB and its own addresses in comments."""
    return re.sub(r'(<script type="text/plain" id="plotly">).*?(</script>)', r"\1\2", page, count=1, flags=re.DOTALL)


VOID = {"meta", "br"}


class Parsed(HTMLParser):
    """Tags with their attributes, scripts, and text outside scripts and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif self.open[-1:] != ["style"]:
            self.words.append(data)


def enriched(results: Results) -> Results:
    """A copy with invented values of all keys of the current rules."""
    made: Results = copy.deepcopy(results)
    made.pop("older_rules", None)
    made |= {"chance": {}, "near_chance": [], "detectable": {}}
    tasks = list(dict.fromkeys(task for model in made["models"] for task in model.get("scores", {})))
    for number, task in enumerate(tasks):
        metrics = next(m["scores"][task] for m in made["models"] if task in m.get("scores", {}))
        made["chance"][task] = {metric: 10.0 + number for metric in metrics}
        made["detectable"][task] = 2.5 + number
    made["near_chance"] = tasks[-1:]
    for number, model in enumerate(m for m in made["models"] if "failed" not in m):
        _enrich(model, number, tasks)
    made["tests"] = tests_of(made["models"], tasks)
    for stage in made["stages"]:
        if stage["kind"] == "train":
            stage["log"] = [[10 * step, 3.0 / step] for step in range(1, 30)]
    steps = (("depth", 1.6, 99.1), ("width", 2.1, 98.0), ("int8", 3.9, 97.6), ("runtime", 4.8, 97.5))
    made["waterfall"] = [{"step": step, "speedup": speedup, "retained": kept} for step, speedup, kept in steps]
    return made


def _enrich(model: dict[str, Any], number: int, tasks: Sequence[str]) -> None:
    kept = model.get("retained")
    if kept and kept["headline"] is not None:
        value = kept["headline"] - 3.0
        kept |= {"above_chance": value, "above_chance_ci95": [value - 2.0, value + 2.0]}
    speedup = model.get("speedup")
    if speedup and speedup["best_teacher"] is not None:
        best = speedup["best_teacher"]
        inputs = {"own lengths": 0.9 * best, "1x128": 0.8 * best, "8x128": best, "32x128": 1.1 * best}
        speedup["by_input"] = {n: {"median": v, "ci95": [0.95 * v, 1.05 * v]} for n, v in inputs.items()}
        speedup["best_teacher"] = inputs["own lengths"]
        own = {"batch": None, "length": None, "name": "own lengths", "median": 40.0 / best, "p90": None, "repeats": 9}
        model["latency_ms"] = [own, *model["latency_ms"]]
    model |= {
        "requests": {"count": 300, "p50": 2.0 + number, "p95": 3.0 + number, "p99": 5.0 + number},
        "cold_start_ms": 400.0 + number,
        "memory_mib": 210.0 + number,
        "energy_j": None,
        "energy_missing": "the processor's counters cannot be read",
        "cost_per_million": 1.5,
        "near_constant": list(tasks[:1]) if number == 6 else [],
    }
    model["score_ci95"] = {
        task: {metric: [value - 1, value + 1] for metric, value in metrics.items()}
        for task, metrics in model.get("scores", {}).items()
    }
    bins = [[0.1 * i + 0.05, 0.08 * i + 0.1, 10 * i + 1] for i in range(10)]
    model["calibration"] = {task: {"ece": 0.09, "temperature": 1.4, "ece_scaled": 0.03, "bins": bins} for task in tasks}
    parts = [(1, 16, 20, 71.0), (17, 64, 9, 66.0)]
    lengths = [{"from": low, "to": high, "rows": n, "scores": {"accuracy": score}} for low, high, n, score in parts]
    model["by_length"] = {task: copy.deepcopy(lengths) for task in tasks}
    if model.get("scores"):
        model |= copy.deepcopy(OF_KINDS)


def identity(model: dict[str, Any]) -> dict[str, str]:
    return {key: model[key] for key in ("name", "scheme", "backend")}


def tests_of(models: Sequence[dict[str, Any]], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """Every pair of scored models; pairs with the teacher on single tasks too. Every other one is distinguishable."""
    scored = [model for model in models if model.get("scores")]
    rows = []
    for i, a in enumerate(scored):
        for j, b in enumerate(scored[:i]):
            of_teacher = tasks if b["role"] == "teacher" else []
            for scope in [None, *of_teacher]:
                row = {"a": identity(a), "b": identity(b), "difference": -0.5 * (i - j), "ci95": [-1.0, 0.5]}
                rows.append(row | {"p": 0.2, "test": "bootstrap", "distinguishable": (i + j) % 2 == 0, "scope": scope})
    return rows


def disagreeing(tasks: Sequence[str], count: int = 30) -> list[Disagreement]:
    """Rows of disagreements.json, one of them with a text that is markup."""
    row = {"split": "validation", "text": EVIL, "teacher": "yes", "student": "no", "label": "yes"}
    return [Disagreement(task=task, row=number, **row) for task in tasks for number in range(count)]
