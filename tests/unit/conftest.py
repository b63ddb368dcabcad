"""Tiny models of every family, all parameters random so that no part can be forgotten unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

VOCABULARY = 60


def _tiny_model(name: str, head: str = "MaskedLM", layers: int = 3, num_labels: int = 3, seed: int = 0) -> Any:
    import transformers

    widths: dict[str, Any] = {"vocab_size": VOCABULARY, "num_labels": num_labels}
    if name == "distilbert":
        widths |= {"dim": 16, "n_layers": layers, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32}
    else:
        widths |= {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
        widths["max_position_embeddings"] = 34 if name == "roberta" else 32
        widths["type_vocab_size"] = 1 if name == "roberta" else 2
    prefix = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[name]
    config = getattr(transformers, f"{prefix}Config")(**widths)
    generator = torch.Generator().manual_seed(seed)
    model = getattr(transformers, f"{prefix}For{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


@pytest.fixture
def tiny_model() -> Callable[..., Any]:
    """`tiny_model(family, head="MaskedLM", layers=3, num_labels=3, seed=0)`: a model in eval mode."""
    return _tiny_model


@pytest.fixture
def tiny_batch() -> dict[str, Tensor]:
    """Two rows of 7 tokens, the second with 3 of padding, as BERT's collator makes it."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    ids = torch.randint(5, VOCABULARY, (2, 7), generator=generator) * mask + (1 - mask)  # 1 is RoBERTa's padding
    types = torch.tensor([[0] * 4 + [1] * 3, [0, 0, 1, 1, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "labels": torch.tensor([0, 2])}
