"""Outputs of a forward pass that loss terms compare: logits, hidden states, queries, keys, values, attention scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.record import ABSENT, Arguments
from distill.runtime.precision import working


@dataclass(frozen=True)
class Features:
    """Outputs of one forward pass over a batch of B sequences of length L. Layers are numbered from 0."""

    logits: Tensor | None
    """Task logits, as from `outputs_of`. None for a language model: `mlm_logits` computes the logits of chosen
    positions."""
    mask: Tensor
    """1 at tokens, 0 at padding [B, L]."""
    hidden: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> its output [B, L, H]; for the last layer the encoder's output, after its final norm if it has one. -1
    are the embeddings: the input of the first layer."""
    queries: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> [B, heads, L, d], before any rotation by position."""
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    scores: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> attention scores before mask and softmax [B, heads, L, L], float32 even for bf16 queries and keys.
    Scores at padding are arbitrary."""


def outputs_of(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Task logits [B, C].

    If the batch has positions `words` [W], the logits at these, [W, C]. If it has sequences in `groups` [R, K], [R, K
    C], with `ABSENT` where a row has fewer than K. If it has `places` [B, L] of windows, start and then end, [B, 2 L],
    with `ABSENT` at other places.
    """
    logits = families.logits(model, dict(batch))
    if "places" in batch:
        return logits.masked_fill(batch["places"][:, :, None] == 0, ABSENT).transpose(1, 2).flatten(1)
    if "words" in batch:
        return logits.flatten(0, 1)[batch["words"]]
    if "groups" not in batch:
        return logits
    groups = batch["groups"]
    return logits[groups.clamp(min=0)].masked_fill(groups[:, :, None] < 0, ABSENT).flatten(1)


ATTENTION = ("queries", "keys", "values", "scores")


def capture(model: nn.Module, batch: dict[str, Tensor], needs: Mapping[str, Sequence[int]]) -> Features:
    """Run the model once on a batch [B, L] and capture features of its layers by forward hooks, in the shapes of
    `Features`.

    The hooks work with every attention kernel: queries, keys and values are the outputs of their projections, and
    scores are computed from them by the model's own formula.

    Args:
        needs: name of a field of `Features` -> layers to capture, numbered from 0; of hidden states also -1.
    """
    attended = sorted({number for name in ATTENTION for number in needs.get(name, ())})
    with _recording(model, needs.get("hidden", ()), attended) as recorder:
        logits = None
        if families.has_mlm_head(model) or families.has_rtd_head(model):
            families.encode(model, batch)
        else:
            logits = outputs_of(model, batch)
    features = Features(logits, batch["attention_mask"], recorder.hidden)
    for number in attended:
        _attention(model, number, recorder.calls[number], needs, features)
    return features


@dataclass
class _Call:
    """The arguments of one layer's attention, and the outputs of its projections by path."""

    arguments: Arguments = ((), {})
    projections: dict[str, Tensor] = field(default_factory=dict)


def _attention(
    model: nn.Module, number: int, call: _Call, needs: Mapping[str, Sequence[int]], features: Features
) -> None:
    record = families.family_of(model)
    assert record.layer is not None
    paths = (record.layer.query, record.layer.key, record.layer.value)
    layer = families.layers(model)[number]
    attention = layer.get_submodule(record.layer.attention)
    heads: int = model.config.num_attention_heads  # type: ignore[union-attr, assignment]
    q, k, v = (call.projections[path] for path in paths)
    lost = torch.is_grad_enabled() and not (q.requires_grad or k.requires_grad or v.requires_grad)
    if lost and any(p.requires_grad for path in paths for p in layer.get_submodule(path).parameters()):
        raise ConfigError(
            "gradient_checkpointing: got use_reentrant=True; must be False where terms compare attention, which would "
            'have no gradient; set gradient_checkpointing_kwargs={"use_reentrant": False}'
        )
    query, key, value = record.qkv(attention, q, k, v, heads)
    for name, tensor in (("queries", query), ("keys", key), ("values", value)):
        if number in needs.get(name, ()):
            getattr(features, name)[number] = tensor
    if number in needs.get("scores", ()):
        # bf16 has three decimal digits: a product rounded to it is too coarse to compare.
        with torch.autocast(query.device.type, enabled=False):
            features.scores[number] = record.scores(attention, working(query), working(key), call.arguments)


class _Recorder:
    """Hooks that record hidden states and attention calls by layer, during one forward pass.

    A layer's number is the count of layers that ran before it, so a layer that is run repeatedly (ALBERT) has several.
    """

    def __init__(self, hidden_of: Sequence[int], attended: Sequence[int]) -> None:
        self.hidden_of, self.running = set(hidden_of), -1
        self.hidden: dict[int, Tensor] = {}
        self.calls = {number: _Call() for number in attended}

    def begin(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        # The input of a layer is the output of the layer before it, after any module between them.
        if self.running in self.hidden_of:
            self.hidden[self.running] = arguments[0]
        self.running += 1

    def end(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        if self.running in self.hidden_of:
            self.hidden[self.running] = output.last_hidden_state

    def attend(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.running in self.calls:
            self.calls[self.running].arguments = (arguments, named)

    def keep(self, path: str, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        """Record the output [...] of the projection at `path` in the layer that is running."""
        if self.running in self.calls:
            # Only the first output: DeBERTa later projects its relative positions by the same modules.
            self.calls[self.running].projections.setdefault(path, output)


@contextmanager
def _recording(model: nn.Module, hidden_of: Sequence[int], attended: Sequence[int]) -> Iterator[_Recorder]:
    parts, stack, recorder = families.family_of(model).layer, families.layers(model), _Recorder(hidden_of, attended)
    assert parts is not None
    with ExitStack() as hooks:
        for layer in dict.fromkeys(stack):
            hooks.enter_context(layer.register_forward_pre_hook(recorder.begin))
        hooks.enter_context(families.encoder(model).register_forward_hook(recorder.end))
        for layer in dict.fromkeys(stack[number] for number in attended):
            attention = layer.get_submodule(parts.attention)
            hooks.enter_context(attention.register_forward_pre_hook(recorder.attend, with_kwargs=True))
            for path in dict.fromkeys((parts.query, parts.key, parts.value)):
                hooks.enter_context(layer.get_submodule(path).register_forward_hook(partial(recorder.keep, path)))
        yield recorder
