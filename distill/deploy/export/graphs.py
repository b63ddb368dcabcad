"""ONNX graphs without weights. Capturing one takes more than a second for each layer; filling one is quick.

`torch.export` traces a model with fake tensors, which have sizes but no values. A graph thus depends on the code and
the sizes of a model alone, and models that differ in their weights share it. In most families the numbers of hidden
and FFN channels and of tokens are sizes of weights and of nothing else, and the number of heads is a constant. With
BERT's architecture, the numbers of positions and of a classifier's labels are too. A graph of a model that differs in
them alone is resized, and used if it outputs what the model outputs.
"""

from __future__ import annotations

import inspect
import re
import threading
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distill.models.families import family_of
from distill.runtime.storage import checksums, store
from distill.runtime.versions import source_hash

PART = "graphs"
"""Folder of the user's cache."""
SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of a node: the modules that it is from. All other metadata is left out, because it contains paths of this
machine."""
_FILE = "graph.onnx"
_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnx-ir")
"""Packages whose code decides about a graph."""
_MOST = 64
"""Number of graphs that the process remembers."""
_NOT_READ = ("label2id", "id2label", "problem_type", "_name_or_path", "initializer_range")
"""Settings of a config on which no graph depends."""
_RESIZED = ("intermediate_size", "vocab_size", "hidden_size")
"""Sizes, by their common names, on which hardly any graph depends but by its weights."""
_HEADS = "num_attention_heads"
_POSITIONS = "max_position_embeddings"
"""A size of weights alone with BERT's architecture. Other families compute with it (scales of rotary positions)."""
_ALONE = re.compile(r"(?<![\w.-])\d+(?![\w.])")
"""A whole number in a text that is no part of a name or of another number."""
_LARGEST = 1 << 30
"""Bytes of the largest model that is compared before a resized graph is used."""
_TOLERANCE = 1e-4
"""Largest difference of its outputs; about 1e-6 is usual."""
remembered: dict[str, bytes] = {}
"""Key -> graph, of this process. Those in the cache are beside them."""
_one_at_a_time = threading.Lock()
"""torch and onnx_ir change modules and graphs while they capture and optimize."""


def program(model: Any, tensors: Mapping[str, Any], outputs: list[str], sizes: Mapping[str, Any]) -> Any:
    """The optimized `torch.onnx.ONNXProgram` of a float model in eval mode.

    Args:
        tensors: example inputs, by the names of the arguments of `forward`.
        outputs: names of the outputs.
        sizes: the dynamic sizes of each input, as `dynamic_shapes` of `torch.export.export`.
    """

    weights = _weights(model)
    arguments = {
        "kwargs": dict(tensors),
        "input_names": list(tensors),
        "output_names": outputs,
        "dynamic_shapes": dict(sizes),
    }
    with _one_at_a_time:
        key, like = _key(model, weights, arguments), _key(model, weights, arguments, resizable=True)
        if (graph := _found(key)) is None:
            other = _found(like)
            if other is not None and (filled := _resized(other, model, weights, tensors)) is not None:
                return filled
            graph = _captured(model, weights, arguments)
            for name in (key, like) if other is None else (key,):
                _remember(name, graph)
                with suppress(OSError):  # later exports can do without it
                    store.get_or_make(PART, name, lambda folder: (folder / _FILE).write_bytes(graph))
        return _filled(graph, weights)


def _filled(graph: bytes, weights: Mapping[str, Any]) -> Any:
    """The optimized `torch.onnx.ONNXProgram` of a graph with these weights."""
    import onnx
    import onnx_ir
    import torch

    filled = torch.onnx.ONNXProgram(onnx_ir.from_proto(onnx.ModelProto.FromString(graph)), None)
    names = filled.model.graph.initializers
    filled.apply_weights({name: weights[name] for name in names if name in weights})
    filled.optimize()
    return filled


def _resized(graph: bytes, model: Any, weights: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """The program of a graph of a model with other sizes `_RESIZED`; None if its outputs are not the model's.

    Args:
        tensors: example inputs.
    """
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    if sum(value.nbytes for value in weights.values()) > _LARGEST:
        return None
    proto = onnx.ModelProto.FromString(graph)
    if not _resize(proto.graph, weights, model.config):
        return None
    with torch.no_grad():
        outputs = model(**tensors)
    wanted = [value.numpy() for value in (outputs if isinstance(outputs, tuple) else outputs.values())]
    try:
        filled = _filled(proto.SerializeToString(), weights)
        session = onnxruntime.InferenceSession(
            filled.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found = session.run(None, {name: value.numpy() for name, value in tensors.items()})
    except (RuntimeError, ValueError):  # of the optimizer
        return None
    except (errors.Fail, errors.InvalidGraph, errors.RuntimeException, errors.InvalidArgument):
        return None
    same = [value.shape for value in found] == [value.shape for value in wanted]
    return filled if same and all(map(partial(np.allclose, atol=_TOLERANCE), found, wanted)) else None


def _resize(graph: Any, weights: Mapping[str, Any], config: Any) -> bool:
    """Give an ONNX graph the sizes of weights, and the number of heads. Returns whether each size has one new size."""
    tensors, labels = [each for each in graph.initializer if each.name in weights], _of_labels(weights, config)
    pairs = {
        pair
        for tensor in tensors
        for pair in [*zip(tensor.dims, weights[tensor.name].shape, strict=True)][tensor.name in labels :]
    }
    pairs |= _heads(pairs, config)
    resized = {before: now for before, now in pairs if before != now}
    if {before for before, now in pairs if resized.get(before, now) != now}:
        return False
    before = {tensor.dims[0] for tensor in tensors if tensor.name in labels}
    for tensor in tensors:
        tensor.dims[:] = weights[tensor.name].shape
    for node in graph.node if resized else ():
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if len(attribute.ints) == 1:  # the number of heads, among the sizes to which a tensor is reshaped
                attribute.ints[:] = [resized.get(size, size) for size in attribute.ints]
    _retype(graph, {*weights}, labels, resized, dict.fromkeys(before, config.num_labels))
    return True


def _retype(
    graph: Any, weights: set[str], labels: set[str], resized: Mapping[int, int], relabelled: Mapping[int, int]
) -> None:
    """Give the values of a graph their sizes: `resized`, and `relabelled` where one is a number of labels.

    Args:
        weights: names of all weights.
        labels: names of those that have a row for each label. What is computed of them has a column for each.
        resized: size before -> size now.
        relabelled: number of labels before -> number now.
    """
    of_labels = {*labels}
    for node in graph.node:  # in the order in which they are computed
        if of_labels.intersection(node.input):
            of_labels.update(node.output)
    for value in [*graph.value_info, *graph.output]:
        sizes = value.type.tensor_type.shape.dim
        place = (0 if value.name in weights else len(sizes) - 1) if value.name in of_labels else None
        for number, size in enumerate(sizes):
            if number == place and size.dim_value in relabelled:  # in multiple choice, the last size is dynamic
                size.dim_value = relabelled[size.dim_value]
            elif size.dim_value in resized:
                size.dim_value = resized[size.dim_value]
            if size.dim_param:  # `Min(512, length)`: at most as many as positions
                size.dim_param = _ALONE.sub(lambda found: str(resized.get(int(found[0]), found[0])), size.dim_param)


def _of_labels(weights: Mapping[str, Any], config: Any) -> set[str]:
    """Names of the weights that have a row for each label of a classifier with BERT's architecture.

    Empty with other architectures, and for heads that are not where the family's record says, such as RoBERTa's of
    tokens: models that differ in labels do not share a graph then.
    """
    record = family_of(config)
    if record.bert_like is None:
        return set()
    head = f"{record.head}."
    return {name for name in weights if name.startswith(head) and weights[name].shape[0] == config.num_labels}


def _heads(pairs: Collection[tuple[int, int]], config: Any) -> set[tuple[int, int]]:
    """The number of heads before and now, by the (size before, size now) of weights: heads have the same size."""
    names = family_of(config).settings
    hidden, heads = (getattr(config, names.get(name, name), None) for name in ("hidden_size", _HEADS))
    if not hidden or not heads:
        return set()
    return {(before * heads // hidden, heads) for before, now in pairs if now == hidden and not before * heads % hidden}


def _found(key: str) -> bytes | None:
    """The graph of a model, as from `_captured`, that is remembered or in the cache."""
    graph = remembered.get(key)
    if graph is None and (folder := store.found(PART, key)) is not None:
        with suppress(OSError):  # another process may have removed it meanwhile
            graph = (folder / _FILE).read_bytes()
    if graph is not None:
        _remember(key, graph)
    return graph


def _remember(key: str, graph: bytes) -> None:
    remembered[key] = graph
    while len(remembered) > _MOST:
        del remembered[next(iter(remembered))]


def _weights(model: Any) -> dict[str, Any]:
    """Name -> parameter or buffer of a model. One with several names is there under each."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: value.detach() for name, value in named}


def _key(model: Any, weights: Mapping[str, Any], arguments: Mapping[str, Any], *, resizable: bool = False) -> str:
    """A hash of what a graph depends on. Names of labels and of the folder, and the loss, do not matter.

    Args:
        arguments: of `torch.onnx.export`.
        resizable: whether models that differ in the sizes `_RESIZED`, in the number of heads of one size, and with
            BERT's architecture in the numbers of positions and labels, alone have one key. A size counts where it is
            the same number as another of them.
    """
    config = {name: value for name, value in model.config.to_dict().items() if name not in _NOT_READ}
    source = inspect.getsourcefile(type(model))
    code = [source_hash(), checksums.sha256(Path(source)) if source else None]
    built = [type(model).__module__, str(model), model.config._attn_implementation]
    sizes, inputs = ({name: _shape(value) for name, value in each.items()} for each in (weights, arguments["kwargs"]))
    content = repr([built, config, sizes])
    if resizable:
        record = family_of(model.config)
        resized = _RESIZED if record.bert_like is None else (*_RESIZED, _POSITIONS)
        own = {name: record.settings.get(name, name) for name in (*resized, _HEADS)}
        values = {name: config.get(own[name]) for name in own}  # models that can only be teachers may lack some
        plain = {str(values[name]): name for name in resized}
        if labels := _of_labels(weights, model.config):
            last = re.escape(record.head.rpartition(".")[2])
            built[1] = re.sub(rf"(\({last}\): Linear\(in_features=\d+, out_features=)\d+", r"\1labels", built[1])
            sizes |= {name: _shape(weights[name]).replace(f"[{model.config.num_labels}", "[labels") for name in labels}
        head = values["hidden_size"] / values[_HEADS] if values["hidden_size"] and values[_HEADS] else None
        others = {name: value for name, value in config.items() if name not in own.values()}
        named = _ALONE.sub(lambda number: plain.get(number[0], number[0]), repr([built, sizes]))
        content = repr([named, others, head])
    called = repr([inputs, arguments["output_names"], arguments["dynamic_shapes"]])
    return checksums.fingerprint([code, [version(name) for name in _PACKAGES], content, called])


def _shape(tensor: Any) -> str:
    return f"{tensor.dtype} {[*tensor.shape]}"


def _captured(model: Any, weights: Mapping[str, Any], arguments: Mapping[str, Any]) -> bytes:
    """The graph of a model as an ONNX file, which says of each of the weights that it is elsewhere."""
    import onnx_ir
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
        captured = torch.onnx.export(model, **arguments, dynamo=True, optimize=False, verbose=False)
    assert captured is not None
    _release(captured)
    graph = captured.model.graph
    for name, value in graph.initializers.items():
        if name in weights:
            value.const_value = onnx_ir.ExternalTensor(
                "weights", 0, value.const_value.nbytes, value.dtype, shape=value.shape, name=name
            )
    for node in graph.all_nodes():
        for name in [name for name in node.metadata_props if name != SCOPES]:
            del node.metadata_props[name]
    return bytes(captured.model_proto.SerializeToString())


def _release(captured: Any) -> None:
    """Empty the caches of the shapes of a program.

    torch leaves them in circles of references through its C++ objects, which Python cannot free. Each capture would
    keep them until the process ends.
    """
    for node in captured.exported_program.graph.nodes:
        shapes = getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None)
        getattr(shapes, "fake_tensor_cache", {}).clear()  # not public: other versions of torch may lack it
