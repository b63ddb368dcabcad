"""Static students: their table, held against the formula in float64, and their tokenizers and outputs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distill.data.encode import special_tokens
from distill.errors import ConfigError
from distill.losses.objective import Objective
from distill.losses.terms import Pooled
from distill.models import families, student
from distill.models.families.embedding import pooled
from distill.models.student.static import SIF, before_norm, counted, token_vectors, weighted
from distill.models.write import write_model

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny.py"))
TEXTS = [*TINY["SENTENCES"][:3], "goats", "", "an % unknown 12 word"]
SIZES = {"hidden_size": None}


def made(teacher: Any, pooling: str = "mean", width: int | None = None) -> tuple[Any, Any]:
    """A static student of a teacher, and its tokenizer."""
    given = TINY["tokenizer"]()
    own = student.mean_tokenizer(given)
    around = special_tokens(given)
    sizes = {"hidden_size": width}
    return student.static(teacher, own, given, around=around, pooling=pooling, sizes=sizes, seed=0).eval(), own


def teacher(family: str = "bert", head: str = "MaskedLM") -> Any:
    return TINY["model"](family, head, std=0.3, vocab_size=len(TINY["tokenizer"]()))


def formula(vectors: np.ndarray, ids: list[int], width: int) -> np.ndarray:
    """Rows of the table up to one common factor, in float64: centred, projected, weighted."""
    own = vectors[ids].astype(np.float64)
    own -= own.mean(0)
    if width < own.shape[1]:
        _, _, directions = np.linalg.svd(own, full_matrices=False)
        own = own @ directions[:width].T
    inverse = 1 / np.arange(2, len(own) + 2)
    return own * (SIF / (SIF + inverse / inverse.sum()))[:, None]


@pytest.mark.parametrize("width", [16, 6])
def test_table_is_that_of_the_formula(width: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 16)) * np.linspace(3, 1, 16)
    ids = [*range(4, 50)]
    table = weighted(torch.from_numpy(vectors).float(), ids, width).double().numpy()
    expected = formula(vectors.astype(np.float32), ids, width)
    assert not table[:4].any()
    expected *= 0.5 / np.sqrt((expected**2).mean(1)).max()
    if width < 16:  # principal components have no sign of their own
        expected *= np.sign((expected * table[4:]).sum(0))
    np.testing.assert_allclose(table[4:], expected, atol=1e-6)


def test_weights_grow_with_the_rank() -> None:
    same = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(20, 1)
    lengths = weighted(same, range(40), 2).norm(dim=1)
    assert (lengths.diff() > 0).all()
    inverse = 1 / np.arange(2, 42)
    weights = SIF / (SIF + inverse / inverse.sum())
    np.testing.assert_allclose(lengths / lengths[-1], weights / weights[-1], rtol=1e-5)


def test_norm_of_the_model_gives_the_table() -> None:
    table = torch.randn(30, 8, generator=torch.Generator().manual_seed(1)) * torch.linspace(0, 0.25, 30)[:, None]
    norm = torch.nn.RMSNorm(8, eps=1.0)
    with torch.no_grad():
        torch.testing.assert_close(norm(before_norm(table)), table, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_of_tokens_are_those_of_the_teacher_one_by_one(pooling: str) -> None:
    model, given = teacher(), TINY["tokenizer"]()
    rows = [[5], [6, 7], [40], [41, 8, 9]]
    found = token_vectors(model, rows, special_tokens(given), given.pad_token_id, pooling)
    for row, vector in zip(rows, found, strict=True):
        ids = torch.tensor([[given.cls_token_id, *row, given.sep_token_id]])
        with torch.no_grad():
            hidden = model.bert(input_ids=ids).last_hidden_state[0]
        expected = {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.amax(0)}[pooling]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_vector_of_a_text_is_the_mean_of_its_tokens_whatever_their_order(family: str) -> None:
    model, own = made(teacher(family))
    assert model.config.num_hidden_layers == 0
    words = TINY["SENTENCES"][0].split()
    batch = own([" ".join(words), " ".join(words[::-1])], return_tensors="pt")
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        hidden = families.encode(model, given)
        alone = families.encode(
            model, {"input_ids": given["input_ids"][:1, 3:4], "attention_mask": torch.ones(1, 1).long()}
        )
    torch.testing.assert_close(hidden[0].mean(0), hidden[1].mean(0))
    torch.testing.assert_close(hidden[0, 3], alone[0, 0])
    assert not hidden[0, 0].any()  # of padding, in place of special tokens
    assert hidden[0, 1:].any(-1).all()


def test_tokenizer_adds_padding_alone_and_unknown_words_are_padding(tmp_path: Path) -> None:
    given = TINY["tokenizer"]()
    own = student.mean_tokenizer(given)
    pad = given.pad_token_id
    model, _ = made(teacher())
    with write_model(tmp_path / "model", model, own):
        pass
    for each in (own, AutoTokenizer.from_pretrained(tmp_path / "model")):
        for text in TEXTS:
            plain = given(text, add_special_tokens=False)["input_ids"]
            assert each(text)["input_ids"] == [pad, *(pad if token == given.unk_token_id else token for token in plain)]
        assert each("goats", "a boat")["input_ids"] == [
            pad,
            *each("goats")["input_ids"][1:],
            *each("a boat")["input_ids"],
        ]
        assert each.mask_token_id == given.mask_token_id
    assert own("")["input_ids"] == [pad]


def test_padding_is_not_trained_and_plain_transformers_loads_the_classifier(tmp_path: Path) -> None:
    head = TINY["model"]("bert", "SequenceClassification", std=0.3, num_labels=3, vocab_size=len(TINY["tokenizer"]()))
    model, own = made(head)
    batch = own(TEXTS, padding=True, return_tensors="pt")
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.01)
    for _ in range(3):
        torch.nn.functional.cross_entropy(model(**given).logits, torch.arange(len(TEXTS)) % 3).backward()
        optimizer.step()
    assert not model.get_input_embeddings().weight[own.pad_token_id].any()
    model.eval()
    with write_model(tmp_path / "model", model, own):
        pass
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**given).logits, model(**given).logits)
        longer = {name: torch.nn.functional.pad(value, (0, 5)) for name, value in given.items()}
        torch.testing.assert_close(loaded(**longer).logits, model(**given).logits)
    assert model(**given).logits.isfinite().all()


def test_narrower_but_not_wider_than_the_teacher() -> None:
    model, own = made(teacher(), width=6)
    assert model.get_input_embeddings().weight.shape == (len(own), 6)
    with pytest.raises(ConfigError, match=r"student\.hidden_size: got 32; must be <= 16"):
        made(teacher(), width=32)


def test_special_and_unused_tokens_are_not_ranked() -> None:
    own = student.mean_tokenizer(TINY["tokenizer"]())
    tokens = own.convert_ids_to_tokens(counted(own))
    assert not {"[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"} & set(tokens)
    assert len(tokens) == len(own) - 5


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_term_compares_the_mean_with_the_teachers_own_pooling(pooling: str) -> None:
    whole = teacher()
    model, own = made(whole, pooling)
    given = TINY["tokenizer"]()(TINY["SENTENCES"][:3], padding=True, return_tensors="pt")
    batch = dict(own(TINY["SENTENCES"][:3], padding=True, return_tensors="pt"))
    batch |= {f"teacher_{name}": given[name] for name in ("input_ids", "attention_mask")}
    none = torch.zeros(0, dtype=torch.long)
    batch |= {"masked": none, "labels": none, "real": batch["attention_mask"].flatten().nonzero()[:, 0]}
    found = Objective(model, {"pooled": Pooled()}, [whole], pooling)(batch)
    with torch.no_grad():
        hidden = whole.bert(given["input_ids"], given["attention_mask"]).last_hidden_state
        targets = pooled(hidden, given["attention_mask"], pooling)
        means = pooled(families.encode(model, batch), batch["attention_mask"], "mean")
        expected = (1 - torch.nn.functional.cosine_similarity(means, targets)).sum()
    torch.testing.assert_close(found[0].detach(), expected)
