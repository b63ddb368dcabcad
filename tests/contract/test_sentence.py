"""Folders of sentence-transformers: the same vectors and scores as there, or one message that names the file."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import distill
from distill.cli.compare.models import outputs_of
from distill.cli.compare.rows import Rows
from distill.data.files import Table
from distill.data.task_types import TASK_TYPES
from distill.errors import DataError
from distill.models import teacher
from distill.models.families import vectors
from distill.models.families.head import stored_head
from distill.runtime.storage import atomic
from tests import tiny
from tests.forked import PYTHON

LONG = " ".join(tiny.SENTENCES)
TEXTS = [*tiny.SENTENCES[:3], "Two GOATS", LONG, LONG.upper()]
PAIRS = [(first, second) for first in TEXTS[:3] for second in (TEXTS[3], LONG)]
SLOW = pytest.mark.slow
DIFFERENT = 1e-3
"""Least difference of other vectors, far above rounding."""
OLD, READING = "sentence_transformers.models.", "sentence_bert_config.json"


def library(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def there(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    return np.asarray(library(folder).encode(texts, show_progress_bar=False))


def here(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    """What `python -m distill.predict` writes."""
    return np.array([row["vector"] for row in distill.load(folder).predict(texts)])


def alike(folder: Path) -> np.ndarray:
    """The vectors of a folder, which are those of sentence-transformers."""
    made = here(folder)
    np.testing.assert_allclose(made, there(folder), atol=2e-5)
    return made


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder of 60 tokens whose tokenizer distinguishes cases: a byte-level BPE without merges."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import RobertaTokenizer

    folder = tmp_path_factory.mktemp("encoder")
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    tokenizer = RobertaTokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[])
    tiny.model("roberta", "", std=1.0, length=60, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def embedder(encoder: Path, tmp_path: Path) -> Callable[..., Path]:
    """`embedder(reading, stored, pooling, modules)`: a folder as versions 2 to 5 wrote it, with these files."""

    def make(
        reading: Any = None, stored: Any = None, pooling: Any = None, kinds: tuple[str, ...] = (), name: str = "given"
    ) -> Path:
        folder = tmp_path / name
        shutil.copytree(encoder, folder)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"{n}_{k}", k) for n, k in enumerate(kinds, 2))]
        listed = [
            {"idx": n, "name": str(n), "path": path, "type": OLD + kind} for n, (path, kind) in enumerate(modules)
        ]
        atomic.write_json(folder / "modules.json", listed)
        (folder / "1_Pooling").mkdir()
        pooling = pooling or {"pooling_mode_mean_tokens": True}
        atomic.write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16} | pooling)
        for file, content in ((READING, reading), ("config_sentence_transformers.json", stored)):
            if content is not None:
                atomic.write_json(folder / file, content)
        return folder

    return make


@pytest.mark.parametrize(
    ("reading", "of_tokenizer", "expected"),
    [
        ({"max_seq_length": 10}, 512, 10),
        ({"max_seq_length": None}, 20, 20),
        *(
            pytest.param(*rest, marks=SLOW)
            for rest in (
                ({"max_seq_length": 10}, 6, 10),
                ({}, 10**30, 60),
                (None, 512, 60),
                ({"max_seq_length": 30, "tokenizer_args": {"model_max_length": 12}}, 512, 12),
                ({"max_seq_length": 1000}, 512, 60),
            )
        ),
    ],
)
def test_texts_are_cut_where_the_library_cuts_them(
    reading: Any, of_tokenizer: int, expected: int, embedder: Any
) -> None:
    folder = embedder(reading)
    tiny.change(folder / "tokenizer_config.json", model_max_length=of_tokenizer)
    model = distill.load(folder)
    assert isinstance(model, distill.deploy.serve.Model)
    assert model.max_length == expected
    short = [text[:55] for text in TEXTS]  # where it has no maximum, the library fails at the model's own
    texts = TEXTS if expected < 60 else short
    made = here(folder, texts)
    np.testing.assert_allclose(made, there(folder, texts), atol=2e-5)
    uncut = here(embedder({"max_seq_length": 58}, name="uncut"), texts)
    assert (np.abs(made - uncut).max() > DIFFERENT) == (expected < 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roberta", "xlnet"])
def test_the_file_on_reading_has_several_names(name: str, embedder: Any) -> None:
    folder = embedder()
    atomic.write_json(folder / f"sentence_{name}_config.json", {"max_seq_length": 9, "do_lower_case": True})
    made = alike(folder)
    np.testing.assert_array_equal(made[4], made[5])


@pytest.mark.slow
def test_a_relative_position_model_is_cut_as_there(tmp_path: Path) -> None:
    """Its encoder has no maximum, but the library takes the number in its config."""
    folder = tiny.save(tmp_path, "deberta-v2", "", std=0.3, length=12, position_biased_input=False)
    distill.models.families.embedding.EncoderForVectors.from_pretrained(folder).save_pretrained(folder)
    tiny.change(folder / "tokenizer_config.json", model_max_length=10**30)
    assert distill.load(folder).max_length == 12  # type: ignore[union-attr]
    alike(folder)


@pytest.mark.slow
def test_an_old_cross_encoder_of_relative_positions_is_cut_as_there(tmp_path: Path) -> None:
    sizes = {"length": 12, "position_biased_input": False, "num_labels": 1, "std": 0.3, OLD_KEY: IDENTITY}
    folder = tiny.save(tmp_path, "deberta-v2", "SequenceClassification", **sizes)
    tiny.change(folder / "tokenizer_config.json", model_max_length=10**30)
    made = [row["score"] for row in distill.load(folder).predict(PAIRS)]
    np.testing.assert_allclose(made, scores(folder), atol=1e-5)


def test_texts_are_lower_cased_as_there(embedder: Any) -> None:
    folder = embedder({"max_seq_length": 50, "do_lower_case": True})
    made = alike(folder)
    np.testing.assert_array_equal(made[4], made[5])
    other = alike(embedder({"max_seq_length": 50, "do_lower_case": False}, name="other"))
    assert np.abs(other[4] - other[5]).max() > DIFFERENT


def test_the_entry_on_lower_case_is_kept_in_what_is_written(embedder: Any, tmp_path: Path) -> None:
    stored = {"prompts": {"query": "q: ", "code": "c: "}, "default_prompt_name": "code", "similarity_fn_name": "dot"}
    folder = embedder({"max_seq_length": 50, "do_lower_case": True}, stored, kinds=("Normalize",))
    model = distill.models.families.embedding.EncoderForVectors.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    teacher.load_tokenizer(folder).save_pretrained(tmp_path / "again")  # the class drops the lower case
    again = tmp_path / "again"
    assert atomic.read_json(again / READING)["do_lower_case"] is True
    assert atomic.read_json(again / "config_sentence_transformers.json") == stored
    vectors.finish(again, 50, vectors.read(again) or vectors.Vectors())
    np.testing.assert_allclose(alike(again), alike(folder), atol=1e-6)


@pytest.mark.parametrize("default", ["code", pytest.param(None, marks=SLOW), pytest.param("query", marks=SLOW)])
def test_the_default_prompt_is_that_of_encode(default: str | None, embedder: Any) -> None:
    prompts = {"query": "query: ", "code": "c: "}
    folder = embedder(None, {"prompts": prompts, "default_prompt_name": default})
    texts = [text[:40] for text in TEXTS]
    made = here(folder, texts)
    np.testing.assert_allclose(made, there(folder, texts), atol=2e-5)
    plain = distill.load(folder).outputs(texts)  # type: ignore[union-attr]
    assert (np.abs(made - plain).max() > DIFFERENT) == (default is not None)
    head = stored_head(folder)
    assert head is not None
    assert (head.prompts, head.prompt) == (("query: ", ""), prompts.get(default or "", ""))


def test_a_comparison_puts_the_default_prompt_before_both_texts(embedder: Any) -> None:
    import pyarrow as pa

    stored = {"prompts": {"code": "c: "}, "default_prompt_name": "code"}
    folder = embedder({"max_seq_length": 40}, stored)
    table = Table(pa.table({"a": TEXTS[:2], "b": TEXTS[2:4]}), ("file",), ())
    made = outputs_of(distill.load(folder), TASK_TYPES["embedding"], Rows(table, ("a", "b")), 2)  # type: ignore[arg-type]
    expected = np.concatenate([there(folder, TEXTS[:2]), there(folder, TEXTS[2:4])], axis=1)
    np.testing.assert_allclose(made, expected, atol=2e-5)


@pytest.mark.parametrize(
    ("pooling", "how"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        pytest.param({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, "max", marks=SLOW),
        *(
            pytest.param(*rest, marks=SLOW)
            for rest in (
                ({"pooling_mode": "cls"}, "cls"),
                ({"pooling_mode": ["max"]}, "max"),
                ({"pooling_mode_mean_tokens": False}, "mean"),
                ({"embedding_dimension": 16}, "mean"),
            )
        ),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, "cls"),
    ],
)
def test_a_pooling_is_read_as_there(pooling: Any, how: str, embedder: Any) -> None:
    folder = embedder({"max_seq_length": 50}, pooling=pooling)
    assert teacher.pooling(folder) == how
    alike(folder)


def test_a_pooling_in_another_folder(embedder: Any) -> None:
    folder = embedder({"max_seq_length": 50})
    (folder / "1_Pooling").rename(folder / "ways")
    atomic.write_json(folder / "ways" / "config.json", {"embedding_dimension": 16, "pooling_mode": "max"})
    modules = atomic.read_json(folder / "modules.json")
    modules[1]["path"] = "ways"
    atomic.write_json(folder / "modules.json", modules)
    assert teacher.pooling(folder) == "max"
    alike(folder)


def saved(encoder: Path, folder: Path, *after: Any, how: str = "mean", reading: Any = None, **settings: Any) -> Path:
    """What version 6 writes."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    first = Transformer(str(encoder), **({"max_seq_length": 40} | (reading or {})))
    SentenceTransformer(modules=[first, Pooling(16, how), *after], device="cpu", **settings).save_pretrained(
        str(folder)
    )
    return folder


def test_what_the_library_saves_now(encoder: Path, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Dense, Normalize

    torch.manual_seed(0)
    prompts = {"prompts": {"query": "q: ", "clustering": "c: "}, "default_prompt_name": "clustering"}
    dense = Dense(16, 8, activation_function=torch.nn.Tanh())
    folder = saved(encoder, tmp_path / "saved", dense, Normalize(), how="cls", similarity_fn_name="dot", **prompts)
    made = alike(folder)
    assert made.shape == (len(TEXTS), 8)
    expected = vectors.Vectors("cls", 8, True, True, True, {"document": "", **prompts["prompts"]}, "clustering", "dot")
    assert vectors.read(folder) == expected
    vectors.check_cosines(folder)  # dot products of vectors of length 1 are cosines
    atomic.write_json(folder / "2_Dense" / "config.json", {"in_features": 16, "out_features": 8})
    np.testing.assert_allclose(alike(folder), made, atol=1e-6)  # these are the library's own presets


@pytest.mark.parametrize(
    "similarity", ["dot", pytest.param("euclidean", marks=SLOW), pytest.param("manhattan", marks=SLOW)]
)
def test_other_similarities_than_cosines_are_not_distilled(similarity: str, encoder: Path, tmp_path: Path) -> None:
    folder = saved(encoder, tmp_path / "saved", similarity_fn_name=similarity)
    with pytest.raises(
        DataError, match=rf"config_sentence_transformers.json: got similarity_fn_name {similarity}; must"
    ):
        vectors.check_cosines(folder)
    alike(folder)


def other_modules() -> dict[str, Callable[[Path, Path], Path]]:
    from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling, StaticEmbedding
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    def static(encoder: Path, folder: Path) -> Path:
        from tokenizers import Tokenizer

        module = StaticEmbedding(Tokenizer.from_file(str(encoder / "tokenizer.json")), embedding_dim=8)
        SentenceTransformer(modules=[module], device="cpu").save_pretrained(str(folder))
        return folder

    def routed(encoder: Path, folder: Path) -> Path:
        parts = [[Transformer(str(encoder)), Pooling(16)] for _ in range(2)]
        router = Router.for_query_document(query_modules=parts[0], document_modules=parts[1])
        SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(folder))
        return folder

    def reranker(encoder: Path, folder: Path) -> Path:
        modules = [Transformer(str(encoder)), Pooling(16), Dense(16, 1, module_output_name="scores")]
        CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
        return folder

    def sparse(encoder: Path, folder: Path) -> Path:
        modules = [Transformer(str(encoder)), Pooling(16), SparseAutoEncoder(16, 32, k=4)]
        SparseEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
        return folder

    def without_prompt(encoder: Path, folder: Path) -> Path:
        saved(encoder, folder, prompts={"query": "ask: "})
        tiny.change(folder / "1_Pooling" / "config.json", include_prompt=False)
        return folder

    return {
        "without its prompt": without_prompt,
        "concatenated": lambda encoder, folder: saved(encoder, folder, how=("cls", "mean")),  # type: ignore[arg-type]
        "LayerNorm": lambda encoder, folder: saved(encoder, folder, LayerNorm(16)),
        "two Dense": lambda encoder, folder: saved(encoder, folder, Dense(16, 8), Dense(8, 4)),
        "GELU": lambda encoder, folder: saved(encoder, folder, Dense(16, 8, activation_function=torch.nn.GELU())),
        "residual": lambda encoder, folder: saved(encoder, folder, Dense(16, 16, use_residual=True)),
        "Normalize first": lambda encoder, folder: saved(encoder, folder, Normalize(), Dense(16, 8)),
        "of tokens": lambda encoder, folder: saved(encoder, folder, Normalize("token_embeddings")),
        "truncated": lambda encoder, folder: saved(encoder, folder, truncate_dim=4),
        "static": static,
        "routed": routed,
        "reranker with a pooling": reranker,
        "sparse": sparse,
    }


@pytest.mark.slow
def test_what_is_not_supported_is_refused_by_every_reader(encoder: Path, tmp_path: Path) -> None:
    for name, make in other_modules().items():
        folder = make(encoder, tmp_path / name)
        for read in (vectors.read, stored_head, teacher.pooling, distill.load):
            with pytest.raises(DataError) as caught:
                read(folder)
            (message,) = caught.value.messages
            assert message.startswith(str(folder)), name
            assert "; must be " in message, name
            if name in ("static", "routed"):  # without a config, which is needed first
                break


def test_a_setfit_classifier_is_refused(embedder: Any) -> None:
    folder = embedder()
    (folder / "model_head.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match=r"model_head.pkl: got a model of SetFit, whose head is pickled and could run"):
        distill.load(folder)


@pytest.mark.slow
def test_a_transformer_in_a_sub_folder_is_mended_by_the_command_in_the_message(
    embedder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = embedder(
        {"max_seq_length": 33}, {"prompts": {"a": "b: "}, "default_prompt_name": "a"}, name="it's an old one"
    )
    (folder / "0_Transformer").mkdir()
    for file in [*folder.iterdir()]:
        if file.is_file() and file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / "0_Transformer" / file.name)
    modules = atomic.read_json(folder / "modules.json")
    modules[0]["path"] = "0_Transformer"
    atomic.write_json(folder / "modules.json", modules)
    with pytest.raises(
        DataError, match="got the Transformer in the folder 0_Transformer; must be in the folder"
    ) as caught:
        stored_head(folder)
    command = caught.value.messages[0].partition("use the folder that this command writes: python ")[2]
    done = subprocess.run(["bash", "-c", f"{shlex.quote(PYTHON)} {command}"], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(alike(Path(f"{folder}-saved-again")), there(folder), atol=2e-5)


def reranker(encoder: Path, folder: Path, outputs: int = 1, std: float = 0.3, **settings: Any) -> Path:
    """A classifier of pairs, with the tokenizer of `encoder`."""
    shutil.copytree(encoder, folder)
    words = len(teacher.load_tokenizer(encoder))
    sizes = {"length": 60, "vocab_size": words, "num_labels": outputs}
    tiny.model("roberta", "SequenceClassification", std=std, **sizes, **settings).save_pretrained(folder)
    return folder


def scores(folder: Path, **settings: Any) -> np.ndarray:
    from sentence_transformers import CrossEncoder

    found = CrossEncoder(str(folder), device="cpu").predict(PAIRS, show_progress_bar=False, **settings)
    return np.asarray(found)


OLD_KEY = "sbert_ce_default_activation_function"
SIGMOID, TANH = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    "config",
    [
        {OLD_KEY: SIGMOID},
        {"sentence_transformers": {"activation_fn": TANH, "version": "5.0"}},
        pytest.param({OLD_KEY: IDENTITY}, marks=SLOW),
        pytest.param({"sentence_transformers": {"activation_fn": IDENTITY}}, marks=SLOW),
        pytest.param({"sentence_transformers": {"activation_fn": "own.module.Function"}}, marks=SLOW),
    ],
)
def test_the_scores_of_a_cross_encoder_are_its_own(config: Any, encoder: Path, tmp_path: Path) -> None:
    folder = reranker(encoder, tmp_path / "given", **config)
    made = [row["score"] for row in distill.load(folder).predict([(a[:20], b[:20]) for a, b in PAIRS])]
    short = [(a[:20], b[:20]) for a, b in PAIRS]
    from sentence_transformers import CrossEncoder

    np.testing.assert_allclose(made, CrossEncoder(str(folder), device="cpu").predict(short), atol=1e-5)
    assert np.ptp(made) > 1e-3


@pytest.mark.parametrize(
    "function", [None, pytest.param(torch.nn.Identity(), marks=SLOW), pytest.param(torch.nn.Softplus(), marks=SLOW)]
)
def test_the_scores_of_a_saved_cross_encoder_are_its_own(function: Any, encoder: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    given = reranker(encoder, tmp_path / "given")
    model = CrossEncoder(str(given), device="cpu", max_length=25, activation_fn=function)
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = distill.load(tmp_path / "saved")
    assert loaded.max_length == 25  # type: ignore[union-attr]
    made = [row["score"] for row in loaded.predict(PAIRS)]
    np.testing.assert_allclose(made, scores(tmp_path / "saved"), atol=1e-5)
    raw = loaded.outputs(PAIRS)[:, 0]  # type: ignore[union-attr,call-overload]
    assert np.allclose(made, raw, atol=1e-5) == isinstance(function, torch.nn.Identity)


def test_a_regression_of_transformers_has_no_activation(encoder: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="one output and no problem_type"):
        loaded = distill.load(reranker(encoder, tmp_path / "given"))
    made = [row["score"] for row in loaded.predict(PAIRS[:1])]
    assert made == loaded.outputs(PAIRS[:1])[:, 0].tolist()  # type: ignore[call-overload]


@pytest.mark.slow
def test_several_outputs_of_a_cross_encoder(encoder: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    given = reranker(encoder, tmp_path / "given", 3)
    CrossEncoder(str(given), device="cpu", max_length=25).save_pretrained(str(tmp_path / "saved"))
    made = [[*row["scores"].values()] for row in distill.load(tmp_path / "saved").predict(PAIRS)]
    np.testing.assert_allclose(made, scores(tmp_path / "saved", apply_softmax=True), atol=1e-5)
    other = CrossEncoder(str(given), device="cpu", activation_fn=torch.nn.Sigmoid())
    other.save_pretrained(str(tmp_path / "other"))
    with pytest.raises(
        DataError, match=r"several outputs with the activation .*Sigmoid; must be one of Identity, Softmax"
    ):
        distill.load(tmp_path / "other")
    tiny.change(tmp_path / "other" / "config.json", problem_type="multi_label_classification")
    made = [[*row["scores"].values()] for row in distill.load(tmp_path / "other").predict([("a b", "c"), ("d", "e")])]
    expected = CrossEncoder(str(tmp_path / "other"), device="cpu").predict([("a b", "c"), ("d", "e")])
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_a_cross_encoder_with_a_prompt_is_refused(encoder: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    given = reranker(encoder, tmp_path / "given")
    prompts = {"prompts": {"rank": "rank: "}, "default_prompt_name": "rank"}
    CrossEncoder(str(given), device="cpu", **prompts).save_pretrained(str(tmp_path / "saved"))
    with pytest.raises(DataError, match="got a cross-encoder with the default prompt 'rank: '; must be without one"):
        distill.load(tmp_path / "saved")


SETTINGS = [
    (READING, {"max_seq_length": "256"}, "got max_seq_length '256'; must be a whole number of tokens from 3, or null"),
    (READING, {"max_seq_length": 0}, "got max_seq_length 0; must be"),
    (READING, {"max_seq_length": True}, "got max_seq_length True; must be"),
    (READING, {"do_lower_case": "yes"}, "got do_lower_case 'yes'; must be true or false"),
    (
        READING,
        {"tokenizer_args": {"truncation_side": "left"}},
        "got truncation_side 'left' in tokenizer_args; must be in",
    ),
    (
        READING,
        {"config_kwargs": {"num_hidden_layers": 2}},
        "got num_hidden_layers 2 in config_args; must be in the files",
    ),
    (
        READING,
        {"processing_kwargs": {"text": {"max_length": 4}}},
        "got processing_kwargs {'text': {'max_length': 4}}; mus",
    ),
    (READING, {"transformer_task": "fill-mask"}, "got transformer_task 'fill-mask'; must be 'feature-extraction'"),
    (READING, [], "cannot be read (a list)"),
    (READING, {"model_args": "eager"}, "cannot be read ("),
    ("modules.json", {}, "cannot be read (the entry None)"),
    ("modules.json", [{}], "cannot be read (the entry {})"),
    ("modules.json", [{"type": "own.Transformer", "path": ""}], "got the modules own.Transformer; must be Transformer"),
    (
        "modules.json",
        [{"type": f"{OLD}Transformer", "path": "../other"}],
        "got the path ../other; must be a folder in the",
    ),
    ("1_Pooling/config.json", {"pooling_mode": "own"}, "got the pooling own; must be one of mean"),
    ("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}, "got the pooling mean, max; must be one of"),
    (
        "config_sentence_transformers.json",
        {"default_prompt_name": "a"},
        "got default_prompt_name 'a'; must be of the prom",
    ),
    (
        "config_sentence_transformers.json",
        {"model_type": "MultiVectorEncoder"},
        "got a MultiVectorEncoder of the modules T",
    ),
]


@pytest.mark.parametrize(("file", "content", "message"), SETTINGS)
def test_settings_that_mean_something_else_are_refused(file: str, content: Any, message: str, embedder: Any) -> None:
    folder = embedder()
    atomic.write_json(folder / file, content)
    with pytest.raises(DataError) as caught:
        stored_head(folder)
    assert str(folder / file) in caught.value.messages[0]
    assert message in caught.value.messages[0]


def test_weights_of_a_dense_that_are_not_its_own_are_refused(encoder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from sentence_transformers.base.modules import Dense

    folder = saved(encoder, tmp_path / "saved", Dense(16, 8))
    file = folder / "2_Dense" / "model.safetensors"
    for shapes, message in (
        (
            {"linear.weight": (8, 12), "linear.bias": (8,)},
            r"got linear.bias \[8\], linear.weight \[8, 12\]; must be .*16",
        ),
        ({"linear.weight": (8, 16)}, r"got linear.weight \[8, 16\]; must be linear.bias"),
        ({"linear.weight": (8, 16), "linear.bias": (8,), "more": (1,)}, "got linear.bias .* more"),
    ):
        save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, file)
        with pytest.raises(DataError, match=message):
            distill.load(folder)
    file.write_bytes(b"{")
    with pytest.raises(DataError, match=r"model.safetensors: got a damaged file"):
        distill.load(folder)
    file.unlink()
    with pytest.raises(DataError, match=r"model.safetensors: got no such file; must have the weights of the Dense"):
        distill.load(folder)


GIVEN = vectors.Vectors(prompts={"query": "q", "passage": "p", "code": "c"}, default_prompt="code", lower=True)


@pytest.mark.parametrize(
    ("pair", "grouped", "prompts", "default"),
    [
        ((), False, {}, "code"),
        (("c", "c"), False, {}, "code"),
        (("q", "p"), True, {"document": "p"}, None),
        ((), True, {"query": "", "document": ""}, None),
        (("x", "x"), False, {"text": "x"}, "text"),
        (("x", "y"), False, {"query": "x", "document": "y"}, None),
        (("x", "y"), True, {"query": "x", "document": "y"}, None),
    ],
)
def test_the_prompts_of_a_student_are_those_of_its_training(
    pair: tuple[str, ...], grouped: bool, prompts: dict[str, str], default: str | None
) -> None:
    made = vectors.with_prompts(vectors.Vectors("cls"), GIVEN, pair, grouped)
    assert made == vectors.Vectors("cls", prompts={**GIVEN.prompts, **prompts}, default_prompt=default)
    if pair:
        assert (made.pair_of_prompts if grouped or default is None else (made.prompt,) * 2) == pair


def test_the_embedded_teacher_is_cut_at_256_tokens() -> None:
    folder = Path(teacher.resolve(distill.config.Teacher()))
    model = distill.load(folder)
    assert model.max_length == 256  # type: ignore[union-attr]
    text = LONG * 10
    np.testing.assert_allclose(here(folder, [text]), there(folder, [text]), atol=1e-5)
    assert json.loads((folder / READING).read_text())["max_seq_length"] == 256
