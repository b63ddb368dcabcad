"""Pruned models against the dense model with the same parts masked, and against plain transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from distill.compression.pruning.importance import masked
from distill.compression.pruning.prune import Kept, everything, pruned
from distill.errors import ConfigError
from distill.models import families
from tests.cut import SHARED, SIZES, logits, masks, some
from tests.tiny import SHAPES

HEADS = ["MaskedLM", "SequenceClassification"]


def choice(name: str, layers: int, hidden: int = 32, ffn: int = 24) -> Kept:
    """Another random choice of heads and FFN channels in each layer, but where layers share them."""
    seeds = [0 if name in SHARED else number for number in range(layers)]
    shared = families.STUDENTS[name].shared_layers
    return Kept(
        list(range(layers)),
        some(32, hidden, 99),
        [some(4, hidden // 8, seed) for seed in seeds],
        [some(24, ffn, 0 if shared else number) for number in range(layers)],
    )


@contextmanager
def norms_over(model: Any, hidden: Tensor) -> Iterator[None]:
    """Norms as wide as the hidden states take mean and variance of the kept channels, and give zero elsewhere."""
    mask = torch.zeros(32).index_fill(0, hidden, 1.0)

    def normed(module: Any, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if output.shape[-1] != 32:
            return output
        x, count = given[0], mask.sum()
        rms = type(module).__name__.endswith("RMSNorm")
        mean = 0 if rms else (x * mask).sum(-1, keepdim=True) / count
        centred = (x - mean) * mask
        eps = getattr(module, "eps", None) or getattr(module, "variance_epsilon", None)
        scaled = centred / (centred.square().sum(-1, keepdim=True) / count + eps).sqrt()
        bias = getattr(module, "bias", None)
        return scaled * module.weight + (0 if bias is None else bias * mask)

    handles = [m.register_forward_hook(normed) for m in model.modules() if type(m).__name__.endswith("Norm")]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.quick(7)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_narrower_model_equals_the_dense_one_without_these_channels(
    name: str, head: str, tiny_model, tiny_batch
) -> None:
    """Heads, FFN and hidden channels at once: what writes a channel that is gone is zero, what reads it reads zero."""
    model = tiny_model(name, head, **SIZES)
    kept = choice(name, 3, hidden=16, ffn=8)
    small = pruned(model, kept)
    assert (small.config.hidden_size, small.config.num_attention_heads) == (16, 2)
    dense = silenced(model, kept.hidden)
    with norms_over(dense, kept.hidden), masked(dense, masks(4, kept.heads), masks(24, kept.ffn)):
        wanted = logits(dense, tiny_batch)
    torch.testing.assert_close(logits(small, tiny_batch), wanted, rtol=1e-3, atol=1e-4)


def silenced(model: Any, hidden: Tensor) -> Any:
    """The dense model with zeros in all that writes the other hidden channels, so that nothing reads them.

    Found by trying: a parameter is silenced wherever the model is as wide as its hidden states.
    """
    import copy

    dense = copy.deepcopy(model)
    gone = torch.ones(32, dtype=torch.bool)
    gone[hidden] = False
    record = families.family_of(dense)
    assert record.layer is not None
    inside = {id(p) for layer in families.layers(dense) for p in layer.parameters()}
    with torch.no_grad():
        for layer in dict.fromkeys(families.layers(dense)):
            for path in (record.layer.attention_output, record.layer.ffn_out):
                module = layer.get_submodule(path)
                module.weight[gone] = 0
                if module.bias is not None:
                    module.bias[gone] = 0
        for module in dense.modules():
            if isinstance(module, torch.nn.Embedding) and module.embedding_dim == 32:
                module.weight[:, gone] = 0
            if isinstance(module, torch.nn.Linear) and id(module.weight) not in inside and module.out_features == 32:
                module.weight[gone] = 0
                if module.bias is not None:
                    module.bias[gone] = 0
    return dense


@pytest.mark.quick(7)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", SHAPES)
def test_plain_transformers_loads_it(name: str, head: str, tiny_model, tiny_batch, tmp_path) -> None:
    import transformers

    model = tiny_model(name, head, layers=4, **SIZES)
    every = choice(name, 4, hidden=16, ffn=8)
    layers = [0, 2, 3]
    kept = Kept(layers, every.hidden, [every.heads[n] for n in layers], [every.ffn[n] for n in layers])
    small = pruned(model, kept)
    small.save_pretrained(tmp_path)
    auto = getattr(transformers, f"AutoModelFor{head}")
    loaded, told = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert loaded.config.num_hidden_layers == 3
    torch.testing.assert_close(logits(loaded.eval(), tiny_batch), logits(small, tiny_batch), rtol=0, atol=0)


@pytest.mark.parametrize("name", SHAPES)
def test_everything_kept_is_the_model_itself(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, "SequenceClassification", **SIZES)
    same = pruned(model, everything(model))
    torch.testing.assert_close(logits(same, tiny_batch), logits(model, tiny_batch), rtol=0, atol=0)


GRAPHS = [
    name
    for name in SHAPES
    if name not in ("modernbert", "eurobert", "ultrabert", "deberta", "deberta-v2", "mpnet", "albert")
]


@pytest.mark.parametrize("name", GRAPHS)
def test_channels_are_coupled_as_torch_pruning_finds_by_tracing(name: str, tiny_model, tiny_batch) -> None:
    """An independent finding of what hangs together: for families that its tracer takes."""
    import torch_pruning as tp

    model = tiny_model(name, "SequenceClassification", **SIZES)
    record = families.family_of(model)
    assert record.layer is not None
    inputs = families.inputs(model, tiny_batch)
    graph = tp.DependencyGraph().build_dependency(model, inputs, output_transform=lambda out: out.logits, verbose=False)
    layer = families.layers(model)[1]
    inner, out = (layer.get_submodule(path) for path in (record.layer.ffn_in, record.layer.ffn_out))
    into = {inner, layer.get_submodule(record.layer.ffn_gate or record.layer.ffn_in)}
    kept = everything(model)
    gone = [2, 5]
    ffn = torch.tensor([n for n in range(24) if n not in gone])
    group = graph.get_pruning_group(inner, tp.prune_linear_out_channels, idxs=gone)
    theirs = {(id(dep.target.module), "out" if "out" in dep.handler.__name__ else "in") for dep, _ in group}
    theirs = {pair for pair in theirs if pair[0] in {id(out), *map(id, into)}}
    from distill.compression.pruning.prune import cuts

    changed = Kept(kept.layers, kept.hidden, kept.heads, [kept.ffn[0], ffn, kept.ffn[2]])
    ours = {(id(cut.module), cut.axis) for cut in cuts(model, changed) if len(cut.removed)}
    assert ours == theirs == {(id(out), "in"), *((id(module), "out") for module in into)}

    narrow = Kept(kept.layers, torch.arange(1, 32), kept.heads, kept.ffn)
    ours = {(id(cut.module), cut.axis) for cut in cuts(model, narrow) if len(cut.removed)}
    group = graph.get_pruning_group(out, tp.prune_linear_out_channels, idxs=[0])
    theirs = set()
    for dep, _ in group:
        module = dep.target.module
        if isinstance(module, torch.nn.Linear):
            theirs.add((id(module), "out" if "out" in dep.handler.__name__ else "in"))
        elif isinstance(module, torch.nn.Embedding | torch.nn.LayerNorm):
            theirs.add((id(module), "width"))
    # What a head makes of the hidden states is as wide only by choice: torch-pruning leaves it.
    free = {(id(m), a) for n, m in model.named_modules() for a in ("in", "out") if n.startswith(("classifier", "pre_"))}
    free |= {(id(m), "out") for n, m in model.named_modules() if "pooler" in n}
    assert theirs - free == ours - free
    assert theirs <= ours


def test_sizes_that_no_config_expresses_are_refused(tiny_model) -> None:
    model = tiny_model("bert", **SIZES)
    every = everything(model)
    one, two = torch.arange(1), torch.arange(2)
    with pytest.raises(
        ConfigError,
        match=r"prune: got 32 hidden channels, and \[2\] heads of size 8 .* the same numbers in every layer",
    ):
        pruned(model, Kept(every.layers, every.hidden, [two] * 3, every.ffn))
    with pytest.raises(ConfigError, match=r"must be the same numbers in every layer"):
        pruned(model, Kept(every.layers, every.hidden, every.heads, [one, two, two]))
    heads = [torch.tensor([n]) for n in range(3)]
    with pytest.raises(ConfigError, match=r"different heads in the layers; must be the same in family mpnet"):
        pruned(tiny_model("mpnet", **SIZES), Kept(every.layers, torch.arange(8), heads, every.ffn))
