"""The tokenizer that serves without transformers, against transformers' own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from distill.config.loads import BATCH, SINGLE
from distill.data.task_types import TASK_TYPES
from distill.deploy import serve
from distill.deploy.export import onnx, tokenizer
from distill.deploy.export.record import FILE, Entry, Record, read, write
from distill.deploy.serve import tokens
from distill.errors import ConfigError, DataError
from distill.models.families import vectors
from tests import tiny

TEXTS = ["the small boat", "", "[CLS] storm [SEP]", "Zo\u00eb \U0001f600 \u4e2d\u6587", "harbour " * 40]


def byte_level(folder: Path) -> None:
    """A tokenizer of the kind of GPT-2 and RoBERTa, which trims spaces from offsets and cuts on the left."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=backend, truncation_side="left", **names).save_pretrained(folder)
    tiny.change(folder / "config.json", vocab_size=backend.get_vocab_size())


def unchanged(folder: Path) -> None:
    pass


@pytest.mark.parametrize("made", [unchanged, byte_level])
def test_every_output_is_that_of_transformers(made: Callable[[Path], None], copy: Path) -> None:
    from transformers import AutoTokenizer

    made(copy)
    stated = tokenizer.proved(copy, [TEXTS], 40)
    assert stated is not None
    ours, theirs = tokens.read(copy, stated), AutoTokenizer.from_pretrained(copy)
    assert stated.cuts_left == (theirs.truncation_side == "left") == (made is byte_level)
    assert ours.pad_token_id == theirs.pad_token_id
    assert [ours.num_special_tokens_to_add(pair) for pair in (False, True)] == [
        theirs.num_special_tokens_to_add(pair) for pair in (False, True)
    ]
    keys = ("input_ids", "token_type_ids", "special_tokens_mask", "offset_mapping")
    wanted: dict[str, Any] = {f"return_{key.removesuffix('_mapping').replace('offset', 'offsets_mapping')}": True
                              for key in keys[1:]}  # fmt: skip
    cut: dict[str, Any] = {"truncation": True, "max_length": 9}
    windows = {"truncation": "only_second", "max_length": 30, "stride": 3, "return_overflowing_tokens": True}
    for given, settings in (
        ((TEXTS,), {}), ((TEXTS,), cut), ((TEXTS, TEXTS[::-1]), cut), ((TEXTS,), {"add_special_tokens": False}),
        ((["boat"] * 5, TEXTS), windows), (("a storm", "boat"), {}), (("a storm",), {}),
    ):  # fmt: skip
        mine, expected = ours(*given, **settings, **wanted), theirs(*given, **settings, **wanted)
        for key in (*keys, *(["overflow_to_sample_mapping"] if settings is windows else [])):
            assert list(mine[key]) == expected[key], (key, settings)
        if not isinstance(given[0], str):
            rows = range(len(expected["input_ids"]))
            assert [mine.sequence_ids(row) for row in rows] == [expected.sequence_ids(row) for row in rows]


DIFFERENT: dict[str, Callable[[Path], None]] = {
    "transformers splits special tokens": lambda f: tiny.change(f / "tokenizer_config.json", split_special_tokens=True),
    "sentence-transformers lower-cases": lambda f: (
        tiny.change(f / "tokenizer.json", normalizer=None),
        vectors.write(f, vectors.Vectors(), 16, {}),
        tiny.change(f / "config_sentence_transformers.json", model_type="CrossEncoder"),
        tiny.change(f / "sentence_bert_config.json", do_lower_case=True),
    )[-1],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_tokens_are_left_to_transformers(name: str, copy: Path) -> None:
    assert tokenizer.proved(copy, [], 40) is not None
    DIFFERENT[name](copy)
    assert tokenizer.proved(copy, [], 40) is None


@pytest.fixture
def served(copy: Path) -> Path:
    """An exported folder with an ONNX file."""
    onnx.export_onnx(copy, copy / "model.onnx")
    entries = (Entry("torch", "fp32", ".", 1.0), Entry("onnxruntime", "fp32", "model.onnx", 2.0, single_ms=0.1))
    kind, found = TASK_TYPES["classification"], tokenizer.proved(copy, [], 40)
    write(copy, Record("t", kind, ("boat", "baker", "storm"), ("body",), 40, entries, tokens=found, load=SINGLE))
    return copy


def test_special_tokens_of_its_own_are_compared(copy: Path) -> None:
    """With `split_special_tokens`, transformers tokenizes a special token as plain text; tokenizers never does."""
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(copy)
    own.add_special_tokens({"additional_special_tokens": ["<boat>"]})
    own.save_pretrained(copy)
    assert tokenizer.proved(copy, [], 40) is not None
    tiny.change(copy / "tokenizer_config.json", split_special_tokens=True)
    assert tokenizer.proved(copy, [], 40) is None


def test_a_changed_tokenizer_is_read_by_transformers(served: Path) -> None:
    record = read(served)
    assert record is not None
    assert record.tokens == tokenizer.proved(served, [], 40)
    model: Any = serve.load(served)
    assert (model.backend, isinstance(model.tokenizer, tokens.Tokenizer)) == ("onnxruntime", True)
    before = model.outputs(TEXTS)
    tiny.change(served / "tokenizer_config.json", split_special_tokens=True)
    changed: Any = serve.load(served)
    assert type(changed.tokenizer).__module__.startswith("transformers")
    assert abs(changed.outputs(TEXTS) - before).max(axis=1).nonzero()[0].tolist() == [2]
    tiny.change(served / "tokenizer.json")  # in another layout
    with pytest.warns(UserWarning, match=r"tokenizer.json: got another content than that of the exported tokenizer"):
        serve.load(served)
    (served / "tokenizer.json").write_text("{")
    write(served, replace(record, tokens=replace(record.tokens, files=tokens.content(served), own=None)))  # type: ignore[type-var]
    with pytest.raises(DataError, match=r"copy: got files that cannot be loaded .*; must be an exported folder"):
        serve.load(served)


def test_the_artifact_is_the_fastest_under_the_load(served: Path) -> None:
    assert serve.load(served).backend == "onnxruntime", "the load of the record"
    assert serve.load(served, load=BATCH).backend == "torch"
    tiny.change(served / FILE, load="absent")
    with pytest.raises(DataError, match=r"got load 'absent'"):
        serve.load(served)
    record = json.loads((served / FILE).read_text())
    for entry in record["artifacts"]:
        entry.pop("single_ms", None)
    tiny.change(served / FILE, artifacts=record["artifacts"], load=BATCH)
    with pytest.raises(ConfigError, match=r"^load: got single; must be a load for which the run timed its artifacts"):
        serve.load(served, load=SINGLE)
    with pytest.raises(ConfigError, match=r"^load: got always; must be batch or single"):
        serve.load(served, load="always")


@pytest.mark.quick(1)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "torch"])
def test_threads_of_a_service_get_the_answers_of_their_own_texts(backend: str, served: Path) -> None:
    if backend == "openvino":
        record = read(served)
        assert record is not None
        write(served, replace(record, artifacts=(Entry(backend, "fp32", "model.onnx"),)))
    model: Any = serve.load(served, backend=backend, threads=1)
    expected = {text: model.outputs([text])[0] for text in TEXTS if text}
    texts = [*expected] * 60
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: model.outputs([text])[0], texts))
    assert all(np.allclose(one, expected[text], atol=1e-6) for one, text in zip(found, texts, strict=True))


IMPORTED = """
import sys, distill
distill.load(sys.argv[1], threads=1).predict(["a small boat"])
slow = {"torch", "transformers", "scipy", "datasets", "pyarrow", "matplotlib", "onnx", "huggingface_hub", "omegaconf"}
slow |= {"msgspec", "rich", "hydra", "yaml"}
sys.exit(", ".join(sorted(slow & sys.modules.keys())) or 0)
"""


def test_only_what_serves_is_imported(served: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED, str(served)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_texts_are_timed_with_the_tokenizer_that_serves(copy: Path) -> None:
    """The library alone where it makes the same tokens, else that of transformers."""
    whole = AutoTokenizer.from_pretrained(copy)
    served = tokenizer.serving(whole, copy, 40)
    assert isinstance(served, tokens.Tokenizer)
    expected = whole(TEXTS, truncation=True, max_length=40)["input_ids"]
    assert served(TEXTS, truncation=True, max_length=40)["input_ids"] == expected
    other = AutoTokenizer.from_pretrained(copy, split_special_tokens=True)
    assert tokenizer.serving(other, copy, 40) is other
    tiny.change(copy / "config.json", pad_token_id=None)
    assert tokenizer.serving(whole, copy, 40) is whole
