"""The model card of an exported student: Hugging Face front matter, the numbers, how it was made, its limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from distill.report import headline, markdown
from distill.report.detail import gain_table
from distill.report.schema import Model, Results
from distill.report.table import Table, models_table

TAGS = ("knowledge-distillation", "distill")
LIMITS = (
    "It learnt from its teacher's outputs and may have taken over the teacher's errors and biases.",
    "The terms of use of the teacher and of the data hold for it as well.",
)


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
        *_made(results, [stage["name"] for stage in results["stages"]]),
        "## Limitations",
        markdown.bullets([*headline.coverage(results), headline.timing(results), *_limits(task)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _made(results: Results, stages: list[str]) -> list[str]:
    """How a model was made, and what from."""
    return [
        f"distill {markdown.escaped(results['version'])}, recipe {markdown.escaped(results['recipe'])}, "
        f"seed {', '.join(map(str, results['seeds']))}; stages: {markdown.escaped(', '.join(stages) or '-')}.",
        f"    {' '.join(results['command'].split())}" if results["command"] else "",
        markdown.bullets(dict.fromkeys(_sources(results))),
    ]


def _origin(results: Results) -> dict[str, Any]:
    """Front matter on what it was made from: the licence, where one is known for all, and the models on the hub."""
    made_from = results.get("made_from", [])
    keys = ("license", "license_name", "license_link")
    licences = [{key: one[key] for key in keys if one.get(key)} for one in made_from]
    same = licences[0] if licences and all(one == licences[0] for one in licences) else {}
    on_hub = list(dict.fromkeys(one["hub"] for one in made_from if one["hub"]))
    return same | ({"base_model": on_hub} if on_hub else {})


def _sources(results: Results) -> Iterator[str]:
    for one in results.get("made_from", []):
        place = f"[{one['hub']}](https://huggingface.co/{one['hub']})" if one["hub"] else one["name"]
        said = one.get("license_name") or one["license"]
        told = "its licence was not found with its files: look it up before you publish this model"
        yield f"Made from {place}: {f'licence {said}' if said else told}."


def _limits(task: str) -> list[str]:
    return [
        f"It was measured on the validation rows of {task} only: other texts and languages were not tried.",
        *LIMITS,
    ]


def _front_matter(results: Results, model: Model, task: str) -> dict[str, Any]:
    front: dict[str, Any] = {
        **_origin(results),
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": [*TAGS],
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


def plain_card(origin: Results, stage: str, task: str) -> str:
    """README.md of a model for `task` that `stage` of a run left and nothing was measured of."""
    front = {**_origin(origin), "library_name": "transformers", "pipeline_tag": "text-classification", "tags": [*TAGS]}
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---",
        f"# {markdown.escaped(task)}",
        markdown.banner(bool(origin.get("smoke"))),
        "## How it was made",
        *_made(origin, [stage]),
        "## Limitations",
        markdown.bullets(["It was not evaluated.", *LIMITS]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def embedder_card(origin: Results, stage: str, measured: dict[str, Any]) -> str:
    """README.md of a sentence embedder that `stage` of a run trained; `origin` is what results say of the run.

    `measured`: `cosine`, the mean one to the teacher's vectors, over so many `texts`, None where these are of another
    width; `spearman`, task -> [teacher, student], in percent, of the cosines of its pairs with their labels.
    """
    tags = ["sentence-transformers", "feature-extraction", "sentence-similarity", *TAGS]
    front: dict[str, Any] = {**_origin(origin), "library_name": "sentence-transformers"}
    front |= {"pipeline_tag": "sentence-similarity", "tags": tags}
    rows = [
        (f"{task}, Spearman in percent", *map("{:.1f}".format, both)) for task, both in measured["spearman"].items()
    ]
    if measured["cosine"] is not None:
        rows.append(
            (f"mean cosine to the teacher's vectors, {measured['texts']} texts", "1", f"{measured['cosine']:.3f}")
        )
    shown = Table("Measured", ("", "teacher", "student"), rows, text_columns=1)
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---",
        "# A distilled sentence embedder",
        markdown.banner(bool(origin.get("smoke"))),
        f"Its vectors point, as nearly as it learnt, where those of {markdown.escaped(origin['teacher_name'])} point; "
        "their length is 1.",
        "    from sentence_transformers import SentenceTransformer",
        "    vectors = SentenceTransformer(PATH).encode(TEXTS)",
        markdown.table(shown) if rows else "",
        "## How it was made",
        *_made(origin, [stage]),
        "## Limitations",
        markdown.bullets(["The figures are of texts of other tasks; it was fine-tuned on none of them.", *LIMITS]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _dataset(results: Results, task: str) -> dict[str, str]:
    splits = [row for row in results["coverage"] if row["task"] == task and row["split"] != "train"]
    partial = any(row["rows"] < (row["official_rows"] or 0) for row in splits)
    real = task in headline.GLUE and not any(row.get("stand_in") for row in splits)
    described = {"name": f"{'GLUE ' if real else ''}{task}{' (partial)' if partial else ''}"}
    described |= {"type": "nyu-mll/glue", "config": task} if real else {"type": f"{results['recipe']}/{task}"}
    return described | ({"split": splits[0]["split"]} if len(splits) == 1 else {})
