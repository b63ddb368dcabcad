"""`EmbeddingLoss` against formulas in float64, the terms of a recipe, and a Trainer of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import distill
from distill.data.task_types.embedding import EMBEDDING, SCALE
from distill.errors import ConfigError
from distill.losses import terms
from tests import tiny

PAIRS = {"a": tiny.SENTENCES[:4], "b": tiny.SENTENCES[4:]}


def embedder(folder: Path, seed: int, **sizes: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    tiny.save(folder, "bert", "", std=0.3, seed=seed, length=40, **sizes)
    transformer = Transformer(str(folder))
    with torch.no_grad():  # which all texts share
        for name, parameter in transformer.named_parameters():
            if name.endswith("LayerNorm.bias"):
                parameter.zero_()
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension())], device="cpu")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Any, Any]:
    return embedder(tmp_path / "student", 0, num_hidden_layers=1), embedder(tmp_path / "teacher", 1)


def features(model: Any, *columns: str) -> list[dict[str, Any]]:
    return [model.preprocess(PAIRS[column]) for column in columns]


def vectors(model: Any, *columns: str) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(each)["sentence_embedding"].double() for each in features(model, *columns)]


def test_the_vectors_of_every_text_count_as_much(pair: tuple[Any, Any]) -> None:
    """Also those of a column whose vectors are longer."""
    loss = distill.EmbeddingLoss(*pair, [terms.Vectors(weight=2.0)]).eval()
    ours, theirs = (torch.cat(vectors(model, "a", "b")) for model in pair)
    expected = 2 * (1 - F.cosine_similarity(ours, theirs)).mean()
    assert loss(features(pair[0], "a", "b")).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("columns", ["a", "ab"])
def test_similarities_are_softened_as_in_a_recipe(columns: str, pair: tuple[Any, Any]) -> None:
    loss = distill.EmbeddingLoss(*pair, [terms.SoftTargets(temperature=2.0)]).eval()

    def logs(model: Any) -> torch.Tensor:
        first, *others = (F.normalize(each, dim=1) for each in vectors(model, *columns))
        inside = (SCALE * first @ first.T).fill_diagonal_(-torch.inf)
        return torch.cat([inside, *(SCALE * first @ other.T for other in others)], dim=1).div(2).log_softmax(1)

    ours, theirs = map(logs, pair)
    finite = theirs.isfinite()
    difference = torch.where(finite, theirs.exp() * (theirs - ours).nan_to_num(), 0)
    expected = 4 * difference.sum(1).mean() / SCALE
    assert loss(features(pair[0], *columns)).item() == pytest.approx(expected.item(), rel=1e-3)  # of float32 models
    if columns == "ab":
        both = (EMBEDDING.rows(torch.cat(vectors(model, "a", "b"), dim=1).float()) for model in pair)
        values = distill.losses.soft_targets(*both, temperature=2.0).mean() * EMBEDDING.teacher_weight
        assert loss(features(pair[0], "a", "b")).item() == pytest.approx(values.item(), rel=1e-5)


def test_a_trainer_of_sentence_transformers_takes_it(pair: tuple[Any, Any], tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    student, teacher = pair
    loss = distill.EmbeddingLoss(student, teacher, [terms.Vectors(), terms.SoftTargets()])
    kept = [parameter.detach().clone() for parameter in teacher.parameters()]
    assert len([*loss.parameters()]) == len([*student.parameters()])
    before = loss.eval()(features(student, "a", "b")).item()
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=20,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(student, args=arguments, train_dataset=Dataset.from_dict(PAIRS), loss=loss).train()
    assert loss.eval()(features(student, "a", "b")).item() < 0.7 * before
    assert all(map(torch.equal, kept, teacher.parameters()))


def test_embedders_of_versions_before_6(pair: tuple[Any, Any]) -> None:
    class Earlier(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, features: dict[str, Any]) -> Any:
            return self.model(features)

        def get_sentence_embedding_dimension(self) -> int:
            return int(self.model.get_embedding_dimension())

    student, teacher = map(Earlier, pair)
    loss = distill.EmbeddingLoss(student, teacher, [terms.Vectors()]).eval()
    expected = distill.EmbeddingLoss(*pair, [terms.Vectors()]).eval()
    batch = features(pair[0], "a", "b")
    assert loss(batch).item() == expected(batch).item()


def test_other_terms_and_widths_are_refused(pair: tuple[Any, Any], tmp_path: Path) -> None:
    student, teacher = pair
    with pytest.raises(ConfigError, match="terms: got hidden_mse; must be Vectors, SoftTargets or Logits"):
        distill.EmbeddingLoss(student, teacher, [terms.Hidden()])
    with pytest.raises(ConfigError, match="terms: got supervised; must be Vectors"):
        distill.EmbeddingLoss(student, teacher, [terms.Supervised()])
    narrow = embedder(tmp_path / "narrow", 2, hidden_size=8, intermediate_size=12)
    with pytest.raises(ConfigError, match="got Vectors for vectors of 8 and 16 numbers"):
        distill.EmbeddingLoss(narrow, teacher, [terms.Vectors()])
    assert distill.EmbeddingLoss(narrow, teacher, [terms.SoftTargets()])(features(narrow, "a", "b")).isfinite()
