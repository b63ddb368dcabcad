"""Model cards of exported models: Hugging Face front matter, results, how the model was made, limitations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import yaml

from distill.evaluation.results import Model, Origin, Results
from distill.evaluation.similarity import Similarity
from distill.report import averages, decision, footnotes, headline, markdown, model_rows
from distill.report.detail import gain_tables
from distill.report.itself import is_teacher
from distill.report.page import Block, Bullets, Code, Heading, Paragraph, banner, command, section
from distill.report.portable import portable_command, portable_text
from distill.report.table import Table, models_table
from distill.report.variants import Run

TAUGHT, TAGS = ("knowledge-distillation",), ("distill",)
"""Tags of a model that a teacher taught, and of every model."""
OF_TEACHER = "It was trained on its teacher's outputs and may reproduce the teacher's errors and biases."
LIMITS = ("The terms of use of the teacher and of the data apply to it as well.",)


_CROSS_ENCODER = """from sentence_transformers import CrossEncoder

reranker = CrossEncoder("FOLDER_OF_THIS_FILE", max_length={max_length})
scores = reranker.predict([("a query", {between}"a document"), ("a query", {between}"another document")])
ranked = reranker.rank("a query", [{between}"a document", {between}"another document"])"""

_EMBEDDER = """from sentence_transformers import SentenceTransformer

embedder = SentenceTransformer("FOLDER_OF_THIS_FILE")
embeddings = embedder.encode(["A first text.", "A second text."])"""

_RETRIEVER = """from sentence_transformers import SentenceTransformer

embedder = SentenceTransformer("FOLDER_OF_THIS_FILE")
queries = embedder.encode_query(["A question?"])
documents = embedder.encode_document(["A first document.", "A second document."])"""

_NEEDS_5 = "It needs transformers 5. Version 4 has no settings for its layers or positions, and ends with an error."

_PAIR = """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER_OF_THIS_FILE")
pair = "a first text", {between}"a second text"
batch = tokenizer(*pair, truncation=True, max_length={max_length}, return_tensors="pt")"""

_LINK = re.compile(r"(https?://[^\s<>\"'`\\]+|(?!//)[\w./-]+)", re.ASCII | re.IGNORECASE)
"""A web page, or a file of the repository. The hub makes a link of it."""

_MODEL = "The model"
"""What a card calls it, whose reader may be anybody."""

SIMILARITY = "sentence-similarity"
"""The hub's name of what embedders do."""

LIBRARIES = {
    "text-ranking": ("sentence-transformers", ("cross-encoder",), _CROSS_ENCODER),
    SIMILARITY: ("sentence-transformers", ("sentence-transformers", "feature-extraction", SIMILARITY), _EMBEDDER),
}
"""Task of a model on the hub -> library that loads it besides transformers, further tags, and code that uses it."""


def model_card(
    results: Results,
    target: str | None,
    task: str,
    pipeline: str = "text-classification",
    max_length: int = 128,
    made_by: Sequence[str] = (),
    *,
    retrieves: bool = False,
    between: str = "",
    needs_5: bool = False,
) -> str:
    """README.md of the student for `target` (None for a run without targets), or of the teacher, fine-tuned on `task`.

    The front matter has the scores of the model's first scored variant. `pipeline` is the hub's name of what the
    model does, and `max_length` the number of tokens after which it cuts texts. `made_by` names the stages that made
    the teacher, and is empty for a student. `retrieves`: whether an embedder finds documents for queries.
    `between`: what is put before the second text of a pair, because the tokenizer puts nothing there; empty without.
    `needs_5`: whether version 4 of transformers cannot read the model.
    Raises ValueError if all variants of the model failed.
    """
    role = "teacher" if made_by else "student"
    forms = [m for m in model_rows.of_role(results, role) if m.target == target and not m.failed]
    if not forms:
        raise ValueError(f"no {role} for the target {target!r} that did not fail in the results")
    scored = next((m for m in forms if m.scores), forms[0])
    stages = made_by or [stage.name for stage in results.stages if stage.target in (None, target)]
    split = _dataset(results, task).get("split", "validation").partition("_")[0]
    only = f"It was evaluated on the {split} rows of {task} only, not on other texts or languages."
    teacher = results.teacher_name or "the teacher of the run"
    made = "made" if results.untaught is True else "distilled"
    what = f"A student {made} from {teacher} and fine-tuned on {task}{_with(results, task)}."
    if is_teacher(results, scored):
        what = f"{teacher}, fine-tuned on {task}, and forms of it in other number formats."
    parts: list[Block] = [
        Paragraph(what),
        *_result(results, role),
        _models(results),
        *(block for table in ([] if made_by else gain_tables(results)) for block in section(table)),
        *_usage(pipeline, max_length, retrieves, between, needs_5),
    ]
    front = _front_matter(results, scored, task, pipeline)
    return _card(front, f"{_name(results, scored)}: {task}", results, parts, stages, [*_measured_how(results), only])


def _result(results: Results, role: str) -> list[Block]:
    """What the report says of the model of a card: of a teacher beside its students, of the form that it advises."""
    whole = role == "teacher"
    models = "one encoder for all tasks" if results.heads and not whole else "one fine-tuned model for each task"
    text = None if whole else headline.headline(results, _MODEL)
    advised = decision.decided(Run("", results)).chosen if whole else None
    if advised is not None and advised.role == role and model_rows.retained(advised) is not None:
        text = headline.quality_and_speed(results, advised, _MODEL)
    return [] if text is None else [Paragraph(f"Results over all tasks of the run, with {models}: {_public(text)}")]


def _name(results: Results, model: Model) -> str:
    """The name of a model: a run without a student calls the teacher in other forms its student."""
    return "teacher" if model.role == "student" and is_teacher(results, model) else model.name


def _with(results: Results, task: str) -> str:
    """The other tasks that a model with shared heads was trained on."""
    others = [name for name in model_rows.task_names(results) if name != task]
    return f", by an encoder that was trained on {', '.join(others)} too" if results.heads else ""


def heads_card(origin: Origin, tasks: Sequence[str], measured: Results | None, *, pairs: bool = False) -> str:
    """README.md of a folder with a head for each of `tasks`; `measured`: the run's results, if it was evaluated.
    `pairs`: whether they read pairs of texts."""
    asked = '("A first text.", "A second text.")' if pairs else '"A text."'
    loading = "".join(f'\nAutoModelForSequenceClassification.from_pretrained("FOLDER/{task}")' for task in tasks)
    parts: list[Block] = [
        Paragraph(
            "Each subfolder is the whole model of one task, which transformers loads; their encoders are identical. "
            "distill.load runs the encoder once for all tasks."
        ),
        Code(f"from transformers import AutoModelForSequenceClassification\n{loading}"),
        Code(f'import distill\n\ndistill.load("FOLDER").predict([{asked}])'),
    ]
    limits, stages = list[str](), list[str]()
    if measured is not None:
        parts += [Paragraph(_public(headline.headline(measured))), _models(measured)]
        limits, stages = _measured_how(measured), [stage.name for stage in measured.stages]
    front = _classifier(origin, "text-classification")
    return _card(front, f"One encoder for {', '.join(tasks)}", origin, parts, stages, limits)


def plain_card(
    origin: Origin,
    stage: str,
    task: str,
    pipeline: str = "text-classification",
    max_length: int = 128,
    *,
    retrieves: bool = False,
    between: str = "",
    needs_5: bool = False,
) -> str:
    """README.md of a model for `task` that was made by `stage` of a run and was not evaluated. The others are as of
    `model_card`."""
    front, usage = _classifier(origin, pipeline), _usage(pipeline, max_length, retrieves, between, needs_5)
    return _card(front, task, origin, usage, [stage], ["It was not evaluated."])


def embedder_card(origin: Origin, stage: str, measured: Similarity, *, needs_5: bool = False) -> str:
    """README.md of a sentence embedder that `stage` of a run trained; `origin` describes the run. `needs_5` is as of
    `model_card`."""
    pairs = measured.spearman.items()
    rows = [(f"Spearman on {task}, in percent", *map("{:.1f}".format, both)) for task, both in pairs]
    if measured.cosine is not None:
        name = f"Mean cosine to the teacher's embeddings, over {measured.texts} texts"
        rows.append((name, "1", f"{measured.cosine:.3f}"))
    parts: list[Block] = [
        Paragraph(f"Its unit-length embeddings approximate the direction of those of {origin.teacher_name}."),
        *([Paragraph(_NEEDS_5)] if needs_5 else []),
        Code(_EMBEDDER),
        *section(Table("Evaluation", ("Measure", "Teacher", "Student"), rows)),
    ]
    limits = ["It was evaluated on texts of tasks that it was not fine-tuned on."]
    front = _classifier(origin, SIMILARITY)
    return _card(front, "A distilled sentence embedder", origin, parts, [stage], limits)


def _card(
    front: dict[str, Any],
    title: str,
    origin: Origin,
    parts: Sequence[Block],
    stages: Sequence[str],
    limits: Sequence[str],
) -> str:
    """A whole card: its own `parts`, how `stages` of a run made the model, and its limitations."""
    blocks = [
        Heading(title, 1),
        *banner(bool(origin.smoke)),
        *parts,
        *_how_it_was_made(origin, stages),
        Heading("Limitations"),
        Bullets([*limits, *(() if origin.untaught is True else (OF_TEACHER,)), *LIMITS]),
    ]
    return f"---\n{front_matter(front)}---\n\n{markdown.text(blocks)}"


def _models(results: Results) -> Table:
    """The main table of a report, for anybody."""
    table = models_table(results)
    return replace(table, columns=tuple(map(_public, table.columns)), notes=list(map(_public, table.notes)))


def _public(text: str) -> str:
    """A text of a report without the folders of its machine, in which the teacher is not the reader's model."""
    said = portable_text(text).replace("your model in ", "the teacher in ")
    return said.replace("Your model in ", "The teacher in ").replace("Your model may ", "The teacher may ")


def _measured_how(results: Results) -> list[str]:
    """Sentences on what the scores cover, and on how speed was measured."""
    return [*footnotes.coverage(results), footnotes.timing(results)]


class _Dumper(yaml.SafeDumper):
    """Texts that are more than printable characters on a line have double quotes, in which YAML escapes the others."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _text)


def front_matter(values: dict[str, Any]) -> str:
    """The values as YAML that reads back to exactly them. No line of it is a text's own."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))


def _usage(pipeline: str, max_length: int, retrieves: bool, between: str, needs_5: bool) -> list[Block]:
    """What a user must know: the version of transformers, and code for the model's library, where that is not
    transformers alone, or for pairs of which the tokenizer alone makes other inputs."""
    parts: list[Block] = [Paragraph(_NEEDS_5)] if needs_5 else []
    shown = json.dumps(between, ensure_ascii=False)
    if between:
        parts.append(
            Paragraph(
                f"Its tokenizer puts nothing between the texts of a pair, so the model was trained with {shown} before "
                "each second text. distill.load adds it; other programs must do so:"
            )
        )
    if pipeline in LIBRARIES or between:
        code = _RETRIEVER if retrieves else LIBRARIES[pipeline][2] if pipeline in LIBRARIES else _PAIR
        parts.append(Code(code.format(max_length=max_length, between=f"{shown} + " if between else "")))
    return [Heading("Usage"), *parts] if parts else []


def _how_it_was_made(results: Origin, stages: Sequence[str]) -> list[Block]:
    """Version, recipe, seed, stages, command and the models that this one was made from."""
    seeds = ", ".join(map(str, results.seeds))
    text = f"Made with distill {results.version}, recipe {results.recipe}, seed {seeds}. Stages: "
    return [
        Heading("How it was made"),
        Paragraph(f"{text}{', '.join(dict.fromkeys(stages)) or '-'}."),
        *command(portable_command(results.command)),
        Bullets(list(dict.fromkeys(_sources(results)))),
    ]


def _origin(results: Origin) -> dict[str, Any]:
    """Front matter on the source models: their licence, if all have the same, and their names on the hub."""
    sources = results.made_from
    keys = ("license", "license_name", "license_link")
    licences = [{key: text for key in keys if (text := getattr(source, key))} for source in sources]
    same = licences[0] if licences and all(licence == licences[0] for licence in licences) else {}
    if not _LINK.fullmatch(same.get("license_link", "")):
        same = {key: value for key, value in same.items() if key != "license_link"}
    on_hub = list(dict.fromkeys(source.hub for source in sources if source.hub))
    return same | ({"base_model": on_hub} if on_hub else {})


def _sources(results: Origin) -> Iterator[str]:
    for source in results.made_from:
        place = f"{source.hub} on the Hugging Face hub" if source.hub else source.name
        name = source.license_name or source.license
        unknown = "its files name no licence; look it up before you publish this model"
        yield f"Made from {place}: {f'licence {name}' if name else unknown}."


def _classifier(results: Origin, pipeline: str) -> dict[str, Any]:
    """Front matter of any model of a task, and of an embedder."""
    library, tags, _ = LIBRARIES.get(pipeline, ("transformers", (), ""))
    kind = {
        "library_name": library,
        "pipeline_tag": pipeline,
        "tags": [*tags, *(() if results.untaught is True else TAUGHT), *TAGS],
    }
    return {**_origin(results), **kind}


def _front_matter(results: Results, model: Model, task: str, pipeline: str) -> dict[str, Any]:
    """Front matter of a student, with its scores on `task`."""
    front = _classifier(results, pipeline)
    scores = (model.scores or {}).get(task)
    if scores and not results.smoke:  # the numbers of a smoke run must not get onto a leaderboard
        metrics = [
            {"type": name, "name": f"{name}, in percent", "value": round(score, 2)} for name, score in scores.items()
        ]
        result = {
            "task": {"type": pipeline},
            "dataset": _dataset(results, task),
            "metrics": metrics,
        }
        front["model-index"] = [{"name": f"{_name(results, model)}-{task}", "results": [result]}]
    return front


def _dataset(results: Results, task: str) -> dict[str, str]:
    splits = averages.reported(results, task)
    partial = any(row.rows < (row.official_rows or 0) for row in splits)
    real = task in averages.glue_tasks(results) and not any(row.stand_in for row in splits)
    described = {"name": f"{'GLUE ' if real else ''}{task}{' (partial)' if partial else ''}"}
    described |= {"type": "nyu-mll/glue", "config": task} if real else {"type": f"{results.recipe}/{task}"}
    return described | ({"split": splits[0].split} if len(splits) == 1 else {})
