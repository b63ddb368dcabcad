"""What makes a call of a graph with one to four layers faster in ONNX Runtime and OpenVINO: fused attention, options of
sessions, and inputs that are not copied.

    python -m benchmarks.tiny_graphs --output benchmarks/results/tiny_graphs.json

Weights are random. All ways of a graph are timed in turn, in rounds, on the same tokens: single texts of several
lengths, one after the other, and a batch of eight texts of 32 tokens. Ratios are medians over the rounds, over the way
`plain` in the same form.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BertConfig, BertForSequenceClassification

from distill.compression.quantization.quantize import MAKE
from distill.deploy.export.onnx import export_onnx
from distill.inference import latency
from distill.inference.runners import Batch, Runner, onnx_runner, openvino_runner
from distill.runtime.storage.atomic import write_json
from distill.runtime.versions import hardware

SIZES = ((1, 96, 384), (2, 96, 288), (2, 192, 768), (4, 288, 1152))
"""Layers, width and FFN channels; heads are 32 wide."""
LENGTHS = (8, 16, 24, 40, 64)
"""Tokens of the single texts."""
BATCH = (8, 32)
VOCABULARY = 2000
FORMS = ("fp32", "int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="number of rounds")
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    rows = [row for sizes in SIZES for row in measured(sizes, arguments.threads, arguments.repeats)]
    for row in rows:
        ratios = ", ".join(
            f"{name} {row[name]['ms']:.3f} ms ({row[name]['ratio']:.2f}x)" for name in ("single", "batch")
        )
        print(f"{row['layers']} x {row['hidden']} {row['runtime']} {row['form']} {row['way']}: {ratios}")
    if arguments.output is not None:
        write_json(arguments.output, {"environment": hardware(arguments.threads), "rows": rows})


def measured(sizes: tuple[int, int, int], threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """A row for each way in which a model of these sizes runs: its milliseconds, and its speedup over `plain`."""
    layers, hidden, ffn = sizes
    with tempfile.TemporaryDirectory() as temporary:
        runners = list(
            _runners(
                BertConfig(
                    num_hidden_layers=layers,
                    hidden_size=hidden,
                    intermediate_size=ffn,
                    num_attention_heads=hidden // 32,
                    vocab_size=VOCABULARY,
                ),
                Path(temporary),
                threads,
            )
        )
        single = [latency.synthetic((1, length), VOCABULARY, seed=length) for length in LENGTHS]
        inputs: dict[latency.Key, Mapping[str, list[Batch]]] = {
            "single": {runner.name: single for runner in runners},
            "batch": {runner.name: [latency.synthetic(BATCH, VOCABULARY)] for runner in runners},
        }
        times = latency.measure(runners, inputs, repeats=repeats)
    for runner in runners:
        runtime, form, way = runner.name.split("/")
        plain = f"{runtime}/{form}/plain"
        found = {
            key: {
                "ms": float(np.median(times[runner.name, key])) / (len(LENGTHS) if key == "single" else 1),
                "ratio": latency.speedup(times[plain, key], times[runner.name, key])["median"],
            }
            for key in inputs
        }
        yield {"layers": layers, "hidden": hidden, "ffn": ffn, "runtime": runtime, "form": form, "way": way} | found


def _runners(config: BertConfig, out: Path, threads: int) -> Iterator[Runner]:
    folder, plain = out / "model", out / "model.onnx"
    BertForSequenceClassification(config).save_pretrained(folder)
    export_onnx(folder, plain)
    rows = [latency.synthetic((1, 16), VOCABULARY, seed=seed) for seed in range(2)]
    for form in FORMS:
        for way, file in {
            "plain": plain,
            "attention": _fused(plain, True),
            "several heads": _fused(plain, False),
        }.items():
            path = _int8(file, rows) if form == "int8" else file
            yield onnx_runner(f"onnxruntime/{form}/{way}", path, scheme=form, threads=threads)
        path = _int8(plain, rows) if form == "int8" else plain
        for way, change in OPTIONS.items():
            yield _session(f"onnxruntime/{form}/{way}", path, threads, change)
        yield _bound(f"onnxruntime/{form}/bound inputs", path, threads)
    MAKE["openvino"](plain, out / "openvino", [], rows)
    for form, file in (("fp32", plain), ("int8", out / "openvino")):
        yield openvino_runner(f"openvino/{form}/plain", file, scheme=form, threads=threads)
        yield _shared(f"openvino/{form}/shared inputs", file, threads)
        yield _static(f"openvino/{form}/a model for each shape", file, threads)


def _fused(path: Path, packed: bool) -> Path:
    """The graph with each layer's attention as one operator of ONNX Runtime.

    Args:
        packed: whether the operator also has the projections to queries, keys and values, as one matrix.
    """
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import _core

    out = path.with_name(f"{path.stem}_{'attention' if packed else 'heads'}.onnx")
    if not out.is_file():
        kept = _core.fuse_attention, _core.fuse_mha_bias
        if not packed:
            _core.fuse_attention = _core.fuse_mha_bias = lambda *_, **__: 0
        try:
            onnx_ir.save(_core.optimize_for_ort(onnx_ir.load(path))[0], out)
        finally:
            _core.fuse_attention, _core.fuse_mha_bias = kept
    return out


def _int8(path: Path, rows: list[Batch]) -> Path:
    import onnx
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    out = path.with_name(f"{path.stem}_int8.onnx")
    if out.is_file():
        return out
    if path.name == "model.onnx":
        MAKE["onnxruntime"](path, out, [], rows)
        return out
    model = onnx.load(path)
    del model.graph.value_info[:]
    add_pre_process_metadata(model)
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of the outputs of operators that ONNX does not know
    quantize_dynamic(model, out, per_channel=True, extra_options=options)
    return out


def _no_arena(options: Any) -> None:
    options.enable_cpu_mem_arena = False


def _no_pattern(options: Any) -> None:
    options.enable_mem_pattern = False


def _denormals(options: Any) -> None:
    options.add_session_config_entry("session.set_denormal_as_zero", "1")


OPTIONS: dict[str, Callable[[Any], None]] = {
    "without the memory arena": _no_arena,
    "without memory patterns": _no_pattern,
    "denormals as zero": _denormals,
}
"""Way -> what it changes in the options of a session."""


def _open(path: Path, threads: int, change: Callable[[Any], None] = lambda options: None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    change(options)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _session(name: str, path: Path, threads: int, change: Callable[[Any], None]) -> Runner:
    session = _open(path, threads, change)
    inputs = [entry.name for entry in session.get_inputs()]
    return Runner(
        name, "onnxruntime", name.split("/")[1], lambda batch: session.run(None, {n: batch[n] for n in inputs})[0]
    )


def _bound(name: str, path: Path, threads: int) -> Runner:
    session = _open(path, threads)
    inputs, output = [entry.name for entry in session.get_inputs()], session.get_outputs()[0].name
    binding = session.io_binding()

    def run(batch: Batch) -> np.ndarray:
        for each in inputs:
            binding.bind_cpu_input(each, batch[each])
        binding.bind_output(output)
        session.run_with_iobinding(binding)
        found: np.ndarray = binding.copy_outputs_to_cpu()[0]
        return found

    return Runner(name, "onnxruntime", name.split("/")[1], run)


def _compiled(path: Path, threads: int, shape: tuple[int, int] | None = None) -> Any:
    import openvino

    core = openvino.Core()
    model = core.read_model(next(path.glob("*.xml")) if path.is_dir() else path)
    if shape is not None:
        model.reshape({each.get_any_name(): list(shape) for each in model.inputs})
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    return core.compile_model(model, "CPU", settings)


def _shared(name: str, path: Path, threads: int) -> Runner:
    model = _compiled(path, threads)
    inputs, request = [each.get_any_name() for each in model.inputs], model.create_infer_request()

    def run(batch: Batch) -> np.ndarray:
        return np.array(request.infer({each: batch[each] for each in inputs}, share_inputs=True, share_outputs=True)[0])

    return Runner(name, "openvino", name.split("/")[1], run)


def _static(name: str, path: Path, threads: int) -> Runner:
    """A compiled model for each shape, made when the shape is first seen."""
    made: dict[tuple[int, int], Any] = {}

    def run(batch: Batch) -> np.ndarray:
        rows, length = batch["input_ids"].shape
        if (rows, length) not in made:
            model = _compiled(path, threads, (rows, length))
            made[rows, length] = model.create_infer_request(), [each.get_any_name() for each in model.inputs]
        request, inputs = made[rows, length]
        return np.array(request.infer({each: batch[each] for each in inputs})[0])

    return Runner(name, "openvino", name.split("/")[1], run)


if __name__ == "__main__":
    main()
