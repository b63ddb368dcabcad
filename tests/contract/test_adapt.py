"""A teacher without a language-model head gets one; one that has it is taken as it is. For every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distill import checkpoint, family, teacher

TEXTS = ["the kettle sings before the tea is ready", "a grey heron counted the frogs in the pond"]
LAYERS = 4


def folder(home: Path, name: str, head: str) -> Path:
    """A tiny random model with a tokenizer; `head` as in transformers' class names, "" for none."""
    import torch
    import transformers

    tokenizer = teacher.load_tokenizer(teacher.random_teacher(home / "donor", 1, TEXTS))
    prefix = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[name]
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 64}
    if name == "distilbert":
        sizes = {"dim": 32, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 64}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 132}
    made = getattr(transformers, f"{prefix}Config")(**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{prefix}{f'For{head}' if head else 'Model'}")(made)
    model.save_pretrained(home / "teacher")
    tokenizer.save_pretrained(home / "teacher")
    return home / "teacher"


def arguments(given: Path, *pipeline: str) -> list[str]:
    return ["teacher=hub", f"teacher.name={given}", "limit=smoke", "output=out", f"pipeline=[{','.join(pipeline)}]"]


def whole(path: Path, auto: Any) -> Any:
    """The model of a folder, every parameter of it stored there."""
    model, told = auto.from_pretrained(path, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    return model


@pytest.mark.parametrize("name", sorted(family.FAMILIES))
def test_every_family_goes_from_a_bare_encoder_to_a_student_of_a_task(name: str, run: Any, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

    given = folder(tmp_path, name, "")
    assert teacher.load_mlm(given)[1] is False
    pipeline = ["adapt", "pretrain", "finetune_teacher", "finetune"]
    assert run(tmp_path, "distilbert", *arguments(given, *pipeline), "tasks.names=[order]") is None

    out = tmp_path / "out"
    manifests = {stage: checkpoint.read_json(out / stage / checkpoint.MANIFEST) for stage in pipeline}
    assert all(1 < manifests[stage]["steps"] <= 6 for stage in pipeline)
    adapted, student = whole(out / "adapt", AutoModelForMaskedLM), whole(out / "pretrain", AutoModelForMaskedLM)
    assert teacher.load_mlm(out / "adapt")[1] is True
    assert adapted.config.model_type == student.config.model_type == name
    assert (adapted.config.num_hidden_layers, student.config.num_hidden_layers) == (LAYERS, LAYERS // 2)
    start, trained = teacher.load_mlm(given)[0].state_dict(), adapted.state_dict()
    moved = [key for key in start if not torch.equal(start[key], trained[key])]
    assert any(key.startswith(family.FAMILIES[name].mlm_head[0]) for key in moved), "the head is trained"
    assert any(family.FAMILIES[name].layers in key for key in moved), "and the encoder with it"
    for stage, layers in (("finetune_teacher", LAYERS), ("finetune", LAYERS // 2)):
        classifier = whole(out / stage / "order", AutoModelForSequenceClassification)
        assert classifier.config.num_hidden_layers == layers
        assert classifier.config.num_labels == 2


@pytest.mark.parametrize("name", sorted(family.FAMILIES))
def test_a_teacher_with_a_head_is_not_adapted(name: str, run: Any, tmp_path: Path, capsys: Any) -> None:
    import torch

    given = folder(tmp_path, name, "MaskedLM")
    before = (given / "model.safetensors").read_bytes()
    run(tmp_path, "distilbert", *arguments(given, "adapt", "pretrain"), "limit.steps=1")
    assert "adapt: the teacher has a language-model head" in capsys.readouterr().out.splitlines()
    manifest = checkpoint.read_json(tmp_path / "out" / "adapt" / checkpoint.MANIFEST)
    assert (manifest["skipped"], manifest["same_as"]) == ("the teacher has a language-model head", "teacher")
    assert [file.name for file in (tmp_path / "out" / "adapt").iterdir()] == [checkpoint.MANIFEST]
    assert (given / "model.safetensors").read_bytes() == before
    made, _ = teacher.load_mlm(tmp_path / "out" / "pretrain")
    original, _ = teacher.load_mlm(given)
    # One step at the start of the warm-up moves each weight by less than the learning rate.
    last = family.layers(made)[-1].state_dict()
    torch.testing.assert_close(last, family.layers(original)[-1].state_dict(), rtol=0, atol=1e-3)


def test_without_texts_long_enough_there_is_nothing_to_learn_from(run: Any, tmp_path: Path) -> None:
    from distill.config import UserError

    (tmp_path / "short.txt").write_text("tea\nmore tea\n")
    given = folder(tmp_path, "bert", "")
    with pytest.raises(UserError, match=r"corpus\.path: got no sequence of 12 tokens"):
        run(tmp_path, "distilbert", *arguments(given, "adapt"), "corpus=text", "corpus.path=short.txt")
