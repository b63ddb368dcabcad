"""Vocabulary stage: removes unused tokens from every task's model and from its tokenizer."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from distill.compression.pruning.importance import SCORES
from distill.compression.vocabulary import pruned_embeddings, pruned_tokenizer, token_counts
from distill.config import Vocabulary
from distill.config.plan import Step
from distill.data.task_model import load_for
from distill.data.task_types import SECONDS
from distill.deploy.export.proof import plain_logits, prove_reload
from distill.errors import UserError
from distill.inference.cost import parameters
from distill.models.write import write_model
from distill.pipeline.artefacts import SmallVocabulary
from distill.pipeline.context import Context
from distill.pipeline.stages.prune import texts_of
from distill.runtime.storage import run_folder


def run(ctx: Context, step: Step) -> SmallVocabulary:
    """Cut the vocabulary of every task's model to the same tokens."""
    settings: Vocabulary = step.settings
    tokenizer, longest = ctx.tokenizer(step.start), ctx.config.tasks.max_length
    counts: Counter[int] = Counter()
    for kind in settings.texts:
        ctx.machine.log(f"{step.folder}: counting the tokens of the {kind}")
        counts += token_counts(_texts(ctx, kind), tokenizer)
    small, kept = pruned_tokenizer(tokenizer, _kept_tokens(step, settings, counts))
    # If all tokens of the training texts are kept, logits on these texts must not change.
    same = settings.tokens is None and settings.min_count == 1 and "tasks" in settings.texts
    expected, before, after = {}, 0, 0
    with run_folder.writing(ctx.folder.of(step)) as temporary:
        for task, data in ctx.tasks.items():
            source, folder, rows = ctx.checkpoint(step.start, task), temporary / task, texts_of(data)
            model = load_for(data.task, source, pad_id=tokenizer.pad_token_id)
            with write_model(folder, pruned_embeddings(model, kept, small), small) as inside:
                if (source / SCORES).is_file():  # scores of gates, for a later prune stage
                    shutil.copy2(source / SCORES, inside)
            expected[folder] = (rows, plain_logits(source if same else folder, rows, longest))
            before, after = parameters(source), parameters(folder)
        share = sum(counts[token] for token in kept.tolist()) / sum(counts.values())
        made = SmallVocabulary(
            tokens_before=len(tokenizer),
            tokens=len(small),
            share_of_texts=share,
            largest_difference={folder.name: value for folder, value in prove_reload(expected, longest).items()},
        )
    ctx.machine.log(
        f"{step.folder}: {len(small)} of {len(tokenizer)} tokens, {100 * share:.2f}% of all "
        f"tokens in the texts; {before / 1e6:.2f} M -> {after / 1e6:.2f} M parameters"
    )
    return made


def _kept_tokens(step: Step, settings: Vocabulary, counts: Counter[int]) -> list[int]:
    """Ids of the tokens to keep, the most frequent first. Raises UserError if `min_count` removes all."""
    kept = [token for token, count in counts.most_common(settings.tokens) if count >= settings.min_count]
    if not kept:
        raise UserError(
            f"stages.{step.stage}.min_count: got {settings.min_count}; must be <= {max(counts.values(), default=0)}, "
            "the count of the most frequent token; set less"
        )
    return kept


def _texts(ctx: Context, kind: str) -> Iterator[str]:
    """Documents of the corpus, or training texts of all tasks."""
    if kind == "corpus":
        yield from ctx.texts
        return
    for data in ctx.tasks.values():
        for column in data.task.columns:
            yield from data.train[column]
        if data.task.kind.choices:
            yield from chain.from_iterable(data.train[SECONDS])
