"""The methods that benchmarks/methods.py compares have valid settings, one shape and one budget."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks import methods
from distill.config import load_config
from distill.pipeline import validation

HERE = Path(__file__).parent
"""Any folder: the files of the tasks are not read."""


def layers(count: int) -> torch.nn.Module:
    config = BertConfig(hidden_size=64, intermediate_size=256, num_attention_heads=2, num_hidden_layers=count)
    return BertModel(config, add_pooling_layer=False).eval()


def flops(model: torch.nn.Module, *, inputs: bool, weights: bool) -> int:
    """Of one text of 16 tokens, forward and, with `inputs` or `weights`, backward to these."""
    model.requires_grad_(weights)
    embedded = torch.randn(1, 16, 64, requires_grad=inputs)
    with FlopCounterMode(display=False) as counter:
        out = model(inputs_embeds=embedded).last_hidden_state.sum()
        if inputs or weights:
            out.backward()
    return counter.get_total_flops()


def test_passes_cost_what_torch_counts() -> None:
    student = flops(layers(3), inputs=False, weights=False)
    assert flops(layers(3), inputs=True, weights=True) == pytest.approx(methods.COST.labels * student, rel=0.01)
    assert flops(layers(6), inputs=False, weights=False) == pytest.approx(methods.COST.teacher * student, rel=0.01)
    frozen = flops(layers(6), inputs=True, weights=False)
    replaced = 0.65 * methods.COST.labels * student + 0.35 * frozen
    assert replaced == pytest.approx(methods.COST.replacing * student, rel=0.01)


@pytest.mark.quick(3)
@pytest.mark.parametrize("method", methods.METHODS)
def test_every_method_has_valid_settings_and_the_same_control(method: str) -> None:
    _, _, recipe, *rest = methods.command(method, 1, HERE)
    config = load_config([recipe, *rest])
    assert not validation.settings(config, recipe.removeprefix("recipe="))
    if method != "layer_drop":
        dropped = load_config(methods.command("layer_drop", 1, HERE)[2:]).stages["finetune"]
        control = config.stages["drop"]
        assert config.stages["evaluate"].baseline == "drop"
        for setting in (
            "data",
            "start",
            "build_student",
            "terms",
            "batch",
            "epochs",
            "min_steps",
            "dropout",
            "base_lr",
        ):
            assert getattr(control, setting) == getattr(dropped, setting), setting


def passes(method: str) -> float:
    """Passes over the training rows, in forward passes of the student, of a method's stages in its command."""
    words = dict(word.split("=", 1) for word in methods.METHODS[method].split() if "=" in word)
    cost, total, given = methods.COST, 0.0, words["pipeline"].strip("[]").split(",")
    for stage in set(given) - {"finetune_teacher", "prune", "drop", "evaluate"}:
        epochs, steps = (float(words.get(f"stages.{stage}.{unit}", 0)) for unit in ("epochs", "steps"))
        read = steps * methods.STEP / methods.EPOCH
        each = cost.labels + cost.teacher
        total += {
            "adapt": read * 3 * (cost.teacher + cost.head),
            "pretrain": read * (each + (4 * cost.head if method == "distilbert" else 0)),
            "replace": epochs * cost.replacing,
            "intermediate": epochs * each,
        }.get(stage, 0.0)
        if stage in ("recover", "finetune"):
            states = method in ("patient_kd", "rkd")
            alone = method in ("labels", "layer_drop", "theseus")
            total += epochs * (each if states else cost.labels) + (0 if states or alone else cost.teacher)
    return total


@pytest.mark.parametrize("method", methods.METHODS)
def test_every_method_has_the_same_budget(method: str) -> None:
    assert passes(method) == pytest.approx(methods.COST.budget, rel=0.01)
