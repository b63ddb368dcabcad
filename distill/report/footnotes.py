"""Notes below the tables of a report: what the average covers, sizes of pruned models, and how speed was measured."""

from __future__ import annotations

from collections import Counter

from msgspec import UNSET

from distill.data.task import about
from distill.evaluation.results import Coverage, Pruned, Results, known
from distill.report.averages import GLUE, average_name, evaluated, glue_tasks, published
from distill.report.model_rows import LEARNED, counted, task_names, variant


def coverage(results: Results) -> list[str]:
    """Sentences on what the average covers, and what it does not."""
    tasks = evaluated(results)
    rows = results.coverage
    tested = {row.task for row in rows if row.split == "test" and row.rows}
    reported = " and ".join(dict.fromkeys("test" if task in tested else "validation" for task in tasks)) or "validation"
    several = f"the macro score: the mean over {', '.join(tasks) or 'no task'} of the mean of each task's metrics"
    single = f"the macro score: the mean of {' and '.join(_metrics(results))}"
    sentences = [f"{average_name(results)} is {single if len(tasks) == 1 else several} on its {reported} splits."]
    named = list(dict.fromkeys([*tasks, *(row.task for row in rows)]))
    expected = GLUE if set(named) <= glue_tasks(results) else named
    if absent := [task for task in expected if task not in tasks]:
        sentences.append(f"Not in the average: {', '.join(absent)}.")
    every = zip(rows, used(results), strict=True)
    short = [(row, count) for row, count in every if row.official_rows and count < row.official_rows]
    for title, partial in {
        "Validation is partial": [each for each in short if each[0].split not in LEARNED],
        "Training is partial": [each for each in short if each[0].split == "train"],
    }.items():
        if partial:
            sentences.append(f"{title}: {'; '.join(map(_share, partial))}.")
    stand_ins = list(dict.fromkeys(row.task for row in rows if row.stand_in))
    if stand_ins:
        sentences.append(f"Generated stand-ins in place of the real data: {', '.join(stand_ins)}.")
    elif set(tasks) <= published(results) and (sentence := about(set(tasks))):
        sentences.append(sentence)
    return [*sentences, *shared_heads(results), *opened(results)]


def failed(results: Results) -> list[str]:
    """The models that failed, and why."""
    return [f"{m.name} ({variant(m)}) failed: {m.failed}" for m in results.models if m.failed]


def opened(results: Results) -> list[str]:
    """A sentence on reported rows that runs with other settings have read too; empty if none had."""
    known = results.openings or []
    others = {(each.task, each.split): each.others for each in known if each.others}  # the last one counts
    if not others:
        return []
    tasks = list(dict.fromkeys(task for task, _ in others))
    times = counted(max(Counter((each.task, each.split) for each in known).values()), "time")
    most = f"{'up to ' if len({*others.values()}) > 1 else ''}{counted(max(others.values()), 'other setting')}"
    return [
        f"The reported rows of {', '.join(tasks)} were read {times} by this run and, with {most}, by runs that share "
        "its cache. What was chosen between these runs by their scores looks better than it is."
    ]


def used(results: Results) -> list[int]:
    """The rows of each split in the coverage; the development rows count among the training rows, whose part they
    are."""
    chosen = {row.task: row.rows for row in results.coverage if row.split == LEARNED[1]}
    return [row.rows + (chosen.get(row.task, 0) if row.split == "train" else 0) for row in results.coverage]


def _metrics(results: Results) -> list[str]:
    """Names of the metrics of all tasks."""
    scores = [scores for model in results.models for scores in (model.scores or {}).values()]
    return list(dict.fromkeys(metric for of_task in scores for metric in of_task))


def _share(each: tuple[Coverage, int]) -> str:
    """The rows of a split that were used; of training rows, without the development rows, on which no model trains."""
    row, used_in_all = each
    split = "" if row.split in ("train", "validation") else f" {row.split}"
    chosen = f", and {used_in_all - row.rows:,} as development rows" if used_in_all > row.rows else ""
    return f"{row.task}{split} {row.rows:,} of {row.official_rows:,} rows{chosen}"


def pruned(results: Results) -> list[str]:
    """For each pruned model: its sizes and, for a target, its predicted and measured speed."""
    rows = results.pruned
    several = len({row.step for row in rows}) > 1
    return [_cut(row, several) for row in rows]


def _cut(row: Pruned, with_step: bool) -> str:
    of = ", ".join([*([row.step] if with_step else []), *([row.target] if row.target else [])])
    sizes = f"pruned to {counted(row.layers, 'layer')}, {row.hidden} hidden and {row.ffn} FFN channels"
    sizes = f"{of}: {sizes}" if of else f"{sizes[0].upper()}{sizes[1:]}"
    if row.predicted_ms is UNSET:
        return f"{sizes}, as configured."
    ratio = "" if row.measured_speedup is None else f"{row.measured_speedup:.2f}x, "
    measured = "not measured" if row.measured_ms is None else f"measured {ratio}{row.measured_ms:.1f} ms"
    return (
        f"{sizes}. Of {row.tried} shapes tried, this one has the least estimated loss among those that meet the "
        f"target. {speed_of(row)}: predicted {row.predicted_speedup:.2f}x, {row.predicted_ms:.1f} ms; {measured}."
    )


def speed_of(row: Pruned) -> str:
    """The reference, the variant and the inputs of the predicted speed of a pruned model."""
    if row.length is not None:
        inputs = f"at {row.batch}x{row.length}"
    else:
        how = "one text at a time" if row.batch == 1 else "in batches of up to eight; times are those of one text"
        inputs = f"at the tasks' own lengths, {how}"
    same = (row.backend or "torch") == "torch" if row.over is UNSET else row.over == "same"
    if same:
        before = "the teacher" if row.backend else "the unpruned model"
        return f"Speedup over {before} in torch {row.scheme} {inputs}"
    return f"Speedup of {row.backend} {row.scheme} over the teacher's fastest float32 variant {inputs}"


def shared_heads(results: Results) -> list[str]:
    """Sentences on sizes and times of a student with shared heads; empty for others, and for one task."""
    count = len(task_names(results))
    if not results.heads or count == 1:
        return []
    return [
        f"The student has one encoder and {count} heads, trained on all tasks at once. Parameters, sizes, "
        f"multiply-accumulates and times are those of its {count} tasks together: the student's encoder counts once, "
        f"and one pass of it serves all heads; the teacher has {count} models, which run one after the other on the "
        f"same batch. Where only one task is served, the speedup is about 1/{count} of the one reported."
    ]


def _different(results: Results) -> str:
    """How many single texts were different, and how often each was answered."""
    requests = [each for m in results.models if (each := known(m.requests)) is not None]
    few = [each.distinct for each in requests if each.distinct is not UNSET and each.distinct < each.count]
    return f"{few[0]} different ones, each answered several times" if few else "different ones, each answered once"


def timing(results: Results) -> str:
    """How latency was measured, and on which machine."""
    facts = results.environment
    repeats = sorted({row.repeats for m in results.models for row in (m.latency_ms or ())})
    rounds = f"{repeats[0]} to {repeats[-1]} rounds" if len(repeats) > 1 else counted(sum(repeats), "round")
    one = repeats == [1]
    numbers = "Speedups are medians of the ratios within each round, with a 95% interval."
    numbers = "So speedups have no interval." if one else f"Latencies are medians over rounds. {numbers}"
    device = f" and {results.gpu}" if results.gpu else ""
    fast = any(m.scheme.startswith("fp32_medium") for m in results.models)
    single = (
        f" Single texts are {_different(results)} by every variant, in the same order: their speedup is "
        "the ratio of the medians over texts, with an interval over texts. The tokenizers were timed in "
        "the same rounds, on the same texts."
        if any(m.from_text for m in results.models)
        else ""
    )
    medium = " fp32_medium is float32 in torch with set_float32_matmul_precision('medium')." if fast else ""
    return (
        "All variants were timed in one process. Each round timed every variant once, in random order. An untimed call "
        "of the same variant came before each timing, so that the thread pool of the previous variant was idle. Short "
        f"calls were repeated until a timing took some tens of milliseconds. There "
        f"{'was' if one else 'were'} {rounds}, with {counted(results.threads, 'thread')}, on {facts['cpu']}{device}. "
        f"{numbers}{single}{medium}"
    )
