"""Reconstruction against least squares by numpy and against trying every choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from distill.compression.pruning import reconstruct
from distill.compression.pruning.importance import masked
from distill.compression.pruning.prune import Kept, everything, pruned
from distill.compression.pruning.reconstruct import gram_matrices, reconstruction, refitted, removal
from distill.compression.pruning.select_kept import most_important
from distill.models import families
from tests.tiny import SHAPES

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24, "num_labels": 3}


def problem(columns: int, seed: int = 0) -> tuple[Tensor, Tensor, np.ndarray]:
    """Weight [3, columns], Gram matrix and inputs that hang together."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(200, columns)) @ random.normal(size=(columns, columns)) * random.random(columns)
    weight = random.normal(size=(3, columns))
    return torch.tensor(weight), torch.tensor(x.T @ x / len(x)), x


def error(weight: np.ndarray, x: np.ndarray, stay: list[int]) -> float:
    """Least mean squared error over outputs when only some columns are left."""
    wanted = x @ weight.T
    fit, *_ = np.linalg.lstsq(x[:, stay], wanted, rcond=None)
    return float(((x[:, stay] @ fit - wanted) ** 2).sum() / len(x))


@pytest.mark.parametrize(("columns", "block"), [(6, 1), (8, 2), (9, 3)])
def test_the_block_with_the_least_error_after_refitting_is_removed_first(
    columns: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruct, "DAMPING", 0.0)
    weight, gram, x = problem(columns)
    scores = removal(weight, gram, columns // block, columns)
    order, left = scores.argsort().tolist(), list(range(columns // block))
    for gone in order[:-1]:
        errors = {
            part: error(weight.numpy(), x, [c for c in range(columns) if c // block in left and c // block != part])
            for part in left
        }
        assert gone == min(errors, key=errors.__getitem__)
        assert scores[gone].item() == pytest.approx(errors[gone], rel=1e-4)
        left.remove(gone)


def test_a_bias_is_never_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last column is no block, and is there for all others to be made up by."""
    monkeypatch.setattr(reconstruct, "DAMPING", 0.0)
    weight, gram, x = problem(7)
    scores = removal(weight, gram, 6, 6)
    assert scores.shape == (6,)
    last = scores.argsort().tolist()
    left = [*last[4:], 6]
    assert scores[last[3]].item() == pytest.approx(error(weight.numpy(), x, left), rel=1e-4)


def test_removing_groups_is_close_to_removing_single_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, gram, x = problem(40, seed=1)
    chosen = {}
    for group in (1000, 8):
        monkeypatch.setattr(reconstruct, "GROUP", group)
        chosen[group] = removal(weight, gram, 40, 40).argsort(descending=True)[:20].tolist()
    alone, together = (error(weight.numpy(), x, chosen[group]) for group in (1000, 8))
    random = np.random.default_rng(0)
    others = [error(weight.numpy(), x, random.permutation(40)[:20].tolist()) for _ in range(50)]
    assert alone <= together < np.quantile(others, 0.1)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_refitting_reduces_the_error_of_the_output(name: str, tiny_model, tiny_batch) -> None:
    """Less error in what the layers' matrices write than with the same parts cut and nothing refitted."""
    model = tiny_model(name, "SequenceClassification", **SIZES)
    scores = reconstruction(model, [tiny_batch])
    assert scores.grams is not None
    kept = most_important(model, [0, 1, 2], scores, 16, 12)
    fitted = refitted(model, kept, scores.grams)
    real = tiny_batch["attention_mask"].bool()
    masks = [torch.zeros(1, 24).index_fill(1, some, 1.0) for some in kept.ffn]
    ones = [torch.ones(1, 4)] * 3
    layer = families.family_of(model).layer
    assert layer is not None

    def first(made, cut: bool) -> Tensor:
        found: list[Tensor] = []
        module = families.layers(made)[0].get_submodule(layer.ffn_out)
        handle = module.register_forward_hook(lambda module, given, output: found.append(output[real]))
        with torch.no_grad():
            if cut:
                with masked(made, ones, masks):
                    made(**families.inputs(made, tiny_batch))
            else:
                made(**families.inputs(made, tiny_batch))
        handle.remove()
        return found[0]

    # Heads are left whole in both, so that what the matrix reads is the same.
    half = most_important(model, [0, 1, 2], scores, 32, 12)
    fitted = refitted(model, half, scores.grams)
    wanted = first(model, cut=False)
    assert (first(fitted, cut=True) - wanted).square().sum() < 0.9 * (first(model, cut=True) - wanted).square().sum()
    small = pruned(refitted(model, kept, scores.grams), kept)
    assert small.config.hidden_size == 16


def test_one_of_two_duplicate_channels_is_removed_first(tiny_model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two equal channels is removed first, and refitting the other compensates for it."""
    monkeypatch.setattr(reconstruct, "DAMPING", 1e-9)
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    with torch.no_grad():
        layer = model.bert.encoder.layer[1]
        layer.intermediate.dense.weight[5] = layer.intermediate.dense.weight[9]
        layer.intermediate.dense.bias[5] = layer.intermediate.dense.bias[9]
    ids = torch.randint(5, 60, (32, 16), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    scores = reconstruction(model, [batch])
    assert scores.grams is not None
    assert scores.ffn[1].argmin() in (5, 9)
    assert scores.ffn[1].min() < 0.1 * scores.ffn[1].sort().values[1]
    every = everything(model)
    ffn = torch.tensor([n for n in range(24) if n != scores.ffn[1].argmin()])
    kept = Kept(every.layers, every.hidden, every.heads, [every.ffn[0], ffn, every.ffn[2]])
    with masked(model, [torch.ones(1, 4)] * 3, [torch.zeros(1, 24).index_fill(1, some, 1.0) for some in kept.ffn]):
        cut = model(**batch).logits
        mended = refitted(model, kept, scores.grams)
    with masked(mended, [torch.ones(1, 4)] * 3, [torch.zeros(1, 24).index_fill(1, some, 1.0) for some in kept.ffn]):
        found = mended(**batch).logits
    wanted = model(**batch).logits
    assert (found - wanted).abs().max() < 0.05 * (cut - wanted).abs().max()


def test_padding_does_not_count(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    garbage = tiny_batch | {"input_ids": tiny_batch["input_ids"].clone()}
    garbage["input_ids"][tiny_batch["attention_mask"] == 0] = 42
    for one, other in zip(gram_matrices(model, [tiny_batch]), gram_matrices(model, [garbage]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
