"""Words in place of others are those that transformers' fill-mask predicts there, among whole words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distill.data.edits import places
from distill.errors import ConfigError, DataError
from distill.inference.masked_lm import CANDIDATES, MaskedLm, _whole_words
from distill.models import families, teacher
from tests import tiny

SENTENCES = tiny.SENTENCES


def loaded(folder: Path, longest: int = 32) -> MaskedLm:
    model, stored = teacher.load_mlm(folder)
    assert stored
    return MaskedLm(model, teacher.load_tokenizer(folder), longest)


def fill_mask(folder: Path, text: str, begins: str = "", continues: str = "##") -> list[list[str]]:
    """Whole words that transformers' pipeline predicts at each mask, the most probable first: tokens that begin with
    `begins`, and not with `continues`."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found: Any = pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=len(tokenizer))(text)
    tokens = [
        [tokenizer.convert_ids_to_tokens(each["token"]) for each in row if each["token"] < len(tokenizer)]
        for row in (found if isinstance(found[0], list) else [found])
    ]
    return [
        [
            token.removeprefix(begins)
            for token in row
            if token.startswith(begins) and token.removeprefix(begins).isalnum() and not token.startswith(continues)
        ]
        for row in tokens
    ]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("bert"), "bert", "MaskedLM", initializer_range=2.0)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens of words after a space are others than those of the same words without one."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast

    folder = tmp_path_factory.mktemp("roberta")
    trained = ByteLevelBPETokenizer()
    words = [word for sentence in SENTENCES for word in sentence.split()]
    texts = [*SENTENCES, *words, *(f" {word}" for word in words)] * 3
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(texts, vocab_size=900, min_frequency=1, show_progress=False, special_tokens=special)
    trained.save_model(str(folder))
    tokenizer = RobertaTokenizerFast.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=34, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        RobertaForMaskedLM(config).save_pretrained(folder)
    return folder


def test_they_are_those_of_fill_mask(bert: Path) -> None:
    text, masked = "Two goats were (asleep) on the roof.", "Two goats were ([MASK]) on the [MASK]."
    (found,) = loaded(bert)([(text, [3, 6])])
    for number, expected in zip((3, 6), fill_mask(bert, masked), strict=True):
        own = text.split()[number].strip("().")
        assert own not in found[number]
        assert found[number] == [word for word in expected if word != own][:CANDIDATES]
    (other,) = loaded(bert)([(text.replace("goats", "plums"), [3, 6])])
    assert other != found  # they depend on the other words


def test_words_after_a_space_and_after_none_have_tokens_of_their_own(roberta: Path) -> None:
    text = "two goats were (asleep on the roof"
    assert teacher.load_tokenizer(roberta).tokenize(text)[:3] == ["two", "Ġgoats", "Ġwere"]
    found = loaded(roberta)([(text, [1]), (text, [0]), (text, [3])])
    (spaced,) = fill_mask(roberta, "two<mask> were (asleep on the roof", "Ġ")  # the space is of the token
    assert found[0][1] == [word for word in spaced if word != "goats"][:CANDIDATES]
    for number, masked in ((0, "<mask> goats were (asleep on the roof"), (3, "two goats were (<mask> on the roof")):
        (expected,) = fill_mask(roberta, masked, "", "Ġ")
        own = text.split()[number].strip("(")
        # Parts of words are tokens without a space too, such as `rary`, which is none after a space.
        tokens = teacher.load_tokenizer(roberta).get_vocab().keys()
        whole = [word for word in expected if f"Ġ{word}" in tokens]
        assert len(whole) < len(expected)
        assert found[1 if number == 0 else 2][number] == [word for word in whole if word != own][:CANDIDATES]


@pytest.mark.quick(4)
@pytest.mark.parametrize("family", tiny.SHAPES)
def test_they_are_the_most_probable_whole_words_of_every_family(family: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path, family, "MaskedLM", std=0.8)
    text, other = SENTENCES[6], SENTENCES[1]
    found = loaded(folder)([(other, [0]), (text, [1, 6])])[1]
    model, tokenizer = teacher.load_mlm(folder)[0], teacher.load_tokenizer(folder)
    words = text.split()
    batch = tokenizer(text.replace("goats", "[MASK]").replace("roof", "[MASK]"), return_tensors="pt")
    with torch.no_grad():
        logits = model(**families.inputs(model, batch)).logits[0, : batch["input_ids"].shape[1]]
    masked = logits[batch["input_ids"][0] == tokenizer.mask_token_id, : len(tokenizer)]
    for number, row in zip((1, 6), masked, strict=True):
        tokens = tokenizer.convert_ids_to_tokens(row.argsort(descending=True).tolist())
        assert found[number] == [token for token in tokens if token.isalnum() and token != words[number]][:CANDIDATES]


def test_words_that_are_no_single_token_have_none(bert: Path) -> None:
    model = loaded(bert)
    text = "Unbelievable goats don't sleep - BOAT zebra"
    (found,) = model([(text, list(range(7)))])
    assert found.keys() == {1, 5}
    assert (model.asked, model.found) == (7, 2)
    assert "boat" not in found[5]
    assert model([]) == []
    assert model([("", []), ("goats", [])]) == [{}, {}]


def test_long_texts_are_cut_into_sequences(bert: Path) -> None:
    text, model = " ".join(SENTENCES[:2]), loaded(bert, longest=10)
    size = 8  # besides two special tokens
    words = text.split()
    (found,) = model([(text, [1, size + 2])])
    for number in (1, size + 2):
        start = number // size * size
        (alone,) = model([(" ".join(words[start : start + size]), [number - start])])
        assert found[number] == alone[number - start]


def test_they_do_not_depend_on_other_texts(bert: Path) -> None:
    model = loaded(bert)
    texts = [(" ".join(SENTENCES[n % 8].split()[: 2 + n % 7]), [n % 2]) for n in range(60)]
    together = model(texts)
    assert together == model(texts)
    assert together[7:9] == [model([each])[0] for each in texts[7:9]]


def test_places_of_words_are_without_the_punctuation_around_them() -> None:
    text = "  The (parser) isn't\u2003-- done."
    assert [text[start:end] for start, end in places(text)] == ["The", "parser", "isn't", "", "done"]


def test_a_model_without_a_stored_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^transfer\.masked_lm: got .*/texts, whose files have no head of a masked"):
        teacher.check_masked_lm(tiny.save(tmp_path / "texts", "bert", "SequenceClassification"), "transfer.masked_lm")
    for family, head in (("electra", "PreTraining"), ("roberta", ""), ("xlnet", "SequenceClassification")):
        with pytest.raises(ConfigError, match="have no head of a masked language model; must be a model for fill-mask"):
            teacher.check_masked_lm(tiny.save(tmp_path / family, family, head), "transfer.masked_lm")


def test_a_model_whose_head_or_mask_token_is_missing_is_refused(bert: Path, tmp_path: Path) -> None:
    teacher.check_masked_lm(bert, "transfer.masked_lm")
    model, tokenizer = teacher.load_mlm(bert)[0], teacher.load_tokenizer(bert)
    model.save_pretrained(tmp_path)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="whose tokenizer has no mask token; must have one"):
        teacher.check_masked_lm(tmp_path, "transfer.masked_lm")
    with tiny.weights(tmp_path) as weights:
        for name in [name for name in weights if "cls." in name]:
            del weights[name]
    with pytest.raises(DataError, match=r"got no cls\.predictions"):
        teacher.check_masked_lm(tmp_path, "transfer.masked_lm")


def test_a_word_with_marks_may_be_whole() -> None:
    from transformers import BertTokenizer

    word = "\u0939\u093f\u0928\u094d\u0926\u0940"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", word, "##\u0940", "a"]
    tokenizer = BertTokenizer(vocab={name: number for number, name in enumerate(names)}, do_lower_case=False)
    _, spaced, unspaced = _whole_words(tokenizer, len(names))
    for found in (spaced, unspaced):
        assert [name for name, whole in zip(names, found.tolist(), strict=True) if whole] == [word, "a"]
