"""Static students: their table, held against the formula in float64, and their tokenizers and outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from distill import losses
from distill.data.align import encode_aligned, stored_aligned
from distill.data.encode import special_tokens
from distill.data.sequences import encode_corpus, stored_corpus
from distill.errors import ConfigError
from distill.losses.objective import Objective
from distill.losses.terms import Pooled, Term
from distill.models import families, student
from distill.models.families.embedding import pooled
from distill.models.student.static import SIF, before_norm, counted, token_vectors, weighted
from distill.models.student.training import only_used_embeddings
from distill.models.write import write_model
from tests import tiny

TEXTS = [*tiny.SENTENCES[:3], "goats", "", "an % unknown 12 word"]
SIZES = {"hidden_size": None}


def made(teacher: Any, pooling: str = "mean", width: int | None = None) -> tuple[Any, Any]:
    """A static student of a teacher, and its tokenizer."""
    given = tiny.tokenizer()
    own = student.mean_tokenizer(given)
    around = special_tokens(given)
    sizes = {"hidden_size": width}
    return student.static(teacher, own, given, around=around, pooling=pooling, sizes=sizes, seed=0).eval(), own


def teacher(family: str = "bert", head: str = "MaskedLM") -> Any:
    return tiny.model(family, head, std=0.3, vocab_size=len(tiny.tokenizer()))


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
    model, given = teacher(), tiny.tokenizer()
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
    words = tiny.SENTENCES[0].split()
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
    given = tiny.tokenizer()
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
    head = tiny.model("bert", "SequenceClassification", std=0.3, num_labels=3, vocab_size=len(tiny.tokenizer()))
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
    own = student.mean_tokenizer(tiny.tokenizer())
    tokens = own.convert_ids_to_tokens(counted(own))
    assert not {"[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"} & set(tokens)
    assert len(tokens) == len(own) - 5


def words(model: Any, special: list[str], **names: str) -> Any:
    """A tokenizer with a model of the library tokenizers."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(special)
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=32, **names)


def numbers(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


OTHERS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "Unigram": (
        lambda: words(
            models.Unigram([("<pad>", 0.0), ("<unk>", 0.0), ("goats", -1.0), ("run", -2.0)], unk_id=1),
            ["<pad>", "<unk>"],
            pad_token="<pad>",
            unk_token="<unk>",
        ),
        [0, 2, 0, 3],
    ),
    "BPE without an unknown token": (
        lambda: words(
            models.BPE(numbers("<pad>", "g", "o", "go", "r", "u", "n"), [("g", "o")]), ["<pad>"], pad_token="<pad>"
        ),
        [0, 3, 4, 5, 6],
    ),
    "padding added to a vocabulary without an unknown token": (
        lambda: words(models.BPE(numbers("g", "o", "r", "u", "n"), []), ["<pad>"], pad_token="<pad>"),
        [5, 0, 1, 2, 3, 4],
    ),
    "numbers that are left out": (
        lambda: words(
            models.WordLevel({"<pad>": 0, "<unk>": 1, "go": 4, "run": 9}, unk_token="<unk>"),
            ["<pad>", "<unk>"],
            pad_token="<pad>",
            unk_token="<unk>",
        ),
        [0, 4, 0, 9],
    ),
}
UNKNOWN = {"Unigram": "goats ? run", "numbers that are left out": "go ? run"}


@pytest.mark.parametrize("kind", OTHERS)
def test_tokenizers_of_other_kinds(kind: str, tmp_path: Path) -> None:
    make, expected = OTHERS[kind]
    own = student.mean_tokenizer(make())
    own.save_pretrained(tmp_path)
    for each in (own, AutoTokenizer.from_pretrained(tmp_path)):
        assert each(UNKNOWN.get(kind, "go run"))["input_ids"] == expected
        assert each.unk_token_id == each.pad_token_id == expected[0]
    ranked = counted(own)
    assert own.pad_token_id not in ranked
    assert set(ranked) == {number for token, number in own.get_vocab().items() if not token.startswith("<")}


@pytest.mark.parametrize("kind", OTHERS)
def test_every_token_has_a_vector(kind: str) -> None:
    given = OTHERS[kind][0]()
    own = student.mean_tokenizer(given)
    whole = tiny.model("bert", "MaskedLM", std=0.3, vocab_size=16, pad_token_id=given.pad_token_id)
    model = student.static(
        whole, own, given, around=([], []), pooling="mean", sizes={"hidden_size": None}, seed=0
    ).eval()
    batch = own(["go run", "goats ?"], padding=True, return_tensors="pt")
    hidden = families.encode(model, {name: batch[name] for name in ("input_ids", "attention_mask")})
    assert torch.equal(hidden.any(-1), batch["input_ids"] != own.pad_token_id)


def test_padding_that_was_added_cannot_stand_for_unknown_words() -> None:
    given = words(models.WordLevel(numbers("[UNK]", "go"), unk_token="[UNK]"), ["[PAD]"], pad_token="[PAD]")
    with pytest.raises(
        ConfigError, match=r"student\.init: got static and a tokenizer whose padding token \[PAD\] is an"
    ):
        student.mean_tokenizer(given)


def test_texts_of_unknown_words_are_left_out_of_the_corpus(tmp_path: Path) -> None:
    known, unknown = " ".join(tiny.SENTENCES[:2]), "% " * 20
    for own in (tiny.tokenizer(), student.mean_tokenizer(tiny.tokenizer())):
        encode_corpus(tmp_path, [known, unknown, known], own, 64)
        assert len(stored_corpus(tmp_path)) == 2
        folder = tmp_path / "aligned"
        folder.mkdir(exist_ok=True)
        encode_aligned(folder, [known, unknown, known], own, tiny.tokenizer(), 64)
        assert len(stored_aligned(folder).student) == 2


def test_padding_stays_zero_where_only_used_rows_are_trained() -> None:
    model, own = made(
        tiny.model("bert", "SequenceClassification", std=0.3, num_labels=3, vocab_size=len(tiny.tokenizer()))
    )
    batch = own(TEXTS, padding=True, return_tensors="pt")
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    before = model.get_input_embeddings().weight.detach().clone()
    with only_used_embeddings(model, batch["input_ids"].numpy().ravel()):
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=0.01)
        for _ in range(3):
            torch.nn.functional.cross_entropy(model(**given).logits, torch.arange(len(TEXTS)) % 3).backward()
            optimizer.step()
    after = model.get_input_embeddings().weight
    assert not after[own.pad_token_id].any()
    used = batch["input_ids"].unique()
    assert (after[used] != before[used]).any(-1).sum() == len(used) - 1


@pytest.mark.parametrize("features", ["hidden", "relations", "scores"])
def test_terms_on_layers_are_refused_for_a_given_student_without_layers(features: str) -> None:
    whole = teacher()
    model, _ = made(whole)
    term = Term(1.0, features, "teacher", "all", losses.mse)
    with pytest.raises(ConfigError, match=rf"terms\.x\.features: got {features}; must be pooled on a corpus, and"):
        Objective(model, {"x": term}, [whole])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_term_compares_the_mean_with_the_teachers_own_pooling(pooling: str) -> None:
    whole = teacher()
    model, own = made(whole, pooling)
    given = tiny.tokenizer()(tiny.SENTENCES[:3], padding=True, return_tensors="pt")
    batch = dict(own(tiny.SENTENCES[:3], padding=True, return_tensors="pt"))
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
