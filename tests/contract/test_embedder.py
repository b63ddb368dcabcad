"""An embedder of every family is exported as sentence-transformers loads it, and gives the vectors it learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from distill.config import Teacher
from distill.deploy.export.embedder import PROJECTION, Embedder, export_embedder, vectors
from distill.errors import ConfigError, UserError
from distill.models import families, teacher
from distill.models.families.embedding import EncoderForVectors
from distill.models.families.vectors import Vectors
from distill.runtime.storage import atomic, run_folder
from tests import tiny

TEXTS = [*tiny.SENTENCES[:4], "goats", " ".join(tiny.SENTENCES * 9)]


def elsewhere(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    """What sentence-transformers makes of texts, in batches."""
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False))


def made(folder: Path, name: str = "bert", width: int | None = None, **settings: Any) -> Embedder:
    """A tiny language model with its tokenizer, and a map to `width` if there is one."""
    tiny.save(folder, name, "MaskedLM", seed=1, std=0.3)
    if width is not None:
        (folder / PROJECTION).mkdir()
        weight = torch.randn(width, 16, generator=torch.Generator().manual_seed(2))
        save_file({"linear.weight": weight}, folder / PROJECTION / "model.safetensors")
    return Embedder(folder, **{"pooling": "mean", "max_length": 32, **settings})


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", families.STUDENTS)
def test_every_family(name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    embedder = made(tmp_path / "model", name)
    export_embedder(embedder, tmp_path / "out", "# A card\n")
    expected = vectors(embedder, teacher.load_tokenizer(embedder.folder), TEXTS)
    np.testing.assert_allclose(elsewhere(tmp_path / "out"), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 0
    assert (tmp_path / "out" / "README.md").read_text() == "# A card\n"
    assert not list((tmp_path / "out").rglob("*.bin"))


@pytest.mark.parametrize("settings", [{"pooling": "cls"}, {"pooling": "max"}, {"width": 24}, {"max_length": 8}])
def test_every_way_to_make_vectors(settings: dict[str, Any], tmp_path: Path) -> None:
    embedder = made(tmp_path / "model", **settings)
    export_embedder(embedder, tmp_path / "out", "")
    tokenizer = teacher.load_tokenizer(embedder.folder)
    expected = vectors(embedder, tokenizer, TEXTS)
    assert expected.shape[1] == settings.get("width", 16)
    np.testing.assert_allclose(elsewhere(tmp_path / "out"), expected, atol=1e-5)
    usual = vectors(made(tmp_path / "usual"), tokenizer, TEXTS)
    assert usual.shape != expected.shape or np.abs(usual - expected).max() > 1e-3


@pytest.mark.slow
def test_the_embedded_teacher_comes_out_as_it_is_loaded_from_its_own_folder(tmp_path: Path) -> None:
    folder = Path(teacher.resolve(Teacher()))
    longest = teacher.longest(folder, teacher.load_tokenizer(folder), teacher.read_config(folder))
    assert longest == 256
    embedder = Embedder(folder, teacher.pooling(folder), longest)
    export_embedder(embedder, tmp_path / "out", "")
    expected = elsewhere(folder)
    np.testing.assert_allclose(vectors(embedder, teacher.load_tokenizer(folder), TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(elsewhere(tmp_path / "out"), expected, atol=1e-6)


def test_prompts_and_lower_case_of_a_teacher_are_stated_by_its_student(tmp_path: Path) -> None:
    given = Vectors(prompts={"query": "the old "}, default_prompt="query", similarity="dot", lower=True)
    embedder = made(tmp_path / "model", given=given)
    export_embedder(embedder, tmp_path / "out", "")
    stated = atomic.read_json(tmp_path / "out" / "config_sentence_transformers.json")
    assert stated == {"prompts": given.prompts, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    assert atomic.read_json(tmp_path / "out" / "sentence_bert_config.json")["do_lower_case"] is True
    prompted = [f"the old {text}" for text in TEXTS]
    expected = vectors(embedder, teacher.load_tokenizer(tmp_path / "out"), prompted)
    np.testing.assert_allclose(elsewhere(tmp_path / "out"), expected, atol=1e-5)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A teacher that does more to its vectors than to pool them."""
    folder = tiny.save(tmp_path / "teacher", "bert", "MaskedLM", length=130)
    model = EncoderForVectors.from_pretrained(folder)
    model.to_width(24)
    model.save_pretrained(folder)
    return folder


FEW = ["limit=smoke", "tasks.names=[overlap]", "pipeline=[pretrain,export_embedder]", "output=run"]


@pytest.mark.slow
def test_a_teacher_that_does_more_to_its_vectors_is_refused_first(dense: Path, run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="embedder with Dense after its pooling"):
        run(tmp_path, "embedder", *FEW, "teacher=hub", f"teacher.name={dense}")
    assert not (tmp_path / "run" / "pretrain").exists()


@pytest.mark.slow
def test_a_narrower_student_learns_a_map_to_its_teachers_vectors(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distill import training

    train, learned = training.train, {}

    def watched(objective: Any, *arguments: Any, **settings: Any) -> Any:
        done = train(objective, *arguments, **settings)
        learned.update({name: one.weight.detach().clone() for name, one in objective.projections.items()})
        return done

    monkeypatch.setattr(training, "train", watched)
    run(tmp_path, "embedder", *FEW, "student.hidden_size=16")
    folder = tmp_path / "run" / "export_embedder"
    manifest = atomic.read_json(folder / run_folder.MANIFEST)
    assert manifest["largest_difference"] <= 1e-5
    assert manifest["similarity"]["spearman"].keys() == {"overlap"}
    made = folder / "embedder"
    assert not learned["pooled"].equal(learned["cosine"])
    assert load_file(made / "2_Dense" / "model.safetensors")["linear.weight"].equal(learned["pooled"])
    described = atomic.read_json(made / "2_Dense" / "config.json")
    assert (described["in_features"], described["out_features"]) == (16, 32)
    texts = ["a kettle sings", "the tea is ready"]
    said, wanted = elsewhere(made, texts), guide(tmp_path / "run", texts)
    assert said.shape == wanted.shape == (2, 32)
    card = (made / "README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert "Spearman on overlap, in percent" in card
    assert not (made / run_folder.MANIFEST).exists()


@pytest.mark.slow
def test_an_embedder_that_is_not_what_was_made_is_removed(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of its weights are changed between the copy and its proof."""
    from distill.pipeline.stages import embedder as stage

    export = stage.export_embedder

    def spoilt(embedder: Embedder, folder: Path, card: str) -> None:
        export(embedder, folder, card)
        with tiny.weights(folder) as weights:
            weights |= {name: value * 1.1 for name, value in weights.items()}

    monkeypatch.setattr(stage, "export_embedder", spoilt)
    with pytest.raises(UserError, match="in a fresh process that differ from the model's"):
        run(tmp_path, "embedder", *FEW, "limit.steps=1", "limit.documents=30")
    assert (tmp_path / "run" / "pretrain").is_dir()
    assert not (tmp_path / "run" / "export_embedder" / "embedder").exists()


def guide(folder: Path, texts: list[str]) -> np.ndarray:
    """The teacher's vectors."""
    (given,) = folder.glob("random_teacher_*")
    return vectors(Embedder(given, "mean", 128), teacher.load_tokenizer(given), texts)
