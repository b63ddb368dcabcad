"""The record of a folder with a model that was quantized outside a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from distill.config.schemes import Scheme
from distill.data.task import task_of_model
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.question_answering import ALWAYS
from distill.deploy.export import cross_encoder
from distill.deploy.export.record import Entry, Record, changed, of_task, read, write
from distill.models import teacher
from distill.models.families import max_length, vectors
from distill.models.families.head import architecture_of, names_of_class
from distill.models.families.record import TOKENS, UNBOUNDED, VECTORS
from distill.models.families.sentence import columns_of_cross_encoder, of_cross_encoder

LONGEST = 512
"""Maximum tokens of a text for a model without a stated length."""


def write_record(
    folder: Path, name: str, model: Any, tokenizer: Any, scheme: Scheme, given: Path | None = None
) -> None:
    """Write the file for a folder with a model for a task, its tokenizer, and its quantized form.

    Args:
        given: the folder that the model was loaded from, whose own record, length, prompts and activation last.
    """
    architecture = architecture_of(names_of_class(model))
    assert architecture is not None
    known = None if given is None else read(given)
    # The first is loaded by default where none was timed.
    entries = (Entry(scheme.backend, scheme.scheme, scheme.file), _float(given, known))
    if given is not None and known is not None:
        if architecture == VECTORS:
            vectors.finish(folder, known.max_length, vectors.read(given) or vectors.Vectors())
        write(folder, replace(known, artifacts=entries, proved_on=None, tokens=None, weights=None))
        return
    stated = min(tokenizer.model_max_length, max_length(model.config))
    longest = int(stated if given is None else teacher.longest(given, tokenizer, model.config))
    longest = longest if longest < UNBOUNDED else LONGEST
    if given is not None and architecture == VECTORS:
        vectors.finish(folder, longest, vectors.read(given) or vectors.Vectors())
    if given is not None and of_cross_encoder(given):
        cross_encoder.configure(folder, cross_encoder.activation([given], model.config.num_labels))
    task = task_of_model(name, model.config, architecture, ("text",) if architecture == TOKENS else ())
    if task.kind.name == "regression" and of_cross_encoder(folder):
        task = replace(task, kind=TASK_TYPES["reranking"], columns=columns_of_cross_encoder(folder))
    if task.kind.extractive:  # perhaps not trained on questions without an answer
        task = replace(task, threshold=ALWAYS)
    write(folder, of_task(task, longest, entries))


def _float(given: Path | None, known: Record | None) -> Entry:
    """The float model, with what was chosen for the same weights."""
    entry = Entry("torch", "fp32", ".")
    if given is None or known is None or changed(given, known):
        return entry
    own = next((each for each in known.artifacts if each.name == entry.name), entry)
    return replace(entry, temperature=own.temperature, thresholds=own.thresholds)
