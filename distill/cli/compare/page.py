"""The content of compare.json as blocks of a report, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distill.cli.compare.comparison import answered
from distill.cli.compare.result import probability
from distill.data.task_types import TASK_TYPES
from distill.evaluation.disagreements import short
from distill.report.model_rows import counted
from distill.report.page import Block, Bullets, Heading, Headline, Paragraph, section, sections
from distill.report.table import Row, Table, number, times, with_interval

Comparison = dict[str, Any]

_CLASSES, _TEXTS, _CHARACTERS = 20, 3, 60
"""Classes, rows and characters of a text that a terminal shows. The page shows all of them."""


def title(comparison: Comparison) -> str:
    a, b = comparison["models"]["a"], comparison["models"]["b"]
    return f"{a['name']} and {b['name']} on {comparison['file']}"


def blocks(comparison: Comparison, whole: bool = True) -> list[Block]:
    """The whole page, or what a terminal shows of it."""
    first, *others = comparison["result"]
    return [
        Heading(title(comparison), 1),
        Headline(first),
        Bullets([*others, *comparison["notes"]]),
        Paragraph(_origin(comparison)),
        models(comparison),
        *sections([scores(comparison), latency(comparison), classes(comparison, whole), lengths(comparison)]),
        *section(differences(comparison, whole)),
    ]


def _origin(comparison: Comparison) -> str:
    label = f", label from {', '.join(comparison['label'])}" if comparison["scores"] else ""
    return (
        f"{comparison['file']}: {counted(comparison['rows'], 'row')}, of which {comparison['labelled_rows']:,} have a "
        f"label; text from {' and '.join(comparison['columns'])}{label}; {comparison['kind']}."
    )


def models(comparison: Comparison) -> Table:
    rows: list[Row] = []
    for name, model in comparison["models"].items():
        texts = (name.upper(), model["name"], model["folder"], model["backend"], model["scheme"])
        rows.append((*texts, f"{model['max_length']:,}", f"{model['truncated_rows']:,}"))
    columns = ("", "Model", "Folder", "Backend", "Scheme", "Maximum tokens", "Truncated rows")
    return Table("Models", columns, rows, 5)


def scores(comparison: Comparison) -> Table | None:
    """Scores of both models and their difference; None without labels."""
    if comparison["scores"] is None:
        return None
    rows = [
        (metric, number(v["a"]), number(v["b"]), with_interval(f"{v['difference']:+.1f}", v["ci95"], 1))
        for metric, v in comparison["scores"].items()
    ]
    notes = [
        "Percent (correlations times 100). The interval is that of the difference, from a paired bootstrap over the "
        "rows, of which some may be drawn together. It does not include the variance between training seeds."
    ]
    if TASK_TYPES[comparison["kind"]].per_token:
        notes.append(
            "span_f1 is that of spans, accuracy that of the tags of words; a row is a text with all its words."
        )
    if (test := comparison["mcnemar"]) is not None:
        metric = next(iter(comparison["scores"]))
        notes.append(
            f"McNemar's exact test of {metric}: only A is correct on {counted(test['only_a'], 'row')}, only B on "
            f"{test['only_b']:,}; {probability(test['p'])}."
        )
    return Table("Scores", ("Metric", "A", "B", "B - A [95%]"), rows, 1, notes)


def latency(comparison: Comparison) -> Table:
    rows = []
    for row in comparison["latency"]:
        speedup = with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2)
        rows.append((str(row["batch"]), number(row["a"]["median"], 2), number(row["b"]["median"], 2), speedup))
    first, machine = comparison["latency"][0], comparison["environment"]
    notes = [
        f"From texts to outputs, tokenizing included, on {counted(first['rows'], 'row')} of the file at their own "
        f"lengths. Medians of {first['a']['repeats']} rounds, each of which times both models in random order, with "
        f"{counted(machine['threads'], 'thread')} on {machine['cpu']}."
    ]
    return Table("Latency", ("Batch size", "A: ms", "B: ms", "Speed of B over A [95%]"), rows, 1, notes)


def classes(comparison: Comparison, whole: bool) -> Table | None:
    """Counts of each class, and with labels recall and F1; None for numbers."""
    every: Sequence[dict[str, Any]] = comparison["classes"]
    if not every:
        return None
    shown = every if whole else sorted(every, key=lambda c: -(c["rows"] or c["predicted"]["a"]))[:_CLASSES]
    rows: list[Row] = []
    for each in shown:
        counts = (f"{each['predicted']['a']:,}", f"{each['predicted']['b']:,}")
        if comparison["scores"] is None:
            rows.append((each["label"], *counts))
            continue
        quality = [number(each[model][key]) for key in ("recall", "f1") for model in "ab"]
        rows.append((each["label"], f"{each['rows']:,}", *counts, *quality))
    columns: Row = ("Class", "Predicted by A", "Predicted by B")
    if comparison["scores"] is not None:
        columns = ("Class", "Rows", *columns[1:], "Recall A", "Recall B", "F1 A", "F1 B")
    notes = [f"{len(every) - len(shown):,} smaller classes are on the page."] if len(shown) < len(every) else []
    if TASK_TYPES[comparison["kind"]].per_token:
        notes.append("A class is a type of span, and its rows are the spans of this type.")
    return Table("By class", columns, rows, 1, notes)


def lengths(comparison: Comparison) -> Table:
    """Agreement by number of tokens and, with labels, scores but for rankings."""
    kind = TASK_TYPES[comparison["kind"]]
    metrics = [] if kind.grouped else list(comparison["scores"] or ())
    rows: list[Row] = []
    for group in comparison["lengths"]:
        own, same = group.get("scores") or {}, group["agreement"]
        agreed = number(same["percent"]) if "percent" in same else number(same["pearson"], 3)
        quality = [number((own[model] or {}).get(metric)) for metric in metrics for model in "ab"]
        rows.append((f"{group['from']} to {group['to']}", f"{group['rows']:,}", agreed, *quality))
    compared = "Same prediction %" if answered(kind).same else "Pearson of A and B"
    agreed = "Same tag %" if kind.per_token else compared
    columns = ("Tokens", "Rows", agreed, *(f"{metric} {model}" for metric in metrics for model in "AB"))
    notes = ["Three groups of about the same number of rows, by the tokens of A's tokenizer before truncation."]
    if kind.layout.several:
        notes.append(f"Of a row with several {kind.layout.several}, the longest counts.")
    return Table("By length", columns, rows, 1, notes)


def differences(comparison: Comparison, whole: bool) -> Table:
    kind, every = TASK_TYPES[comparison["kind"]], comparison["differences"]
    rows: list[Row] = []
    for each in every if whole else every[:_TEXTS]:
        text = " / ".join(" ".join(text.split()) for text in each["texts"])
        place = each["row"].removeprefix(f"{comparison['file']}, row ")
        answers = (answered(kind).brief(each["a"]), answered(kind).brief(each["b"]))
        rows.append(
            (
                text if whole else short(text, _CHARACTERS),
                place,
                _label(each["label"]),
                *answers,
                number(each["difference"], 3),
            )
        )
    notes = [f"Difference: {kind.measure}."]
    if len(rows) < len(every):
        notes.append(f"{len(every) - len(rows)} more rows are on the page.")
    return Table("Where they differ most", ("Text", "Row", "Label", "A", "B", "Difference"), rows, 5, notes)


def _label(label: str | float | None) -> str:
    return "-" if label is None else f"{label:.4g}" if isinstance(label, float) else label or "no label"
