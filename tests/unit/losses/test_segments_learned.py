"""A tiny model learns from pairs of segments which of them were changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from distill import losses
from distill.config import Batch
from distill.data.segments import encode_segments, paired, stored_segments
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models.segment_head import SegmentHead
from distill.training.batching import epoch_batches
from tests import tiny


def stories(count: int, seed: int) -> list[str]:
    """Documents of the first half of the sentences or of the second, always in this order."""
    random = np.random.default_rng(seed)
    halves = tiny.SENTENCES[:4], tiny.SENTENCES[4:]
    chosen = (halves[int(random.integers(2))] for _ in range(count))
    kept = ([text for text in half if random.random() < 0.8] for half in chosen)
    return [" ".join(f"{text.capitalize()}." for text in texts) for texts in kept]


@pytest.mark.slow
def test_the_order_is_learned_well_above_chance(tmp_path: Path) -> None:
    words, corpora = tiny.tokenizer(), []
    for seed in range(2):
        (folder := tmp_path / str(seed)).mkdir()
        encode_segments(folder, stories(400, seed), words, 64)
        corpora.append(stored_segments(folder))
    torch.manual_seed(0)
    model = tiny.model("bert", "MaskedLM", length=64, vocab_size=len(words), hidden_size=32, num_hidden_layers=2)
    terms = {"pairs": Term(1.0, "sentence_order", "labels", "all", losses.supervised)}
    objective = Objective(model, terms, segment_head=SegmentHead(32, 0.02))
    collates = [paired(corpus, "sentence_order", words, seed=0) for corpus in corpora]
    optimizer = torch.optim.AdamW(objective.parameters(), lr=3e-3)

    def of(rows: np.ndarray, epoch: int, corpus: int) -> dict[str, torch.Tensor]:
        arrays = collates[corpus](rows, epoch)
        none = {"masked": np.zeros(0, np.int64), "labels": np.zeros(0, np.int64)}
        return {name: torch.from_numpy(values) for name, values in (arrays | none).items()}

    for epoch in range(4):
        for rows in epoch_batches(corpora[0].lengths, Batch(tokens=512), seed=0, epoch=epoch):
            batch = of(rows, epoch, 0)
            (objective(batch).sum() / objective.counts(batch).sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        batch = of(np.arange(len(corpora[1])), 0, 1)
        hidden = model.bert(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})[0]
        assert objective.segment_head is not None
        right = objective.segment_head(hidden[batch["pairs"], 0]).argmax(-1) == batch["pair_labels"]
    assert len(right) > 200
    assert right.float().mean() > 0.9
