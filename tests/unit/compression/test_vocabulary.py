"""Smaller tokenizers against the ones they were made of, text by text; and models with fewer tokens against theirs."""

from __future__ import annotations

import copy
import json
import random
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor

from distill.compression.vocabulary import pruned_embeddings, pruned_tokenizer, token_counts
from distill.errors import ConfigError, UserError
from distill.models import families, teacher
from tests.tiny import SHAPES

ROOT = Path(__file__).resolve().parents[3]
TINY = runpy.run_path(str(ROOT / "tests" / "tiny.py"))
DATA = ROOT.parent / "shared" / "data"

TEXTS = [
    "The baker's daughter counted eleven loaves, then sold the twelfth for nothing.",
    "A lantern swung from the mast while the sailors argued over an unreadable map.",
    "He had rewritten the letter four times; nobody ever answered it.",
    "Unhappily, the bridge was rebuilt without asking the people who crossed it daily.",
    "Seven foxes were seen near the railway, sleeping between the unused wagons.",
    "She unpacked the wooden boxes and found maps, letters, and an old lantern.",
    "The answer was counted twice, and twice it was nothing but a rounding error.",
    "Rain fell on the market; the sellers covered their apples, pears and plums.",
    "They crossed the river at midnight, counting the lights of the sleeping town.",
    "An older sailor remembered the bridge before it was broken and rebuilt.",
    "The teacher was asking for silence; the children were asking for rain.",
    "Painted boats, painted doors, painted signs: the whole street smelled of paint.",
]
ODD = [
    "", " ", "zzzz qqqq", "snow \u2603 and \U0001f600\U0001f680 faces", "x" * 150, "tab\tand\nline", "e\u0301 \u200d",
    "\u0645\u0631\u062d\u0628\u0627 \u0639\u0627\u0644\u0645", "\u6f22\u5b57\u3068\u4eee\u540d", "\u041f\u0440\u0438",
    "na\u00efve caf\u00e9", "<s> [CLS] <mask> [MASK]", "price: 3.50$ (50%)", "\u0928\u092e\u0938 the map", "don't",
]  # fmt: skip

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def numbered(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def train(model: Any, trainer: Any, pre_tokenizer: Any) -> dict[str, Any]:
    """What tokenizer.json says of a model that is trained on the texts."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizer
    backend.train_from_iterator([text.lower() for text in TEXTS] + TEXTS, trainer)
    return json.loads(backend.to_str())["model"]


def wordpiece(special: list[str]) -> dict[str, int]:
    """A vocabulary with tokens that nothing uses before the special ones, as BERT's."""
    trainer = trainers.WordPieceTrainer(vocab_size=320, show_progress=False)
    found = train(models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer())
    return numbered(*dict.fromkeys([special[0], "thereto", "wherein", "sooner", *special[1:], *found["vocab"]]))


def pieces(special: list[str]) -> list[tuple[str, float]]:
    trainer = trainers.UnigramTrainer(vocab_size=180, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"])
    found = train(models.Unigram(), trainer, pre_tokenizers.Metaspace())["vocab"]
    return [*((token, 0.0) for token in special), *(tuple(entry) for entry in found if entry[0] not in special)]


def bpe() -> Any:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, show_progress=False, initial_alphabet=alphabet)
    found = train(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    vocabulary = numbered(*SPECIAL, *found["vocab"], "<mask>")
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in found["merges"]])


def wordlevel() -> Any:
    words = sorted({word for text in TEXTS for word in text.split()})
    backend = Tokenizer(models.WordLevel(numbered(*SPECIAL, *words), unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", padding_side="left", model_max_length=77
    )


BERT_NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
FAIRSEQ = [*SPECIAL, "<mask>"]
MAKERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: transformers.BertTokenizer(vocab=wordpiece(BERT_NAMES), model_max_length=99),
    "distilbert": lambda: transformers.DistilBertTokenizer(vocab=wordpiece(BERT_NAMES), do_lower_case=False),
    "roberta": bpe,
    "xlm-roberta": lambda: transformers.XLMRobertaTokenizer(vocab=pieces(FAIRSEQ)),
    "camembert": lambda: transformers.CamembertTokenizer(vocab=pieces(["<s>NOTUSED", *FAIRSEQ])),
    "albert": lambda: transformers.AlbertTokenizer(vocab=pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])),
    "deberta-v2": lambda: transformers.DebertaV2Tokenizer(
        vocab=[("[PAD]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[UNK]", 0.0), *pieces([])], padding_side="left"
    ),
    "wordlevel": wordlevel,
    "published bert": lambda: published("bert-base-uncased-tokenizer"),
    "published roberta": lambda: published("roberta-base-tokenizer"),
}


def published(name: str) -> Any:
    folder = DATA / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip("needs published tokenizers")
    return teacher.load_tokenizer(folder)


@pytest.fixture(scope="module", params=list(MAKERS))
def whole(request: pytest.FixtureRequest) -> Any:
    """A tokenizer, after the name it has here."""
    return request.param, MAKERS[request.param]()


def real(name: str) -> list[str]:
    """Texts for a tokenizer: for a published one, sentences that people wrote."""
    if not name.startswith("published"):
        return TEXTS
    import pyarrow.parquet as parquet

    table = parquet.read_table(DATA / "glue" / "sst2" / "validation-00000-of-00001.parquet")
    return table["sentence"].to_pylist()[:200]


@pytest.fixture(scope="module")
def cut(whole: tuple[str, Any]) -> Any:
    """The tokenizer with the tokens of half of its texts."""
    name, tokenizer = whole
    return pruned_tokenizer(tokenizer, token_counts(counted(name), tokenizer))


def counted(name: str) -> list[str]:
    return real(name)[: len(real(name)) // 2]


def probes(name: str) -> list[str]:
    """Whole texts, words with and without a blank before them, and words that no text has."""
    texts = real(name)[:40]
    words = [word for text in texts for word in text.split()]
    return [*texts, *ODD, *words, *(f" {w}" for w in words), *(a + b for a, b in zip(words, words[5:], strict=False))]


def ids_of(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def half(tokenizer: Any, texts: list[str], seed: int) -> list[int]:
    """A random half of the tokens that the texts are made of."""
    counts = sorted(token_counts(texts, tokenizer))
    return random.Random(seed).sample(counts, len(counts) // 2)


@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(2))
def test_a_text_of_kept_tokens_is_segmented_as_before(seed: int, whole: tuple[str, Any]) -> None:
    name, tokenizer = whole
    texts = probes(name)
    made, kept = pruned_tokenizer(tokenizer, half(tokenizer, texts, seed))
    known, same, other = set(kept.tolist()), 0, 0
    for old, new in zip(ids_of(tokenizer, texts), ids_of(made, texts), strict=True):
        if known.issuperset(old):
            assert kept[new].tolist() == old
            same += bool(old)
        else:
            other += 1
            assert name == "wordlevel" or new.count(made.unk_token_id) <= old.count(tokenizer.unk_token_id)
    assert min(same, other) > 20


def test_counted_texts_are_encoded_as_before(whole: tuple[str, Any], cut: tuple[Any, Tensor]) -> None:
    (name, tokenizer), (made, kept) = whole, cut
    texts = counted(name)
    old, counts = ids_of(tokenizer, texts), token_counts(texts, tokenizer)
    assert counts.total() == sum(map(len, old))
    assert counts[old[0][1]] == sum(ids.count(old[0][1]) for ids in old) > 0
    assert len(made) == len(kept) == len(kept.unique()) < len(tokenizer)
    assert kept.dtype == torch.long
    assert kept.tolist() == sorted(kept.tolist())
    assert names(cut) == tokenizer.convert_ids_to_tokens(kept.tolist())
    assert [kept[new].tolist() for new in ids_of(made, texts)] == old


def test_no_text_gets_more_unknown_tokens(whole: tuple[str, Any]) -> None:
    """The least tokenizer there is: characters alone."""
    name, tokenizer = whole
    made, kept = pruned_tokenizer(tokenizer, [])
    if name == "wordlevel":
        assert names((made, kept)) == ["<pad>", "<unk>"]
        return
    known = 0
    texts = probes(name)
    for old, new in zip(ids_of(tokenizer, texts), ids_of(made, texts), strict=True):
        assert new.count(made.unk_token_id) <= old.count(tokenizer.unk_token_id)
        if tokenizer.unk_token_id not in old:
            known += 1
            assert made.decode(new) == tokenizer.decode(old)
            assert len(new) >= len(old)
    assert known > 100
    assert len(kept) < len(tokenizer) * (0.99 if "published" not in name else 0.1)


def test_pairs_templates_and_padding_are_as_before(whole: tuple[str, Any], cut: tuple[Any, Tensor]) -> None:
    (name, tokenizer), (made, kept) = whole, cut
    texts = counted(name)[:12]
    settings = {"padding": True, "return_special_tokens_mask": True}
    for more in ({}, {"truncation": True, "max_length": 12}):
        for given in ((texts,), (texts, texts[::-1])):
            old, new = (one(*given, **settings, **more) for one in (tokenizer, made))
            assert [kept[ids].tolist() for ids in new.pop("input_ids")] == old.pop("input_ids")
            assert dict(new) == dict(old)
            assert set(new) >= {"attention_mask", "special_tokens_mask"}


def test_the_original_tokenizer_is_not_changed() -> None:
    tokenizer = TINY["tokenizer"]()
    before = tokenizer.backend_tokenizer.to_str(), str(tokenizer)
    made, _ = pruned_tokenizer(tokenizer, [9])
    made.padding_side, made.pad_token = "left", made.unk_token
    assert (tokenizer.backend_tokenizer.to_str(), str(tokenizer)) == before


def test_a_word_with_a_role_stays() -> None:
    tokenizer = words_of(9)
    tokenizer.mask_token = "7"
    assert "7" not in tokenizer.get_added_vocab()
    made, kept = pruned_tokenizer(tokenizer, [4])
    assert kept.tolist() == [0, 4, 7]
    assert made.mask_token_id == 2


def test_class_roles_and_settings_stay(whole: tuple[str, Any], cut: tuple[Any, Tensor]) -> None:
    (_, tokenizer), (made, kept) = whole, cut
    for one in (made, tokenizer):  # transformers leaves a backend as the last call wanted it
        one("one", padding=False, truncation=False)
    assert type(made) is type(tokenizer)
    for key in ("model_max_length", "padding_side", "truncation_side", "model_input_names", "special_tokens_map"):
        assert getattr(made, key) == getattr(tokenizer, key)
    for role in tokenizer.special_tokens_map:
        assert kept[getattr(made, f"{role}_id")] == getattr(tokenizer, f"{role}_id")
    assert [int(kept[number]) for number in made.all_special_ids] == tokenizer.all_special_ids
    added = {int(kept[number]): token for number, token in made.added_tokens_decoder.items()}
    assert added == tokenizer.added_tokens_decoder
    old, new = (json.loads(one.backend_tokenizer.to_str()) for one in (tokenizer, made))
    for key in ("normalizer", "pre_tokenizer", "decoder", "truncation", "padding"):
        assert new[key] == old[key]


def test_plain_transformers_loads_it(whole: tuple[str, Any], cut: tuple[Any, Tensor], tmp_path: Path) -> None:
    name, (made, kept) = whole[0], cut
    texts = probes(name)[:100]
    wanted = dict(made(texts, texts[::-1], verbose=False))
    made.save_pretrained(tmp_path)
    kind = {"wordlevel": "bert"}.get(name, name.removeprefix("published "))
    transformers.AutoConfig.for_model(kind, vocab_size=len(kept)).save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == made.get_vocab()
    assert type(loaded).__name__.removesuffix("Fast") in (type(made).__name__, "TokenizersBackend")
    assert (loaded.model_max_length, loaded.padding_side) == (made.model_max_length, made.padding_side)
    assert loaded.special_tokens_map == made.special_tokens_map
    assert dict(loaded(texts, texts[::-1], verbose=False)) == wanted


def fast(model: Any, **roles: str) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), **roles)


def words_of(count: int) -> Any:
    return fast(models.WordLevel(numbered("?", *map(str, range(1, count))), unk_token="?"))


def names(made: tuple[Any, Tensor]) -> list[str]:
    return made[0].convert_ids_to_tokens(list(range(len(made[0]))))


def test_wordpiece_keeps_letters_inside_and_outside_of_words_and_the_given_tokens() -> None:
    vocabulary = numbered("[UNK]", "a", "##a", "b", "##b", "ab", "##ab", "aba", "##xb", "#", "###", "c")
    model = models.WordPiece(vocabulary, unk_token="[UNK]")
    # `x` is no token by itself: what holds it stays.
    assert names(pruned_tokenizer(fast(model), [vocabulary["aba"]])) == [
        "[UNK]", "a", "##a", "b", "##b", "aba", "##xb", "#", "###", "c"
    ]  # fmt: skip


def test_bpe_keeps_every_way_to_a_token_in_order() -> None:
    tokens = ["a", "b", "c", "d", "ab", "cd", "bc", "abc", "abcd", "dd", "cdd"]
    merges = [("d", "d"), ("a", "b"), ("b", "c"), ("c", "d"), ("a", "bc"), ("ab", "c"), ("abc", "d"), ("c", "dd")]
    whole = fast(models.BPE(numbered(*tokens), merges))
    made, kept = pruned_tokenizer(whole, [tokens.index("abcd")])
    assert kept.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    written = json.loads(made.backend_tokenizer.to_str())["model"]
    assert written["merges"] == [["a", "b"], ["b", "c"], ["a", "bc"], ["ab", "c"], ["abc", "d"]]
    assert made.tokenize("abcdd") == ["abcd", "d"]
    assert whole.tokenize("abcdd") == ["abc", "dd"]


def test_bpe_letters_may_be_marked_as_inside_or_last() -> None:
    tokens = ["<unk>", "a", "##a", "a@", "##a@", "##aa@", "aa", "<0x41>", "<0x4>"]
    model = models.BPE(
        numbered(*tokens), [("##a", "##a@"), ("a", "##a")], unk_token="<unk>", byte_fallback=True,
        continuing_subword_prefix="##", end_of_word_suffix="@",
    )  # fmt: skip
    assert names(pruned_tokenizer(fast(model), [])) == ["<unk>", "a", "##a", "a@", "##a@", "<0x41>"]
    made = pruned_tokenizer(fast(model), [5])
    assert names(made) == ["<unk>", "a", "##a", "a@", "##a@", "##aa@", "<0x41>"]
    assert made[0].tokenize("aaa") == ["a", "##aa@"]


def test_unigram_keeps_the_token_with_the_lowest_score() -> None:
    vocabulary = [("xx", 0.0), ("?", 0.0), ("p", -12.0), ("px", -1.0), ("x", -3.0), ("xa", -12.0), ("zz", -20.0)]
    whole = fast(models.Unigram([*vocabulary, ("px" * 2, -5.0), ("z", -3.0)], unk_id=1))
    made, kept = pruned_tokenizer(whole, [3])
    assert kept.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]
    # `px` and an unknown `a`, if that cost 10 more than `xa` and not 10 more than `zz`
    assert made.tokenize("pxa") == whole.tokenize("pxa") == ["p", "xa"]


def test_every_id_in_the_file_is_renumbered() -> None:
    words = numbered("[PAD]", "old", "[CLS]", "older", "[SEP]", "[UNK]", "word", "~")
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = processors.TemplateProcessing(single="~ $A", pair="~ $A $B", special_tokens=[("~", 7)])
    pair = processors.BertProcessing(("[SEP]", 4), ("[CLS]", 2))
    backend.post_processor = processors.Sequence([template, pair])
    backend.enable_padding(pad_id=5, pad_token="[UNK]")
    backend.enable_truncation(9)
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")
    whole.add_tokens(["<new>"])
    made, kept = pruned_tokenizer(whole, [6])
    assert kept.tolist() == [0, 2, 4, 5, 6, 7, 8]
    written = json.loads(made.backend_tokenizer.to_str())
    assert [(token["content"], token["id"]) for token in written["added_tokens"]] == [("[PAD]", 0), ("<new>", 6)]
    outer, inner = written["post_processor"]["processors"]
    assert outer["special_tokens"]["~"]["ids"] == [5]
    assert (inner["sep"], inner["cls"]) == (["[SEP]", 2], ["[CLS]", 1])
    assert written["padding"]["pad_id"] == 3
    assert written["truncation"]["max_length"] == 9
    old, new = (one.backend_tokenizer.encode("older word <new>", "word").ids for one in (whole, made))
    assert kept[new].tolist() == [5 if number == 3 else number for number in old]
    assert {1, 2, 3, 4, 5, 6} == set(new)


def test_unsupported_tokenizers_are_refused() -> None:
    other = SimpleNamespace(is_fast=True, backend_tokenizer=SimpleNamespace(to_str=lambda: '{"model":{"type":"New"}}'))
    with pytest.raises(UserError, match=r"tokenizer of type New; must be .* WordPiece, BPE, Unigram, WordLevel; "):
        pruned_tokenizer(other, [])
    with pytest.raises(UserError, match="tokenizer of type SimpleNamespace; must be a fast one"):
        pruned_tokenizer(SimpleNamespace(), [])
    with pytest.raises(UserError, match="got token id 9 and a tokenizer of 2 tokens; must be ids of its tokens"):
        pruned_tokenizer(fast(models.WordLevel(numbered("a", "?"), unk_token="?")), [0, 9])
    gaps = fast(models.WordLevel({"a": 0, "?": 1, "z": 5}, unk_token="?"), pad_token="[PAD]")
    with pytest.raises(UserError, match="numbers its tokens with gaps; must number"):
        pruned_tokenizer(gaps, [5])


WORDS = TINY["tokenizer"]()
SENTENCES = TINY["SENTENCES"][:3]


def batch_of(tokenizer: Any) -> dict[str, Tensor]:
    pairs = SENTENCES, [*SENTENCES[1:], "xylophone \U0001f600"]
    return dict(tokenizer(*pairs, padding=True, return_tensors="pt"))


def logits(model: Any, tokenizer: Any) -> Tensor:
    with torch.no_grad():
        return model(**families.inputs(model, batch_of(tokenizer))).logits


@pytest.fixture(scope="module")
def fewer() -> tuple[Any, Tensor]:
    made, kept = pruned_tokenizer(WORDS, token_counts(SENTENCES, WORDS))
    assert len(made) < len(WORDS)
    assert kept[-1] != len(made) - 1
    return made, kept


def model_of(make: Callable[..., Any], name: str, head: str, **settings: Any) -> Any:
    """With rows that no token has, as many a published model."""
    return make(name, head, layers=1, vocab_size=len(WORDS) + 3, max_position_embeddings=66, **settings)


@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
@pytest.mark.parametrize("name", SHAPES)
def test_outputs_on_new_ids_equal_those_on_old_ids(name: str, head: str, tiny_model, fewer) -> None:
    model, (made, kept) = model_of(tiny_model, name, head), fewer
    before, config = copy.deepcopy(model.state_dict()), model.config.to_dict()
    small = pruned_embeddings(model, kept, made)
    assert type(small) is type(model)
    assert not small.training
    assert small.config.vocab_size == len(small.get_input_embeddings().weight) == len(kept)
    wanted = logits(model, WORDS)
    if head == "MaskedLM":
        wanted = wanted[..., kept]
        tied = [each.get_output_embeddings().weight is each.get_input_embeddings().weight for each in (model, small)]
        assert tied == [name not in ("eurobert", "ultrabert")] * 2
    torch.testing.assert_close(logits(small, made), wanted, rtol=1e-6, atol=1e-6)
    assert wanted.std() > 1e-3
    assert model.config.to_dict() == config
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["roberta", "albert", "modernbert"])
def test_plain_transformers_loads_the_model(name: str, tiny_model, fewer, tmp_path: Path) -> None:
    made, kept = fewer
    small = pruned_embeddings(model_of(tiny_model, name, "MaskedLM"), kept, made)
    small.save_pretrained(tmp_path)
    loaded, told = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    teacher.check_vocabulary(made, loaded.config)
    torch.testing.assert_close(logits(loaded.eval(), made), logits(small, made), rtol=0, atol=0)


def test_an_untied_head_stays_untied(tiny_model, fewer) -> None:
    made, kept = fewer
    model = model_of(tiny_model, "bert", "MaskedLM", tie_word_embeddings=False).train()
    small = pruned_embeddings(model, kept, made)
    assert small.training
    assert torch.equal(small.get_output_embeddings().weight, model.get_output_embeddings().weight[kept])
    assert torch.equal(small.get_input_embeddings().weight, model.get_input_embeddings().weight[kept])
    assert not torch.equal(small.get_input_embeddings().weight, small.get_output_embeddings().weight)
    torch.testing.assert_close(logits(small.eval(), made), logits(model.eval(), WORDS)[..., kept], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", list(TINY["TEACHERS"]))
def test_task_teachers_can_be_pruned_too(name: str, fewer) -> None:
    made, kept = fewer
    head = "SequenceClassification"
    if f"For{head}" in families.FAMILIES[name].without:
        head = "TokenClassification"
    settings = {"pad_token_id": 1, "vocab_size": len(WORDS) + 3, "eos_token_id": 2}
    model = TINY["model"](name, head, std=0.3, **settings)
    small = pruned_embeddings(model, kept, made)
    texts = [one(SENTENCES[0], return_tensors="pt")["input_ids"] for one in (WORDS, made)]
    for ids in texts:
        ids[:, -1] = 2  # what sequence-to-sequence models answer at
    with torch.no_grad():
        torch.testing.assert_close(small(texts[1]).logits, model(texts[0]).logits, rtol=1e-6, atol=1e-6)


def test_token_ids_in_the_config_are_renumbered(tiny_model) -> None:
    last = len(WORDS) - 1
    made, kept = pruned_tokenizer(WORDS, [last])
    settings = {"cls_token_id": last, "sep_token_id": [2, last, 58], "bos_token_id": 58, "mask_token_id": 4}
    small = pruned_embeddings(model_of(tiny_model, "bert", "MaskedLM", **settings), kept, made)
    assert 58 not in kept
    assert kept[-1] == last
    found = {key: getattr(small.config, key) for key in (*settings, "pad_token_id", "eos_token_id")}
    assert found == {
        "cls_token_id": len(made) - 1, "sep_token_id": [2, len(made) - 1], "bos_token_id": None, "mask_token_id": 4,
        "pad_token_id": 1, "eos_token_id": None,
    }  # fmt: skip


def test_tokens_that_do_not_fit_the_model_are_refused(tiny_model, fewer) -> None:
    made, kept = fewer
    model = model_of(tiny_model, "roberta", "MaskedLM")
    with pytest.raises(ConfigError, match=f"vocabulary: got {len(kept) - 1} tokens up to .* its own tokenizer"):
        pruned_embeddings(model, kept[1:], made)
    with pytest.raises(ConfigError, match="a model of 60; must be tokens kept from the model's own tokenizer"):
        pruned_embeddings(tiny_model("roberta"), kept, made)
    for name, number, told in (
        ("roberta", 0, "a padding token that moves from 1 to 0; must stay in family roberta"),
        ("mpnet", 0, "a padding token that moves from 1 to 0; must stay in family mpnet"),
        ("bert", 1, "pad_token_id 1, which is not kept; must"),
    ):
        some = kept[kept != number]
        with pytest.raises(ConfigError, match=told):
            pruned_embeddings(model_of(tiny_model, name, "MaskedLM"), some, words_of(len(some)))
    some = kept[kept != 0]
    moved = pruned_embeddings(model_of(tiny_model, "bert", "MaskedLM"), some, words_of(len(some)))
    assert moved.config.pad_token_id == 0
