"""Vocabulary stage: the model of every task without the tokens that its texts do not need, and a tokenizer to match."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from distill import checkpoint, teacher
from distill.compress.importance import SCORES
from distill.compress.vocabulary import smaller, used, with_tokens
from distill.config import Vocabulary
from distill.errors import UserError
from distill.evaluate.cost import parameters
from distill.export.proof import plain_logits, prove_reload
from distill.stages.context import Context
from distill.stages.prune import texts_of


def run(ctx: Context, name: str, settings: Vocabulary) -> dict[str, Any]:
    """Cut the vocabulary of every task's model, to one and the same for all. Returns the manifest."""
    began, root, tasks = time.monotonic(), ctx.folder / name, ctx.tasks[0]
    _, tokenizer = ctx.tokenizer_of(settings.start)
    counts: Counter[int] = Counter()
    for kind in settings.texts:
        ctx.say(f"{name}: counting the tokens of the {kind}")
        counts += used(_texts(ctx, kind), tokenizer)
    wanted = [token for token, count in counts.most_common(settings.tokens) if count >= settings.min_count]
    if not wanted:
        raise UserError(
            f"stages.{name}.min_count: got {settings.min_count}; must be <= {max(counts.values(), default=0)}, how "
            "often the most frequent token comes; set less"
        )
    small, kept = smaller(tokenizer, wanted)
    expected, size = {}, {}
    for task, data in tasks.items():
        source, folder = ctx.checkpoint(settings.start, task), root / task
        if not checkpoint.finished(folder):
            model = teacher.load_classifier(source, data.task.num_labels, pad_id=tokenizer.pad_token_id)
            with ctx.writing(folder, with_tokens(model, kept, small), small, {}) as temporary:
                if (source / SCORES).is_file():  # of gates, for a prune stage to come
                    shutil.copy2(source / SCORES, temporary)
        rows = texts_of(data)
        expected[folder] = (rows, plain_logits(source, rows, ctx.config.tasks.max_length))
        size = {"parameters_before": parameters(source), "parameters_after": parameters(folder)}
    # The rows are of the training texts: where all their tokens are kept, the answers are what they were.
    same = settings.tokens is None and settings.min_count == 1 and "tasks" in settings.texts
    proved = (
        expected
        if same
        else {f: (r, plain_logits(f, r, ctx.config.tasks.max_length)) for f, (r, _) in expected.items()}
    )
    differences = prove_reload(proved, ctx.config.tasks.max_length)
    share = sum(counts[token] for token in kept.tolist()) / sum(counts.values())
    manifest = {
        "tokens_before": len(tokenizer),
        "tokens": len(small),
        "share_of_texts": share,
        **size,
        "largest_difference": {folder.name: value for folder, value in differences.items()},
        "seconds": time.monotonic() - began,
    }
    ctx.say(
        f"{name}: {len(small)} of {len(tokenizer)} tokens, {100 * share:.2f}% of what the texts are made of; "
        f"{size['parameters_before'] / 1e6:.2f} M -> {size['parameters_after'] / 1e6:.2f} M parameters"
    )
    checkpoint.write_json(root / checkpoint.MANIFEST, manifest)
    return manifest


def _texts(ctx: Context, kind: str) -> Iterator[str]:
    if kind == "corpus":
        yield from ctx.texts[0]
        return
    for data in ctx.tasks[0].values():
        for column in data.task.columns:
            yield from data.train[column]
