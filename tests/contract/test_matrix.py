"""docs/families.md says what happens: every capability of every family is tried on a tiny model.

`pytest tests/contract/test_matrix.py -s` prints what was tried. Capture, saving and loading, padding and kernels have
tests of their own for each family; `test_families` sends each the whole way, ONNX included.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill import family, student, teacher
from distill.errors import ConfigError
from distill.family.__main__ import capabilities, table

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
NAMES = list(family.STUDENTS)


def made(name: str, **settings: Any) -> Any:
    """A student of two layers out of four, or None where it is refused. Embeddings are as wide as layers."""
    wide = {"embedding_size": 16} if name == "electra" else {}
    teacher = TINY["model"](name, "MaskedLM", num_hidden_layers=4, **wide)
    try:
        built = student.from_teacher(teacher, [0, 2], init="teacher_layers", seed=0, **settings)
    except ConfigError:
        return None
    assert built.config.num_hidden_layers == 2
    return built


def embedding_width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[1])


def quoted(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def tried(name: str) -> dict[str, str]:
    """The cells of a family as they come out."""
    starts = [kind for kind in NAMES if made(name, kind=kind)]
    narrow = [kind for kind in starts if made(name, kind=kind, sizes={"embedding_size": 4})]
    sharing = [kind for kind in starts if len({id(layer) for layer in family.layers(made(name, kind=kind))}) == 1]
    shaped = [kind for kind, record in family.STUDENTS.items() if record.bert_shape]
    narrower = made(name, sizes={"hidden_size": 8})
    fixed = made(name)
    own = not narrow and embedding_width(fixed) < fixed.config.hidden_size
    return {
        "Family": f"`{name}`",
        "Width": "yes" if narrower is not None and narrower.config.hidden_size == 8 else "no",
        "Narrower embeddings": "its own" if own else _cell(name, narrow),
        "Shared layers": _cell(name, sharing),
        "Starts": "itself" if starts == [name] else "BERT's shape" if starts == shaped else quoted(starts),
    }


def _cell(name: str, able: list[str]) -> str:
    return "no" if not able else "yes" if name in able else f"as {quoted(able)}"


@pytest.mark.parametrize("name", NAMES)
def test_the_table_says_what_happens(name: str) -> None:
    found = tried(name)
    print(" | ".join(found.values()))
    said = capabilities(family.STUDENTS[name])
    assert {column: said[column] for column in found} == found


ONE_LAYER = {
    "xlnet": {"n_layer": 1},
    "bart": {"encoder_layers": 1},
    "t5": {"num_layers": 1},
    "qwen2": {"num_hidden_layers": 1},
    "qwen3": {"num_hidden_layers": 1},
}
"""Families whose layers are all of one kind; an export takes a second a layer."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in family.FAMILIES if name not in family.STUDENTS])
def test_teachers_of_tasks_export_where_the_table_says_so(name: str, tmp_path: Path) -> None:
    from torch.onnx.errors import OnnxExporterError

    from distill.evaluate.engines import onnx_engine, torch_engine
    from distill.evaluate.latency import synthetic
    from distill.export.onnx import export_onnx

    TINY["save"](tmp_path / "given", name, "SequenceClassification", num_labels=3, **ONE_LAYER.get(name, {}))
    folder, file = tmp_path / "model", tmp_path / "model.onnx"
    teacher.load_classifier(tmp_path / "given", 3, pad_id=1).save_pretrained(folder)
    if not family.FAMILIES[name].onnx:
        with pytest.raises(OnnxExporterError):
            export_onnx(folder, file)
        return
    export_onnx(folder, file)
    onnx = onnx_engine("onnx", file, scheme="fp32", threads=1)
    torch = torch_engine("torch", folder, scheme="fp32", device="cpu", threads=1)
    for shape in ((2, 16), (5, 33)):
        batch = synthetic(shape, 60, last=2)  # BART and T5 answer where a text ends
        np.testing.assert_allclose(onnx.run(batch), torch.run(batch), atol=1e-5)


def test_the_document_is_the_table() -> None:
    assert (Path(__file__).parents[2] / "docs" / "families.md").read_text() == table()
