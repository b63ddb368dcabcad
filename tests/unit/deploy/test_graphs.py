"""Graphs that are kept without weights: they give the file that an export of the model itself gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

from distill.deploy.export import graphs
from distill.deploy.export.onnx import export_onnx, onnx_parity
from distill.models.families import FAMILIES
from distill.models.families.record import TEXTS
from distill.runtime.storage import cache

Make = Callable[..., Any]
Save = Callable[..., Path]


@pytest.fixture
def save(tiny_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Save]:
    """`save(name, family, head, ...)`: the folder of a tiny model, of one layer by default, because capturing takes a
    second or more for each. The cache is empty."""
    monkeypatch.setattr(graphs, "remembered", {})

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


@pytest.mark.slow
def test_a_graph_of_another_model_gives_the_file_of_its_own(save: Save, captures: list[str], tmp_path: Path) -> None:
    first, second = (save(f"model{seed}", seed=seed) for seed in (0, 1))
    export_onnx(first, tmp_path / "first.onnx")
    graphs.remembered.clear()
    export_onnx(second, tmp_path / "second.onnx")
    assert len(captures) == 1
    with cache.using(tmp_path / "another"):
        graphs.remembered.clear()
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
    graphs.remembered.clear()
    export_onnx(first, tmp_path / "again.onnx")
    assert len(captures) == 3
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "first.onnx").read_bytes()
    # Without a cache, a process remembers it.
    graphs.remembered.clear()
    with cache.using(tmp_path / "none", max_gib=0):
        export_onnx(first, tmp_path / "captured.onnx")
        export_onnx(second, tmp_path / "remembered.onnx")
    assert len(captures) == 4
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "head", "number"),
    [
        ("bert", "SequenceClassification", 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("bert", "TokenClassification", 1),
                ("distilbert", "SequenceClassification", 1),
                ("albert", "MultipleChoice", 1),
                ("mpnet", "SequenceClassification", 1),
                ("deberta-v2", "TokenClassification", 1),
                ("modernbert", "SequenceClassification", 2),
            ]
        ),
    ],
)
def test_a_graph_is_resized_where_nothing_but_weights_depends_on_a_size(
    family: str, head: str, number: int, save: Save, captures: list[str], tmp_path: Path
) -> None:
    """RoBERTa and ELECTRA have the head of MPNet. In ModernBERT the FFN channels are split in halves, whose size is a
    constant of the graph. Models of multiple choice have one output, and as many columns as an example has choices."""
    sizes: list[dict[str, Any]] = [{"intermediate_size": 24}, {"intermediate_size": 40, "vocab_size": 70}]
    sizes = [size | {"num_labels": 2, "layers": 2 if family == "modernbert" else 1} for size in sizes]
    if FAMILIES[family].bert_like is not None:
        sizes[0] |= {"max_position_embeddings": 99}
        sizes[1] |= {"max_position_embeddings": 67, "num_labels": 5}
    if head == "MultipleChoice":
        sizes = [size | {"num_labels": 1} for size in sizes]
    if family == "bert":
        sizes[0] |= {"hidden_size": 112, "num_attention_heads": 7}
        sizes[1] |= {"hidden_size": 48, "num_attention_heads": 3}
    export_onnx(save("one", family, head, **sizes[0]), tmp_path / "one.onnx")
    other = save("other", family, head, **sizes[1])
    graphs.remembered.clear()
    export_onnx(other, tmp_path / "resized.onnx")
    assert len(captures) == number
    with cache.using(tmp_path / "another"):
        graphs.remembered.clear()
        export_onnx(other, tmp_path / "own.onnx")
    assert (tmp_path / "resized.onnx").read_bytes() == (tmp_path / "own.onnx").read_bytes()


def key_of(model: Any, **settings: Any) -> str:
    """What models have in common whose graphs are the same or, with `resizable`, are resized for each other."""
    arguments = {"kwargs": {}, "output_names": ["logits"], "dynamic_shapes": {}}
    return graphs._key(model, graphs._weights(model), arguments, **settings)


@pytest.mark.parametrize("sizes", [{"intermediate_size": 16}, {"vocab_size": 24}])
def test_a_graph_is_not_resized_where_another_size_is_the_same_number(sizes: dict[str, int], tiny_model: Make) -> None:
    def key(**settings: Any) -> str:
        return key_of(tiny_model("bert", "SequenceClassification", **settings), resizable=True)

    assert key() == key(intermediate_size=40, vocab_size=70, num_labels=5, max_position_embeddings=99)
    assert key() != key(**sizes)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.bert_like is None])
def test_nor_are_its_labels_or_positions_without_berts_architecture(family: str, tiny_model: Make) -> None:
    record = FAMILIES[family]
    head = "TokenClassification" if TEXTS in record.without else "SequenceClassification"
    sizes = [{}, {"num_labels": 5}, *([{"max_position_embeddings": 99}] if record.layer is not None else [])]
    assert len({key_of(tiny_model(family, head, **size), resizable=True) for size in sizes}) == len(sizes)


@pytest.mark.parametrize("family", ["roberta", "electra", "mpnet"])
def test_nor_the_labels_of_a_head_that_is_elsewhere(family: str, tiny_model: Make) -> None:
    model, other = (tiny_model(family, "TokenClassification", 1, num_labels=number) for number in (3, 5))
    assert key_of(model, resizable=True) != key_of(other, resizable=True)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["outputs", "optimizer"])
def test_a_graph_is_captured_that_cannot_be_resized(
    wrong: str, save: Save, captures: list[str], tiny_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if outputs of another shape are equal by broadcasting: the model gives every label the same output."""
    export_onnx(save("one", intermediate_size=24), tmp_path / "one.onnx")
    model = tiny_model("bert", "SequenceClassification", 1, intermediate_size=40)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.fill_(1.0)
    model.save_pretrained(tmp_path / "other")
    run, filled, calls = onnxruntime.InferenceSession.run, graphs._filled, list[int]()

    def refused_once(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("an error occurred at step 0")
        return filled(*given)

    if wrong == "optimizer":
        monkeypatch.setattr(graphs, "_filled", refused_once)
    else:
        monkeypatch.setattr(onnxruntime.InferenceSession, "run", lambda *given: [value[:, :1] for value in run(*given)])
    export_onnx(tmp_path / "other", tmp_path / "other.onnx")
    assert len(captures) == 2


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
        return key_of(tiny_model("bert", head, **settings))

    assert key() == key(seed=1)
    assert key() == key(initializer_range=0.5)
    assert key() == key(id2label={0: "a", 1: "b", 2: "c"})
    assert key() != key(**other)
