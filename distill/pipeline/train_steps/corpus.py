"""Training on the corpus: masked-language modelling, and distillation from teachers that read the same texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from distill.config import Train
from distill.config.feature_kinds import POOLED
from distill.config.plan import Step
from distill.data.align import Aligned, pad_aligned
from distill.data.collate import mask_tokens, pad, token_weights
from distill.data.encode import Encoded
from distill.deploy.export.embedder import PROJECTION
from distill.losses.objective import Objective
from distill.losses.terms import bound
from distill.models import teacher
from distill.models.write import write_model
from distill.pipeline.artefacts import EncodedCorpus, Trained
from distill.pipeline.context import Context
from distill.pipeline.train_steps.layer_map import origin
from distill.pipeline.train_steps.prepare import (
    forget_training,
    frozen,
    prepared,
    speed,
    total_steps,
    trained,
    uses_head,
    write_manifest,
)
from distill.training.feed import Arrays, Collate


def on_corpus(ctx: Context, step: Step, member: int, name: str) -> Trained:
    """Train a step's model and write it to the folder `name`.

    Args:
        member: index of the teacher in an ensemble, if teachers are trained.
    """
    settings: Train = step.settings
    start = ctx.checkpoints(step.start)[member]
    torch.manual_seed(ctx.config.seed)
    model, has_head = teacher.load_mlm(start)
    if settings.skip_if_mlm_head and has_head:
        return write_manifest(ctx, name, Trained(skipped="the teacher has a language-model head"))
    model = prepared(ctx, step, model)
    folders = [] if step.teacher is None else ctx.checkpoints(step.teacher)
    teachers = [frozen(ctx, teacher.load_mlm(folder)[0]) for folder in folders]
    weights = [1.0] if step.teacher is None else ctx.shares(step.teacher)
    corpus = ctx.corpus(step)
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    pooling, copied = teacher.pooling(ctx.given.teacher), origin(ctx, step, None)
    objective = Objective(
        model, bound(settings.terms), teachers, pooling, weights, kept=copied.layers, channels=copied.channels
    )
    collate = _collate(ctx, step, corpus, model)
    total = total_steps(ctx, step, encoded.lengths)
    done = trained(ctx, step, name, objective, encoded.lengths, collate, ctx.config.seed, total)
    made = Trained(
        steps=done.steps,
        tokens=done.tokens,
        seconds=done.seconds,
        tokens_per_second=speed(done.tokens, done.seconds),
        log=done.log,
        corpus=EncodedCorpus(sequences=len(encoded), tokens=len(encoded.ids)),
    )
    _save(ctx, name, model, made, ctx.tokenizer(step, member), _projection(objective))
    return made


def _projection(objective: Objective) -> Tensor | None:
    """The trained map [D, H] from the student's pooled vectors to the teacher's; None without a map."""
    pooled = next((label for label, term in objective.terms.items() if term.kind is POOLED), "")
    return objective.projections.get_parameter(f"{pooled}.weight") if pooled in objective.projections else None


def _collate(ctx: Context, step: Step, corpus: Encoded | Aligned, model: Any) -> Collate:
    """A function from row numbers and epoch to a padded and masked batch, as `Objective` describes it."""
    settings: Train = step.settings
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    tokenizer = ctx.tokenizer(step)  # on a corpus all teachers have the same tokenizer
    specials = np.array(sorted(set(tokenizer.all_special_ids)))
    random_ids = np.setdiff1d(np.arange(len(tokenizer)), specials)
    special = np.zeros(model.config.vocab_size, dtype=bool)
    special[specials] = True
    # Without a term on logits nothing is masked, so that student and teacher get the same tokens.
    masks = uses_head(settings)
    weights = token_weights(encoded, model.config.vocab_size, list(specials), settings.masking.smoothing)

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        batch: Arrays = dict(pad(encoded, rows, tokenizer.pad_token_id))
        ids, real = batch["input_ids"], batch["attention_mask"].astype(bool)
        batch["input_ids"], chosen = mask_tokens(
            ids,
            real & ~special[ids] & masks,
            rows,
            seed=ctx.config.seed,
            epoch=epoch,
            probability=settings.masking.probability,
            mask_id=tokenizer.mask_token_id,
            random_ids=random_ids,
            weights=weights,
        )
        batch |= {"masked": np.flatnonzero(chosen), "real": np.flatnonzero(real), "labels": ids[chosen]}
        if isinstance(corpus, Aligned) and settings.teacher is not None:
            batch |= pad_aligned(corpus, rows, ids.shape[1], ctx.given.tokenizer.pad_token_id)
        return batch

    return collate


def _save(ctx: Context, name: str, model: Any, made: Trained, tokenizer: Any, projection: Tensor | None) -> None:
    """Write the model, and the trained map from its pooled vectors to the teacher's, if any."""
    if ctx.machine.main:
        with write_model(ctx.folder.path / name, model, tokenizer, made) as temporary:
            if projection is not None:
                (temporary / PROJECTION).mkdir()
                weight = {"linear.weight": projection.detach().float().cpu()}
                save_file(weight, temporary / PROJECTION / "model.safetensors")
    forget_training(ctx, name)
    ctx.machine.wait()
