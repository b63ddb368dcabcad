"""The model card of an exported student: Hugging Face front matter, the numbers, how it was made, its limits."""

from __future__ import annotations

from typing import Any

import yaml

from distill.report import headline, markdown
from distill.report.detail import gain_table
from distill.report.schema import Model, Results
from distill.report.table import models_table


def model_card(results: Results, student_model_name: str, task: str) -> str:
    """README.md of the student called `student_model_name` in the results, fine-tuned on `task`.

    Where several forms have that name, the scores in the front matter are those of the first that has any.
    ValueError if all of them failed or there is none.
    """
    named = [m for m in results["models"] if m["name"] == student_model_name and "failed" not in m]
    if not named:
        raise ValueError(f"no model {student_model_name!r} that did not fail in the results")
    scored = next((m for m in named if m["scores"]), named[0])
    smoke = bool(results.get("smoke"))
    main = models_table(results)
    gain = gain_table(results)
    front = yaml.safe_dump(_front_matter(results, scored, task), sort_keys=False, allow_unicode=True)
    teacher = results.get("teacher_name", "the teacher of the run")
    parts = [
        f"---\n{front}---",
        f"# {markdown.escaped(student_model_name)}: {markdown.escaped(task)}",
        markdown.banner(smoke),
        f"A student distilled from {markdown.escaped(teacher)} and fine-tuned on `{task}`.",
        f"Over all tasks of the run (each has its own model): {markdown.escaped(headline.headline(results))}",
        markdown.table(main),
        markdown.bullets(main.notes),
        markdown.section(gain) if gain else "",
        "## How it was made",
        f"distill {markdown.escaped(results['version'])}, recipe {markdown.escaped(results['recipe'])}, "
        f"seed {', '.join(map(str, results['seeds']))}; stages: "
        f"{markdown.escaped(', '.join(stage['name'] for stage in results['stages']) or '-')}.",
        f"    {' '.join(results['command'].split())}" if results["command"] else "",
        "## Limitations",
        markdown.bullets([*headline.coverage(results), headline.timing(results), *_limits(task)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _limits(task: str) -> list[str]:
    return [
        f"It was measured on the validation rows of {task} only: other texts and languages were not tried.",
        "It learnt from its teacher's outputs and may have taken over the teacher's errors and biases.",
        "The terms of use of the teacher and of the data hold for it as well.",
    ]


def _front_matter(results: Results, model: Model, task: str) -> dict[str, Any]:
    front: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["knowledge-distillation", "distill"],
    }
    scores = model["scores"].get(task)
    if scores and not results.get("smoke"):  # the numbers of a smoke run must not end in a leaderboard
        metrics = [
            {"type": name, "name": f"{name}, in percent", "value": round(score["mean"], 2)}
            for name, score in scores.items()
        ]
        result = {
            "task": {"type": "text-classification"},
            "dataset": _dataset(results, task),
            "metrics": metrics,
        }
        front["model-index"] = [{"name": f"{model['name']}-{task}", "results": [result]}]
    return front


def _dataset(results: Results, task: str) -> dict[str, str]:
    splits = [row for row in results["coverage"] if row["task"] == task and row["split"] != "train"]
    partial = any(row["rows"] < (row["official_rows"] or 0) for row in splits)
    real = task in headline.GLUE and not any(row.get("stand_in") for row in splits)
    described = {"name": f"{'GLUE ' if real else ''}{task}{' (partial)' if partial else ''}"}
    described |= {"type": "nyu-mll/glue", "config": task} if real else {"type": f"{results['recipe']}/{task}"}
    return described | ({"split": splits[0]["split"]} if len(splits) == 1 else {})
