"""What a run shows, in sentences: the headline, what the average covers, how timings were made.

A sentence never says more than the numbers do: a loss against the baseline, a slower student and a failed
one are called that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.report.schema import Model, Results
from distill.report.timed import at, middle_shape

SMOKE = "SMOKE RUN: tiny stand-in models and data. These numbers mean nothing."
GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")


def form(model: Model) -> str:
    """How a model is run, e.g. `int8 onnxruntime`."""
    return f"{model['scheme']} {model['backend']}"


def of_role(results: Results, role: str) -> list[Model]:
    return [model for model in results["models"] if model["role"] == role]


def goal(model: Model) -> str:
    """Label of the target that a model was made for, where its run made several; else nothing."""
    return model["name"].partition(" ")[2] if model["role"] in ("student", "pruned", "baseline") else ""


def goals(results: Results) -> list[str]:
    """The targets that students were made for, in order; one without a label where there is one student."""
    return list(dict.fromkeys(map(goal, of_role(results, "student"))))


def task_names(results: Results) -> list[str]:
    """The tasks that a model has scores of, in order."""
    return list(dict.fromkeys(task for m in results["models"] for task in m.get("scores", ())))


def _host_only(results: Results, model: Model) -> bool:
    """Whether the model ran on the CPU although the run had a GPU: these runtimes are used on the CPU only."""
    return bool(results["environment"].get("gpu")) and model["backend"] in ("onnxruntime", "openvino")


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
    """The headline way to say how much of the teacher's score is kept, in percent."""
    found = model.get("retained")
    return found["macro_without_wnli"] if found else None


def speedup(model: Model) -> float | None:
    """Against the teacher's fastest float32 form over all backends."""
    found = model.get("speedup")
    return found["best_teacher"] if found else None


def interval(model: Model, key: str) -> list[float] | None:
    """The 95% interval of `retained` or `speedup`."""
    found = model.get(key)
    return found["ci95"] if found else None


def chosen(results: Results, label: str = "") -> Model | None:
    """The student of the headline: the fastest int8 one, else the fastest. The rule never looks at the scores."""
    scored = [m for m in _scored(results, label) if m["role"] == "student"]
    int8 = [m for m in scored if m["scheme"] in ("int8", "int8_static")]
    return max(int8 or scored, key=lambda m: speedup(m) or 0.0, default=None)


def _scored(results: Results, label: str) -> list[Model]:
    return [m for m in results["models"] if "failed" not in m and retained(m) is not None and goal(m) == label]


def pair(results: Results, label: str = "") -> tuple[Model, Model] | None:
    """(student, baseline) in the same form, the headline's if there is one, else the first in order; or None."""
    scored = _scored(results, label)
    students = {form(m): m for m in scored if m["role"] == "student"}
    baselines = {form(m): m for m in scored if m["role"] == "baseline"}
    shared = [key for key in students if key in baselines]
    head = chosen(results, label)
    if head is not None and form(head) in shared:
        return students[form(head)], baselines[form(head)]
    return (students[shared[0]], baselines[shared[0]]) if shared else None


def headline(results: Results) -> str:
    """The result in two or three sentences; of several students a few more."""
    if len(goals(results)) > 1:
        return " ".join(_family(results))
    model = chosen(results)
    if model is None:
        reasons = [f"{form(m)}: {m['failed']}" for m in of_role(results, "student") if "failed" in m]
        return " ".join(["No student has a score: there is no result.", *reasons])
    return f"{_kept(results, model)} {_against_baseline(results, model)}"


def _family(results: Results) -> Iterator[str]:
    """What each of several students keeps, what the same ones keep without a teacher, and which one was asked for."""
    labels = goals(results)
    found = {label: model for label in labels if (model := chosen(results, label)) is not None}
    if not found:
        yield "No student has a score: there is no result."
        return
    kept = [f"{retained(m):.1f}% at {speedup(m) or 0:.2f}x ({label}, {form(m)})" for label, m in found.items()]
    macro = "macro score without WNLI" if "wnli" in task_names(results) else "macro score"
    shape = at([middle_shape(results)])
    yield (
        f"Of the teacher's {macro} {len(labels)} students keep, and the speed of its fastest float32 form{shape} they "
        f"reach: {'; '.join(kept)}."
    )
    if (least := results.get("least_retained")) is not None:
        yield _fastest(results, least)
    compared = {label: both for label in labels if (both := pair(results, label)) is not None}
    if not compared:
        yield "There is no baseline in the same form: what the teacher adds is not known."
        return
    forms = dict.fromkeys(form(both[0]) for both in compared.values())
    gains = [f"{(retained(s) or 0) - (retained(b) or 0):+.1f} ({label})" for label, (s, b) in compared.items()]
    without = (
        "trained from the pruned ones on without a teacher" if results.get("taught_start") else "without a teacher"
    )
    yield f"Against the same students {without}, as {', '.join(forms)}, in points: {', '.join(gains)}."


def _fastest(results: Results, least: float) -> str:
    """The fastest student, in any form, that keeps what was asked for. It is picked on the rows it is scored on."""
    students = [m for label in goals(results) for m in _scored(results, label) if m["role"] == "student"]
    enough = [m for m in students if (retained(m) or 0) >= least]
    best = max(enough, key=lambda m: speedup(m) or 0.0, default=None)
    if best is None:
        return f"None keeps {least:g}%."
    return (
        f"The fastest that keeps {least:g}% is {best['name']} ({form(best)}): {retained(best):.1f}% at "
        f"{speedup(best) or 0:.2f}x. It was picked by the scores that are shown."
    )


def _between(ends: list[float] | None, digits: int, unit: str = "") -> str:
    return f" (95% interval {ends[0]:.{digits}f}{unit} to {ends[1]:.{digits}f}{unit})" if ends else ""


def _kept(results: Results, model: Model) -> str:
    percent = f"{retained(model):.1f}%{_between(interval(model, 'retained'), 1)}"
    macro = "macro score without WNLI" if "wnli" in model["scores"] else "macro score"
    form_and_place = f"The {model['scheme']} student ({model['backend']}{where(results, model)})"
    text = f"{form_and_place} keeps {percent} of the teacher's {macro}"
    times = speedup(model)
    if times is None:
        return f"{text}; its speed was not measured."
    ends = interval(model, "speedup")
    speed = f"{times:.2f}x{_between(ends, 2)} the speed of the teacher's fastest float32 form"
    speed += at([middle_shape(results)])
    if ends and ends[0] <= 1 <= ends[1]:
        return f"{text} at {speed}: no measurable speedup."
    return f"{text} but is slower: {speed}." if times < 1 else f"{text} at {speed}."


def _against_baseline(results: Results, model: Model) -> str:
    compared = pair(results)
    if compared is None:
        if any("failed" in m for m in of_role(results, "baseline")):
            return "The baseline failed: what the teacher adds is not known."
        return "There is no baseline in the same form: what the teacher adds is not known."
    student, baseline = compared
    ours, theirs = retained(student) or 0.0, retained(baseline) or 0.0
    without = "trained from there on without a teacher" if results.get("taught_start") else "without a teacher"
    if form(student) == form(model):
        text = f"{without[0].upper()}{without[1:]} the same student keeps {theirs:.1f}%"
    else:
        text = (
            f"Compared as {form(student)}, the distilled student keeps {ours:.1f}% "
            f"and the same student {without} {theirs:.1f}%"
        )
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
    """What the average is to be called: `GLUE` only when all nine tasks are there, whole."""
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
    """What the average covers and what it does not, a sentence each."""
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
    for title, kept in {
        "Validation is partial": [row for row in short if row["split"] != "train"],
        "Training is on a part": [row for row in short if row["split"] == "train"],
    }.items():
        if kept:
            sentences.append(f"{title}: {'; '.join(map(_share, kept))}.")
    stand_ins = list(dict.fromkeys(row["task"] for row in rows if row.get("stand_in")))
    if stand_ins:
        sentences.append(f"Stand-ins instead of the real data: {', '.join(stand_ins)}.")
    return sentences


def _share(row: dict[str, object]) -> str:
    split = "" if row["split"] in ("train", "validation") else f" {row['split']}"
    return f"{row['task']}{split} {row['rows']:,} of {row['official_rows']:,} rows"


def pruned(results: Results) -> list[str]:
    """What was cut, and for a target the speed that was expected beside the one that was measured; a sentence each."""
    return [_cut(row) for row in results.get("pruned", ())]


def _cut(row: dict[str, Any]) -> str:
    text = f"pruned to {row['layers']} layers, {row['hidden']} hidden and {row['ffn']} FFN channels"
    text = f"{row['target']}: {text}" if row["target"] else f"{text[0].upper()}{text[1:]}"
    if "predicted_ms" not in row:
        return f"{text}, as asked for."
    ratio = "" if row["measured_speedup"] is None else f"{row['measured_speedup']:.2f}x, "
    measured = "not measured" if row["measured_ms"] is None else f"measured {ratio}{row['measured_ms']:.1f} ms"
    return (
        f"{text}, of {row['tried']} shapes the one with the least estimated loss that meets the target. torch "
        f"{row['scheme']} at {row['batch']}x{row['length']}: predicted {row['predicted_speedup']:.2f}x the unpruned "
        f"model's speed, {row['predicted_ms']:.1f} ms; {measured}."
    )


def timing(results: Results) -> str:
    """How the timings were made and on what."""
    facts = results["environment"]
    rounds = sorted({row["repeats"] for m in results["models"] for row in m.get("latency_ms", ())})
    repeats = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}" if rounds else "no"
    device = f" and {facts['gpu']}" if facts.get("gpu") else ""
    return (
        "In every round all forms were run once, in one process and in random order, each after an untimed call of "
        "its own, so that the thread pool of the one before it has gone to sleep, and each timing repeats short calls "
        f"until it lasts some tens of milliseconds. There were {repeats} rounds, with a fixed number of "
        f"{facts['threads']} threads on {facts['cpu']}{device}. "
        "Latencies are medians; speedups are medians of ratios within a round, with a bootstrap 95% interval. "
        "fp32_medium is torch float32 on its fast path (set_float32_matmul_precision)."
    )
