"""Configs state their layers and positions by the names of transformers 4 too, which version 5 still reads: it is the
oracle here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from distill.models import student, teacher
from distill.models.families import earlier
from distill.models.write import write_model
from tests import tiny

FIVE = ("layer_types", "rope_parameters")
"""Settings that version 4 does not read in ModernBERT's configs."""
KINDS = {"f": "full_attention", "s": "sliding_attention"}


def stated(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def by_version_4(folder: Path, without: tuple[str, ...] = FIVE) -> Any:
    """The config of a folder, read without the settings of version 5 alone."""
    copy = folder / "by version 4"
    copy.mkdir()
    left = {name: value for name, value in stated(folder).items() if name not in without}
    (copy / "config.json").write_text(json.dumps(left))
    return AutoConfig.from_pretrained(copy)


def rotary(full: float, sliding: float) -> dict[str, Any]:
    bases = {"full_attention": full, "sliding_attention": sliding}
    return {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}


@pytest.mark.parametrize("layers", ["f", "ff", "fs", "fsf", "fssf", "fsfsf", "fss"])
def test_layers_and_bases_have_the_settings_of_version_4(layers: str, tmp_path: Path) -> None:
    kinds = [KINDS[each] for each in layers]
    bases = rotary(160_000.0, 80_000.0)
    made = AutoConfig.for_model("modernbert", num_hidden_layers=len(kinds), layer_types=kinds, rope_parameters=bases)
    made.save_pretrained(tmp_path)
    earlier.complete(tmp_path)
    assert not earlier.needs_5(tmp_path)
    for read in (by_version_4(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert read.layer_types == kinds
        assert read.rope_parameters == made.rope_parameters


@pytest.mark.parametrize("layers", ["ffs", "sfs", "fsff"])
def test_layers_that_version_4_has_no_setting_for_end_it(layers: str, tmp_path: Path) -> None:
    """It divides by the number, which is null."""
    kinds = [KINDS[each] for each in layers]
    AutoConfig.for_model("modernbert", num_hidden_layers=len(kinds), layer_types=kinds).save_pretrained(tmp_path)
    earlier.complete(tmp_path)
    assert stated(tmp_path)["global_attn_every_n_layers"] is None
    assert earlier.needs_5(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).layer_types == kinds


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gemma2"])
def test_a_decoder_states_its_base(name: str, tmp_path: Path) -> None:
    """Version 4 would take 10,000 in place of Qwen's million."""
    bases = {"rope_type": "default", "rope_theta": 1_000_000.0}
    made = AutoConfig.for_model(name, **tiny.TEACHERS[name], rope_parameters=bases)
    made.save_pretrained(tmp_path)
    earlier.complete(tmp_path)
    read = by_version_4(tmp_path, FIVE[1:])
    assert read.rope_parameters == AutoConfig.from_pretrained(tmp_path).rope_parameters == made.rope_parameters
    assert read.rope_parameters["rope_theta"] == 1_000_000.0


def test_gemma_3_states_two_bases(tmp_path: Path) -> None:
    made = AutoConfig.for_model("gemma3_text", **tiny.TEACHERS["gemma3_text"], rope_parameters=rotary(5e5, 2e4))
    made.save_pretrained(tmp_path)
    earlier.complete(tmp_path)
    read = by_version_4(tmp_path, FIVE[1:])
    assert read.rope_parameters == AutoConfig.from_pretrained(tmp_path).rope_parameters == made.rope_parameters


def test_scaled_positions_end_version_4() -> None:
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    assert earlier.named({"model_type": "qwen2", "rope_parameters": linear}) == {"rope_theta": None}
    layers = {"model_type": "modernbert", "layer_types": ["full_attention"]}
    found = earlier.named({**layers, "rope_parameters": rotary(1e4, 1e4) | {"sliding_attention": linear}})
    assert found["global_attn_every_n_layers"] is None


def test_a_config_of_version_4_and_those_of_other_types_stay() -> None:
    assert earlier.named({"model_type": "modernbert", "global_attn_every_n_layers": 3}) == {}
    assert earlier.named({"model_type": "bert", "layer_types": ["full_attention"]}) == {}
    assert earlier.named({"word_embedding_dimension": 32}) == {}


def test_a_student_of_other_layers_does_not_keep_the_setting_of_its_teacher(tmp_path: Path) -> None:
    """Of a teacher that version 4 wrote: every second layer is a full one, and the student has two of these."""
    folder = tiny.save(tmp_path / "teacher", "modernbert", "MaskedLM")
    content = {name: value for name, value in stated(folder).items() if name not in FIVE}
    bases = {"global_attn_every_n_layers": 2, "global_rope_theta": 160_000.0, "local_rope_theta": 160_000.0}
    (folder / "config.json").write_text(json.dumps(content | bases))
    given, _ = teacher.load_mlm(folder)
    made = student.from_teacher(given, [0, 2], init="teacher_layers", seed=0)
    assert made.config.layer_types == ["full_attention"] * 2
    with write_model(tmp_path / "student", made, tiny.tokenizer()):
        pass
    read = by_version_4(tmp_path / "student")
    assert read.layer_types == made.config.layer_types
    assert read.rope_parameters == made.config.rope_parameters
