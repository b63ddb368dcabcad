"""Quantizes a task's model to 8 bits or fewer, with one function for each scheme.

Modules to leave in float are given by their torch names; head and pooler always are. Folders are written directly: the
caller must make sure that an incomplete one is not used.
"""

from __future__ import annotations

import errno
import functools
import io
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from distill.inference.runners import shaped
from distill.models import families
from distill.runtime import outside
from distill.runtime.storage.atomic import writing_file
from distill.runtime.storage.run_folder import MANIFEST
from distill.runtime.versions import cpu_flags, saturates

Arrays = Mapping[str, np.ndarray]
"""int64 input_ids, attention_mask and token_type_ids of one row, each [1, L]."""
Make = Callable[[Path, Path, Collection[str], Sequence[Arrays]], None]
"""(source, out, keep, rows): quantize the file or folder `source` to `out`, leaving the modules named in `keep` in
float. Calibrated schemes measure the ranges of activations on `rows`; the others ignore them."""
_LOUD = ("bitsandbytes", "nncf")
"""Loggers of quantizers whose warnings, about missing kernels and about casts, are of no use."""


def _with_logging_kept(make: Make) -> Make:
    """The same function, which leaves logging as it was: quantizers log to the root, which then gets a handler, so that
    a later `basicConfig` of the user does nothing."""

    @functools.wraps(make)
    def made(source: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
        nowhere, loggers = logging.NullHandler(), [logging.getLogger(name) for name in _LOUD]
        levels = [logger.level for logger in loggers]
        logging.root.addHandler(nowhere)
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            make(source, out, keep, rows)
        finally:
            logging.root.removeHandler(nowhere)
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

    return made


def linears(model: Any) -> list[str]:
    """Names of the linear modules that are quantized by default: all but head and pooler."""
    import torch

    floats = always_float(model)
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and not _inside(name, floats)
    ]


def embeddings(model: Any) -> list[str]:
    """Names of the embedding modules."""
    import torch

    return [name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)]


def always_float(model: Any) -> list[str]:
    """Modules that are never quantized: the head, and a pooler. They are small and the most sensitive."""
    import torch

    base = model.base_model_prefix
    heads = [name for name, _ in model.named_children() if name != base]
    poolers = [f"{base}.{name}" for name, _ in getattr(model, base).named_children() if name == "pooler"]
    return [
        name
        for name in heads + poolers
        if any(isinstance(module, torch.nn.Linear) for module in model.get_submodule(name).modules())
    ]


def floats_of(model: Any, scheme: str) -> list[str]:
    """Modules that a scheme leaves in float: the modules that are always float, and linear ones whose sizes it does not
    support."""
    return [*always_float(model), *unfit(model, scheme)]


def unfit(model: Any, scheme: str) -> list[str]:
    """Linear modules whose sizes a scheme does not support."""
    fits = FITS.get(scheme, lambda module: True)
    return [name for name in linears(model) if not fits(model.get_submodule(name))]


def without_weights(folder: Path) -> Any:
    """The classifier of a folder on the meta device, without weights, for the names and sizes of its modules."""
    import torch
    from transformers import AutoConfig

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        return families.auto_class(config).from_config(config, trust_remote_code=False)


@contextmanager
def by_parameters(folder: Path, record: families.Family, auto: Any, beside: Path) -> Iterator[Path]:
    """A folder with the model's tensors by the names of its parameters, because transformers cannot quantize a model
    while it translates names: `folder` itself, or a copy for the time of the context.

    Args:
        auto: the class that loads the model.
        beside: the folder that the copy is in.
    """
    assert record.layer is not None
    import torch

    from distill.models.families.weights import tensors_of
    from distill.models.teacher.whole import load_whole

    if any(f".{record.layer.query}." in name for name in tensors_of(folder)):
        yield folder
        return
    with TemporaryDirectory(dir=beside) as own:
        model, *_ = load_whole(auto, folder, claimed=True, dtype=torch.float32)
        model.save_pretrained(own, save_original_format=False)
        yield Path(own)


def _with_transformers(folder: Path, out: Path, settings: Any) -> None:
    """Write a checkpoint, with its tokenizer, that plain `from_pretrained` loads where the quantizer is installed."""
    import torch
    from transformers import AutoConfig

    from distill.models.teacher.whole import load_whole
    from distill.models.write import keep_labels

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    auto = families.auto_class(config)
    record = families.family_of(config)
    out.mkdir(parents=True, exist_ok=True)
    with by_parameters(folder, record, auto, out.parent) if record.translated else nullcontext(folder) as source:
        model, *_ = load_whole(auto, source, claimed=True, quantization_config=settings, dtype=torch.float32)
    # Copies the tokenizer: not weights and config, which are saved below, and not the stage's manifest and scores.
    for path in folder.iterdir():
        excluded = path.name.startswith(("model", "config.json", ".")) or path.name == MANIFEST
        if path.is_file() and not excluded and path.suffix != ".safetensors":
            shutil.copy2(path, out)
    model.save_pretrained(out, save_original_format=not record.translated)
    keep_labels(out, model.config)


@_with_logging_kept
def bitsandbytes_int8(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """LLM.int8 (Dettmers et al. 2022, arXiv 2208.07339): int8 weights by row, outlier activations in float."""
    from transformers import BitsAndBytesConfig

    _with_transformers(folder, out, BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=[*keep]))


@_with_logging_kept
def bitsandbytes_nf4(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """4-bit NormalFloat weights with double quantization (Dettmers et al. 2023, arXiv 2305.14314).

    Without double quantization, a checkpoint that is saved after a forward pass on a CPU is wrong. Modules whose sizes
    are not multiples of the blocks (64 inputs, 32 outputs) stay float.
    """
    import torch
    from transformers import BitsAndBytesConfig

    modules = without_weights(folder).named_modules()
    odd = [name for name, module in modules if isinstance(module, torch.nn.Linear) and not _has_whole_blocks(module)]
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        llm_int8_skip_modules=[*odd, *keep],
    )
    _with_transformers(folder, out, settings)


def _has_whole_blocks(module: Any) -> bool:
    """Whether the sizes of a linear module are multiples of the 4-bit blocks."""
    return not (module.in_features % 64 or module.out_features % 32)


@_with_logging_kept
def torchao_int8(folder: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """torchao: int8 weights by row, int8 activations by token with dynamic ranges; fast only with torch.compile."""
    with _quietly():
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig
    from transformers import TorchAoConfig

    settings = TorchAoConfig(Int8DynamicActivationInt8WeightConfig(), modules_to_not_convert=[*keep])
    _with_transformers(folder, out, settings)


def _graph(path: Path) -> Any:
    """The graph of an ONNX file, without weights that are in a file of their own."""
    import onnx

    return onnx.load(path, load_external_data=False).graph


def onnx_modules(path: Path) -> dict[str, str]:
    """Name of a node -> name of its torch module, for matrix products with weights and for embeddings.

    The file must have been exported by `distill.deploy.export.onnx`, which stores the module names as metadata.
    """
    import ast

    graph = _graph(path)
    weights = {tensor.name for tensor in graph.initializer}
    modules = {}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm", "Gather") and weights & {*node.input}:
            scopes = {entry.key: entry.value for entry in node.metadata_props}.get("pkg.torch.onnx.name_scopes", "[]")
            # the last scope is the function call itself
            modules[node.name] = next((name for name in reversed(ast.literal_eval(scopes)[:-1]) if name), "")
    return modules


def _inside(name: str, modules: Collection[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _left_float(path: Path, keep: Collection[str]) -> list[str]:
    """Names of the nodes of an ONNX file that belong to the modules `keep`.

    ONNX Runtime and OpenVINO split a Gemm into product and bias before they match names, so the names that they give
    the product are included.
    """
    nodes = [node for node, module in onnx_modules(path).items() if _inside(module, keep)]
    return [name for node in nodes for name in (node, f"{node}_MatMul", f"{node}/WithoutBiases")]


def _without_weights(path: Path) -> list[str]:
    """Matrix products of two activations, which the dynamic scheme does not quantize either."""
    with_weights = onnx_modules(path)
    return [node.name for node in _graph(path).node if node.op_type == "MatMul" and node.name not in with_weights]


def _single_rows(path: Path) -> list[str]:
    """Embeddings with a single row, such as RoBERTa's token types. OpenVINO cannot load them quantized."""
    graph = _graph(path)
    single = {tensor.name for tensor in graph.initializer if tensor.dims and tensor.dims[0] == 1}
    return [node.name for node in graph.node if node.op_type == "Gather" and node.input[0] in single]


def _read_onnx(path: Path) -> Any:
    import onnx
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load(path)
    # The exporter stored the shapes before quantization, which would make shape inference fail.
    del model.graph.value_info[:]
    # Marks the graph as preprocessed, which the exporter did; otherwise ONNX Runtime warns.
    add_pre_process_metadata(model)
    return model


@_with_logging_kept
def onnxruntime_dynamic(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """ONNX Runtime, dynamic: int8 weights by column, 8-bit activations by tensor, embeddings by table."""
    from onnxruntime.quantization import quantize_dynamic

    with writing_file(out) as temporary:
        quantize_dynamic(
            _read_onnx(path),
            temporary,
            per_channel=True,
            reduce_range=_seven_bits(),
            nodes_to_exclude=_left_float(path, keep),
        )


def _seven_bits() -> bool:
    """Whether weights get 7 bits, because products of 8 bits overflow on this processor."""
    return saturates(cpu_flags())


class _Reader:
    """Calibration data in the interface of ONNX Runtime: one row at a time, because rows have different lengths."""

    def __init__(self, rows: Sequence[Arrays], inputs: Mapping[str, int]) -> None:
        self.rows = [shaped(row, inputs) for row in rows]
        self.part: Iterator[Arrays] = iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def set_range(self, start_index: int, end_index: int) -> None:
        self.part = iter(self.rows[start_index:end_index])

    def get_next(self) -> Arrays | None:
        return next(self.part, None)


@_with_logging_kept
def onnxruntime_static(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """ONNX Runtime, static: as `onnxruntime_dynamic`, with the ranges of activations measured on `rows`."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    inputs = {value.name: len(value.type.tensor_type.shape.dim) for value in _graph(path).input}
    op_types = ["MatMul", "Gemm", "Gather"]
    with writing_file(out) as temporary, _quietly():
        quantize_static(
            _read_onnx(path),
            temporary,
            _Reader(rows, inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=_seven_bits(),
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            calibrate_method=CalibrationMethod.Percentile,
            op_types_to_quantize=op_types,
            nodes_to_exclude=[*_left_float(path, keep), *_without_weights(path)],
            extra_options={
                "CalibPercentile": 99.99,
                "CalibStridedMinMax": 1,
                "OpTypesToExcludeOutputQuantization": op_types,  # their outputs are added to residuals in float
            },
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppresses what quantizers print, and their warnings."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@_with_logging_kept
def openvino_int8(path: Path, out: Path, keep: Collection[str], rows: Sequence[Arrays]) -> None:
    """OpenVINO: int8 weights and static 8-bit activations by NNCF, with ranges measured on `rows`.

    With SmoothQuant (Xiao et al. 2023, arXiv 2211.10438). `out` is a folder, with OpenVINO's two files.
    """
    with _quietly():
        # Sends usage data over the network; OpenVINO and NNCF work without it.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        import nncf
        import openvino

        # Not the path, because it would be split at commas, which paths of run folders contain.
        model = openvino.convert_model(io.BytesIO(path.read_bytes()))
        inputs = {value.get_any_name(): value.get_partial_shape().rank.get_length() for value in model.inputs}
        operations = {operation.get_friendly_name() for operation in model.get_ops()}
        floats = [node for node in _left_float(path, keep) + _single_rows(path) if node in operations]
        data = nncf.Dataset([shaped(row, inputs) for row in rows])
        # By default only convolutions get 7 bits, and a BERT is lost: openvinotoolkit/nncf, issue 1498.
        seven = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE) if _seven_bits() else None
        quantized = nncf.quantize(
            model,
            data,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
            ignored_scope=nncf.IgnoredScope(names=floats),
            advanced_parameters=seven,
        )
        out.mkdir(parents=True, exist_ok=True)
        try:
            openvino.save_model(quantized, out / "model_int8.xml", compress_to_fp16=False)
        except RuntimeError as error:  # a file cannot be written, which is not a failure of the scheme
            raise OSError(errno.EIO, f"{error}, as on a full disk", str(out)) from error


MAKE: dict[str, Make] = {
    "bitsandbytes": bitsandbytes_int8,
    "bitsandbytes_nf4": bitsandbytes_nf4,
    "torchao": torchao_int8,
    "onnxruntime": onnxruntime_dynamic,
    "onnxruntime_static": onnxruntime_static,
    "openvino": openvino_int8,
}
"""Name of a scheme -> its function. The source is the ONNX file where `Scheme.onnx` is set, else the checkpoint. Code
outside of the package may add its own, as to `FITS` and to `fake_quantization.ROUNDING`."""

FITS: dict[str, Callable[[Any], bool]] = {"bitsandbytes_nf4": _has_whole_blocks}
"""Name of a scheme -> whether it supports the sizes of a linear module; the other schemes support all sizes."""
outside.registry("quantization", MAKE)
outside.registry("sizes of a scheme", FITS)
