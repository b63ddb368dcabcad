"""Tables of what became of runs that were disturbed, edited, random or long."""

from __future__ import annotations

from statistics import median
from typing import Any

from distill.report.table import Table, number

HOW_DISTURBED = {
    "killed": "Killed at a file",
    "later": "Killed at a time",
    "stopped": "SIGTERM",
    "full": "Disk full",
}
"""How `benchmarks/chaos.py` disturbs runs -> a column."""


def chaos_table(outcome: dict[str, Any]) -> Table:
    """The outcome of `benchmarks/chaos.py`, with a row for each recipe, and their sums."""
    counts = []
    for row in outcome["rows"]:
        how = [each["how"] for each in row["disturbances"]]
        numbers = [*(how.count(name) for name in HOW_DISTURBED), *(len(row[key]) for key in ("damages", "lost"))]
        counts.append([*numbers, int(bool(row["different"]))])
    names = [(row["recipe"], str(row["processes"])) for row in outcome["rows"]] + [("all", "")]
    sums = [*counts, [sum(column) for column in zip(*counts, strict=True)]]
    rows = [(*name, *map(str, numbers)) for name, numbers in zip(names, sums, strict=True)]
    columns = ("Recipe", "Processes", *HOW_DISTURBED.values(), "Damaged files", "Lost", "Different")
    return Table("Disturbed runs", columns, rows, 2, [])


OUTCOMES = {"equal": "Equal", "refused": "Refused", "told": "Kept with a note", "stale": "Stale"}
"""How runs of `benchmarks/edits.py` end -> a column."""


def edits_table(outcome: dict[str, Any]) -> Table:
    """The outcome of `benchmarks/edits.py`, with a row for each kind of edit, and their sums."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in outcome["rows"]:
        kinds.setdefault(row["kind"], []).append(row)
    counts = []
    for rows in kinds.values():
        runs = [run["outcome"] for row in rows for run in row["runs"].values()]
        counts.append([len(rows), len(runs), *(runs.count(name) for name in OUTCOMES)])
    sums = [*counts, [sum(column) for column in zip(*counts, strict=True)]]
    rows = [(name, *map(str, numbers)) for name, numbers in zip([*kinds, "all"], sums, strict=True)]
    return Table("Edits between identical commands", ("Edit", "Edits", "Runs", *OUTCOMES.values()), rows, 1, [])


def fuzz_table(outcome: dict[str, Any]) -> Table:
    """The numbers of outcomes of random cases, which tests/fuzz/conftest.py writes."""
    rows = [
        (row["kind"], *(f"{value:,}" for value in (row["accepted"] + row["refused"], row["accepted"], row["refused"])))
        for row in outcome["rows"]
    ]
    return Table("Random cases", ("Kind", "Cases", "Accepted", "Refused with a message"), rows, 1, [])


WATCHED = {
    "memory_mib": "Memory, MiB", "files": "Open files", "threads": "Threads", "processes": "Processes",
    "temporary": "Temporary files", "shared_memory": "Files in shared memory",
}  # fmt: skip
"""What `benchmarks/soak.py` reads -> a column."""


def soak_table(outcome: dict[str, Any]) -> Table:
    """The readings of `benchmarks/soak.py`: medians of each eighth of the time."""
    parts, rows = 8, []
    for series in dict.fromkeys(reading["series"] for reading in outcome["rows"]):
        readings = [reading for reading in outcome["rows"] if reading["series"] == series]
        for part in range(parts):
            inside = readings[len(readings) * part // parts : len(readings) * (part + 1) // parts]
            if inside:
                medians = (number(median(reading[key] for reading in inside), 0) for key in WATCHED)
                last = inside[-1]
                rows.append((series, number(last["seconds"] / 60, 0), str(last["runs"]), *medians))
    return Table("Long series of runs", ("Series", "Minutes", "Finished runs", *WATCHED.values()), rows, 1, [])
