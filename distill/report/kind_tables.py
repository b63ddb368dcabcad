"""Tables that only some kinds of tasks have: detection of labels, spans by type, metrics beside the score, and queries
on the teacher's index."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from distill.data.task_types import TASK_TYPES
from distill.evaluation.detection import FALSE_POSITIVES
from distill.evaluation.entities import together
from distill.evaluation.kind_results import Entities
from distill.evaluation.results import Model, Results
from distill.report import model_rows
from distill.report.model_rows import named
from distill.report.table import Row, Table, number, with_interval


def detection_table(results: Results) -> Table | None:
    """ROC AUC and average precision of each label, and recall and false positives at its threshold."""
    columns: Row = ("Task", "Label", "Model", "Rows", "ROC AUC", "Avg. precision")
    columns += ("Threshold", "Chosen on", "Recall", "False positives")
    notes = [
        "In percent of the reported rows. Rows: those with the label. Of two classes, each is shown as the one to be "
        "detected. Recall: the share of the label's rows that reach the threshold. The threshold is chosen so that at "
        f"most {FALSE_POSITIVES}% of the development rows without the label reach it. Chosen on: the number of these "
        "development rows; with few, the threshold is uncertain. False positives: the share of the reported rows "
        "without the label that reach it. - where there are no such rows; chosen on 0 where the model may have learned "
        "them before the run. In brackets: 95% intervals, which do not include the uncertainty of the threshold.",
        "The threshold is a probability before temperature scaling, and cannot be compared with the scores of a "
        "prediction. An exported model uses it with model.predict(texts, detect=LABEL).",
    ]
    detected = {task for model in results.models for task in model.detection}
    shared = [split for split in results.drawn_together if split.partition(" ")[0] in detected]
    notes += [_TOGETHER.format(", ".join(shared))] if shared else []
    return _table(results, "Detection of labels", columns, 3, notes, _detection)


_TOGETHER = (
    "Some rows of {} share a text. These intervals take them for independent rows, which other intervals of a report "
    "do not, and are too narrow where a model is often right, or wrong, on all rows of one text."
)


def _detection(model: Model) -> Iterator[Row]:
    for task, labels in model.detection.items():
        for label, each in labels.items():
            yield (
                *(task, label, named(model), number(each.positives, 0)),
                with_interval(number(each.roc_auc), each.roc_auc_ci95, 1),
                number(each.average_precision),
                _share(each.threshold),
                number(each.chosen_on, 0),
                with_interval(number(each.recall), each.recall_ci95, 1),
                with_interval(number(each.false_positives, 2), each.false_positives_ci95, 2),
            )


def _share(value: float | None) -> str:
    """A number between 0 and 1 with three significant digits, near 1 of its distance from 1."""
    return "-" if value is None else number(value, 2 - math.floor(math.log10(min(value, 1 - value))))


def entities_table(results: Results) -> Table | None:
    """Exact and partial spans of each type."""
    columns = ("Task", "Type", "Model", "Precision", "Recall", "F1", "Spans", "Exact", "Overlapping", "Mistyped")
    notes = [
        "Precision, recall and F1 in percent, of exact spans. Spans: those of the labels, of which the columns behind "
        "are parts. Overlapping: another span of the same type was predicted that shares a word with it. Mistyped: its "
        "words were predicted as a span of another type."
    ]
    return _table(results, "Spans by type", columns, 3, notes, _entities)


ALL = "(all types)"


def _entities(model: Model) -> Iterator[Row]:
    for task, types in model.entities.items():
        every: list[tuple[str, Entities]] = [*types.items()]
        every += [(ALL, together(types.values()))] if len(types) > 1 else []
        for kind, each in every:
            counts = (each.true, each.exact, each.overlapping, each.mistyped)
            percents = map(number, (each.precision, each.recall, each.f1))
            yield (task, kind, named(model), *percents, *(number(count, 0) for count in counts))


def beside_table(results: Results) -> Table | None:
    """The metrics of rankings beside each other, of which only those of the task are in its score."""
    columns = ("Task", "Metric", "Model", "Percent", "In the score")

    def rows(model: Model) -> Iterator[Row]:
        for task, scores in (model.scores or {}).items():
            others = model.beside.get(task, {})
            for metric, value in {**scores, **others}.items() if others or _whole(scores) else ():
                yield (task, metric, named(model), number(value), "yes" if metric in scores else "no")

    note = "ndcg_at_10 and mrr_at_10 consider the first ten documents of a query, map all of them."
    return _table(results, "Metrics of rankings", columns, 3, [note], rows)


def index_table(results: Results) -> Table | None:
    """Scores of queries against the documents of the same model, and against those of the teacher."""
    columns = ("Task", "Metric", "Model", "Own documents", "Teacher's documents")

    def rows(model: Model) -> Iterator[Row]:
        for task, scores in model.teachers_index.items():
            own = (model.scores or {}).get(task, {})
            for metric, value in scores.items():
                yield (task, metric, named(model), number(own.get(metric)), number(value))

    note = (
        "In percent. Teacher's documents: the model embeds the queries alone, and the documents are searched with the "
        "vectors of the teacher in float32, as in an index that exists already."
    )
    return _table(results, "Queries on the teacher's index", columns, 3, [note], rows)


def vectors_table(results: Results) -> Table | None:
    """Scores of vectors with fewer components, in int8 and in bits."""
    columns = ("Task", "Metric", "Model", "Vectors", "Bytes", "Percent", "% of float32")

    def rows(model: Model) -> Iterator[Row]:
        for task, forms in model.vectors.items():
            whole = next(iter(forms.values())).scores
            for metric in whole:
                for name, form in forms.items():
                    of_whole = 100 * form.scores[metric] / whole[metric] if whole[metric] > 0 else None
                    percents = number(form.scores[metric]), number(of_whole)
                    yield (task, metric, named(model), name, number(form.bytes, 0), *percents)

    note = (
        "What an index needs for one vector, and the score with vectors in that form. First components: models "
        "trained for it (Matryoshka) keep more. int8: rounded, with the largest component of a vector "
        "as 127. binary: the signs, compared by their Hamming distance."
    )
    return _table(results, "Smaller vectors", columns, 4, [note], rows)


def _whole(metrics: Collection[str]) -> bool:
    """Whether a task's own metrics are all those that its kind shows beside each other."""
    return any(kind.beside and {*kind.beside} <= {*metrics} for kind in TASK_TYPES.values())


def _table(
    results: Results,
    title: str,
    columns: Row,
    text_columns: int,
    notes: list[str],
    rows: Callable[[Model], Iterator[Row]],
) -> Table | None:
    """The rows of the teacher and of the student of the headline beside each other, `ALL` last; None without rows."""
    models = filter(None, (model_rows.reference_teacher(results), model_rows.first_student(results)))
    found = [row for model in models for row in rows(model)]
    tasks, names = ([*dict.fromkeys(row[column] for row in found)] for column in (0, 1))
    found.sort(key=lambda row: (tasks.index(row[0]), row[1] == ALL, names.index(row[1])))
    return Table(title, columns, found, text_columns, notes) if found else None


def tables(results: Results) -> list[Table | None]:
    """All tables of this module, in the order of the report."""
    found = [detection_table(results), entities_table(results), beside_table(results)]
    return [*found, index_table(results), vectors_table(results)]
