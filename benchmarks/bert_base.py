"""Writes a model as large as BERT-base that computes what the embedded teacher does, to time whole runs at that size.

    python benchmarks/bert_base.py                       # writes outputs/bert-base
    python -m distill recipe=prune teacher.name=outputs/bert-base ...

Random weights would not do: they have no margin to lose, so that the search for a shape would end early. Each channel
is doubled and each layer becomes two, by rules that leave the outputs as they are (after Chen et al. 2016, Net2Net,
arXiv 1511.05641). Then a little noise sets the doubles apart. The times of a run are those of a BERT-base. Its
retained % is not that of one, because half of this model's parts are redundant.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from distill.config import Teacher
from distill.models import teacher
from distill.runtime.storage import atomic

FOLDER = Path("outputs/bert-base")
NOISE = 0.02
"""Standard deviation of the noise of a matrix, relative to that of its weights."""


def main() -> None:
    torch.manual_seed(0)
    folder = teacher.resolve(Teacher())
    with atomic.writing(FOLDER) as temporary:
        noisy(doubled(BertModel.from_pretrained(folder))).save_pretrained(temporary)
        teacher.load_tokenizer(folder).save_pretrained(temporary)
    print(FOLDER)


@torch.no_grad()
def doubled(small: BertModel) -> BertModel:
    """A BERT with twice the layers, hidden and FFN channels, and heads of twice the size.

    Its hidden states are those of `small`, twice side by side.
    """
    config = small.config
    sizes = {name: 2 * getattr(config, name) for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    model = BertModel(BertConfig(**config.to_dict() | sizes)).eval()
    hidden, ffn = (torch.arange(size).repeat(2) for size in (config.hidden_size, config.intermediate_size))
    # Both copies of a head's channels are in the same head.
    heads = torch.arange(config.hidden_size).view(config.num_attention_heads, 1, -1).repeat(1, 2, 1).flatten()
    of, to = small.embeddings, model.embeddings
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        getattr(to, name).weight.copy_(getattr(of, name).weight[:, hidden])
    _norm(of.LayerNorm, to.LayerNorm, hidden)
    for number, layer in enumerate(small.encoder.layer):
        # The first of two layers has the attention, and the second the feed-forward part. The output of a norm without
        # scale and shift passes such a norm unchanged: it does so twice before the second layer scales and shifts it.
        first, second = model.encoder.layer[2 * number], model.encoder.layer[2 * number + 1]
        for name in ("query", "key", "value"):
            _linear(getattr(layer.attention.self, name), getattr(first.attention.self, name), heads, hidden)
            _linear(getattr(layer.attention.self, name), getattr(second.attention.self, name), heads, hidden)
        for each in (first, second):  # scores are divided by the root of a head's size
            for parameter in each.attention.self.query.parameters():
                parameter.div_(math.sqrt(2))
            _linear(layer.intermediate.dense, each.intermediate.dense, ffn, hidden)
        _linear(layer.attention.output.dense, first.attention.output.dense, hidden, heads)
        _linear(layer.output.dense, second.output.dense, hidden, ffn)
        for dense in (first.output.dense, second.attention.output.dense):
            for parameter in dense.parameters():
                parameter.zero_()
        _norm(layer.attention.output.LayerNorm, second.attention.output.LayerNorm, hidden)
        _norm(layer.output.LayerNorm, second.output.LayerNorm, hidden)
    _linear(small.pooler.dense, model.pooler.dense, hidden, hidden)
    return model


def _linear(of: nn.Linear, to: nn.Linear, rows: Tensor, columns: Tensor) -> None:
    """Each input is there twice, so that each weight is halved."""
    to.weight.copy_(of.weight[rows][:, columns] / 2)
    to.bias.copy_(of.bias[rows])


def _norm(of: nn.LayerNorm, to: nn.LayerNorm, channels: Tensor) -> None:
    to.weight.copy_(of.weight[channels])
    to.bias.copy_(of.bias[channels])


@torch.no_grad()
def noisy(model: BertModel) -> BertModel:
    """The model with noise in its matrices."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.add_(NOISE * parameter.std() * torch.randn_like(parameter))
    return model


if __name__ == "__main__":
    main()
