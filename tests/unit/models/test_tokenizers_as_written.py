"""The tokens of a folder are those of its tokenizer.json, as the library tokenizers reads it, also where transformers
builds a tokenizer of another kind from the folder."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from distill.errors import DataError
from distill.models import teacher
from distill.models.token_types import typed
from distill.models.write import write_model
from tests import tiny

WORDS = "hello world the cat sat on mat a b c".split()
LETTERS = [(letter, -20.0) for letter in "abcdefghijklmnopqrstuvwxyz\u2581"]
SPECIAL = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
TEXTS = [("hello world",), ("hello", "the cat"), ("\ufb01 \u00a0cat\uff01",), ("  two  blanks ",), ("",)]


def unigram() -> Tokenizer:
    """As of a sentence-piece model: compatible characters are replaced, and one separator stands between texts."""
    vocabulary = [(token, 0.0) for token in SPECIAL.values()] + [(f"\u2581{word}", -5.0) for word in WORDS]
    built = Tokenizer(models.Unigram([*vocabulary, *LETTERS], unk_id=3))
    parts = [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(" {2,}", " ")]
    built.normalizer, built.pre_tokenizer = normalizers.Sequence(parts), pre_tokenizers.Metaspace()
    built.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return built


def words() -> Tokenizer:
    """Cased words that are divided at blanks alone, of a class that lower-cases and divides at punctuation."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL.values(), *WORDS, "Cat,", "!"])}
    built = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    built.normalizer, built.pre_tokenizer = normalizers.NFC(), pre_tokenizers.WhitespaceSplit()
    return built


CASES: dict[str, tuple[str, str, Any]] = {
    "a sentence-piece model as BERT's": ("BertTokenizer", "bert", unigram),
    "without a class": ("", "bert", unigram),
    "another normalizer": ("DebertaV2Tokenizer", "deberta-v2", unigram),
    "one separator": ("XLMRobertaTokenizer", "xlm-roberta", unigram),
    "a sentence-piece model as bytes": ("RobertaTokenizer", "roberta", unigram),
    "other words": ("BertTokenizer", "bert", words),
}


def folder_of(folder: Path, case: str) -> Path:
    """A folder as transformers 4 and the library wrote it."""
    named, family, build = CASES[case]
    folder.mkdir()
    build().save(str(folder / "tokenizer.json"))
    settings = SPECIAL | ({"tokenizer_class": named} if named else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": family, "vocab_size": 100}))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_the_file_and_of_every_copy(case: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "given", case)
    library, found = Tokenizer.from_file(str(folder / "tokenizer.json")), teacher.load_tokenizer(folder)
    expected = [library.encode(*texts) for texts in TEXTS]
    assert [found(*texts)["input_ids"] for texts in TEXTS] == [each.ids for each in expected]
    assert {name: getattr(found, name) for name in SPECIAL} == SPECIAL
    found.save_pretrained(tmp_path / "student")
    shutil.copy(folder / "config.json", tmp_path / "student")
    for again in (AutoTokenizer.from_pretrained(tmp_path / "student"), teacher.load_tokenizer(tmp_path / "student")):
        for texts, each in zip(TEXTS, expected, strict=True):
            answer = again(*texts)
            assert answer["input_ids"] == each.ids
            if "token_type_ids" in answer:
                assert answer["token_type_ids"] == each.type_ids
        assert again.model_input_names == found.model_input_names
        assert again.pad_token_id == 1


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("name", ["BertTokenizer", "MPNetTokenizer", "RobertaTokenizer", "DebertaTokenizer"])
def test_the_files_of_transformers_keep_their_class(name: str, lower: bool, tmp_path: Path) -> None:
    """With the settings that it applies to a file, such as lower case, or a blank before a text."""
    made = getattr(transformers, name)
    special = made().all_special_tokens
    vocabulary = {token: number for number, token in enumerate([*special, *"the cat sat \u0120".split(), *"acehst"])}
    merges = {} if name in ("BertTokenizer", "MPNetTokenizer") else {"merges": []}
    made(vocab=vocabulary, **merges).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name.removesuffix("Tokenizer").lower()}))
    tiny.change(tmp_path / "tokenizer_config.json", do_lower_case=lower, add_prefix_space=lower)
    found, expected = teacher.load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert type(found) is type(expected) is made
    for texts in (("The Cat sat",), ("the cat", "sat")):
        assert found(*texts)["input_ids"] == expected(*texts)["input_ids"]


def test_a_class_without_settings_of_case_reads_the_case_of_the_file(tmp_path: Path) -> None:
    """HerBERT's, whose words are cased. Its class had token types in version 4, and has none in 5."""
    signs = [*string.ascii_letters, "\u00ef"]
    pieces = [*SPECIAL.values(), *signs, *(f"{sign}</w>" for sign in signs)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    built = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    built.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    built.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(SPECIAL | {"tokenizer_class": "HerbertTokenizer"}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 200}))
    found = teacher.load_tokenizer(tmp_path)
    for texts in (("Na\u00efve Cat",), ("the Cat", "SAT")):
        assert found(*texts)["input_ids"] == built.encode(*texts).ids
    assert typed(found)


def test_tokens_that_the_file_alone_adds_are_kept(tmp_path: Path) -> None:
    """Where tokenizer_config.json lists added tokens, as version 4 writes it, transformers 5 reads these alone."""
    special = transformers.BertTokenizer().all_special_tokens
    made = transformers.BertTokenizer(vocab={token: number for number, token in enumerate([*special, "the", "cat"])})
    made.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 100}))
    file, flags = tmp_path / "tokenizer.json", ("single_word", "lstrip", "rstrip", "normalized", "special")
    added = {"id": len(made), "content": "[ORDER]"} | dict.fromkeys(flags, False)
    others = json.loads(file.read_text())["added_tokens"]
    tiny.change(file, added_tokens=[*others, added])
    listed = {str(each.pop("id")): each for each in others}
    tiny.change(tmp_path / "tokenizer_config.json", added_tokens_decoder=listed)
    expected = Tokenizer.from_file(str(file)).encode("the [ORDER] cat").ids
    assert added["id"] in expected
    assert teacher.load_tokenizer(tmp_path)("the [ORDER] cat")["input_ids"] == expected


@pytest.mark.parametrize("last", [True, False])
def test_gemmas_settings_of_the_ends_of_texts_count_as_in_version_4(last: bool, tmp_path: Path) -> None:
    """Its class obeys them whatever the file says. Version 5 leaves them out where there is a file."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *"\u2581abcehost"]
    made = transformers.GemmaTokenizer(vocab={piece: n for n, piece in enumerate(pieces)}, merges=[])
    made.add_bos_token, made.add_eos_token = True, not last
    made.save_pretrained(tmp_path / "given")
    file = tmp_path / "given" / "tokenizer_config.json"
    tiny.change(file, backend=..., add_bos_token=True, add_eos_token=last)
    (tmp_path / "given" / "config.json").write_text(json.dumps({"model_type": "gemma2", "vocab_size": 100}))
    found = teacher.load_tokenizer(tmp_path / "given")
    found.save_pretrained(tmp_path / "student")
    shutil.copy(tmp_path / "given" / "config.json", tmp_path / "student")
    made.add_eos_token = last
    for texts in (("the boat",), ("the", "boats")):
        expected = made(*texts)["input_ids"]
        assert (expected[-1] == made.eos_token_id) is last
        for tokenizer in (found, AutoTokenizer.from_pretrained(tmp_path / "student")):
            assert tokenizer(*texts)["input_ids"] == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab": "/etc/hostname"}, "got vocab; must have no such setting"),
        ({"merges": "/etc/hostname"}, "got merges; must have no such setting"),
        ({"fast_tokenizer_files": ["../other/tokenizer.4.0.0.json"]}, "got fast_tokenizer_files; must have no such"),
        ({"gguf_file": "x.gguf"}, "got gguf_file; must have no such setting"),
        ({"init_inputs": ["/etc/hostname"]}, "got init_inputs; must have no such setting"),
        (
            {"tokenizer_class": "AutoProcessor"},
            "got tokenizer_class AutoProcessor; must be a tokenizer of transformers",
        ),
        ({"tokenizer_class": "AutoModelForImageClassification"}, "must be a tokenizer of transformers"),
    ],
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_settings_that_read_other_files_or_classes_are_refused(
    file: str, settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked whether their code may run: the first line of standard input would be the answer."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    folder = tiny.save(tmp_path / "given", "bert", "MaskedLM")
    (folder / "theirs.py").write_text("raise SystemExit('it ran')")
    more = settings | {"auto_map": {"AutoProcessor": "theirs.P"}}
    tiny.change(folder / file, **more)
    if file == "config.json" and "tokenizer_class" not in settings:
        teacher.load_tokenizer(folder)  # which reads these from its own file alone
        return
    with pytest.raises(DataError, match=message):
        teacher.load_tokenizer(folder)


def names_in(folder: Path) -> Any:
    return json.loads((folder / "tokenizer_config.json").read_text()).get("model_input_names")


@pytest.mark.parametrize("five", [True, False], ids=["of transformers 5", "of transformers 4"])
def test_a_folder_without_names_of_inputs_has_the_token_types_of_its_version(five: bool, tmp_path: Path) -> None:
    """Version 5 of this class gives no token types unless a file asks for them; version 4 gives them."""
    folder = tiny.save(tmp_path / "given", "bert", "SequenceClassification")
    of_4 = {} if five else {"tokenizer_class": "PreTrainedTokenizerFast", "backend": ...}
    tiny.change(folder / "tokenizer_config.json", model_input_names=..., **of_4)
    found = teacher.load_tokenizer(folder)
    assert typed(found) is not five
    if five:
        assert found.model_input_names == AutoTokenizer.from_pretrained(folder).model_input_names
    with write_model(tmp_path / "student", tiny.model("bert", "SequenceClassification"), found):
        pass
    expected = ["input_ids", *([] if five else ["token_type_ids"]), "attention_mask"]
    assert sorted(names_in(tmp_path / "student")) == sorted(expected)
    again = AutoTokenizer.from_pretrained(tmp_path / "student")
    assert ("token_type_ids" in again("hello", "world")) is not five


def test_a_tokenizer_that_is_saved_beside_a_model_states_its_inputs(tmp_path: Path) -> None:
    """Also one whose class has them by itself: another version of the class has others."""
    made = transformers.BertTokenizer()
    with write_model(tmp_path / "student", tiny.model("distilbert", "SequenceClassification"), made):
        pass
    assert names_in(tmp_path / "student") == ["input_ids", "attention_mask"]
    assert "token_type_ids" in made.model_input_names, "the caller's own is changed"
