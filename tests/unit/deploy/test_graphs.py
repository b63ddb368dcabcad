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
    """`save(name, family, head, ...)`: the folder of a tiny model, of one layer by default, because capturing takes a
    second or more for each. The cache is empty."""
    monkeypatch.setattr(graphs, "_remembered", {})

    def folder(
        name: str, family: str = "bert", head: str = "SequenceClassification", layers: int = 1, **settings: Any
    ) -> Path:
        tiny_model(family, head, layers, **settings).save_pretrained(tmp_path / name)
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
    # A file has no path of the machine, and says of which module a node is.
    content = (tmp_path / "own.onnx").read_bytes()
    assert str(Path(onnx.__file__).parent.parent).encode() not in content
    assert b".py" not in content
    names = {entry.key for node in onnx.load(tmp_path / "own.onnx").graph.node for entry in node.metadata_props}
    assert graphs.SCOPES in names
    # A damaged graph in the cache is captured again.
    for stored in (tmp_path / "cache" / graphs.PART).rglob(graphs._FILE):
        stored.write_bytes(stored.read_bytes()[:-9])
    graphs.forget()
    export_onnx(first, tmp_path / "again.onnx")
    assert len(captures) == 3
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "first.onnx").read_bytes()
    # Without a cache, a process remembers it.
    with cache.using(tmp_path / "none", max_gib=0):
        export_onnx(second, tmp_path / "remembered.onnx")
    assert len(captures) == 3
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("family", "head", "number"),
    [
        ("bert", "SequenceClassification", 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("modernbert", "SequenceClassification", 2),
                ("deberta-v2", "TokenClassification", 1),
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
    sizes: list[dict[str, Any]] = [{"intermediate_size": 24}, {"intermediate_size": 40, "vocab_size": 70}]
    sizes = [size | {"num_labels": 2, "layers": 2 if family == "modernbert" else 1} for size in sizes]
    if family in ("bert", "mpnet"):
        sizes[1] |= {"num_labels": 5}
    if family == "bert":
        sizes[0] |= {"hidden_size": 112, "num_attention_heads": 7, "max_position_embeddings": 99}
        sizes[1] |= {"hidden_size": 48, "num_attention_heads": 3, "max_position_embeddings": 67}
    export_onnx(save("one", family, head, **sizes[0]), tmp_path / "one.onnx")
    other = save("other", family, head, **sizes[1])
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

    assert key() == key(intermediate_size=40, vocab_size=70, num_labels=5, max_position_embeddings=99)
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
    assert key() == key(initializer_range=0.5)
    assert key() == key(id2label={0: "a", 1: "b", 2: "c"})
    assert key() != key(**other)
