"""Reconstruction against least squares by numpy and against trying every choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from distill import family
from distill.compress import reconstruct
from distill.compress.choose import most_important
from distill.compress.importance import masked
from distill.compress.prune import pruned
from distill.compress.reconstruct import gram_matrices, reconstruction, refitted, removal

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
def test_the_part_goes_whose_loss_least_squares_mends_best(
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


def test_a_bias_never_goes() -> None:
    weight, gram, _ = problem(7)
    assert removal(weight, gram, 3, 6).shape == (3,)
    assert removal(weight, gram, 6, 6).shape == (6,)


def test_groups_are_nearly_as_good_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, gram, x = problem(40, seed=1)
    chosen = {}
    for group in (1000, 8):
        monkeypatch.setattr(reconstruct, "GROUP", group)
        chosen[group] = removal(weight, gram, 40, 40).argsort(descending=True)[:20].tolist()
    alone, together = (error(weight.numpy(), x, chosen[group]) for group in (1000, 8))
    random = np.random.default_rng(0)
    others = [error(weight.numpy(), x, random.permutation(40)[:20].tolist()) for _ in range(50)]
    assert alone <= together < np.quantile(others, 0.1)


@pytest.mark.parametrize("name", list(family.STUDENTS))
def test_what_is_refitted_writes_nearly_what_all_wrote(name: str, tiny_model, tiny_batch) -> None:
    """Less error in what the layers' matrices write than with the same parts cut and nothing refitted."""
    model = tiny_model(name, "SequenceClassification", **SIZES)
    scores = reconstruction(model, [tiny_batch])
    assert scores.grams is not None
    kept = most_important(model, [0, 1, 2], scores, 16, 12)
    fitted = refitted(model, kept, scores.grams)
    real = tiny_batch["attention_mask"].bool()
    masks = [torch.zeros(1, 24).index_fill(1, some, 1.0) for some in kept.ffn]
    ones = [torch.ones(1, 4)] * 3
    layer = family.family_of(model).layer
    assert layer is not None

    def first(made, cut: bool) -> Tensor:
        found: list[Tensor] = []
        module = family.layers(made)[0].get_submodule(layer.ffn_out)
        handle = module.register_forward_hook(lambda module, given, output: found.append(output[real]))
        with torch.no_grad():
            if cut:
                with masked(made, ones, masks):
                    made(**family.inputs(made, tiny_batch))
            else:
                made(**family.inputs(made, tiny_batch))
        handle.remove()
        return found[0]

    # Heads are left whole in both, so that what the matrix reads is the same.
    half = most_important(model, [0, 1, 2], scores, 32, 12)
    fitted = refitted(model, half, scores.grams)
    wanted = first(model, cut=False)
    assert (first(fitted, cut=True) - wanted).square().sum() < 0.9 * (first(model, cut=True) - wanted).square().sum()
    small = pruned(refitted(model, kept, scores.grams), kept)
    assert small.config.hidden_size == 16


def test_what_is_read_twice_can_go_for_nothing(tiny_model, tiny_batch) -> None:
    """A channel that another one repeats is made up for by it, exactly."""
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    with torch.no_grad():
        layer = model.bert.encoder.layer[1]
        layer.intermediate.dense.weight[5] = layer.intermediate.dense.weight[9]
        layer.intermediate.dense.bias[5] = layer.intermediate.dense.bias[9]
    scores = reconstruction(model, [tiny_batch])
    assert scores.grams is not None
    # As few tokens as these leave many channels over: what goes costs next to nothing.
    kept = most_important(model, [0, 1, 2], scores, 32, 23)
    small = pruned(refitted(model, kept, scores.grams), kept)
    inputs = family.inputs(model, tiny_batch)
    torch.testing.assert_close(small(**inputs).logits, model(**inputs).logits, rtol=1e-2, atol=1e-2)


def test_padding_is_not_read(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    garbage = tiny_batch | {"input_ids": tiny_batch["input_ids"].clone()}
    garbage["input_ids"][tiny_batch["attention_mask"] == 0] = 42
    for one, other in zip(gram_matrices(model, [tiny_batch]), gram_matrices(model, [garbage]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
