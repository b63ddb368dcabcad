"""What the training of a pruned student takes from how much it was compressed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distill.compression.pruning.search import Shape
from distill.config import Batch, Limit, Train
from distill.config.feature_kinds import LOGITS
from distill.config.plan import TEACHER, Source, Step
from distill.config.stages import ScaleWithCompression
from distill.errors import ConfigError
from distill.pipeline.stages.train import _compression
from distill.pipeline.train_steps.corpus import _check_heads
from distill.pipeline.train_steps.prepare import Length, learning_rate, length
from tests.unit.pipeline.test_layer_map import FINETUNED, prune, train

HALF = 2 * (4 * 64 + 2 * 256) / (4 * 64 + 2 * 64)
"""The compression of half the layers with a quarter of the FFN."""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (train(prune(FINETUNED)), HALF),
        (train(prune(train(prune(FINETUNED)), "again")), HALF),  # over the models that were pruned first
        (train(TEACHER), 1),
        (prune(FINETUNED), 1),
    ],
)
def test_compression_is_the_ratio_of_the_weights_of_the_layers(step: Step, expected: float, tmp_path: Path) -> None:
    config = '{"model_type": "bert", "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 256}'
    (tmp_path / "config.json").write_text(config)
    pruned: Any = SimpleNamespace(result=lambda *_: SimpleNamespace(shape=Shape(layers=3, hidden=64, ffn=64)))

    def models(source: Source) -> Any:
        assert source is FINETUNED
        return SimpleNamespace(folder=lambda task: tmp_path)

    assert _compression(step, pruned, models, "a") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("epochs", "most", "least", "steps"),
    [(1, None, 0, 10), (3, None, 0, 30), (0.25, None, 0, 3), (3, 12, 0, 12), (1, 12, 0, 10), (1, None, 25, 25),
     (3, None, 25, 30), (1, 12, 25, 12), (0.001, None, 0, 1)],
)  # fmt: skip
def test_steps_of_so_many_epochs(epochs: float, most: int | None, least: int, steps: int) -> None:
    lengths, batch = np.full(20, 8), Batch(tokens=16)  # two rows a batch: ten steps an epoch
    assert Length(epochs=epochs, least=least, most=most).steps(batch, 0, lengths) == steps


def steps(share: float = 1.0, limit: int | None = None, **settings: Any) -> int:
    """Of a training on 80 texts of 8 tokens, of a model that is a quarter of the one before."""
    train = Train(batch=Batch(tokens=64), **settings)
    return length(train, share, 4.0, Limit(steps=limit)).steps(train.batch, 0, np.full(80, 8))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epochs": 2}, 20),
        ({"epochs": 2, "scale_with_compression": ScaleWithCompression(epochs=1)}, 80),
        ({"epochs": 2, "scale_with_compression": ScaleWithCompression(epochs=0.5)}, 40),
        ({"epochs": 2, "steps": 7}, 7),
        ({"epochs": 2, "steps": 7, "limit": 4}, 4),
        ({"epochs": 2, "limit": 4}, 4),
        ({"epochs": 2, "min_steps": 30}, 30),
        ({"epochs": 2, "share": 0.5}, 10),
        ({"epochs": 1, "min_steps": 20, "share": 0.5}, 10),
    ],
)
def test_steps_follow_from_rows_and_cut_and_the_share_there_is_time_for(
    settings: dict[str, Any], expected: int
) -> None:
    assert steps(**settings) == expected


def test_learning_rate_follows_from_width_and_cut() -> None:
    scale = ScaleWithCompression(lr=0.5)
    assert learning_rate(Train(base_lr=1e-4, scale_with_compression=scale, optimizer={}), 64, 4.0) == pytest.approx(
        1e-4 * 384 / 64 * 2
    )
    assert learning_rate(Train(scale_with_compression=scale, optimizer={"lr": 3e-4}), 64, 4.0) == 3e-4


def test_a_teacher_without_a_head_is_refused_with_settings_that_exist() -> None:
    term: Any = SimpleNamespace(features=LOGITS.name, compare_with="teacher", weight=1.0)
    with pytest.raises(ConfigError) as refused:
        _check_heads("general", {"soft_targets": term})
    (line,) = refused.value.messages
    assert line.startswith("stages.general.teacher: got a model without such a head; must ")
    assert line.endswith("or set stages.general.terms.soft_targets.weight=0")
