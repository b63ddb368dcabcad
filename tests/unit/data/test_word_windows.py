"""Long texts in words as windows: every word once, where it is farthest from an edge; against a search of all windows,
and against the pipeline of transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForTokenClassification, PreTrainedTokenizerFast, pipeline

import distill
from distill.config import Limit, Tasks
from distill.data.asked import Asked
from distill.data.collate import task_batch
from distill.data.encode import Encoded
from distill.data.encode_words import encode_words
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.words import words_of
from distill.data.tasks import TaskData, load_tasks
from distill.data.windows import OVERLAP
from distill.deploy.export import onnx, record, tokenizer
from distill.deploy.serve import tokens
from distill.evaluation import metrics
from distill.inference.predict import predict
from distill.inference.timing import tokenized
from tests import tiny

COUNT = 400
TAGS = ("O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE")
TEMPLATES = {"around": "[CLS] $A [SEP]", "after": "$A [SEP] [CLS]", "none": "$A"}


def of_numbers(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer that outputs a different token for each of the words t0, t1, ..., and drops dots."""
    special = {"[CLS]": 0, "[PAD]": 1, "[SEP]": 2, "[UNK]": 3}
    backend = Tokenizer(
        models.WordLevel(special | {f"t{number}": 10 + number for number in range(COUNT)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(".", "removed")]
    )
    if template != "$A":
        backend.post_processor = processors.TemplateProcessing(
            single=template, pair=f"{template} $B:1", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


def in_words(random: np.random.Generator, count: int, longest: int) -> tuple[str, np.ndarray, list[range]]:
    """A text of `count` tokens, the places of its words, and the tokens of each. Every tenth word has none."""
    text, places, owned, used = "", list[list[int]](), list[range](), 0
    while used < count:
        own = (
            range(used, min(count, used + int(random.integers(1, longest + 1)))) if random.random() > 0.1 else range(0)
        )
        word = " ".join(f"t{number}" for number in own) or "..."
        text += " " * bool(text)
        places.append([len(text), len(text) + len(word)])
        text += word
        owned.append(own)
        used += len(own)
    return text, np.array(places, np.int64), owned


def rows(encoded: Encoded) -> list[list[int]]:
    return [part.tolist() for part in np.split(encoded.ids, encoded.offsets[1:-1])]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(("max_length", "longest"), [(8, 2), (8, 20), (16, 4), (21, 30), (64, 9)])
def test_a_word_is_of_the_window_where_it_is_farthest_from_an_edge(
    template: str, max_length: int, longest: int
) -> None:
    reader, random = of_numbers(TEMPLATES[template]), np.random.default_rng(max_length + longest)
    counts = (3, max_length, max_length + 1, 150, COUNT)
    texts, places, owned = zip(*(in_words(random, count, longest) for count in counts), strict=True)
    encoded = encode_words(texts, places, reader, max_length)
    words = encoded.words
    assert words is not None
    assert len(words.positions) == sum(map(len, places))
    assert len(encoded) == len(words.owners) == len(words.offsets) - 1
    before, after = {"around": ([0], [2]), "after": ([], [2, 0]), "none": ([], [])}[template]
    room = max_length - len(before) - len(after)
    of_word = np.repeat(np.arange(len(encoded)), np.diff(words.offsets))
    every, done = rows(encoded), 0
    for text, count in enumerate(counts):
        step = max(1, room - min(max_length // OVERLAP, room - 1))
        starts = [*range(0, count - room, step), max(0, count - room)]
        chosen = []
        for tokens_of_word in owned[text]:
            row, position = of_word[done], words.positions[done]
            done += 1
            assert words.owners[row] == text
            assert (position < 0) == (len(tokens_of_word) == 0)
            if not len(tokens_of_word):
                continue
            first, end = tokens_of_word[0], tokens_of_word[-1] + 1
            having = [start for start in starts if start <= first < start + room]
            best = max(having, key=lambda start: min(first - start, start + room - end))
            assert every[row] == [*before, *range(10 + best, 10 + min(best + room, count)), *after]
            assert every[row][position] == 10 + first
            assert end <= best + room or end - first > max_length // OVERLAP, "only a long word is cut"
            chosen.append(row)
        assert sorted(set(chosen)) == np.flatnonzero(words.owners == text).tolist(), "no window without words"
    assert done == len(words.positions)
    assert encoded.whole_lengths.tolist() == [count + len(before) + len(after) for count in counts]


def test_tokens_that_windows_share_count_once() -> None:
    reader, counts = of_numbers(TEMPLATES["around"]), (126, 127, 208)
    texts = [" ".join(f"t{number}" for number in range(count)) for count in counts]
    encoded = encode_words(texts, [np.array(words_of(text), np.int64) for text in texts], reader, 128)
    assert encoded.lengths.tolist() == [128, 128, 128, 128, 128]
    assert encoded.whole_lengths.tolist() == [128, 129, 210]


def test_a_long_text_without_words_is_one_window() -> None:
    reader = of_numbers(TEMPLATES["around"])
    encoded = encode_words(["t1 " * 50], [np.zeros((0, 2), np.int64)], reader, 16)
    assert encoded.lengths.tolist() == [16]
    assert encoded.words is not None
    assert encoded.words.offsets.tolist() == [0, 0]


@pytest.mark.parametrize("left", [False, True])
def test_outputs_are_those_of_all_words(left: bool) -> None:
    reader = of_numbers(TEMPLATES["around"])
    text, places, owned = in_words(np.random.default_rng(0), 200, 3)
    encoded = encode_words(["t7", "", text], [np.array([[0, 2]]), np.zeros((0, 2), np.int64), places], reader, 16)

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        return batch["input_ids"][:, :, None].astype(np.float32)

    outputs = predict(run, encoded, pad_id=1, left=left, rows=3)
    assert outputs[:, 0].tolist() == [17, *(10 + each[0] if len(each) else 0 for each in owned)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TaskData:
    """Texts of 5 to 64 words, in which goats are animals and harbours are places."""
    random, file = np.random.default_rng(0), tmp_path_factory.mktemp("words") / "places.jsonl"
    every = [word for sentence in tiny.SENTENCES for word in sentence.split()]
    types = {"goats": "B-ANIMAL", "harbour": "B-PLACE", "quiet": "I-PLACE", "asleep": "I-ANIMAL"}
    with file.open("w") as lines:
        for size in random.integers(5, 65, 80):
            words = [*random.choice(every, size), "goats", "harbour", "harbour"]
            tags = [types[word] if types.get(word, "I").startswith("B") else "O" for word in words]
            lines.write(json.dumps({"tokens": words, "ner_tags": tags}) + "\n")
    return load_tasks(Tasks(train=str(file)), Limit(), 0).tasks["places"]


def test_every_word_is_trained_once(data: TaskData) -> None:
    encoded = data.encoded(data.train, tiny.tokenizer(), 16)
    assert encoded.words is not None
    assert encoded.labels is not None
    assert len(encoded) > len(data.train)
    assert int(encoded.lengths.max()) == 16
    numbers, at = [], []
    for start in range(0, len(encoded), 7):
        batch, own = task_batch(encoded, range(start, min(start + 7, len(encoded))), tiny.PADDING)
        numbers += own.tolist()
        at += batch["input_ids"].ravel()[batch["words"]].tolist()
    texts = [text.split() for text in data.train["tokens"]]
    assert numbers == list(range(sum(map(len, texts))))
    ids = tiny.tokenizer().convert_tokens_to_ids([word for text in texts for word in text])
    assert at == ids
    np.testing.assert_array_equal(encoded.labels, np.concatenate([*data.train["label"]]))


def of_characters() -> PreTrainedTokenizerFast:
    special, letters = {"[CLS]": 0, "[PAD]": 1, "[SEP]": 2, "[UNK]": 3}, sorted({*"".join(tiny.SENTENCES)})
    backend = Tokenizer(models.WordLevel(special | {letter: ord(letter) for letter in letters}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")


def test_a_student_learns_of_a_word_what_a_teacher_with_another_tokenizer_outputs_for_it(data: TaskData) -> None:
    teacher, student, reader = of_characters(), data.encoded(data.train, tiny.tokenizer(), 16), tiny.tokenizer()
    read = data.encoded(data.train, teacher, 16)
    assert len(read) > 2 * len(student)

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        return batch["input_ids"][:, :, None].astype(np.float32)

    learned, seen = predict(run, read, pad_id=1, tokens=256), 0
    order = np.random.default_rng(0).permutation(len(student))
    for start in range(0, len(order), 7):
        batch, numbers = task_batch(student, order[start : start + 7], tiny.PADDING)
        words = reader.convert_ids_to_tokens(batch["input_ids"].ravel()[batch["words"]].tolist())
        assert learned[numbers, 0].tolist() == [ord(word[0]) for word in words]
        seen += len(words)
    assert seen == len(learned)


def test_all_words_are_scored(data: TaskData) -> None:
    """A model that tags by the token alone finds every span of a long text, and misses none."""
    reader, kind, labels = tiny.tokenizer(), data.task.kind, data.task.labels
    goats, harbour = reader.convert_tokens_to_ids(["goats", "harbour"])
    (scored,) = data.scored(data.reported, reader, 16).values()

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        ids = batch["input_ids"]
        tags = np.where(ids == goats, labels.index("B-ANIMAL"), 0)
        return np.eye(len(labels), dtype=np.float32)[np.where(ids == harbour, labels.index("B-PLACE"), tags)]

    outputs = predict(run, scored, pad_id=tiny.PADDING)
    assert scored.labels is not None
    assert metrics.score(["span_f1", "accuracy"], kind.decode(outputs, labels, 0.5), scored.labels) == {
        "span_f1": 100,
        "accuracy": 100,
    }


def test_all_windows_of_a_text_are_one_request(data: TaskData) -> None:
    encoded = data.encoded(data.train, tiny.tokenizer(), 16)
    assert encoded.words is not None
    longest = int(encoded.whole_lengths.argmax())
    row = data.asked(data.train)[longest]
    assert isinstance(row, Asked)
    batch = tokenized([row], tiny.tokenizer(), 16)
    assert batch["input_ids"].shape == ((encoded.words.owners == longest).sum(), 16)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tag of a token depends on the token alone: it has no positions, and no layer attends. The pipeline
    of transformers has another rule for the tokens that windows share, so that only such a model has the same spans."""
    return tagging(tmp_path_factory.mktemp("tagger"), attends=False)


@pytest.fixture(scope="module")
def attending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tag of a token depends on its place in the window, and on the other tokens of the window."""
    return tagging(tmp_path_factory.mktemp("attending"), attends=True)


def tagging(folder: Path, *, attends: bool) -> Path:
    names = {"id2label": dict(enumerate(TAGS)), "label2id": {name: number for number, name in enumerate(TAGS)}}
    tiny.save(folder, "bert", "TokenClassification", initializer_range=0.3, **names)
    model = AutoModelForTokenClassification.from_pretrained(folder)
    with torch.no_grad():
        if not attends:
            model.bert.embeddings.position_embeddings.weight.zero_()
            for layer in model.bert.encoder.layer:
                layer.attention.output.dense.weight.zero_()
        model.classifier.bias[0] += 0.5
    model.save_pretrained(folder)
    return folder


def long_text(words: int, seed: int) -> str:
    every = [word for sentence in tiny.SENTENCES for word in sentence.split()]
    return " ".join(np.random.default_rng(seed).choice(every, words))


@pytest.mark.parametrize("divided", [False, True])
def test_spans_are_those_of_the_pipeline_of_transformers(tagger: Path, divided: bool) -> None:
    texts = [long_text(size, size) for size in (12, 31, 90, 300)]
    model: Any = distill.load(tagger, max_length=32)
    found = model.predict([text.split() for text in texts] if divided else texts)
    reader = tiny.tokenizer()
    reader.model_max_length = 32
    theirs = pipeline(
        "token-classification",
        model=AutoModelForTokenClassification.from_pretrained(tagger),
        tokenizer=reader,
        aggregation_strategy="first",
        stride=20,
    )
    for text, answer in zip(texts, found, strict=True):
        expected = theirs(text)
        spans = [(span["start"], span["end"], span["label"]) for span in answer["spans"]]
        assert spans == [(each["start"], each["end"], each["entity_group"]) for each in expected]
        np.testing.assert_allclose(
            [span["score"] for span in answer["spans"]], [each["score"] for each in expected], atol=1e-5
        )
        assert len(spans) > len(text) / 60
        assert max(span["end"] for span in answer["spans"]) > 0.8 * len(text)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


def without_torch(folder: Path) -> None:
    onnx.export_onnx(folder, folder / "model.onnx")
    entries = (record.Entry("torch", "fp32", "."), record.Entry("onnxruntime", "fp32", "model.onnx"))
    own = record.Record("places", TASK_TYPES["token_classification"], TAGS, ("text",), 16, entries)
    record.write(folder, replace(own, tokens=tokenizer.proved(folder, [[long_text(90, 1)]], 16)))


def by_hand(folder: Path, words: list[str], size: int) -> np.ndarray:
    """Logits of each word, of which each is one token, in the window of `size` where it is farthest from an edge."""
    model, reader, room = AutoModelForTokenClassification.from_pretrained(folder), tiny.tokenizer(), size - 2
    starts = [*range(0, len(words) - room, room - size // OVERLAP), max(0, len(words) - room)]
    with torch.no_grad():
        logits = [
            model(**reader(" ".join(words[s : s + room]), return_tensors="pt")).logits[0, 1:-1].numpy() for s in starts
        ]
    found = []
    for place in range(len(words)):
        having = [n for n, s in enumerate(starts) if s <= place < s + room]
        best = max(having, key=lambda n: min(place - starts[n], starts[n] + room - 1 - place))
        found.append(logits[best][place - starts[best]])
    return np.array(found)


@pytest.mark.slow
def test_a_long_text_is_read_alike_with_and_without_torch(attending: Path, copied: Callable[[Path], Path]) -> None:
    folder = copied(attending)
    without_torch(folder)
    texts = ["", long_text(200, 3), long_text(9, 4), "goats " * 30]
    torch_model: Any = distill.load(folder, backend="torch")
    light: Any = distill.load(folder, backend="onnxruntime")
    assert isinstance(light.tokenizer, tokens.Tokenizer)
    assert light.max_length == 16
    outputs = light.outputs(texts)
    assert outputs.shape == (239, len(TAGS))
    assert (np.abs(outputs).max(axis=1) > 0).all()
    np.testing.assert_allclose(outputs, torch_model.outputs(texts), atol=1e-4)
    parts = [by_hand(folder, text.split(), 16) for text in texts if text]
    np.testing.assert_allclose(outputs, np.concatenate(parts), atol=1e-4)
    alone = light.outputs([word for text in texts for word in text.split()])
    assert np.abs(outputs - alone).max() > 0.1, "the other words of the window matter"
