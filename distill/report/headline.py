"""What a run shows, in sentences: the headline, what the average covers, how timings were made.

No sentence claims more than the numbers show: a loss against the baseline, a slower student and a failed student are
named as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.backends import BACKENDS
from distill.data import records
from distill.report.schema import Model, Results
from distill.report.timed import at, middle_shape

SMOKE = "SMOKE RUN: tiny stand-in models and data. These numbers mean nothing."
NO_BASELINE = "There is no baseline in the same variant: the gain from distillation is unknown."
GLUE = tuple(records.GLUE)


def variant(model: Model) -> str:
    """Scheme and backend of a model, e.g. `int8 onnxruntime`."""
    return f"{model['scheme']} {model['backend']}"


def of_role(results: Results, role: str) -> list[Model]:
    return [model for model in results["models"] if model["role"] == role]


def targets(results: Results) -> list[str | None]:
    """The targets that students were made for, in order; None for a student without a target."""
    return list(dict.fromkeys(model["target"] for model in of_role(results, "student")))


def kinds(results: Results) -> dict[str, str]:
    """Stage -> its kind."""
    return {stage["name"]: stage["kind"] for stage in results["stages"]}


def task_names(results: Results) -> list[str]:
    """The tasks that at least one model has scores of, in order."""
    return list(dict.fromkeys(task for m in results["models"] for task in m.get("scores", ())))


def _host_only(results: Results, model: Model) -> bool:
    """Whether the model ran on the CPU although the run had a GPU."""
    return bool(results["environment"].get("gpu")) and BACKENDS[model["backend"]].cpu_only


def where(results: Results, model: Model) -> str:
    """`, on the CPU` for a model that did not run on the GPU of its run; else nothing."""
    return ", on the CPU" if _host_only(results, model) else ""


def on_the_cpu(results: Results) -> list[str]:
    """The note under a table some of whose rows ran on the CPU although the run had a GPU."""
    backends = dict.fromkeys(model["backend"] for model in results["models"] if _host_only(results, model))
    if not backends:
        return []
    gpu = results["environment"]["gpu"]
    return [f"Rows with backend {' or '.join(backends)} were run on the CPU, not on the {gpu}."]


def retained(model: Model) -> float | None:
    """The retained % of the headline: of the macro score without WNLI."""
    ways = model.get("retained")
    return ways["macro_without_wnli"] if ways else None


def speedup(model: Model) -> float | None:
    """Against the teacher's fastest float32 variant over all backends."""
    ways = model.get("speedup")
    return ways["best_teacher"] if ways else None


def interval(model: Model, key: str) -> list[float] | None:
    """The 95% interval of `retained` or `speedup`."""
    ways = model.get(key)
    return ways["ci95"] if ways else None


def chosen(results: Results, target: str | None = None) -> Model | None:
    """The student of the headline: the fastest int8 variant, else the fastest. The rule never looks at the scores."""
    scored = [m for m in _scored(results, target) if m["role"] == "student"]
    int8 = [m for m in scored if m["scheme"] in ("int8", "int8_static")]
    return max(int8 or scored, key=lambda m: speedup(m) or 0.0, default=None)


def _scored(results: Results, target: str | None) -> list[Model]:
    models = [m for m in results["models"] if "failed" not in m and m["target"] == target]
    return [m for m in models if retained(m) is not None]


def pair(results: Results, target: str | None = None) -> tuple[Model, Model] | None:
    """(student, baseline) in the same variant, the headline's if it has both, else the first that has; or None."""
    scored = _scored(results, target)
    students = {variant(m): m for m in scored if m["role"] == "student"}
    baselines = {variant(m): m for m in scored if m["role"] == "baseline"}
    shared = [key for key in students if key in baselines]
    head = chosen(results, target)
    if head is not None and variant(head) in shared:
        return students[variant(head)], baselines[variant(head)]
    return (students[shared[0]], baselines[shared[0]]) if shared else None


def headline(results: Results) -> str:
    """The result in two or three sentences; of several students a few more."""
    made_for = targets(results)
    if len(made_for) > 1:
        return " ".join(_family(results))
    target = made_for[0] if made_for else None
    model = chosen(results, target)
    if model is None:
        reasons = [f"{variant(m)}: {m['failed']}" for m in of_role(results, "student") if "failed" in m]
        return " ".join(["No student has a score: there is no result.", *reasons])
    return f"{_kept(results, model)} {_against_baseline(results, model)}"


def _family(results: Results) -> Iterator[str]:
    """Retained % and speedup of each of several students, the fastest that keeps enough, the gain over the baseline."""
    students = {target: model for target in targets(results) if (model := chosen(results, target)) is not None}
    if not students:
        yield "No student has a score: there is no result."
        return
    kept = [
        f"{retained(m):.1f}% at {speedup(m) or 0:.2f}x ({target_name(t)}, {variant(m)})" for t, m in students.items()
    ]
    macro = "macro score without WNLI" if "wnli" in task_names(results) else "macro score"
    many = f"{len(students)} student{'s' if len(students) > 1 else ''}"
    yield (
        f"{many}, as retained % of the teacher's {macro} at speedup over its fastest float32 variant"
        f"{at([middle_shape(results)])}: {'; '.join(kept)}."
    )
    if (least := results.get("least_retained")) is not None:
        yield _fastest(results, least)
    compared = {target: both for target in targets(results) if (both := pair(results, target)) is not None}
    if not compared:
        yield NO_BASELINE
        return
    variants = dict.fromkeys(variant(student) for student, _ in compared.values())
    gains = [f"{(retained(s) or 0) - (retained(b) or 0):+.1f} ({target_name(t)})" for t, (s, b) in compared.items()]
    yield f"Gain over the same students {_without(results)}, in points, as {', '.join(variants)}: {', '.join(gains)}."


def target_name(target: str | None) -> str:
    return "no target" if target is None else target


def _without(results: Results) -> str:
    """How the baseline was trained."""
    start = ", from a start that was trained with one" if results.get("taught_start") else ""
    return f"trained without a teacher{start}"


def _fastest(results: Results, least: float) -> str:
    """The fastest student, in any variant, that keeps at least `least` percent of the score."""
    students = [m for target in targets(results) for m in _scored(results, target) if m["role"] == "student"]
    enough = [m for m in students if (retained(m) or 0) >= least]
    best = max(enough, key=lambda m: speedup(m) or 0.0, default=None)
    if best is None:
        return f"No student keeps {least:g}%."
    return (
        f"The fastest that keeps {least:g}% is {best['name']} ({variant(best)}): {retained(best):.1f}% at "
        f"{speedup(best) or 0:.2f}x. It was selected by the scores shown here."
    )


def _between(ends: list[float] | None, digits: int) -> str:
    return f" (95% interval {ends[0]:.{digits}f} to {ends[1]:.{digits}f})" if ends else ""


def _kept(results: Results, model: Model) -> str:
    percent = f"{retained(model):.1f}%{_between(interval(model, 'retained'), 1)}"
    macro = "macro score without WNLI" if "wnli" in model["scores"] else "macro score"
    text = f"The {model['scheme']} student ({model['backend']}{where(results, model)}) keeps {percent}"
    text += f" of the teacher's {macro}"
    times = speedup(model)
    if times is None:
        return f"{text}; its speed was not measured."
    ends = interval(model, "speedup")
    speed = f"{times:.2f}x{_between(ends, 2)} the speed of the teacher's fastest float32 variant"
    speed += at([middle_shape(results)])
    if ends and ends[0] <= 1 <= ends[1]:
        return f"{text} at {speed}: no measurable speedup."
    return f"{text} but is slower: {speed}." if times < 1 else f"{text} at {speed}."


def _against_baseline(results: Results, model: Model) -> str:
    compared = pair(results, model["target"])
    if compared is None:
        failed = any("failed" in m for m in of_role(results, "baseline"))
        return "The baseline failed: the gain from distillation is unknown." if failed else NO_BASELINE
    student, baseline = compared
    ours, theirs = retained(student) or 0.0, retained(baseline) or 0.0
    same = f"the same student {_without(results)}{',' if results.get('taught_start') else ''}"
    if variant(student) == variant(model):
        text = f"{same[0].upper()}{same[1:]} keeps {theirs:.1f}%"
    else:
        text = f"Compared as {variant(student)}, the distilled student keeps {ours:.1f}% and {same} {theirs:.1f}%"
    return f"{text}: {_verdict(ours - theirs)}{_overlap(student, baseline)}"


def _verdict(gain: float) -> str:
    if abs(gain) < 0.05:
        return "distillation made no difference."
    if gain < 0:
        return f"distillation LOST {-gain:.1f} points."
    return f"distillation gained {gain:.1f} points."


def _overlap(student: Model, baseline: Model) -> str:
    a, b = interval(student, "retained"), interval(baseline, "retained")
    return " The two 95% intervals overlap." if a and b and a[0] <= b[1] and b[0] <= a[1] else ""


def _evaluated(results: Results) -> dict[str, bool]:
    """Task -> whether all its validation splits are whole, for the tasks that were scored.

    A task may have validation rows and no scores (no training rows: no model): it is not in the average.
    """
    splits = [row for row in results["coverage"] if row["split"] != "train"]
    tasks = dict.fromkeys(task_names(results), True)
    for row in splits:
        if row["task"] in tasks and (row.get("limited") or row["rows"] < (row["official_rows"] or 0)):
            tasks[row["task"]] = False
    return tasks


def average_name(results: Results) -> str:
    """Name of the average: `GLUE` only when all nine tasks are there, whole."""
    tasks = _evaluated(results)
    whole = all(tasks.values())
    if any(row.get("stand_in") for row in results["coverage"]):
        return f"Stand-in average ({len(tasks)} tasks)"
    if tasks and all(task in GLUE for task in tasks):
        if len(tasks) == len(GLUE):
            return "GLUE (9 tasks)" if whole else f"Partial GLUE ({sum(tasks.values())} of 9 tasks whole)"
        return f"Partial GLUE ({len(tasks)} of 9 tasks)"
    return f"{'Average' if whole else 'Partial average'} ({len(tasks)} tasks)"


def coverage(results: Results) -> list[str]:
    """What the average covers and what it does not, one sentence for each point."""
    tasks = _evaluated(results)
    rows = results["coverage"]
    sentences = [
        f"{average_name(results)}: the mean over {', '.join(tasks) or 'no task'} "
        "of the mean of each task's metrics on its validation splits."
    ]
    named = list(dict.fromkeys([*tasks, *(row["task"] for row in rows)]))
    wanted = GLUE if set(named) <= set(GLUE) else named
    if absent := [task for task in wanted if task not in tasks]:
        sentences.append(f"Not in the average: {', '.join(absent)}.")
    short = [row for row in rows if row["official_rows"] and row["rows"] < row["official_rows"]]
    for title, partial in {
        "Validation is partial": [row for row in short if row["split"] != "train"],
        "Training is partial": [row for row in short if row["split"] == "train"],
    }.items():
        if partial:
            sentences.append(f"{title}: {'; '.join(map(_share, partial))}.")
    stand_ins = list(dict.fromkeys(row["task"] for row in rows if row.get("stand_in")))
    if stand_ins:
        sentences.append(f"Stand-ins in place of the real data: {', '.join(stand_ins)}.")
    return sentences


def _share(row: dict[str, object]) -> str:
    split = "" if row["split"] in ("train", "validation") else f" {row['split']}"
    return f"{row['task']}{split} {row['rows']:,} of {row['official_rows']:,} rows"


def pruned(results: Results) -> list[str]:
    """The sizes that each model was pruned to and, for a target, its predicted and measured speed; a line each."""
    rows = results.get("pruned", [])
    several = len({row["step"] for row in rows}) > 1
    return [_cut(row, several) for row in rows]


def _cut(row: dict[str, Any], with_step: bool) -> str:
    of = ", ".join([*([row["step"]] if with_step else []), *([row["target"]] if row["target"] else [])])
    sizes = f"pruned to {row['layers']} layers, {row['hidden']} hidden and {row['ffn']} FFN channels"
    sizes = f"{of}: {sizes}" if of else f"{sizes[0].upper()}{sizes[1:]}"
    if "predicted_ms" not in row:
        return f"{sizes}, as configured."
    ratio = "" if row["measured_speedup"] is None else f"{row['measured_speedup']:.2f}x, "
    measured = "not measured" if row["measured_ms"] is None else f"measured {ratio}{row['measured_ms']:.1f} ms"
    return (
        f"{sizes}, the shape with the least estimated loss among those of {row['tried']} tried that meet the target. "
        f"Speedup over the unpruned model in torch {row['scheme']} at {row['batch']}x{row['length']}: predicted "
        f"{row['predicted_speedup']:.2f}x, {row['predicted_ms']:.1f} ms; {measured}."
    )


def timing(results: Results) -> str:
    """How the timings were made and on what."""
    facts = results["environment"]
    rounds = sorted({row["repeats"] for m in results["models"] for row in m.get("latency_ms", ())})
    repeats = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}" if rounds else "no"
    device = f" and {facts['gpu']}" if facts.get("gpu") else ""
    return (
        "All variants were timed in one process. Each round timed every variant once, in random order. An untimed call "
        "of the same variant came before each timing, so that the thread pool of the variant before it was idle. Short "
        f"calls were repeated until a timing took some tens of milliseconds. There were {repeats} rounds, with a fixed "
        f"number of {facts['threads']} threads on {facts['cpu']}{device}. Latencies are medians; speedups are medians "
        "of ratios within a round, with a bootstrap 95% interval. "
        "fp32_medium is torch float32 on its fast path (set_float32_matmul_precision)."
    )
