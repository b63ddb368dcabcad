"""A teacher's embeddings for another tokenizer."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from distill.models import families, student
from tests import tiny
from tests.tiny import SHAPES


@pytest.mark.parametrize(("name", "tied"), [*((name, True) for name in SHAPES), ("bert", False)])
def test_a_token_is_the_mean_of_those_it_stands_for(name: str, tied: bool, tiny_model, tiny_batch) -> None:
    words = tiny.tokenizer()
    model = tiny_model(name, tie_word_embeddings=tied)
    rows = [[number % 60, (7 * number) % 60][: 1 + number % 2] for number in range(len(words))]
    made = student.with_vocabulary(model, words, rows)
    table, other = (m.get_input_embeddings().weight for m in (model, made))
    assert made.config.vocab_size == len(words) == len(other)
    for number, row in enumerate(rows):
        torch.testing.assert_close(other[number], table[row].mean(0))
    assert (made.get_output_embeddings().weight is other) == tied
    hidden = families.encode(made, tiny_batch)
    # Logits are linear in both tables: those of a token are the mean of its parts'.
    old, new = families.mlm_logits(model, hidden), families.mlm_logits(made, hidden)
    wanted = torch.stack([old[..., row].mean(-1) for row in rows], -1)
    torch.testing.assert_close(new, wanted, rtol=1e-4, atol=1e-4)
    assert model.config.vocab_size == 60


def test_the_same_tokenizer_changes_nothing(tiny_model, tiny_batch) -> None:
    words = tiny.tokenizer()
    model = tiny_model("bert", vocab_size=len(words))
    found = student.pieces(words, words)
    assert found == [[number] for number in range(len(words))]
    made = student.with_vocabulary(model, words, found)
    torch.testing.assert_close(families.encode(made, tiny_batch), families.encode(model, tiny_batch), rtol=0, atol=0)


def test_pieces_are_the_other_tokenizers_tokens_of_the_text() -> None:
    bpe = runpy.run_path(str(Path(__file__).parents[1] / "data" / "test_align.py"))["bpe"]()
    words = tiny.tokenizer()
    found = student.pieces(words, bpe)
    for token in ("harbour", "the", "a"):  # they begin a word
        assert found[words.convert_tokens_to_ids(token)] == bpe(f" {token}", add_special_tokens=False)["input_ids"]
    assert found[words.convert_tokens_to_ids("##g")] == bpe("g", add_special_tokens=False)["input_ids"]
    for role in ("pad", "cls", "sep", "unk", "mask"):
        assert found[getattr(words, f"{role}_token_id")] == [getattr(bpe, f"{role}_token_id")]
    back = student.pieces(bpe, words)
    assert back[bpe.convert_tokens_to_ids("\u0120the")] == [words.convert_tokens_to_ids("the")]
    assert back[bpe.convert_tokens_to_ids("g")] == [words.convert_tokens_to_ids("##g")]
    assert all(ids for ids in back)


def test_a_part_of_a_word_stays_one_where_spaces_begin_tokens() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "<pad>", "\u2581", "\u2581g", "g", "\u2581the"]
    backend = Tokenizer(models.Unigram([(name, -float(n)) for n, name in enumerate(names)], unk_id=0))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pieces = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>")
    words = tiny.tokenizer()
    found = student.pieces(words, pieces)
    parts = {name: [names[n] for n in found[words.convert_tokens_to_ids(name)]] for name in ("##g", "g", "the")}
    assert parts == {"##g": ["g"], "g": ["\u2581g"], "the": ["\u2581the"]}
    back = student.pieces(pieces, words)
    for name, part in (("g", "##g"), ("\u2581g", "g"), ("\u2581the", "the")):
        assert back[names.index(name)] == [words.convert_tokens_to_ids(part)]


def test_a_letter_is_not_the_byte_of_that_name() -> None:
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    bpe = runpy.run_path(str(Path(__file__).parents[1] / "data" / "test_align.py"))["bpe"]()
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("\u00e9", -1.0), ("g", -1.0)], unk_id=0))
    backend.decoder = decoders.Metaspace()
    found = student.pieces(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"), bpe)
    assert [bpe.decode(tokens) for tokens in found[1:]] == ["\u00e9", "g"]
    assert len(found[1]) == 2
    assert student.pieces(bpe, bpe) == [[number] for number in range(len(bpe))]
