"""Terms that compare all rows of a step with each other compare those of all processes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from distill.models.families.embedding import EncoderForVectors
from tests import tiny
from tests.end_to_end.test_processes import mean_terms, trained

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["classification", "embedding"])
def test_two_processes_equal_one(kind: str, tmp_path: Path) -> None:
    """43 rows are six steps of seven, which two processes share unequally, and one of a single row. Each row of an
    embedder has two texts. A classifier does one step: correlations of probabilities that hardly differ between rows
    make differences of what is rounding."""
    embeds, texts, labels = kind == "embedding", tiny.SENTENCES, ["bad", "fair", "good"]
    steps, head = (7, {}) if embeds else (1, {"num_labels": 3, "id2label": dict(enumerate(labels)), "std": 0.2})
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "length": 66} | head
    given = tiny.save(tmp_path / "given", "bert", "" if embeds else "SequenceClassification", **sizes)
    if embeds:
        EncoderForVectors.from_pretrained(given).save_pretrained(given)
    rows: list[dict[str, object]] = [
        {"query": texts[n // 8], "document": f"{texts[n % 8]} {n}", "relevance": n % 3}
        if embeds
        else {"text": f"{texts[n % 8]} {n}", "label": labels[n % 3]}
        for n in range(43)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = ["distances=distances", "angles=angles", "pooled=pooled", *([] if embeds else ["intra_class=intra_class"])]
    own = "stages.recover"
    settings = [
        "recipe=prune", f"limit.steps={steps}", "limit.examples=43", "precision=fp32", "threads=1", "teacher=hub",
        f"teacher.name={given}", "tasks=own", f"tasks.train={tmp_path / 'own.jsonl'}", f"tasks.kind={kind}",
        "tasks.max_length=32", "target.speedup=null", "student.num_hidden_layers=2",
        "pipeline=[finetune_teacher,prune,recover]", f"{own}.batch.examples=7", f"{own}.dropout=0",
        *(f"+term@{own}.terms.{name}" for name in whole),
        # Adam would divide gradients by their size, and make steps of what is rounding between nearly equal outputs.
        f"{own}.optimizer._target_=torch.optim.SGD", f"~{own}.optimizer.betas", f"~{own}.optimizer.eps",
        f"{own}.optimizer.lr=0.01", f"{own}.clip=1e6",
    ]  # fmt: skip
    one, two = (run / "recover" / "own" for run in trained(tmp_path, settings))
    logs = [json.loads((run / "manifest.json").read_text()) for run in (one, two)]
    assert logs[0]["steps"] == logs[1]["steps"] == steps
    assert logs[0]["tokens"] == logs[1]["tokens"]
    assert mean_terms(logs[1]) == pytest.approx(mean_terms(logs[0]), rel=1e-3, abs=1e-6)
    assert min(mean_terms(logs[0])[name.partition("=")[0]] for name in whole) > 1e-4
    ours, theirs = moved(one), moved(two)
    assert np.linalg.norm(ours) > 1e-3
    # Rounding counts where the outputs for all texts are nearly equal, as those of a random model.
    assert np.linalg.norm(ours - theirs) < 1e-2 * np.linalg.norm(ours)


def moved(folder: Path) -> np.ndarray:
    """What a stage added to the weights of the pruned model from which it started, [weights]."""
    pruned = load_file(folder.parents[1] / "prune" / "own" / "model.safetensors")
    trained = load_file(folder / "model.safetensors")
    return np.concatenate([(trained[name] - pruned[name]).ravel() for name in sorted(pruned)])
