"""Vocabulary stage: removes unused tokens from every task's model and from its tokenizer."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from distill.compression.pruning.importance import SCORES
from distill.compression.vocabulary import pruned_embeddings, pruned_tokenizer, token_counts
from distill.config import Vocabulary
from distill.config.plan import Step
from distill.data.task_model import load_for
from distill.data.task_types import SECONDS
from distill.data.tasks import TaskData
from distill.deploy.export.proof import plain_logits, prove_reload
from distill.errors import UserError
from distill.inference.cost import parameters
from distill.models.write import write_model
from distill.pipeline.artefacts import SmallVocabulary
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages.prune import texts_of
from distill.runtime.storage import atomic


@dataclass(frozen=True)
class VocabularyInputs:
    """What a vocabulary step reads."""

    stage: str
    name: str
    """Folder of the step, relative to the run folder."""
    models: Checkpoints
    tasks: dict[str, TaskData]
    corpus: Callable[[], Iterable[str]]
    """Returns the documents of the corpus."""


def inputs(ctx: Context, step: Step) -> VocabularyInputs:
    return VocabularyInputs(step.stage, step.folder, ctx.models(step.start), ctx.tasks, lambda: ctx.texts)


def run(inputs: VocabularyInputs, settings: Vocabulary, runtime: Runtime) -> SmallVocabulary:
    """Cut the vocabulary of every task's model to the same tokens."""
    tokenizer, longest, log = inputs.models.tokenizer, runtime.longest, runtime.machine.log
    counts: Counter[int] = Counter()
    for kind in settings.texts:
        log(f"{inputs.name}: counting the tokens of the {kind}")
        counts += token_counts(inputs.corpus() if kind == "corpus" else _texts(inputs.tasks), tokenizer)
    small, kept = pruned_tokenizer(tokenizer, _kept_tokens(inputs.stage, settings, counts))
    # If all tokens of the training texts are kept, logits on these texts must not change.
    same = settings.tokens is None and settings.min_count == 1 and "tasks" in settings.texts
    expected, before, after = {}, 0, 0
    with atomic.writing(runtime.folder / inputs.name) as temporary:
        for task, data in inputs.tasks.items():
            source, folder, rows = inputs.models.folder(task), temporary / task, texts_of(data)
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
    log(
        f"{inputs.name}: {len(small)} of {len(tokenizer)} tokens, {100 * share:.2f}% of all "
        f"tokens in the texts; {before / 1e6:.2f} M -> {after / 1e6:.2f} M parameters"
    )
    return made


def _kept_tokens(stage: str, settings: Vocabulary, counts: Counter[int]) -> list[int]:
    """Ids of the tokens to keep, the most frequent first. Raises UserError if `min_count` removes all."""
    kept = [token for token, count in counts.most_common(settings.tokens) if count >= settings.min_count]
    if not kept:
        raise UserError(
            f"stages.{stage}.min_count: got {settings.min_count}; must be <= {max(counts.values(), default=0)}, "
            "the count of the most frequent token; set less"
        )
    return kept


def _texts(tasks: Mapping[str, TaskData]) -> Iterator[str]:
    """Training texts of all tasks, with the prompts that are put before them."""
    for data in tasks.values():
        for column, prompt in data.prompted:
            yield from (prompt + text for text in data.train[column])
        if data.task.kind.choices:
            yield from chain.from_iterable(data.train[SECONDS])
