"""Graphs that are kept without weights: they give the file that an export of the model itself gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from distill.deploy.export import graphs
from distill.deploy.export.onnx import export_onnx, onnx_parity
from distill.runtime.storage import cache

Make = Callable[..., Any]
Save = Callable[..., Path]


@pytest.fixture
def save(tiny_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Save]:
    """`save(name, family, head, ...)`: the folder of a tiny model of two layers. The cache is empty."""
    monkeypatch.setattr(graphs, "_remembered", {})

    def folder(name: str, family: str = "bert", head: str = "SequenceClassification", **settings: Any) -> Path:
        tiny_model(family, head, 2, **settings).save_pretrained(tmp_path / name)
        return tmp_path / name

    with cache.using(tmp_path / "cache"):
        yield folder


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The class of each model whose graph is captured."""
    captured, seen = graphs._captured, list[str]()

    def capture(model: Any, *others: Any) -> bytes:
        seen.append(type(model).__name__)
        return captured(model, *others)

    monkeypatch.setattr(graphs, "_captured", capture)
    return seen


def test_a_graph_of_another_model_gives_the_file_of_its_own(save: Save, captures: list[str], tmp_path: Path) -> None:
    first, second = (save(f"model{seed}", seed=seed) for seed in (0, 1))
    export_onnx(first, tmp_path / "first.onnx")
    graphs.forget()
    export_onnx(second, tmp_path / "second.onnx")
    assert len(captures) == 1
    with cache.using(tmp_path / "another"):
        graphs.forget()
        export_onnx(second, tmp_path / "own.onnx")
    assert len(captures) == 2
    assert (tmp_path / "second.onnx").read_bytes() == (tmp_path / "own.onnx").read_bytes()
    assert onnx_parity(second, tmp_path / "second.onnx") < 1e-5
    assert (tmp_path / "first.onnx").read_bytes() != (tmp_path / "second.onnx").read_bytes()


@pytest.mark.parametrize(
    ("family", "head", "number"),
    [
        ("bert", "SequenceClassification", 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("modernbert", "SequenceClassification", 2),
                ("deberta-v2", "TokenClassification", 1),
                ("distilbert", "QuestionAnswering", 1),
                ("albert", "MultipleChoice", 1),
                ("mpnet", "SequenceClassification", 1),
            ]
        ),
    ],
)
def test_a_graph_is_resized_where_nothing_but_weights_depends_on_a_size(
    family: str, head: str, number: int, save: Save, captures: list[str], tmp_path: Path
) -> None:
    """In ModernBERT the FFN channels are split in halves, whose size is a constant of the graph."""
    sizes: list[dict[str, int]] = [{"intermediate_size": 24}, {"intermediate_size": 40, "vocab_size": 70}]
    if family == "bert":
        sizes = [size | {"max_position_embeddings": 99} for size in sizes]
        sizes[0] |= {"hidden_size": 112, "num_attention_heads": 7}
        sizes[1] |= {"hidden_size": 48, "num_attention_heads": 3}
    export_onnx(save("one", family, head, num_labels=2, **sizes[0]), tmp_path / "one.onnx")
    other = save("other", family, head, num_labels=2, **sizes[1])
    graphs.forget()
    export_onnx(other, tmp_path / "resized.onnx")
    assert len(captures) == number
    with cache.using(tmp_path / "another"):
        graphs.forget()
        export_onnx(other, tmp_path / "own.onnx")
    assert (tmp_path / "resized.onnx").read_bytes() == (tmp_path / "own.onnx").read_bytes()


@pytest.mark.parametrize("sizes", [{"intermediate_size": 16}, {"vocab_size": 24}])
def test_a_graph_is_not_resized_where_another_size_is_the_same_number(sizes: dict[str, int], tiny_model: Make) -> None:
    def key(**settings: Any) -> str:
        model = tiny_model("bert", "SequenceClassification", **settings)
        arguments = {"kwargs": {}, "output_names": ["logits"], "dynamic_shapes": {}}
        return graphs._key(model, graphs._weights(model), arguments, resizable=True)

    assert key() == key(intermediate_size=40, vocab_size=70)
    assert key() != key(**sizes)


@pytest.mark.parametrize(
    "other",
    [
        {"layers": 1},
        {"num_attention_heads": 1},
        {"intermediate_size": 16},
        {"num_labels": 5},
        {"hidden_act": "relu"},
        {"layer_norm_eps": 0.1},
        {"attn_implementation": "eager"},
        {"head": "TokenClassification"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_model_that_computes_something_else_has_its_own_graph(other: dict[str, Any], tiny_model: Make) -> None:
    def key(head: str = "SequenceClassification", **settings: Any) -> str:
        model = tiny_model("bert", head, **settings)
        return graphs._key(
            model, graphs._weights(model), {"kwargs": {}, "output_names": ["logits"], "dynamic_shapes": {}}
        )

    assert key() == key(seed=1)
    assert key() == key(id2label={0: "a", 1: "b", 2: "c"})
    assert key() != key(**other)


def test_a_damaged_graph_is_captured_again(save: Save, captures: list[str], tmp_path: Path) -> None:
    folder = save("model")
    export_onnx(folder, tmp_path / "before.onnx")
    for stored in (tmp_path / "cache" / graphs.PART).rglob(graphs._FILE):
        stored.write_bytes(stored.read_bytes()[:-9])
    graphs.forget()
    export_onnx(folder, tmp_path / "after.onnx")
    assert len(captures) == 2
    assert (tmp_path / "after.onnx").read_bytes() == (tmp_path / "before.onnx").read_bytes()


def test_without_a_cache_a_process_captures_a_graph_once(save: Save, captures: list[str], tmp_path: Path) -> None:
    with cache.using(tmp_path / "none", max_gib=0):
        export_onnx(save("model"), tmp_path / "model.onnx")
        export_onnx(save("other", seed=1), tmp_path / "other.onnx")
    assert len(captures) == 1
    assert not (tmp_path / "none").exists()


def test_a_file_has_no_path_of_the_machine_and_says_of_which_module_a_node_is(save: Save, tmp_path: Path) -> None:
    export_onnx(save("model"), tmp_path / "model.onnx")
    content = (tmp_path / "model.onnx").read_bytes()
    assert str(Path(onnx.__file__).parent.parent).encode() not in content
    assert b".py" not in content
    names = {entry.key for node in onnx.load(tmp_path / "model.onnx").graph.node for entry in node.metadata_props}
    assert graphs.SCOPES in names
