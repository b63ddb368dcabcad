"""docs/families.md is correct: every capability of every family is tried on a tiny model.

`pytest tests/contract/test_matrix.py -s` prints the results. Feature capture, saving and loading, padding and attention
implementations have tests of their own for each family; `test_families` trains a teacher and a student in a run, and
`test_compression` exports to ONNX.
"""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.errors import ConfigError
from distill.models import families, student, teacher
from tests import tiny

NAMES = list(families.STUDENTS)
DOCUMENTED = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "families.py"))["capabilities"]


@functools.cache
def four_layers(name: str) -> Any:
    """A teacher of four layers. Embeddings are as wide as layers."""
    return tiny.model(name, "MaskedLM", num_hidden_layers=4, **({"embedding_size": 16} if name == "electra" else {}))


def two_layer_student(name: str, **settings: Any) -> Any:
    """A student with two of a teacher's four layers, or None where it is refused."""
    try:
        built = student.from_teacher(four_layers(name), [0, 2], init="teacher_layers", seed=0, **settings)
    except ConfigError:
        return None
    assert built.config.num_hidden_layers == 2
    return built


def embedding_width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[1])


def quoted(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def measured_cells(name: str) -> dict[str, str]:
    """The cells of a family, found by building students."""
    before = {key: value.clone() for key, value in four_layers(name).state_dict().items()}
    built = {kind: two_layer_student(name, family=kind) for kind in NAMES}
    kinds = [kind for kind in NAMES if built[kind]]
    narrow = [kind for kind in kinds if two_layer_student(name, family=kind, sizes={"embedding_size": 4})]
    sharing = [kind for kind in kinds if len(set(map(id, families.layers(built[kind])))) == 1]
    bert_like = [kind for kind, record in families.STUDENTS.items() if record.bert_like]
    narrower = two_layer_student(name, sizes={"hidden_size": 8})
    unchanged = two_layer_student(name)
    assert all(value.equal(before[key]) for key, value in four_layers(name).state_dict().items()), "the teacher changed"
    own = not narrow and embedding_width(unchanged) < unchanged.config.hidden_size
    return {
        "Family": f"`{name}`",
        "Width": "yes" if narrower is not None and narrower.config.hidden_size == 8 else "no",
        "Narrower embeddings": "its own" if own else _cell(name, narrow),
        "Shared layers": _cell(name, sharing),
        "Student families": (
            "its own" if kinds == [name] else "BERT's architecture" if kinds == bert_like else quoted(kinds)
        ),
    }


def _cell(name: str, kinds: list[str]) -> str:
    return "no" if not kinds else "yes" if name in kinds else f"as {quoted(kinds)}"


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_table_states_what_can_be_built(name: str) -> None:
    cells = measured_cells(name)
    print(" | ".join(cells.values()))
    documented = DOCUMENTED(families.STUDENTS[name])
    assert {column: documented[column] for column in cells} == cells


ONE_LAYER = {
    "xlnet": {"n_layer": 1},
    "bart": {"encoder_layers": 1},
    "t5": {"num_layers": 1},
    "qwen2": {"num_hidden_layers": 1},
    "qwen3": {"num_hidden_layers": 1},
}
"""One layer is enough in families whose layers are all alike; an export takes a second per layer."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in families.FAMILIES if name not in families.STUDENTS])
def test_teachers_of_tasks_export_where_the_table_says_so(name: str, tmp_path: Path) -> None:
    from torch.onnx.errors import OnnxExporterError

    from distill.deploy.export.onnx import export_onnx
    from distill.inference.latency import synthetic
    from distill.inference.runners import onnx_runner, torch_runner

    heads = ("SequenceClassification", "TokenClassification")
    head = next(head for head in heads if f"For{head}" not in families.FAMILIES[name].without)
    tiny.save(tmp_path / "given", name, head, num_labels=3, **ONE_LAYER.get(name, {}))
    folder, file = tmp_path / "model", tmp_path / "model.onnx"
    teacher.load_classifier(tmp_path / "given", 3, pad_id=1, architecture=f"For{head}").save_pretrained(folder)
    if not families.FAMILIES[name].onnx:
        with pytest.raises(OnnxExporterError):
            export_onnx(folder, file)
        return
    export_onnx(folder, file)
    onnx = onnx_runner("onnx", file, scheme="fp32", threads=1)
    torch = torch_runner("torch", folder, scheme="fp32", device="cpu", threads=1)
    for shape in ((2, 16), (5, 33)):
        batch = synthetic(shape, 60, last=2)  # BART and T5 classify at the end-of-text token
        np.testing.assert_allclose(onnx.run(batch), torch.run(batch), atol=1e-5)
