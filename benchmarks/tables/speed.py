"""Tables of what the benchmarks of time, memory and terms measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

from distill.report.table import Table, number, times, with_interval


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
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
            number(100 * row["accuracy"]),
            number(100 * row["agreement"]),
            number(row["kl"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    rounds = len(measured["rows"][0]["seconds"])
    columns = (
        *("Size", "With", "Seconds", "Tokens/s", "Peak MiB", "Speedup [95%]"),
        *("Accuracy %", "Same as the teacher %", "KL"),
    )
    notes = [
        "Task distillation of a teacher that is fine-tuned already, from starting the process to the written student: "
        f"{measured['epochs']} epochs, batches of {measured['batch']} rows, texts of at most {measured['max_length']} "
        "tokens. base: a teacher of the size of BERT-base, and a student with half its layers. small: the embedded "
        "teacher, and half its layers.",
        f"Medians of {rounds} rounds, in each of which every way ran once, in a process of its own; {facts['threads']} "
        f"threads, {facts['cpu']}, torch {facts['torch']}, transformers {facts['transformers']}, TextBrewer "
        f"{facts['textbrewer']}. Tokens: those of the training rows, without padding. Peak MiB: of the whole process; "
        "- where it was not measured.",
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
    rows = [
        (
            WAYS_OF_EMBEDDERS[row["way"]],
            _median(row["seconds"]) if "seconds" in row else "-",
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2) if "speedup" in row else "-",
            number(row["cosine"], 3),
            number(row["spearman"], 3),
        )
        for row in measured["rows"]
    ]
    facts, rounds = measured["environment"], len(measured["rows"][1]["seconds"])
    columns = ("With", "Seconds", "Speedup [95%]", "Cosine", "Spearman")
    notes = [
        f"The embedded teacher to three of its six layers: {measured['texts']:,} texts, {measured['epochs']} epochs, "
        f"batches of {measured['batch']} texts. Cosine: mean of that of the student's and the teacher's vectors of 500 "
        "other texts. Spearman: of the similarities of all pairs of these. "
        f"Medians of {rounds} rounds; {facts['threads']} threads, {facts['cpu']}, torch {facts['torch']}, "
        f"sentence-transformers {facts['sentence-transformers']}.",
    ]
    return Table("Distillation of an embedder", columns, rows, 1, notes)


def embedder_terms_table(measured: dict[str, Any]) -> Table:
    """The measurements of `benchmarks/embedder_terms.py`, with a row for each weight on each kind of rows."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        groups.setdefault((row["rows"], *row["weights"]), []).append(row)
    rows = []
    for (kind, *weights), seeds in groups.items():
        score, cosine = (_spread([row[key] for row in seeds]) for key in ("score", "cosine"))
        teacher = number(seeds[0]["teacher_score"])
        of_terms = (f"{weight:g}" for weight in weights)
        rows.append((kind, seeds[0]["metric"], *of_terms, score, cosine, teacher))
    facts = measured["environment"]
    notes = [
        f"The embedded teacher to three of its six layers, {measured['training_rows']:,} rows of each kind, the "
        f"defaults of recipe=task; scored on {measured['scored_rows']} development rows. Score: of the student. "
        "Cosine: mean of that of the student's and the teacher's vectors of these rows' texts, in percent. "
        f"Mean ± standard deviation over {len(seeds)} seeds; torch {facts['torch']}.",
    ]
    columns = ("Rows", "Metric", "Weight of similarities", "Weight of vectors", "Score", "Cosine", "Teacher")
    return Table("Weights of the terms of embedders", columns, rows, 2, notes)


def _spread(values: Sequence[float]) -> str:
    return f"{number(fmean(values))} ± {number(pstdev(values))}"


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
    return number(sorted(seconds)[len(seconds) // 2])


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
