"""Which encoders meet the conditions of a user, the best first, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from distill.cli.choose.measure import Stopwatch, applied, mib_of
from distill.cli.choose.table import Checkpoint, Table
from distill.data.task_types import TaskType

SHOWN = 3
"""Number of encoders in an answer: the best, and the two next best."""
MISSED = "too slow or too large when timed"
UNTIMED = "not timed, because the time for measuring was over"
BEHIND = "within the limits, but ranked behind those above"


def scheme_of(form: str) -> str:
    """The scheme in the name of a form, e.g. int8 of `onnxruntime int8`."""
    return form.rpartition(" ")[2]


@dataclass(frozen=True)
class Ask:
    """What the encoder is for, and what it may cost; None for no limit."""

    kind: TaskType
    languages: tuple[str, ...]
    length: int
    """Tokens of a text."""
    ms: float | None = None
    mib: float | None = None


@dataclass(frozen=True)
class Option:
    """An encoder for a task."""

    checkpoint: Checkpoint
    metric: str | None
    """The score by which it is ranked; None without one."""
    scale: str | None
    """The metric by which it is compared."""
    score: float
    """Its score in that metric."""
    mib: Mapping[str, float]
    """Scheme -> MiB."""
    ms: Mapping[str, float]
    """Form -> milliseconds; empty where it was not timed."""

    def excess(self, form: str, ask: Ask) -> float:
        """How many times as slow or as large as allowed it is in a form; at most 1 where it passes."""
        slow = 0.0 if ask.ms is None else self.ms[form] / ask.ms
        large = 0.0 if ask.mib is None else self.mib[scheme_of(form)] / ask.mib
        return max(slow, large)

    def form(self, ask: Ask) -> str:
        """The fastest form that passes, or the one that misses the limits by least."""
        return min(self.ms, key=lambda form: (max(self.excess(form, ask), 1.0), self.ms[form]))

    def passes(self, ask: Ask) -> bool:
        return bool(self.ms) and self.excess(self.form(ask), ask) <= 1.0


@dataclass(frozen=True)
class Answer:
    """The encoders that pass, the best first, or those that miss the limits by least."""

    best: Sequence[Option]
    passed: bool
    """Whether these pass."""
    left_out: Mapping[str, Sequence[str]]
    """Why -> names of checkpoints that were left out."""


def answered(table: Table, ask: Ask, times: Stopwatch, log: Callable[[str], None] = lambda text: None) -> Answer:
    """The answer. The best-ranked are timed first; none is timed that cannot pass, or once enough have passed."""
    left_out: dict[str, list[str]] = {}
    ranked, timed, passing = [*_ranked(table, ask, left_out)], list[Option](), list[Option]()

    def time(option: Option) -> Option:
        log(f"timing the shape of {option.checkpoint.name}")
        timed.append(replace(option, ms=times(option.checkpoint)))
        return timed[-1]

    for tied in _ties(ranked, table):
        enough = len(passing) >= SHOWN and not _tied(tied[0], passing[0], table)
        passed = list[Option]()
        for option in sorted(
            tied, key=lambda option: applied(option.checkpoint)
        ):  # so more are timed before time is over
            why = _cannot(option, ask, times) or ("ranked lower, and not timed" if enough else None)
            why = why or (UNTIMED if times.over(option.checkpoint) else None)
            if why is None and (done := time(option)).passes(ask):
                passed.append(done)
            else:
                left_out.setdefault(why or MISSED, []).append(option.checkpoint.name)
        passing += sorted(passed, key=lambda option: -option.score)
    if passing:
        best = [*_first(passing, table, ask)]
        behind = {BEHIND: [option.checkpoint.name for option in best[SHOWN:]]} if best[SHOWN:] else {}
        return Answer(best[:SHOWN], True, left_out | behind)
    known = {option.checkpoint.name for option in timed}
    for option in sorted(ranked, key=lambda option: _excess(option, ask, times)):
        if len(timed) < SHOWN and option.checkpoint.name not in known and not times.over(option.checkpoint):
            time(option)
    nearest = sorted(timed, key=lambda option: option.excess(option.form(ask), ask))[:SHOWN]
    shown = {option.checkpoint.name for option in nearest}
    others = {why: [name for name in names if name not in shown] for why, names in left_out.items()}
    return Answer(nearest, False, {why: names for why, names in others.items() if names})


def _ranked(table: Table, ask: Ask, left_out: dict[str, list[str]]) -> Iterator[Option]:
    """The encoders for the task and the languages, the best first; those without a score at the end, embedders
    first for a task of vectors, and the others by their size."""
    metrics = table.metrics_of(ask.kind.name, ask.kind.architecture, ask.languages)
    options = []
    for checkpoint in table.checkpoints.values():
        unknown = [code for code in ask.languages if code not in table.languages(checkpoint)]
        why = None
        if unknown:
            why = f"not trained on {', '.join(unknown)}"
        elif ask.kind.architecture in checkpoint.record.without:
            why = f"transformers has no class for {ask.kind.name} of its type"
        elif (checkpoint.context if ask.kind.separate else checkpoint.longest) < ask.length:
            why = f"reads fewer than {ask.length} tokens"
        if why:
            left_out.setdefault(why, []).append(checkpoint.name)
            continue
        metric, scale, score = table.ranked(checkpoint, metrics) or (None, None, 0.0)
        options.append(Option(checkpoint, metric, scale, score, mib_of(checkpoint), {}))

    def order(option: Option) -> tuple[int, float, bool, float]:
        place = len(metrics) if option.scale is None else metrics.index(option.scale)
        other = ask.kind.separate and not option.checkpoint.embeds
        return place, -option.score, other, -option.checkpoint.parameters[1]

    yield from sorted(options, key=order)


def _cannot(option: Option, ask: Ask, times: Stopwatch) -> str | None:
    """Why an encoder cannot pass, without timing it."""
    if ask.mib is not None and min(option.mib.values()) > ask.mib:
        return f"larger than {ask.mib:g} MiB, in int8 too"
    if ask.ms is not None and times.at_least(option.checkpoint) > ask.ms:
        return f"slower than {ask.ms:g} ms by the number of their multiplications"
    return None


def _excess(option: Option, ask: Ask, times: Stopwatch) -> float:
    """How many times as slow or as large as allowed it is at the least, without timing it."""
    large = 0.0 if ask.mib is None else min(option.mib.values()) / ask.mib
    return max(large, 0.0 if ask.ms is None else times.at_least(option.checkpoint) / ask.ms)


def _tied(option: Option, best: Option, table: Table) -> bool:
    """Whether the scores of two encoders do not tell them apart."""
    if option.scale is None or option.scale != best.scale:
        return False
    return option.score >= round(best.score - table.spread(option.scale), 2)


def _ties(ranked: Sequence[Option], table: Table) -> Iterator[Sequence[Option]]:
    """Encoders in the order of their rank, each with those that its score does not tell apart from it."""
    while ranked:
        tied = [option for option in ranked if option is ranked[0] or _tied(option, ranked[0], table)]
        yield tied
        ranked = ranked[len(tied) :]


def _first(passing: Sequence[Option], table: Table, ask: Ask) -> Iterator[Option]:
    """The encoders, the fastest of those whose scores do not differ from the best one's in front."""
    tied = [option for option in passing if _tied(option, passing[0], table)] or passing[:1]
    best = min(tied, key=lambda option: option.ms[option.form(ask)])
    yield best
    yield from (option for option in passing if option is not best)
