"""`distill look` shows what transformers computes, in a page that loads nothing and believes no text."""

from __future__ import annotations

import base64
import html
import io
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from distill.cli.look.command import main
from distill.cli.look.page import page
from distill.cli.look.seen import Seen, see, similarity
from distill.errors import ConfigError
from distill.evaluation.cka import linear_cka
from distill.models import families, hooks
from tests import tiny

TEXT = "the small boat crossed the quiet harbour before dawn nobody in the village"
LOCAL = ("modernbert", "ultrabert")
"""Families whose tiny models have layers of a window of 8 tokens."""


def looked(folder: Path, *texts: str, most: int = 64) -> Seen:
    return see(folder, "FOLDER", texts or (TEXT,), most, lambda line: None)


def head_of(name: str) -> str:
    return "TokenClassification" if name == "openai_privacy_filter" else "SequenceClassification"


def theirs(folder: Path, head: str, *texts: str, **settings: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The model of a folder by transformers alone, and its inputs."""
    model = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, **settings).eval()
    # Not by AutoTokenizer, which builds a Qwen2Tokenizer for every Qwen2 and takes the vocabulary alone from the file.
    encoded = transformers.PreTrainedTokenizerFast.from_pretrained(folder)(*(texts or (TEXT,)), return_tensors="pt")
    return model, families.inputs(model, dict(encoded))


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in tiny.SAME else ()) for name in tiny.FAMILIES]
)
def test_attention_and_states_are_those_of_the_hooks(name: str, tmp_path: Path) -> None:
    """The hooks compute the scores by each family's formula, from the projections of another attention kernel."""
    folder = tiny.save(tmp_path / "model", name, head_of(name), std=0.3)
    seen = looked(folder)
    model, batch = theirs(folder, head_of(name))
    layers = range(families.depth(model))
    with torch.no_grad():
        features = hooks.capture(model, batch, {"hidden": [-1, *layers], "scores": [*layers]})
    assert (seen.family, len(seen.attention), len(seen.hidden)) == (name, len(layers), len(layers) + 1)
    for layer in range(-1, len(layers)):
        assert seen.hidden[layer + 1] == pytest.approx(features.hidden[layer][0].numpy(), abs=1e-4), layer
    local, apart = 0, np.abs(np.subtract.outer(range(len(seen.tokens)), range(len(seen.tokens))))
    for layer in layers:
        weights = features.scores[layer][0].softmax(-1).numpy()
        outside = seen.attention[layer][0] == 0
        if outside.any():
            local += 1
            assert (outside == (apart > apart[~outside].max())).all(), "no window"
            weights = np.where(outside, 0, weights)
            weights /= weights.sum(-1, keepdims=True)
        assert seen.attention[layer] == pytest.approx(weights, abs=1e-4), layer
    assert bool(local) == (name in LOCAL)


@pytest.mark.parametrize("name", tiny.TEACHERS)
def test_attention_and_states_of_other_teachers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", name, head_of(name))
    seen = looked(folder, most=128)
    model, batch = theirs(folder, head_of(name), attn_implementation="eager")
    with torch.no_grad():
        outputs = model(**batch, output_attentions=True, output_hidden_states=True)
    both = [(seen.attention, "attentions"), (seen.hidden, "hidden_states")]
    for ours, names in both:
        expected = outputs[names] if names in outputs else outputs[f"encoder_{names}"]
        assert len(ours) == len(expected)
        for own, other in zip(ours, expected, strict=True):
            assert own == pytest.approx(other[0].numpy(), abs=1e-5)


def test_both_texts_of_a_pair_are_read(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "SequenceClassification", std=0.3)
    pair = "the small boat crossed", "two goats were asleep"
    seen = looked(folder, *pair)
    model, batch = theirs(folder, "SequenceClassification", *pair, attn_implementation="eager")
    assert batch["token_type_ids"].any()
    with torch.no_grad():
        expected = model(**batch, output_attentions=True).attentions
    assert seen.attention[-1] == pytest.approx(expected[-1][0].numpy(), abs=1e-5)
    words = [(token.text, token.end) for token in seen.tokens]
    assert words[:2] == [("[CLS]", None), ("the", (0, 3))]
    assert words[-2:] == [("asleep", (1, 21)), ("[SEP]", None)]


@pytest.fixture(scope="module")
def discriminator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes some tokens of the text for replaced, and others not."""
    folder = tiny.save(tmp_path_factory.mktemp("look") / "electra", "electra", "PreTraining", std=0.3)
    model, batch = theirs(folder, "PreTraining")
    with torch.no_grad():
        model.discriminator_predictions.dense_prediction.bias -= model(**batch).logits.mean()
    model.save_pretrained(folder)
    return folder


def test_an_electra_marks_what_it_takes_for_replaced(discriminator: Path) -> None:
    said = list[str]()
    seen = see(discriminator, "FOLDER", [TEXT], 64, said.append)
    assert said == [], "its head is used"
    model = transformers.ElectraForPreTraining.from_pretrained(discriminator).eval()
    _, batch = theirs(discriminator, "PreTraining")
    with torch.no_grad():
        expected = model(**batch).logits[0].sigmoid().numpy()
    assert seen.replaced == pytest.approx(expected, abs=1e-5)
    words = [token.text for token, p in zip(seen.tokens, expected, strict=True) if p > 0.5 and token.end]
    assert 0 < len(words) < len(seen.tokens) - 2
    read = Read(page([seen]))
    assert [text for classes, text in read.chips if "replaced" in classes] == words


def test_other_electras_mark_nothing(tmp_path: Path) -> None:
    assert looked(tiny.save(tmp_path / "model", "electra", "MaskedLM")).replaced is None
    assert looked(tiny.save(tmp_path / "other", "electra", "SequenceClassification")).replaced is None


def test_layers_of_a_copy_are_the_same(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "MaskedLM", std=0.3)
    seen = looked(folder)
    cells, common = similarity(seen, looked(folder))
    assert common == len(TEXT.split())
    assert np.diag(np.array(cells, float)) == pytest.approx(np.ones(4))
    assert 1 - float(cells[3][1] or 0) > 1e-3


def test_a_student_of_another_tokenizer_is_compared_where_tokens_end_together(tmp_path: Path) -> None:
    teacher = tiny.save(tmp_path / "teacher", "bert", "MaskedLM", std=0.3)
    student = tiny.save(
        tmp_path / "student", "distilbert", "MaskedLM", std=0.3, hidden_size=8, num_hidden_layers=2, length=99
    )
    letters = {
        piece: number
        for number, piece in enumerate(("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *map(chr, range(97, 123))))
    }
    backend = Tokenizer(models.BPE(letters, [], unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()  # type: ignore
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(student)
    first, second = looked(teacher), looked(student, most=99)
    words = TEXT.split()
    assert [token.text for token in second.tokens[1:]] == [*"".join(words)]
    last = np.cumsum([len(word) for word in words])
    cells, common = similarity(first, second)
    assert (common, len(cells), len(cells[0])) == (len(words), 3, 4)
    assert cells[2][3] == linear_cka(first.hidden[3][1:-1], second.hidden[2][last])


def test_a_long_text_is_cut_and_the_page_says_so(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "MaskedLM", length=20)
    short, middle, long = (looked(folder, text, most=most) for text, most in ((TEXT, 64), (TEXT, 8), (TEXT * 5, 64)))
    assert [len(seen.tokens) for seen in (short, middle, long)] == [15, 8, 20]
    assert middle.tokens[-1].text == "[SEP]"
    assert "was cut" not in page([short])
    text = Read(page([short, middle])).text
    assert "Student: the text has 15 tokens, special tokens included. It was cut to 8," in text
    assert "Teacher: the text" not in text


class Read(HTMLParser):
    """A page as a browser takes it apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.pictures, self.chips, self.text = list[str](), list[str](), list[tuple[str, str]](), ""
        self.addresses, self.scripts = list[str](), 0
        self._token: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.scripts += tag == "script"
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        self.pictures += [str(named["src"])] if tag == "img" else []
        classes = str(named.get("class", "")).split()
        self._token = " ".join(classes) if "token" in classes else None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._token is not None:
            self.chips.append((self._token, data))
            self._token = None


def test_pictures_are_the_weights_and_nothing_is_loaded(tmp_path: Path) -> None:
    seen = looked(tiny.save(tmp_path / "model", "bert", "MaskedLM", std=0.3))
    read = Read(page([seen, seen]))
    assert len(read.pictures) == 2 * 3 * 2
    assert all(address.startswith("data:image/png;base64,") for address in read.addresses)
    for at, address in enumerate(read.pictures):
        content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
        opacity = np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))[:, :, 3] / 255
        assert opacity**2 == pytest.approx(seen.attention[at // 2 % 3][at % 2], abs=1.1 / 255)
    assert "default-src 'none'; script-src 'sha256-" in html.unescape(page([seen]))
    assert "@import" not in page([seen])
    assert "url(" not in page([seen])


def test_a_text_and_a_name_are_no_code(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "<img src=x onerror=alert(1)>", "bert", "MaskedLM")
    plain = Read(page([looked(folder, "a b c d")]))
    read = Read(page([looked(folder, "</button><script>alert(1)</script> \u202e {{ 7 * 7 }}")]))
    assert (read.scripts, read.tags.count("img")) == (1, plain.tags.count("img"))
    assert "<" in [text for _, text in read.chips]
    assert "\u202e" not in read.text


def test_too_few_tokens_are_said(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "MaskedLM")
    assert (
        "it needs at least 4 tokens, and this text has 3 tokens" in Read(page([looked(folder, "the small boat")])).text
    )
    assert "Linear CKA" in page([looked(folder, "the small boat crossed")])


def test_a_static_student_is_refused(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "eurobert", "", num_hidden_layers=0)
    with pytest.raises(ConfigError, match=r"--beside: got .* a static model without layers; must have layers"):
        see(folder, "--beside", [TEXT], 64, print)


def _folder_of(kind: str, root: Path) -> Path:
    folder = root / kind
    if kind == "missing":
        return folder
    if kind == "onnx":
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"\x08")
        return folder
    tiny.save(folder, "bert", "SequenceClassification")
    changed = {
        "code": {"model_type": "theirs", "auto_map": {"AutoModel": "theirs.Model"}},
        "quantized": {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
    }
    tiny.change(folder / "config.json", **changed[kind])
    return folder


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "must be a local folder"),
        ("onnx", "which has no config.json; must be one exported folder"),
        ("code", "a model of type theirs, for which transformers has no class but the folder's own code"),
        ("quantized", "a quantized model (bitsandbytes); must have float weights"),
    ],
)
@pytest.mark.parametrize("argument", ["FOLDER", "--beside"])
def test_folders_that_cannot_be_shown_are_refused(
    argument: str, kind: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, whole = _folder_of(kind, tmp_path), tmp_path / "whole"
    tiny.save(whole, "bert", "MaskedLM")
    folders = [str(folder)] if argument == "FOLDER" else [str(whole), "--beside", str(folder)]
    assert main([folders[0], TEXT, *folders[1:], "--out", str(tmp_path / "look.html")]) == 2
    error = capsys.readouterr().err
    line = error.splitlines()[-1]
    assert line.startswith(f"{argument}: got ")
    assert message in line
    assert not (tmp_path / "look.html").exists()


def test_the_page_is_written_and_replaces_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.save(tmp_path / "model", "bert", "MaskedLM")
    given = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfthe small\nboat crossed\r\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", given)
    assert main(["model", "-"]) == 0
    assert capsys.readouterr().err.endswith("page: look.html\n")
    written = (tmp_path / "look.html").read_text(encoding="utf-8")
    assert [text for _, text in Read(written).chips] == ["[CLS]", "the", "small", "boat", "crossed", "[SEP]"]
    assert main(["model", TEXT]) == 2
    assert capsys.readouterr().err == (
        "--out: got look.html, which exists; must be a new file; add --overwrite to replace it, or "
        "set --out look-2.html\n"
    )
    assert (tmp_path / "look.html").read_text(encoding="utf-8") == written
    assert main(["model", TEXT, "--overwrite"]) == 0
    assert (tmp_path / "look.html").read_text(encoding="utf-8") != written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["look.html", "model"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model", " "], "TEXT: got an empty text; must have characters; write it"),
        (["model", "a", "--pair", ""], "--pair: got an empty text; must have characters; write it"),
        (["model", "\udcff"], "TEXT: got bytes that are not UTF-8; must be text; convert it to UTF-8"),
        (["model", "a", "--tokens", "0"], "--tokens: got 0; must be a whole number from 1; correct it; see {} --help"),
        (["model", "a", "--tokens", "7"], "--tokens: got 7; must be >= 8; set --tokens 8 or more"),
        (["model", "a", "--out", "model/config.json"], "--out: got model/config.json, which the command reads; {}"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert main(words) == 2
    advice = "python -m distill.look" if "--tokens" in words else "must be another file; set --out model/config-2.json"
    assert capsys.readouterr().err == f"{message.format(advice)}\n"


def test_a_standard_input_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.open("a file", os.O_WRONLY | os.O_CREAT), encoding="utf-8") as given:
        monkeypatch.setattr("sys.stdin", given)
        assert main(["model", "-"]) == 2
    error = "standard input: got Bad file descriptor; must be a text that can be read; pipe one into it\n"
    assert capsys.readouterr().err == error
