"""With `budget.minutes`: models of targets are made one by one, until one retains too little or the time is spent.

The teacher in the form that serves is measured first, because often it is enough. Then, from the slowest target that is
faster than it on, models are pruned, distilled, quantized and scored on the development rows, each cut from the student
that recovered before it. A faster model is taken to retain less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from distill.compression.pruning.search import out_of_reach
from distill.compression.pruning.target import Search
from distill.config import Evaluate, Export, Prune, Quantize, Train
from distill.config.plan import TEACHER, Plan, Step
from distill.config.schemes import SCHEMES, Form
from distill.data.tasks import TaskData
from distill.deploy.export.quantized import FLOAT32
from distill.evaluation import retained as retaining
from distill.models import teacher
from distill.pipeline import clock
from distill.pipeline.artefacts import Pruned, Quantized, Trained
from distill.pipeline.context import Context
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import train
from distill.pipeline.stages.shape_search import search_inputs, search_of, unfit
from distill.pipeline.train_steps import time_estimate
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic, checksums

RESERVE = 0.15
"""Share of the budget that is kept for the evaluation and the export."""

LEAST_SHARE = 0.3
"""Least share of the epochs of a recovery. Where the time is enough for less, the target is not tried."""

FEWEST = 2000
"""Training rows of which fewer are not advised: their training has its least number of steps, and takes as long."""

OVERHEAD = 1.2
"""Estimated time of a target, with pruning, checks and quantization, divided by the time of its training steps. After
the first target the measured ratio is used."""

Run = Callable[[Step], None]
"""Runs a step, unless it is finished."""
Runner = Callable[[Context, Sequence[Step]], Run]
"""Finds which of the steps are finished."""


def share_of(estimated: float, left: float) -> float:
    """The share of its epochs with which a training of `estimated` seconds takes no more than `left`; 0 for less than
    `LEAST_SHARE`."""
    share = min(1.0, left / estimated) if estimated > 0 else 1.0
    return share if share >= LEAST_SHARE else 0.0


@dataclass(frozen=True)
class Ladder:
    """The targets of a run, and what is stored of them, so that a stopped run decides as it would have."""

    minutes: float
    """The budget."""
    least: float | None
    """Percent of the teacher's score that a model must retain; None if all do."""
    machine: Machine
    folder: RunFolder
    tasks: Mapping[str, TaskData]
    teacher: Step
    """The step that quantizes the teacher."""
    targets: Mapping[str, Sequence[Step]]
    """Label of a target -> the steps of its model: to prune, to train and to quantize it."""
    search: Callable[[Step], Search]
    """Returns the search for the shape of a prune step whose start exists."""
    seconds: Callable[[Step], float]
    """Returns the estimated seconds of a train step whose start exists."""

    @property
    def stored(self) -> dict[str, Any]:
        """By label of a target the seconds that training was `estimated` to take, the `shares` of its epochs, and the
        seconds that the target `took`; and what is `measured` of all."""
        return _stored(self.folder)

    def store(self, key: str, label: str, value: Callable[[], Any]) -> Any:
        """The stored value of a label. If it is not stored, the main process computes it."""
        with self.machine.main_first():
            stored = self.stored
            if label not in stored.setdefault(key, {}):
                assert self.machine.main
                stored[key][label] = value()
                atomic.write_json(self.folder.ladder, stored)
        return self.stored[key][label]

    @contextmanager
    def clock(self, label: str, began: float | None = None) -> Iterator[None]:
        """Add the seconds of the block to the stored seconds of a target, which include stopped and killed runs."""
        seconds = _seconds(self.folder, label, time.monotonic() if began is None else began)
        try:
            with clock.kept(self.folder.clock, label, seconds) if self.machine.main else nullcontext():
                yield
        finally:
            if self.machine.main:
                _settle(self.folder, label, seconds())
        self.machine.wait()

    def left(self) -> float:
        """Seconds of the budget for further targets."""
        return (1 - RESERVE) * 60 * self.minutes - sum(self.stored["took"].values())

    def speedups(self) -> tuple[float, Form, float]:
        """Speedup of the whole model in its fastest form, this form, and the speedup of the fastest shape. They are
        measured again in a run that goes on under other conditions, such as other threads."""
        prunes = [step for steps in self.targets.values() for step in steps if isinstance(step.settings, Prune)]
        ordered = sorted(prunes, key=lambda step: float(step.goal.speedup))
        search = self.search(ordered[0])

        def measured() -> dict[str, Any]:
            form, whole = search.whole()
            # Each target is searched in the forms that are the best near it.
            quickest = self.search(ordered[-1])
            fastest = max(max(map(each.times.speedup, each.shapes)) for each in (search, quickest))
            if search.checked and max(fastest, whole) < ordered[0].goal.speedup:
                raise out_of_reach(ordered[0].goal, search.shapes, search.times, search.full, search.size)
            return {"whole": whole, "form": asdict(form), "fastest": fastest}

        conditions = checksums.fingerprint([search.conditions, [form.name for form in search.forms]])
        found = self.store("measured", conditions, measured)
        return found["whole"], Form(**found["form"]), found["fastest"]

    def form_of(self, label: str, quantized: Step) -> Form:
        """The form in which the model of a target serves: the one for which it was pruned or, where that failed, the
        first of the other quantized forms that was scored. Its steps have run."""
        pruner = next(step for step in self.targets[label] if step.pruner is step)
        speed = self.folder.result(pruner, Pruned).speed
        assert speed is not None
        others = (Form(scheme.backend, scheme.scheme, scheme.name) for scheme in SCHEMES.values())
        scored = (form for form in (speed.form, *others) if self.retained(quantized, form) is not None)
        return next(scored, speed.form)

    def retained(self, quantized: Step, form: Form) -> float | None:
        """Percent of the teacher's score on the development rows that the models of a quantize step retain in a form,
        by the rule of the report; None if they were not scored, or that form failed."""
        scores = self._scores(quantized, form)
        return None if scores is None else retaining.retained(*scores, [*scores[0]]).headline

    def _scores(self, quantized: Step, form: Form) -> tuple[retaining.Scores, retaining.Scores] | None:
        """The scores of the models of a quantize step in a form, and of the teacher, on the tasks of the headline; None
        if one of them is not recorded."""
        key = form.key or FLOAT32
        whole, models = (self.folder.result(step, Quantized).development for step in (self.teacher, quantized))
        tasks = [name for name, data in self.tasks.items() if data.task.in_headline]
        if not tasks or any(key not in models.get(task, {}) or FLOAT32 not in whole.get(task, {}) for task in tasks):
            return None
        before = {task: {"score": whole[task][FLOAT32]} for task in tasks}
        after = {task: {"score": models[task][key]} for task in tasks}
        return after, before

    def said(self, quantized: Step, form: Form) -> str:
        """What the models of a quantize step retain in a form, in words."""
        kept = self.retained(quantized, form)
        if kept is not None:
            return f"retains {kept:.1f}% on {judged_on(self.tasks)}{'' if form.key else ', as scored in float32'}"
        made = self.folder.result(quantized, Quantized)
        if form.key in made.failed:
            return "has no file in this form, or loses more than its limits"
        if self._scores(quantized, form) is not None:
            return "has no share, because the teacher scores 0 or less"
        # Such as in a run that an earlier version began, which did not record why.
        return "has no known share of the teacher's score"

    def enough(self, retained: float | None) -> bool:
        """Whether it meets `target.retained`."""
        return self.least is None or (retained is not None and retained >= self.least)

    def estimate(self, label: str) -> float:
        """Estimated seconds of all steps of a target, whose model is pruned."""
        trainings = [step for step in self.targets[label] if isinstance(step.settings, Train)]
        trained = self.store("estimated", label, lambda: sum(map(self.seconds, trainings)))
        stored = self.stored
        made = [name for name in stored["shares"] if name != label and not self._reused(name)]
        ratios = [stored["took"][name] / (stored["estimated"][name] * stored["shares"][name]) for name in made]
        return float(trained) * (fmean(ratios) if ratios else OVERHEAD)

    def advice(self, label: str) -> str:
        """A sentence on the number of training rows for which the time is enough, where it is not for all; empty if a
        training on so few takes no less time, or if the teacher would be trained on them too."""
        start, rows = self.teacher.start, max(len(data.train) for data in self.tasks.values())
        trained = isinstance(start, Step) and self.folder.result(start, Trained).steps > 0
        fitting = float(f"{0.9 * rows * self.left() / self.estimate(label):.1e}")
        few = FEWEST <= fitting < rows and not trained
        return f" With limit.examples={fitting:.0f} there is enough time for it." if few else ""

    def _reused(self, label: str) -> bool:
        """Whether another run made a model of a target, so that its time says nothing about the next one."""
        records = map(self.folder.record, self.targets[label])
        return any(record is not None and record.reused for record in records)

    def share(self, label: str) -> float:
        """The share of its epochs with which a target's model is trained; 0 if there is no time for it."""
        if label in (shares := self.stored["shares"]):
            return float(shares[label])
        share = share_of(self.estimate(label), self.left())
        return float(self.store("shares", label, lambda: share)) if share else 0.0


@contextmanager
def counted(folder: RunFolder, began: float) -> Iterator[None]:
    """Keep the seconds since `began` if the block, with the steps before the targets, is stopped or killed."""
    seconds = _seconds(folder, "teacher", began)
    try:
        with clock.kept(folder.clock, "teacher", seconds) if atomic.is_main() else nullcontext():
            yield
    except BaseException:
        if atomic.is_main():
            with suppress(OSError):  # the reason of the stop is what the user has to read
                _settle(folder, "teacher", seconds())
        raise


def _seconds(folder: RunFolder, label: str, began: float) -> Callable[[], float]:
    """Tells what a target has taken, in stopped runs and since `began`."""
    before = float(_stored(folder)["took"].get(label, 0.0))
    return lambda: before + time.monotonic() - began


def _settle(folder: RunFolder, label: str, seconds: float) -> None:
    """Store what a target has taken, in place of the file of the clock."""
    stored = _stored(folder)
    stored["took"][label] = seconds
    atomic.write_json(folder.ladder, stored)
    atomic.remove(folder.clock, folder.path)


def recover(folder: RunFolder) -> None:
    """Count what a run had spent when it was killed, as far as its clock had written it."""
    if not atomic.is_main():
        return
    for label, seconds in clock.found(folder.clock).items():
        # The killed run may have stored it already.
        _settle(folder, label, max(seconds, _stored(folder)["took"].get(label, 0.0)))
    atomic.remove(folder.clock, folder.path)


def spent(folder: RunFolder) -> float:
    """Seconds of the budget that a run took before it was stopped or killed."""
    return float(sum(_stored(folder)["took"].values()))


def _stored(folder: RunFolder) -> dict[str, Any]:
    empty: dict[str, Any] = {"estimated": {}, "shares": {}, "took": {}}
    return empty | (atomic.read_json(folder.ladder) if folder.ladder.is_file() else {})


def search_within_budget(ctx: Context, runner: Runner, began: float) -> Plan:
    """Make the models of the targets for which there is time, one after the other, until one retains too little.

    The steps before them have run. Returns the plan of the targets whose models were made. What was tried, and why, is
    stored for the report. `began`: when the run began, as `time.monotonic`.
    """
    account, made, best = list[str](), list[str](), None

    def say(sentence: str) -> None:
        account.append(sentence)
        ctx.machine.log(f"budget: {sentence}")

    def search(step: Step) -> Search:
        config = teacher.read_config(ctx.models(step.start).folder(next(iter(ctx.tasks))))
        return search_of(search_inputs(ctx, step), ctx.runtime, config)

    def seconds(step: Step) -> float:
        return time_estimate.seconds(train.inputs(ctx, step).members[0], step.settings, ctx.runtime)

    minutes, goal, smoke = ctx.config.budget.minutes, ctx.config.target, ctx.config.limit.smoke
    assert minutes is not None
    ladder = Ladder(
        minutes=minutes,
        least=None if smoke else goal.retained,  # under limit=smoke nothing is scored
        machine=ctx.machine,
        folder=ctx.folder,
        tasks=ctx.tasks,
        teacher=next(step for step in ctx.plan.of(Quantize) if not step.target),
        targets=_of_targets(ctx.plan),
        search=search,
        seconds=seconds,
    )
    with ladder.clock("teacher", began):
        whole, form, fastest = ladder.speedups()
    _say_unfit(ladder, unfit(ctx), say)
    kept = ladder.retained(ladder.teacher, form)
    say(f"The teacher in {form.name} is estimated at {whole:.2f}x, and {ladder.said(ladder.teacher, form)}.")
    best = TEACHER.name if ladder.enough(kept) else None
    labels = {label: float(target.speedup) for label, target in ctx.plan.targets.items()}
    within = [label for label in sorted(labels, key=labels.__getitem__) if labels[label] <= fastest or smoke]
    within = [label for label in within if best is None or labels[label] > whole]
    if beyond := [label for label in labels if labels[label] > fastest and not smoke]:
        say(f"Out of reach: {', '.join(beyond)}. The smallest model is estimated at {fastest:.1f}x.")
    if within:
        ctx = ctx.with_plan(ctx.plan.only(within).chained())
        ladder = replace(ladder, targets=_of_targets(ctx.plan))
        run = runner(ctx, [step for label in within for step in ladder.targets[label]])
    for label in within:
        if not _made(ladder, label, run, ctx.epochs, say):
            break
        made.append(label)
        quantized = next(step for step in ladder.targets[label] if isinstance(step.settings, Quantize))
        form = ladder.form_of(label, quantized)
        kept = ladder.retained(quantized, form)
        say(
            f"{label} {ladder.said(quantized, form)}, in {form.name}; it took {_minutes(ladder.stored['took'][label])}."
        )
        if not ladder.enough(kept):
            break
        best = label
    wish = "" if goal.retained is None else f" that retains at least {goal.retained:g}% on {judged_on(ctx.tasks)}"
    named = "the teacher itself" if best == TEACHER.name else best
    say(f"No model was made{wish}." if best is None else f"The fastest{wish} is {named}.")
    if ctx.machine.main:  # in place of the sentences of a stopped run
        atomic.write_json(ctx.folder.ladder, ladder.stored | {"account": account})
    ctx.machine.wait()
    return ctx.plan.only(made)


def _say_unfit(ladder: Ladder, schemes: Sequence[str], say: Callable[[str], None]) -> None:
    for scheme in (SCHEMES[name] for name in schemes):
        form = Form(scheme.backend, scheme.scheme, scheme.name)
        say(f"The teacher in {form.name} {ladder.said(ladder.teacher, form)}, so that no model is searched in it.")


def _of_targets(plan: Plan) -> dict[str, list[Step]]:
    """Label of a target -> the steps of its model."""
    steps = [step for step in plan.steps if not isinstance(step.settings, Evaluate | Export)]
    return {label: [step for step in steps if step.target == label] for label in plan.targets}


def _made(ladder: Ladder, label: str, run: Run, shares: dict[str, float], say: Callable[[str], None]) -> bool:
    """Make the model of a target. False if there is no time for it. `shares`: label of a target -> share of the epochs
    of its trainings, to which that of this target is added."""
    cuts = [step for step in ladder.targets[label] if isinstance(step.settings, Prune)]
    if label not in ladder.stored["shares"] and ladder.left() <= 0:
        say(f"{label} is not made, because no time is left.")
        return False
    with ladder.clock(label):
        for step in cuts:
            run(step)
        ladder.estimate(label)
    share = ladder.share(label)
    minutes, left = _minutes(ladder.estimate(label) * (share or 1.0)), _minutes(ladder.left())
    if share == 0.0:
        missing = f"that would take an estimated {minutes}, and {left} were left."
        say(f"{label} is not trained: {missing}{ladder.advice(label)}")
        return False
    if share < 1.0:
        say(f"{label} is trained for {100 * share:.0f}% of its epochs, for which there is time.")
    ladder.machine.log(f"budget: {label} takes an estimated {minutes}; {left} are left")
    shares[label] = share
    with ladder.clock(label):
        for step in ladder.targets[label]:
            if step not in cuts:
                run(step)
    return True


def judged_on(tasks: Mapping[str, TaskData]) -> str:
    """The rows on which the models of a run are scored, in words: a task may have no development rows but the reported
    ones."""
    counted = [name for name, data in tasks.items() if data.task.in_headline]
    reported = [name for name in counted if all(split in tasks[name].reported for split in tasks[name].development)]
    if not reported:
        return "the development rows"
    if len(reported) == len(counted):
        return "the reported rows (there are no others to choose on)"
    return f"the development rows, which for {', '.join(reported)} are the reported rows"


def _minutes(seconds: float) -> str:
    return f"{max(seconds, 0) / 60:.1f} minutes"
