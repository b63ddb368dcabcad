"""Tables of what the benchmarks of time, memory and terms measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from distill.report.seeds import shown as over_seeds
from distill.report.table import Table, number, times, with_interval

WAYS_OF_INTERVALS = {
    "rows_and_seeds": "Rows and seeds, t",
    "hierarchical": "Hierarchical bootstrap",
    "seeds_alone": "Seeds alone, t",
    "deviation": "Mean ± deviation",
}
"""Way of `benchmarks/coverage.py` -> a column."""


def step_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/step.py`, with a row for each kind of step."""
    rows = [
        (
            row["name"],
            number(row["tokens_per_second"], 0),
            number(row["median_ms"], 0),
            number(row["peak_mib"], 0),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    machine = f"{facts['gpu']} and {facts['cpu']}" if facts["gpu"] else facts["cpu"]
    notes = [
        f"One step of a randomly initialized BERT with {measured['teacher_layers']} layers and hidden size "
        f"{measured['hidden']} as teacher, and {measured['student_layers']} layers as student. Batch "
        f"{measured['batch']} x {measured['length']}, {measured['masked']} masked positions, vocabulary of "
        f"{measured['vocabulary']:,} tokens, dropout {measured['dropout']} in every variant.",
        f"Medians of {measured['repeats']} rounds, each of which runs every kind of step; {facts['threads']} threads, "
        f"{machine}, torch {facts['torch']}.",
        "Peak MiB: memory in use during the step, without weights and optimizer state.",
    ]
    return Table("Training step", ("Step", "Tokens/s", "ms", "Peak MiB", "Speedup [95%]"), rows, 1, notes)


WAYS = {
    "distill": "distill",
    "textbrewer": "TextBrewer, float32",
    "trainer": "subclass of Trainer, float32",
    "trainer_bf16": "subclass of Trainer, bf16",
}
"""Way of `benchmarks/frameworks.py` -> its name for a reader."""


def frameworks_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/frameworks.py`, with a row for each way and size."""
    rows = [
        (
            f"{row['size']}, {row['training_rows']:,} rows",
            WAYS[row["way"]],
            _median(row["seconds"]),
            number(row["tokens_per_second"], 0),
            number(row["peak_mib"], 0),
            _of_rounds(row, next(r for r in measured["rows"] if (r["size"], r["way"]) == (row["size"], "trainer"))),
            number(100 * row["accuracy"]),
            number(100 * row["agreement"]),
            number(row["kl"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    rounds = len(measured["rows"][0]["seconds"])
    columns = (
        *("Size", "With", "Seconds", "Tokens/s", "Peak MiB", "Speedup"),
        *("Accuracy %", "Same as the teacher %", "KL"),
    )
    notes = [
        "Task distillation of a teacher that is fine-tuned already, from starting the process to the written student: "
        f"{measured['epochs']} epochs, batches of {measured['batch']} rows, texts of at most {measured['max_length']} "
        "tokens. base: a teacher of the size of BERT-base, and a student with half its layers. small: the embedded "
        "teacher, and half its layers.",
        f"Medians of {rounds} rounds, in each of which every way ran once, in a process of its own. "
        f"{_parentheses(rounds)} {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}, transformers "
        f"{facts['transformers']}, TextBrewer {facts['textbrewer']}. Tokens: those of the training rows, without "
        "padding. Peak MiB: of the whole process; - where it was not measured.",
        f"The teacher's accuracy: {_of_teachers(measured)}. Accuracy, agreement, and mean KL from the teacher's "
        "probabilities: on 500 other rows. The 18 steps of base are too few to learn the task: its rows compare time.",
    ]
    return Table("Task distillation", columns, rows, 2, notes)


WAYS_OF_EMBEDDERS = {
    "start": "the student to begin with",
    "distill_vectors": "distill, term on vectors alone",
    "distill_similarities": "distill, heavy term on similarities",
    "sentence_transformers": "sentence-transformers, float32",
    "sentence_transformers_bf16": "sentence-transformers, bf16",
}
"""Way of `benchmarks/embedders.py` -> its name for a reader."""


def embedders_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/embedders.py`, with a row for each way."""
    usual = next(row for row in measured["rows"] if row["way"] == "sentence_transformers")
    rows = [
        (
            WAYS_OF_EMBEDDERS[row["way"]],
            _median(row["seconds"]) if "seconds" in row else "-",
            _of_rounds(row, usual) if "speedup" in row else "-",
            number(row["cosine"], 3),
            number(row["spearman"], 3),
        )
        for row in measured["rows"]
    ]
    facts, rounds = measured["environment"], len(measured["rows"][1]["seconds"])
    columns = ("With", "Seconds", "Speedup", "Cosine", "Spearman")
    notes = [
        f"The embedded teacher to three of its six layers: {measured['texts']:,} texts, {measured['epochs']} epochs, "
        f"batches of {measured['batch']} texts. Cosine: mean of that of the student's and the teacher's vectors of 500 "
        "other texts. Spearman: of the similarities of all pairs of these. "
        f"Medians of {rounds} rounds. {_parentheses(rounds)} {facts['threads']} threads, {facts['cpu']}, torch "
        f"{facts['torch']}, sentence-transformers {facts['sentence-transformers']}.",
    ]
    return Table("Distillation of an embedder", columns, rows, 1, notes)


def embedder_terms_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/embedder_terms.py`, with a row for each weight on each kind of rows."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        groups.setdefault((row["rows"], *row["weights"]), []).append(row)
    rows = []
    for (kind, *weights), seeds in groups.items():
        score, cosine = (over_seeds([row[key] for row in seeds]) for key in ("score", "cosine"))
        teacher = number(seeds[0]["teacher_score"])
        of_terms = (f"{weight:g}" for weight in weights)
        rows.append((kind, seeds[0]["metric"], *of_terms, score, cosine, teacher))
    facts = measured["environment"]
    notes = [
        f"The embedded teacher to three of its six layers, {measured['training_rows']:,} rows of each kind, the "
        f"defaults of recipe=task; scored on {measured['scored_rows']} development rows. Score: of the student. "
        "Cosine: mean of that of the student's and the teacher's vectors of these rows' texts, in percent. "
        f"Mean over {len(seeds)} seeds, and the value of each; torch {facts['torch']}.",
    ]
    columns = ("Rows", "Metric", "Weight of similarities", "Weight of vectors", "Score", "Cosine", "Teacher")
    return Table("Weights of the terms of embedders", columns, rows, 2, notes)


def _of_teachers(measured: dict[str, Any]) -> str:
    by_size = {row["size"]: row["teacher_accuracy"] for row in measured["rows"]}
    return ", ".join(f"{100 * accuracy:.1f}% ({size})" for size, accuracy in by_size.items())


def startup_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/startup.py`, with a row for each command."""
    rows = [
        (row["until"], f"python -m distill {row['command']}", _median(row["seconds"]), number(max(row["seconds"])))
        for row in measured["rows"]
    ]
    served = measured.get("serving", [])
    rows += [
        (
            f"first prediction, {each['artifact']}",
            "distill.load",
            _median(each["seconds"]),
            number(max(each["seconds"])),
        )
        for each in served
    ]
    facts, runs = measured["environment"], len(measured["rows"][0]["seconds"])
    notes = [f"Runs of each: {runs}; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}."]
    notes += [f"{each['artifact']}: {number(max(each['mib']), 0)} MiB resident after it." for each in served]
    if sizes := measured.get("packages"):
        parts = ", ".join(f"{name} {number(mib, 0)}" for name, mib in sizes.items())
        notes.append(f"MiB of the packages that serving needs: {number(sum(sizes.values()), 0)} ({parts}).")
    return Table("Startup", ("Until", "Command", "Seconds, median", "Seconds, most"), rows, 2, notes)


def corpus_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/corpus.py`, with a row for each size."""
    rows = [
        (
            number(row["mib"], 0),
            number(row["seconds"]),
            number(row["mib"] / row["seconds"]),
            number(row["stored_mib"], 0),
            number(row["peak_mib"], 0),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    notes = [
        "Random words, in a text file, with the tokenizer of the embedded teacher. Peak MiB: of the whole process. "
        f"One run of each size; {facts['threads']} threads, {facts['cpu']}, tokenizers {facts['tokenizers']}.",
    ]
    columns = ("MiB of text", "Seconds to encode", "MiB/s", "MiB of token ids", "Peak MiB")
    return Table("Encoding a corpus", columns, rows, 0, notes)


def attention_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/attention.py`, with a row for each length, with dropout and without."""
    rows = [
        (
            number(row["dropout"], 1),
            number(row["length"], 0),
            *(number(row[kind]["ms"], 0) for kind in ("sdpa", "eager", "quick")),
            times(row["quick"]["speedup"]),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    notes = [
        "Milliseconds of a forward and a backward pass of two layers of width 384, for 4,096 tokens, padding included. "
        "In steps: with our dropout and attention; the speedup is over SDPA. "
        f"Medians of {measured['repeats']} rounds; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}.",
    ]
    columns = ("Dropout", "Tokens of a row", "SDPA", "Eager", "In steps", "Speedup")
    return Table("Attention on a CPU", columns, rows, 0, notes)


def gpu_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/gpu.py`, with a row for each way of each step."""
    rows = [
        (
            row["kind"],
            f"{row['rows']} x {row['length']}",
            row["way"],
            number(row["ms"]),
            number(row["tokens_per_second"], 0),
            times(row["speedup"]),
            number(100 * row["share"], 0),
        )
        for row in measured["rows"]
    ]
    facts, steps = measured["environment"], measured["rows"][0]
    notes = [
        "General distillation: BERT-base to half its layers, with the terms of recipe=distilbert. Task distillation: "
        "those six layers, with the teacher's outputs stored. Each way has what those above it have. Share: the "
        "arithmetic per second of the step's matrix products and attention, of what a product of two large bf16 "
        "matrices reaches, "
        f"{number(measured['matrix_flops'] / 1e12, 0)} TFLOP/s. Medians of {len(steps['ms_of_rounds'])} rounds of ten "
        f"steps; one {facts['gpu']}, torch {facts['torch']}.",
    ]
    columns = ("Step", "Rows x tokens", "Way", "ms", "Tokens/s", "Speedup", "Share %")
    return Table("A step on a GPU", columns, rows, 3, notes)


def _median(seconds: Sequence[float]) -> str:
    return number(median(seconds))


def quantize_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/quantize.py`, with a row for each variant."""
    rows = [
        (
            row["backend"],
            row["scheme"],
            number(row["mib"], 0),
            number(row["median_ms"], 1),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    packages = ("torch", "onnxruntime", "openvino", "torchao")
    versions = ", ".join(f"{name} {facts[name]}" for name in packages if facts[name])
    notes = [
        f"A randomly initialized BERT with {measured['layers']} layers and hidden size {measured['hidden']}, batch "
        f"{measured['batch']} x {measured['length']}.",
        f"Medians of {measured['repeats']} rounds, each of which times every variant; {facts['threads']} threads, "
        f"{facts['cpu']}, {versions}.",
        f"Speedup: over {measured['fastest_float32']}, the fastest float32 variant.",
    ]
    return Table("Quantized variants", ("Backend", "Scheme", "MiB", "ms", "Speedup [95%]"), rows, 2, notes)


def _of_rounds(row: dict[str, Any], usual: dict[str, Any]) -> str:
    """The speedup over the rounds of a row, with its 95% interval; of two rounds, from which an interval says nothing,
    with that in each round. usual: the row of the way that the speedup is over."""
    ratio, text = row["speedup"], times(row["speedup"]["median"])
    if len(row["seconds"]) != 2:
        return with_interval(text, ratio["ci95"], 2)
    first, second = (theirs / own for theirs, own in zip(usual["seconds"], row["seconds"], strict=True))
    return f"{text} ({first:.2f}, {second:.2f})"


def _parentheses(rounds: int) -> str:
    """What stands beside a speedup, as a sentence."""
    if rounds == 2:
        return "In parentheses: the speedup in each of the two rounds."
    return "In brackets: the 95% interval of the speedup."


def coverage_table(measured: dict[str, Any]) -> Table:
    """The simulations of `benchmarks/coverage.py`: coverage and median width of each way."""
    rows = [
        (
            row["measure"],
            row["training"],
            str(row["seeds"]),
            *(f"{100 * way['coverage']:.1f} ({way['width']:.1f})" for way in map(row["ways"].get, WAYS_OF_INTERVALS)),
        )
        for row in measured["rows"]
    ]
    found = {
        title: [100 * row["ways"][way]["coverage"] for row in measured["rows"] if row["training"] != "collapsing"]
        for way, title in WAYS_OF_INTERVALS.items()
    }
    ranges = ", ".join(f"{title} {min(each):.0f} to {max(each):.0f}%" for title, each in found.items())
    notes = [
        f"Percent of {measured['simulations']:,} simulated experiments whose interval includes the truth (and the "
        f"median width of the interval in points), with one teacher and {measured['scored_rows']:,} rows that all "
        f"models share. How hard a row is correlates by {measured['shared']:g} between two models. Accuracies: teacher "
        f"{measured['teacher']}, students {measured['student']} and baselines {measured['baseline']} on average. Over "
        f"seeds, their true values have a standard deviation of {100 * measured['spread']:g} points, normal or with a "
        "tail of low values (an exponential distribution, skewed); collapsing: normal, but "
        f"{100 * measured['collapse']:g}% of the trainings lose {100 * measured['lost']:g} points. Without collapses: "
        f"{ranges}.",
    ]
    return Table("Coverage", ("Of", "Trainings", "Seeds", *WAYS_OF_INTERVALS.values()), rows, 2, notes)
