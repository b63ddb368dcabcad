"""Embedders that are teachers: every pooling, decoders, several linear layers; sentence-transformers is the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import distill
from distill.deploy.export.reload import embedder
from distill.deploy.export.reload import vectors as reloaded
from distill.errors import ConfigError, DataError
from distill.models import families, teacher
from distill.models.families import vectors
from distill.models.families.embedding import EncoderForVectors, _linear, pooled
from distill.models.families.head import stored_head
from distill.runtime.storage import atomic, run_folder
from tests import tiny
from tests.small import judged

TEXTS = [*tiny.SENTENCES, "goats", " ".join(tiny.SENTENCES[:2])]
POOLINGS = list(vectors.POOLING)
DECODERS = ("qwen2", "qwen3", "gemma2", "gemma3_text")


def saved(
    folder: Path, *after: Any, family: str = "bert", how: str = "mean", side: str = "right", **given: Any
) -> Path:
    """A random embedder, as sentence-transformers writes it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    settings = {key: given.pop(key) for key in [*given] if key not in ("prompts", "default_prompt_name")}
    encoder = tiny.save(folder / "encoder", family, "", std=0.3, **settings)
    first = Transformer(str(encoder), max_seq_length=24)
    first.tokenizer.padding_side = side
    pooling = Pooling(first.get_embedding_dimension(), how)
    SentenceTransformer(modules=[first, pooling, *after], device="cpu", **given).save_pretrained(str(folder / "made"))
    return folder / "made"


def there(folder: Path, **settings: Any) -> np.ndarray:
    """What sentence-transformers makes of the texts, in one batch."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return np.asarray(model.encode(TEXTS, show_progress_bar=False, **settings))


@torch.no_grad()
def here(folder: Path, side: str = "right", prompt: str = "") -> np.ndarray:
    """The same of `EncoderForVectors`, with padding on one side."""
    tokenizer = teacher.load_tokenizer(folder)
    tokenizer.padding_side = side
    texts = [prompt + text for text in TEXTS]
    batch = dict(tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt"))
    model = EncoderForVectors.from_pretrained(folder)
    return families.logits(model, batch).numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_pooling_is_that_of_the_library(side: str, tmp_path: Path) -> None:
    """The formulas alone, on hidden states with gaps of other lengths on one side."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    hidden = torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(7) < torch.tensor([[7], [1], [4], [6]])).long()
    mask = mask.flip(1) if side == "left" else mask
    for how in POOLINGS:
        expected = Pooling(5, how)({"token_embeddings": hidden, "attention_mask": mask})
        torch.testing.assert_close(pooled(hidden, mask, how), expected["sentence_embedding"])
        spoilt = hidden.masked_fill(mask[:, :, None] == 0, 9.0)
        torch.testing.assert_close(pooled(spoilt, mask, how), expected["sentence_embedding"])


@pytest.mark.parametrize("how", POOLINGS)
def test_a_long_text_does_not_overflow_in_half_precision(how: str) -> None:
    """The sum of its states, or of their weights, is above the largest number of float16."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    hidden, mask = torch.full((1, 600, 2), 200.0, dtype=torch.float16), torch.ones(1, 600, dtype=torch.long)
    found = pooled(hidden, mask, how)
    assert found.dtype == torch.float16
    assert found.isfinite().all()
    expected = Pooling(2, how)({"token_embeddings": hidden, "attention_mask": mask})["sentence_embedding"]
    torch.testing.assert_close(found, expected, atol=0, rtol=2e-3)


@pytest.mark.parametrize("how", POOLINGS)
def test_a_text_without_a_token_has_a_finite_vector(how: str) -> None:
    hidden, mask = torch.ones(2, 3, 4), torch.tensor([[0, 0, 0], [1, 1, 0]])
    assert torch.isfinite(pooled(hidden, mask, how)).all()


@pytest.mark.quick(4)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("how", POOLINGS)
def test_a_folder_is_verified_with_the_vectors_of_the_model(how: str, side: str, tmp_path: Path) -> None:
    """The pooling that is written out for new processes is that of the model, with padding on either side."""
    folder = tiny.save(tmp_path / "made", "modernbert", "", std=0.3)
    vectors.write(folder, vectors.Vectors(how), 16, {})
    tokenizer = teacher.load_tokenizer(folder)
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    model = EncoderForVectors.from_pretrained(folder)
    assert model.vectors.pooling == how
    with torch.no_grad():
        found = embedder(str(folder), {})(**batch)["logits"]
        torch.testing.assert_close(found, families.logits(model, dict(batch)), atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "side"), [*((how, "right") for how in POOLINGS), ("mean", "left"), ("lasttoken", "left")]
)
def test_a_folder_of_every_pooling_is_read_written_and_exported(how: str, side: str, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Normalize

    from distill.deploy.export.onnx import export_onnx, onnx_parity

    # Its positions are relative, so that it does not matter where the library pads. Each pooling of either side is in
    # the tests above.
    folder = saved(tmp_path, Normalize(), family="modernbert", how=how, side=side)
    expected = there(folder)
    np.testing.assert_allclose(here(folder, side), expected, atol=1e-4)
    assert teacher.pooling(folder) == how
    head = stored_head(folder)
    assert head is not None
    assert head.outputs == 16
    again = tmp_path / "again"
    EncoderForVectors.from_pretrained(folder).save_pretrained(again)
    tokenizer = teacher.load_tokenizer(folder)
    tokenizer.padding_side = side
    tokenizer.save_pretrained(again)
    vectors.finish(again, 24, vectors.Vectors())
    assert vectors.read(again) == vectors.Vectors(how)
    np.testing.assert_allclose(there(again), expected, atol=1e-4)
    alone = np.array(reloaded(str(again), [[text] for text in TEXTS[:4]], False))
    rights = np.array([row["vector"] for row in distill.load(folder).predict(TEXTS[:4])])
    np.testing.assert_allclose(alone, rights, atol=1e-5)
    if how == "lasttoken":
        export_onnx(again, tmp_path / "model.onnx")
        assert onnx_parity(again, tmp_path / "model.onnx") < 1e-4


DECODED = [
    *[pytest.param(name, {}, marks=[pytest.mark.slow] * (name != "qwen3")) for name in DECODERS],
    ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 8}),
    pytest.param("qwen3", {"is_causal": False}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("family", "settings"), DECODED)
def test_the_vectors_of_a_decoder_are_those_of_the_library(
    family: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    from sentence_transformers.base.modules import Normalize

    prompts = {"query": "the old ", "document": ""}
    how = "mean" if settings else "lasttoken"
    folder = saved(tmp_path, Normalize(), family=family, how=how, side="left", prompts=prompts, **settings)
    expected = there(folder)
    np.testing.assert_allclose(here(folder, "left"), expected, atol=2e-5)
    np.testing.assert_allclose(here(folder, "right"), expected, atol=1e-4)  # positions are relative
    np.testing.assert_allclose(here(folder, "left", "the old "), there(folder, prompt_name="query"), atol=2e-5)
    np.testing.assert_allclose([r["vector"] for r in distill.load(folder).predict(TEXTS)], expected, atol=1e-4)
    assert np.ptp(expected, axis=0).min() > 0
    head = stored_head(folder)
    assert head is not None
    assert head.prompts == ("the old ", "")
    again = tmp_path / "again"
    EncoderForVectors.from_pretrained(folder).save_pretrained(again)
    teacher.load_tokenizer(folder).save_pretrained(again)
    np.testing.assert_allclose(here(again, "left"), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("family", "setting"), [("gemma3_text", {"use_bidirectional_attention": True}), ("qwen3", {"is_causal": False})]
)
def test_a_decoder_reads_both_ways_only_where_its_config_says_so(
    family: str, setting: dict[str, Any], tmp_path: Path
) -> None:
    """The first token's vector depends on later tokens then, in batches with padding and alone."""
    for given, sees in ((setting, True), ({}, False)):
        tiny.save(tmp_path / str(sees), family, "", std=0.3, **given)
        model = EncoderForVectors.from_pretrained(tmp_path / str(sees))
        ids, mask = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]]), torch.ones(2, 4, dtype=torch.long)
        with torch.no_grad():
            first, second = families.encode(model, {"input_ids": ids, "attention_mask": mask})[:, 0]
            mask[1, 3] = 0
            alone, padded = families.encode(model, {"input_ids": ids, "attention_mask": mask})[:, 0]
        assert (not torch.allclose(first, second, atol=1e-4)) == sees
        assert (not torch.allclose(alone, padded, atol=1e-4)) == sees
        torch.testing.assert_close(alone, first, atol=1e-5, rtol=0)


def test_two_linear_layers_are_read_as_one(tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Normalize

    torch.manual_seed(0)
    identity = torch.nn.Identity()
    layers = Dense(16, 24, activation_function=identity), Dense(24, 12, bias=False, activation_function=identity)
    folder = saved(tmp_path, *layers, Normalize())
    expected = there(folder)
    assert expected.shape == (len(TEXTS), 12)
    np.testing.assert_allclose(here(folder), expected, atol=1e-5)
    assert vectors.read(folder) == vectors.Vectors(width=12, bias=True, prompts={"query": "", "document": ""})
    EncoderForVectors.from_pretrained(folder).save_pretrained(tmp_path / "again")
    teacher.load_tokenizer(folder).save_pretrained(tmp_path / "again")
    np.testing.assert_allclose(there(tmp_path / "again"), expected, atol=1e-5)


def test_linear_layers_that_are_not_one_are_refused(tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense

    identity = torch.nn.Identity()
    folder = saved(tmp_path, Dense(16, 24), Dense(24, 12, activation_function=identity))
    with pytest.raises(DataError, match=r"3_Dense/config.json: got a Dense after one with .*Tanh; must be after one"):
        vectors.read(folder)
    tiny.change(folder / "2_Dense" / "config.json", activation_function="torch.nn.modules.linear.Identity")
    tiny.change(folder / "3_Dense" / "config.json", in_features=20)
    with pytest.raises(DataError, match=r"3_Dense/config.json: got in_features 20; must be 24, the width of the Dense"):
        vectors.read(folder)


def test_the_product_of_linear_layers_in_half_precision_is_not_rounded(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(5, 4, generator=generator).half(), torch.randn(3, 5, generator=generator).half()]
    for number, weight in enumerate(layers):
        save_file({"linear.weight": weight, "linear.bias": weight[:, 0].clone()}, tmp_path / f"{number}")
    found = _linear([tmp_path / "0", tmp_path / "1"])
    one, two = (weight.double() for weight in layers)
    torch.testing.assert_close(found["weight"], (two @ one).float())
    torch.testing.assert_close(found["bias"], (two @ one[:, 0] + two[:, 0]).float())


def test_a_prompt_that_is_not_pooled_is_refused_where_there_is_one(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    tiny.change(folder / "1_Pooling" / "config.json", include_prompt=False)
    np.testing.assert_allclose(here(folder), there(folder), atol=1e-5)
    vectors.check_prompted(folder, ["", ""])
    vectors.check_prompted(tmp_path / "encoder", ["query: "])
    message = r"1_Pooling/config.json: got include_prompt false, and a prompt before texts; must be true"
    with pytest.raises(DataError, match=message):
        vectors.check_prompted(folder, ["query: ", ""])
    tiny.change(folder / "config_sentence_transformers.json", prompts={"query": "ask: "})
    with pytest.raises(DataError, match=message):
        vectors.read(folder)


SMALL = ("limit=smoke", "limit.repeats=1", "tasks.max_length=24", "output=out", "teacher=hub")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(judged(number)) + "\n" for number in range(64)))
    return tmp_path / "texts.jsonl"


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    from sentence_transformers.base.modules import Normalize

    prompts = {"query": "the old ", "document": ""}
    return saved(tmp_path / "teacher", Normalize(), family="qwen3", how="lasttoken", hidden_size=32, prompts=prompts)


def test_a_decoder_is_not_pruned(decoder: Path, rows: Path, run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"teacher.name: got a model of type qwen3; must be one of bert, "):
        run(tmp_path, "prune", *SMALL, f"teacher.name={decoder}", f"tasks.train={rows}", "target.speedup=1.05")
    assert not (tmp_path / "out" / "finetune_teacher").exists()


@pytest.mark.slow
def test_a_decoder_teaches_an_encoder(decoder: Path, rows: Path, run: Any, tmp_path: Path) -> None:
    small = tiny.save(tmp_path / "small", "bert", "", std=0.2, length=34)
    stages = ["pipeline=[finetune_teacher,finetune]", "limit.steps=3"]
    given = [f"teacher.name={decoder}", f"student.name={small}", f"tasks.train={rows}"]
    run(tmp_path, "task", *SMALL, *stages, *given)
    made = tmp_path / "out" / "finetune" / "texts"
    described = atomic.read_json(made / "2_Dense" / "config.json")
    assert (described["in_features"], described["out_features"]) == (16, 32)
    assert atomic.read_json(made / run_folder.MANIFEST)["log"][-1]["terms"].keys() >= {"soft_targets", "vectors"}
    copied = tmp_path / "out" / "finetune_teacher" / "texts"
    np.testing.assert_allclose(there(copied), there(decoder), atol=1e-4)  # padding stands on the other side
