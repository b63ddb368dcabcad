"""The models over which speedups of pruned models are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

from distill.compression.pruning.search import Shape
from distill.compression.pruning.target import Search, config_of
from distill.config import Target
from distill.config.schemes import Form
from distill.deploy.export import untrained
from distill.models import families
from distill.runtime.storage import checksums
from tests import tiny


def search_over(folder: Path, teachers: list[Any], forms: list[Form], **settings: Any) -> Search:
    """A search for a tiny BERT of three labels, in these forms."""
    student = tiny.config("bert", num_labels=3)
    settings |= {"device": "cpu", "threads": 1, "folder": folder, "log": print}
    return untrained.search_in(Target(), forms, student, [], None, lambda: teachers, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gemma2", "qwen3"])
def test_a_teacher_is_timed_with_heads_of_its_own_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of Gemma and Qwen 3 is not the width over the number of heads."""
    built: list[Any] = []
    monkeypatch.setattr(untrained, "torch_run", lambda model, **_: built.append(model) or (lambda batch: np.zeros(1)))
    teacher = tiny.config(name, head_dim=32)
    search_over(tmp_path, [teacher], [untrained.TORCH]).references()
    (model,) = built
    assert model.model.layers[0].self_attn.q_proj.out_features == 2 * 32
    assert model.num_labels == 3
    assert teacher.vocab_size == 60, "a copy is changed"
    assert config_of(teacher, Shape(1, 16, 8)).head_dim == 32
    assert config_of(teacher, Shape(1, 8, 8)).head_dim == 8


SEVERAL = [Form("onnxruntime", "int8", "onnxruntime"), untrained.TORCH]
"""Forms of which the best is searched: speedups are over the fastest in float32, on all backends."""


def padded() -> dict[str, np.ndarray]:
    """Three texts of 9, 4 and 1 random tokens."""
    mask = (np.arange(9) < np.array([[9], [4], [1]])).astype(np.int64)
    (batch,) = untrained.random_tokens([{"input_ids": 0 * mask, "attention_mask": mask, "token_type_ids": 0 * mask}])
    return batch


@pytest.mark.parametrize("name", tiny.TEACHERS)
def test_speedups_may_be_over_a_model_that_can_only_be_a_teacher(name: str, tmp_path: Path) -> None:
    """In torch alone where it is not exported to ONNX."""
    of_words = name == "openai_privacy_filter"
    teacher = tiny.config(name, architectures=[f"For{'Token' if of_words else 'Sequence'}Classification"])
    forms = [untrained.TORCH] if families.FAMILIES[name].onnx else SEVERAL
    search = search_over(tmp_path, [teacher], forms, shared=True)
    (runner,) = search.references()
    assert (runner.name, runner.backend) == ("torch fp32", "torch")
    assert runner.run(padded()).shape == ((3, 9, 3) if of_words else (3, 3))
    assert search.kept.shared is not None
    other = search_over(tmp_path, [tiny.config("bert")], forms, shared=True)
    assert other.kept.shared is not None
    assert checksums.fingerprint(search.kept.shared()) != checksums.fingerprint(other.kept.shared())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "qwen2"])
def test_its_forms_answer_alike(name: str, tmp_path: Path) -> None:
    first, *others = search_over(tmp_path, [tiny.config(name)], SEVERAL).references()
    assert others
    for runner in others:
        np.testing.assert_allclose(runner.run(padded()), first.run(padded()), atol=1e-4)


def test_speedups_may_be_over_a_static_model(tmp_path: Path) -> None:
    (runner,) = search_over(
        tmp_path, [tiny.config("eurobert", num_hidden_layers=0)], [untrained.TORCH], shared=True
    ).references()
    assert runner.run(padded()).shape == (3, 3)


def test_a_timed_bart_of_two_labels_is_read_as_it_was_saved(tmp_path: Path) -> None:
    """transformers leaves two default names out of its config, and would read three labels."""
    folder = untrained._Files(tiny.model("bart", "SequenceClassification", num_labels=2), tmp_path).checkpoint
    assert AutoModelForSequenceClassification.from_pretrained(folder).config.num_labels == 2


def test_a_reference_has_a_small_vocabulary() -> None:
    """The numbers of Qwen's special tokens are far above it."""
    given = tiny.config("qwen3", vocab_size=152_000, pad_token_id=151_643, eos_token_id=151_645)
    own = untrained.reference_config(given, 3)
    assert (own.pad_token_id, own.eos_token_id, own.use_cache, own.num_labels) == (0, 0, False, 3)
    assert given.pad_token_id == 151_643
    assert untrained.reference_config(tiny.config("bert"), 3).pad_token_id == tiny.PADDING


def test_the_last_token_of_a_text_is_its_end() -> None:
    seen: list[np.ndarray] = []
    run = untrained._ended(lambda batch: seen.append(batch["input_ids"]) or np.zeros(1), 7)
    mask = np.array([[1, 1, 1, 0], [0, 0, 1, 1]])
    given = {"input_ids": np.array([[7, 8, 9, 9], [8, 7, 7, 8]]), "attention_mask": mask}
    run(given)
    assert seen[0].tolist() == [[6, 8, 7, 9], [8, 6, 6, 7]]
    assert given["input_ids"][0, 0] == 7
