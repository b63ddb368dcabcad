"""Both loads side by side: times in batches and of single texts, from token ids and from texts."""

from __future__ import annotations

from distill.config.loads import SINGLE_TEXTS
from distill.evaluation.results import Model, Results, known
from distill.report.kept import of_rounds
from distill.report.table import Row, Table, number, roles, times, with_interval
from distill.report.timed import batches, median
from distill.report.variants import Run, Value, speedups


def loads_table(results: Results) -> Table | None:
    """A row for each model; None if single texts were not timed."""
    if not any(model.requests for model in results.models):
        return None
    run, batch = Run("", results), batches(results)
    rows = [(m.name, m.backend, m.scheme, *_batch(m, run, batch or ""), *_single(m, run)) for m in results.models]
    columns = (
        *("Model", "Backend", "Scheme", "Batch: ms", "Batch: speedup [95%]", "Batch: from text [95%]"),
        *("Single: p50 ms", "Single: p95 ms", "Single: p99 ms", "Single: speedup [95%]", "Single: from text [95%]"),
    )
    return Table("In batches, and one text at a time", columns, rows, 3, _notes(results, batch or ""), roles(results))


def _batch(model: Model, run: Run, name: str) -> Row:
    return number(median(model, name), 2), _speedup(speedups(model, run).get(name)), _from_text(model, name)


def _single(model: Model, run: Run) -> Row:
    single = known(model.requests)
    ends = ("-",) * 3 if single is None else tuple(number(ms, 2) for ms in (single.p50, single.p95, single.p99))
    return *ends, _speedup(speedups(model, run).get(SINGLE_TEXTS)), _from_text(model, SINGLE_TEXTS)


def _speedup(value: Value | None) -> str:
    return "-" if value is None else with_interval(times(value.value), value.interval, 2)


def _from_text(model: Model, name: str) -> str:
    """The speedup from text, the time, and the tokenizer's share in it."""
    found = model.from_text.get(name)
    if found is None:
        return "-"
    speedup = with_interval(times(found.speedup.median), of_rounds(found.speedup.ci95), 2)
    return f"{speedup}, {found.median:.2f} ms, tokenizer {100 * found.tokenizer:.0f}%"


def _notes(results: Results, batch: str) -> list[str]:
    counts = {(each.count, known(each.distinct)) for m in results.models if (each := known(m.requests)) is not None}
    texts = [f"{count} texts{'' if distinct is None else f', {distinct} different'}" for count, distinct in counts]
    from_text = any(model.from_text for model in results.models)
    return [
        f"Batch: {batch or 'not timed'}. Single: {' or '.join(sorted(texts))}, one at a time. Speedups: over the "
        "teacher's variant that is fastest so; of single texts the ratio of the medians, with an interval over the "
        "texts where it was measured.",
        *(
            ["From text: with the tokenizer, which was timed in the same rounds, of both models; milliseconds are p50."]
            if from_text
            else ["From token ids: the tokenizer was not timed."]
        ),
    ]
