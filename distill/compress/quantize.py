"""Weights and activations in 8 bits or fewer, in the forms that each runtime loads.

Every scheme can be told, by the names of torch modules, what to leave in float: head and pooler always are. A file is
written where it is to be: whoever calls sees to it that half of one is never taken for a whole one.
"""

from __future__ import annotations

import io
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from distill.checkpoint import MANIFEST, writing_file

Arrays = Mapping[str, np.ndarray]
"""int64 input_ids, attention_mask and token_type_ids of one row, each [1, L]."""
Make = Callable[[Path, Path, Collection[str], Sequence[Arrays]], None]
"""(source, out, keep, rows): quantize `source` to `out`, but for the modules named in `keep`; ranges of activations are
measured on `rows`, where they are measured."""


def linears(model: Any) -> list[str]:
    """Names of the linear modules of the encoder: what is quantized unless it is to be kept."""
    import torch

    floats = always_float(model)
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and not _inside(name, floats)
    ]


def embeddings(model: Any) -> list[str]:
    """Names of the tables of embeddings."""
    import torch

    return [name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)]


def always_float(model: Any) -> list[str]:
    """Modules that are never quantized: the head, and a pooler. They are small, new and the most sensitive."""
    import torch

    base = model.base_model_prefix
    heads = [name for name, _ in model.named_children() if name != base]
    poolers = [f"{base}.{name}" for name, _ in getattr(model, base).named_children() if name == "pooler"]
    return [
        name
        for name in heads + poolers
        if any(isinstance(module, torch.nn.Linear) for module in model.get_submodule(name).modules())
    ]


def without_weights(folder: Path) -> Any:
    """The classifier without its weights: enough to ask for its modules."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    with torch.device("meta"):
        return AutoModelForSequenceClassification.from_config(
            AutoConfig.from_pretrained(folder, trust_remote_code=False), trust_remote_code=False
        )


def _with_transformers(folder: Path, out: Path, settings: Any) -> None:
    """A checkpoint that plain `from_pretrained` loads wherever the quantizer is installed; its tokenizer goes along."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        folder,
        quantization_config=settings,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
    )
    out.mkdir(parents=True, exist_ok=True)
    # The tokenizer; weights and config are written anew, and a manifest or scores are of the stage that left them.
    for path in folder.iterdir():
        other = path.name.startswith(("model", "config.json", ".")) or path.name == MANIFEST
        if path.is_file() and not other and path.suffix != ".safetensors":
            shutil.copy2(path, out)
    model.save_pretrained(out)


def bitsandbytes_int8(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """LLM.int8 (Dettmers et al. 2022, arXiv 2208.07339): int8 weights by row, outlier activations in float."""
    # bitsandbytes is slow to import, and tells of kernels it does not find and of every cast it makes.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from transformers import BitsAndBytesConfig

    _with_transformers(folder, out, BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=[*keep]))


def bitsandbytes_nf4(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """4-bit NormalFloat weights (Dettmers et al. 2023, arXiv 2305.14314), with their scales quantized once more.

    Without that a checkpoint that is saved after a call on a CPU is not what it was. Sizes that its blocks do not
    divide (64 inputs, 32 outputs) stay float.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import torch
    from transformers import BitsAndBytesConfig

    modules = without_weights(folder).named_modules()
    odd = [name for name, module in modules if isinstance(module, torch.nn.Linear) and not _even(module)]
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        llm_int8_skip_modules=[*odd, *keep],
    )
    _with_transformers(folder, out, settings)


def _even(module: Any) -> bool:
    """Whether a linear module has whole blocks of 4 bits."""
    return not (module.in_features % 64 or module.out_features % 32)


def torchao_int8(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """int8 weights by row, int8 activations by token at run time, by torchao; fast when compiled."""
    with _quietly():
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig
    from transformers import TorchAoConfig

    settings = TorchAoConfig(Int8DynamicActivationInt8WeightConfig(), modules_to_not_convert=[*keep])
    _with_transformers(folder, out, settings)


def onnx_modules(path: Path) -> dict[str, str]:
    """Node -> the torch module it came from, of the products with weights, and of the tables of embeddings, of an ONNX
    file that was exported here.
    """
    import ast

    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {one.name for one in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm", "Gather") and weights & {*node.input}:
            scopes = {entry.key: entry.value for entry in node.metadata_props}.get("pkg.torch.onnx.name_scopes", "[]")
            # the last is the call itself
            found[node.name] = next((name for name in reversed(ast.literal_eval(scopes)[:-1]) if name), "")
    return found


def _inside(name: str, modules: Collection[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _left_float(path: Path, keep: Collection[str]) -> list[str]:
    """Nodes of an ONNX file that are not quantized; of a Gemm also what ONNX Runtime and OpenVINO call its product, for
    they take the bias out of it before they look for a name.
    """
    nodes = [node for node, module in onnx_modules(path).items() if _inside(module, keep)]
    return [name for node in nodes for name in (node, f"{node}_MatMul", f"{node}/WithoutBiases")]


def _without_weights(path: Path) -> list[str]:
    """Products of activations with each other: the dynamic scheme leaves them in float, too."""
    import onnx

    graph, known = onnx.load(path, load_external_data=False).graph, onnx_modules(path)
    return [node.name for node in graph.node if node.op_type == "MatMul" and node.name not in known]


def _single_rows(path: Path) -> list[str]:
    """Lookups in tables of one row, as RoBERTa's token types are. OpenVINO does not load them in 8 bits: it fails to
    fold them into constants.
    """
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    single = {one.name for one in graph.initializer if one.dims and one.dims[0] == 1}
    return [node.name for node in graph.node if node.op_type == "Gather" and node.input[0] in single]


def _read_onnx(path: Path) -> Any:
    import onnx
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load(path)
    # The exporter's notes on shapes are of the weights before quantization and make shape inference fail.
    del model.graph.value_info[:]
    # Or it asks for its own graph clean-up, which the exporter has done.
    add_pre_process_metadata(model)
    return model


def onnxruntime_dynamic(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """int8 weights by column, activations in 8 bits by the whole tensor, at run time; embeddings by the whole table."""
    from onnxruntime.quantization import quantize_dynamic

    with writing_file(out) as temporary:
        quantize_dynamic(_read_onnx(path), temporary, per_channel=True, nodes_to_exclude=_left_float(path, keep))


class _Reader:
    """Calibration rows, as ONNX Runtime asks for them: one by one, for rows of other lengths are no array together."""

    def __init__(self, rows: Sequence[Arrays], inputs: Collection[str]) -> None:
        self.rows = [{key: row[key] for key in inputs} for row in rows]
        self.part: Iterator[Arrays] = iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def set_range(self, start_index: int, end_index: int) -> None:
        self.part = iter(self.rows[start_index:end_index])

    def get_next(self) -> Arrays | None:
        return next(self.part, None)


def onnxruntime_static(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """As dynamic, with the ranges of activations measured on `rows`."""
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    inputs = [one.name for one in onnx.load(path, load_external_data=False).graph.input]
    kinds = ["MatMul", "Gemm", "Gather"]
    with writing_file(out) as temporary, _quietly():
        quantize_static(
            _read_onnx(path),
            temporary,
            _Reader(rows, inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            calibrate_method=CalibrationMethod.Percentile,
            op_types_to_quantize=kinds,
            nodes_to_exclude=[*_left_float(path, keep), *_without_weights(path)],
            extra_options={
                "CalibPercentile": 99.99,
                "CalibStridedMinMax": 1,
                "OpTypesToExcludeOutputQuantization": kinds,  # they are added to residuals
            },
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress, advice and numbers that quantizers print."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def openvino_int8(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """int8 weights and activations by NNCF, outliers moved into the weights (SmoothQuant, Xiao et al. 2023, arXiv
    2211.10438); ranges are measured on `rows`. `out` is the folder of OpenVINO's two files.
    """
    logging.getLogger("nncf").setLevel(logging.ERROR)
    with _quietly():
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # reports, unasked, over the network
        import nncf
        import openvino

        model = openvino.convert_model(path)
        inputs = [one.get_any_name() for one in model.inputs]
        there = {operation.get_friendly_name() for operation in model.get_ops()}
        floats = [node for node in _left_float(path, keep) + _single_rows(path) if node in there]
        data = nncf.Dataset([{key: row[key] for key in inputs} for row in rows])
        made = nncf.quantize(
            model,
            data,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
            ignored_scope=nncf.IgnoredScope(names=floats),
        )
        out.mkdir(parents=True, exist_ok=True)
        openvino.save_model(made, out / "model_int8.xml", compress_to_fp16=False)


MAKE: dict[str, Make] = {
    "bitsandbytes": bitsandbytes_int8,
    "bitsandbytes_nf4": bitsandbytes_nf4,
    "torchao": torchao_int8,
    "onnxruntime": onnxruntime_dynamic,
    "onnxruntime_static": onnxruntime_static,
    "openvino": openvino_int8,
}
"""Name of a scheme -> what makes it: from the ONNX file where the scheme has `onnx`, else from the checkpoint."""

FITS: dict[str, Callable[[Any], bool]] = {"bitsandbytes_nf4": _even}
"""Name of a scheme -> whether a linear module has sizes that it can take; a scheme that is not in here takes all."""
