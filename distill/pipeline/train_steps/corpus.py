"""Training on the corpus: masked-language modelling, and distillation from teachers that read the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from distill.config import Train
from distill.config.feature_kinds import LOGITS, POOLED, REPLACED
from distill.data.align import Aligned, pad_aligned
from distill.data.collate import draws, mask_tokens, pad, token_weights
from distill.data.encode import Encoded
from distill.data.segments import paired
from distill.data.whole_words import word_masking
from distill.deploy.export.embedder import PROJECTION
from distill.errors import ConfigError
from distill.losses.objective import Objective
from distill.losses.terms import Term, bound
from distill.models import families, teacher
from distill.models.families.head import stores_rtd_head
from distill.models.segment_head import segment_head, tensors
from distill.models.write import write_model
from distill.pipeline.artefacts import EncodedCorpus, Trained
from distill.pipeline.context.checkpoints import WHOLE
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.prepare import (
    Training,
    finds_replaced,
    forget_training,
    frozen,
    headless,
    prepared,
    taught_by_head,
    took,
    trained,
    untaught,
    uses_head,
    write_manifest,
)
from distill.training.feed import Arrays, Collate


def on_corpus(inputs: MemberInputs, settings: Train, runtime: Runtime) -> Trained:
    """Train a model on the corpus and write it to its folder."""
    torch.manual_seed(runtime.seed)
    load = teacher.load_rtd if finds_replaced(settings) else teacher.load_mlm
    model, has_head = load(inputs.start[WHOLE])
    if settings.skip_if_mlm_head and has_head:
        return write_manifest(inputs.name, Trained(skipped="the teacher has a language-model head"), runtime)
    model = prepared(model, settings, runtime, inputs.build, inputs.average)
    models = None if inputs.teacher is None else inputs.teacher.models
    folders, weights = ([], [1.0]) if models is None else (models.folders[WHOLE], models.weights[WHOLE])
    terms = _computable(inputs.name, bound(settings.terms), folders, runtime)
    if not any(term.compare_with == "teacher" for term in terms.values()):
        folders, weights = [], [1.0]
    loaded = [load(folder) for folder in folders]
    if not all(has_head for _, has_head in loaded):
        _check_heads(inputs.name.partition("/")[0], terms)  # the folder of a target is one level deeper
    teachers = [frozen(each, runtime.machine) for each, _ in loaded]
    generator = None
    if finds_replaced(settings):
        assert inputs.generator is not None
        predicting, predicts = teacher.load_mlm(inputs.generator)
        assert predicts, inputs.generator  # its stage trained a head, or found one
        generator = frozen(predicting, runtime.machine)
    corpus = inputs.corpus()
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    pooling, copied = teacher.pooling(inputs.given), inputs.origin(WHOLE)
    head, drawn = None, inputs.build is not None and inputs.build.student.init == "random"
    if settings.segments is not None:
        assert encoded.sentences is not None
        head = segment_head(model, [] if drawn else [*filter(None, [inputs.pooler]), inputs.start[WHOLE]])
        pairs = np.count_nonzero(np.diff(encoded.sentences.offsets))
        runtime.machine.log(f"{inputs.name}: {pairs} of {len(encoded)} sequences are pairs for {settings.segments}")
    objective = Objective(
        model,
        terms,
        teachers,
        pooling,
        weights,
        kept=copied.layers,
        channels=copied.channels,
        generator=generator,
        segment_head=head,
    )
    collate = _collate(inputs, settings, corpus, model, runtime.seed)
    total = inputs.length.steps(settings.batch, runtime.seed, encoded.lengths)
    training = Training(inputs.name, runtime.seed, inputs.lr, total, encoded.lengths)
    done = trained(training, settings, runtime, objective, collate)
    made = Trained(
        **took(done.steps, done.tokens, done.seconds),
        log=done.log,
        corpus=EncodedCorpus(sequences=len(encoded), tokens=len(encoded.ids)),
    )
    # A later stage would take a random head for a trained one.
    headless = families.has_mlm_head(model) and not uses_head(settings) and (drawn or not has_head)
    _save(inputs, made, objective, runtime, headless=headless)
    return made


def _check_heads(stage: str, terms: Mapping[str, Term]) -> None:
    """Raise ConfigError if a term compares with the language-model head of a teacher that has none."""
    for label in taught_by_head(terms, LOGITS):
        raise ConfigError(headless(stage, label))


def _computable(name: str, terms: dict[str, Term], teachers: list[Path], runtime: Runtime) -> dict[str, Term]:
    """The terms without those on a teacher's head for replaced-token detection, if a teacher has none.

    Raises:
        ConfigError: if there are no others.
    """
    taught = taught_by_head(terms, REPLACED)
    if not taught or all(map(stores_rtd_head, teachers)):
        return terms
    runtime.machine.log(f"{name}: left out because the teacher has no head for replaced tokens: {', '.join(taught)}")
    kept = {label: term for label, term in terms.items() if label not in taught}
    if not kept:
        raise ConfigError(untaught(name.partition("/")[0], taught))
    return kept


def _projection(objective: Objective) -> Tensor | None:
    """The trained map [D, H] from the student's pooled vectors to the teacher's; None without a map."""
    maps = objective.projections
    pooled = (label for label, term in objective.terms.items() if term.kind is POOLED and label in maps)
    return next((maps.get_parameter(f"{label}.weight") for label in pooled), None)


def _collate(inputs: MemberInputs, settings: Train, corpus: Encoded | Aligned, model: Any, seed: int) -> Collate:
    """A function from row numbers and epoch to a padded and masked batch, as `Objective` describes it."""
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    tokenizer, given = inputs.tokenizer, inputs.given_tokenizer
    specials = np.array(sorted(set(tokenizer.all_special_ids)))
    random_ids = np.setdiff1d(np.arange(len(tokenizer)), specials)
    special = np.zeros(model.config.vocab_size, dtype=bool)
    special[specials] = True
    # Without a term on logits nothing is masked, so that student and teacher get the same tokens.
    masks = uses_head(settings)
    draws_tokens = finds_replaced(settings)
    if settings.segments is not None:
        padded = paired(encoded, settings.segments, tokenizer, seed)
    else:
        padded = _padded(encoded, tokenizer.pad_token_id)
    weights = token_weights(encoded, model.config.vocab_size, list(specials), settings.masking.smoothing)
    words = word_masking(settings.masking.unit, tokenizer, model.config.vocab_size) if masks else None

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        batch: Arrays = dict(padded(rows, epoch))
        ids, real = batch["input_ids"], batch["attention_mask"].astype(bool)
        batch["input_ids"], chosen = mask_tokens(
            ids,
            real & ~special[ids] & masks,
            rows,
            seed=seed,
            epoch=0 if settings.masking.fixed else epoch,
            probability=settings.masking.probability,
            mask_id=tokenizer.mask_token_id if masks else tokenizer.pad_token_id,
            random_ids=random_ids,
            weights=weights,
            words=words,
        )
        batch |= {"masked": np.flatnonzero(chosen), "real": np.flatnonzero(real), "labels": ids[chosen]}
        if draws_tokens:
            batch["drawn"] = draws(chosen, rows, seed=seed, epoch=epoch)
        if isinstance(corpus, Aligned) and settings.teacher is not None:
            batch |= pad_aligned(corpus, rows, ids.shape[1], given.pad_token_id)
        return batch

    return collate


def _padded(encoded: Encoded, pad_id: int) -> Collate:
    return lambda rows, epoch: dict(pad(encoded, rows, pad_id))


def _save(inputs: MemberInputs, made: Trained, objective: Objective, runtime: Runtime, *, headless: bool) -> None:
    """Write the student, the head for pairs of segments that was trained with it, and the map from its pooled vectors
    to the teacher's, if any; with `headless`, without its language-model head."""
    if runtime.machine.main:
        head: Any = objective.segment_head
        more = {} if head is None else tensors(head, objective.student)
        folder, projection = runtime.folder / inputs.name, _projection(objective)
        with write_model(folder, objective.student, inputs.tokenizer, made, more, headless=headless) as temporary:
            if projection is not None:
                (temporary / PROJECTION).mkdir()
                weight = {"linear.weight": projection.detach().float().cpu()}
                save_file(weight, temporary / PROJECTION / "model.safetensors")
    forget_training(inputs.name, runtime)
    runtime.machine.wait()
