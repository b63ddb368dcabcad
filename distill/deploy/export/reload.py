"""Loads exported artifacts as a user does, with transformers and the runtime of the file alone.

`proof.fresh` runs it as a script, so it must not import anything of distill. `python -P reload.py` reads
`{"artifacts": [[BACKEND, PATH, TOKENIZER], ...], "texts": {TOKENIZER: [[text], [text, second], ...]},
"max_length": ..., "extremes": ...}` from standard input and prints `[[logits, ...], ...]` as JSON, one list for each
artifact.
"""

from __future__ import annotations

import functools
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

HEADS = ("ForTokenClassification", "ForMultipleChoice", "ForQuestionAnswering")
"""Parts of class names of transformers; any other model classifies texts."""

Run = Callable[[dict[str, Any]], Any]
"""Batch of numpy arrays [B, L] -> logits [B, C] or, of tokens, [B, L, C]: start and end of answers are C = 2. Multiple
choice takes [B, choices, L]: each text is the only choice. It runs on one thread, so that results are bit-identical."""

MANY = 32
"""Number of rows of a large batch."""

SEPARATOR = "distill_pair_separator"
"""Setting of a tokenizer that puts no token between the texts of a pair: what was put before the second in training."""


def runner(backend: str, path: str) -> Run:
    """What runs the file or folder `path`, loaded by the function of `backend`: a name in `RUNNERS`, or
    `MODULE:FUNCTION` of an installed package."""
    load = RUNNERS[backend] if backend in RUNNERS else pkgutil.resolve_name(backend)
    run: Run = load(path)
    return run


def onnx_file(path: str) -> Run:
    """An ONNX file, run by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ranks = {entry.name: len(entry.shape) for entry in session.get_inputs()}
    first = session.get_outputs()[0].name
    return lambda batch: stacked(session.run(None, shaped(batch, ranks)), first)


def openvino_files(path: str) -> Run:
    """An ONNX file, or a folder with OpenVINO's two files, run by OpenVINO."""
    file = next(iter(sorted(Path(path).glob("*.xml"))), Path(path))
    # By default it computes in bfloat16 what is not quantized, where the processor can.
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = openvino_core().compile_model(file, "CPU", settings)
    inputs = {entry.get_any_name(): len(entry.partial_shape) for entry in model.inputs}
    request = model.create_infer_request()
    first = model.outputs[0].get_any_name()

    def infer(batch: dict[str, Any]) -> Any:
        outputs = request.infer(shaped(batch, inputs))
        return stacked([outputs[number].copy() for number in range(len(model.outputs))], first)

    return infer


def torch_folder(path: str) -> Run:
    """A folder that transformers loads, quantized or not."""
    import torch
    import transformers

    names = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False).architectures or []
    kind = next((kind for kind in HEADS if any(kind in name for name in names)), "ForSequenceClassification")
    auto = getattr(transformers, f"AutoModel{kind}")
    # By default a model quantized by bitsandbytes is loaded onto a GPU, if there is one.
    given = {"device_map": {"": "cpu"}}
    is_embedder = (Path(path) / "modules.json").is_file()
    classifier = (
        embedder(path, given) if is_embedder else auto.from_pretrained(path, trust_remote_code=False, **given).eval()
    )

    def run(batch: dict[str, Any]) -> Any:
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        torch.set_num_threads(1)
        # torch's default, as in a new process: with another, a different last bit can change the rounding to int8.
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.inference_mode():
                given = shaped(batch, dict.fromkeys(batch, 3 if kind == "ForMultipleChoice" else 2))
                outputs = classifier(**{name: torch.from_numpy(value) for name, value in given.items()})
                names = ("start_logits", "end_logits") if kind == "ForQuestionAnswering" else ("logits",)
                return stacked([outputs[name].float().numpy() for name in names])
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)

    return run


def embedder(path: str, given: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """The modules of a folder of sentence-transformers as a function that returns vectors [B, D] as `logits`.

    Written out, because a model must also be verified where sentence-transformers is not installed.
    """
    import torch
    import transformers
    from safetensors.torch import load_file

    folders = {m["type"].rpartition(".")[2]: Path(path) / m["path"] for m in read(Path(path) / "modules.json")}
    arguments = read(Path(path) / "sentence_bert_config.json").get("model_args", {})
    encoder = transformers.AutoModel.from_pretrained(path, trust_remote_code=False, **given, **arguments).eval()
    pooling = next(key for key, chosen in read(folders["Pooling"] / "config.json").items() if chosen is True)
    weights = load_file(folders["Dense"] / "model.safetensors") if "Dense" in folders else {}
    tanh = "Dense" in folders and read(folders["Dense"] / "config.json")["activation_function"].endswith("Tanh")

    def run(**batch: Any) -> dict[str, Any]:
        hidden, mask = encoder(**batch).last_hidden_state.float(), batch["attention_mask"][:, :, None]
        order = mask.cumsum(1)
        if pooling == "pooling_mode_cls_token":
            result = hidden[torch.arange(len(hidden)), mask[:, :, 0].argmax(1)]
        elif pooling == "pooling_mode_max_tokens":
            result = hidden.masked_fill(mask == 0, -torch.inf).amax(1)
        else:
            by = {"pooling_mode_weightedmean_tokens": order, "pooling_mode_lasttoken": order == order[:, -1:]}
            shares = mask * by.get(pooling, 1)
            total = shares.sum(1).clamp(min=1)
            result = (hidden * shares).sum(1) / (total**0.5 if "sqrt" in pooling else total)
        if weights:
            result = torch.nn.functional.linear(result, weights["linear.weight"], weights.get("linear.bias"))
        result = result.tanh() if tanh else result
        return {"logits": torch.nn.functional.normalize(result) if "Normalize" in folders else result}

    return run


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def shaped(batch: dict[str, Any], ranks: dict[str, int]) -> dict[str, Any]:
    """The inputs of a model, which have 2 dimensions, or 3 with choices."""
    return {name: batch[name] if rank == 2 else batch[name][:, None] for name, rank in ranks.items()}


@functools.cache
def openvino_core() -> Any:
    """OpenVINO's Core, one for the whole process: see `distill.inference.runners`."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # it sends usage reports by default
    import openvino

    return openvino.Core()


def stacked(outputs: list[Any], first: str = "") -> Any:
    """`logits`, two outputs [B, L] as [B, L, 2], or logits of several tasks, `logits_TASK`, side by side."""
    if first.startswith("logits_"):
        return numpy.concatenate(outputs, axis=-1)
    return outputs[0] if first == "logits" or len(outputs) == 1 else numpy.stack(outputs, axis=-1)


RUNNERS: dict[str, Callable[[str], Run]] = {
    "torch": torch_folder,
    "onnxruntime": onnx_file,
    "openvino": openvino_files,
}
"""Runtime of a backend -> the function that loads its files. The runtimes of GPUs have none: their files are those of
ONNX Runtime."""


def parted(tokenizer: Any, texts: list[str]) -> list[str]:
    """The texts of a row as its model was trained on them."""
    between = str(tokenizer.init_kwargs.get(SEPARATOR, ""))
    return [*texts[:1], *(between + text for text in texts[1:])]


def logits(
    backend: str, path: str, tokenizer: Any, texts: list[list[str]], max_length: int, extremes: bool
) -> list[list[float]]:
    """Logits of each row of one or two texts, flat, one row at a time.

    With `extremes` also of a single token, of a text of the maximum length, and of the first rows as one batch.
    """
    run, options = runner(backend, path), {"truncation": True, "max_length": max_length, "return_tensors": "np"}
    texts = [parted(tokenizer, row) for row in texts]
    rows = [run(dict(tokenizer(*row, **options)))[0] for row in texts]
    if extremes:
        # The last, because some models answer only where there is an end token.
        token = {name: value[:, -1:] for name, value in tokenizer(texts[0][0], **options).items()}
        rows.append(run(token)[0])
        rows.append(run(dict(tokenizer(" ".join(texts[0]) * max_length, **options)))[0])
        columns = [[row[column] for row in texts[:MANY]] for column in range(len(texts[0]))]
        batch = dict(tokenizer(*columns, padding=True, **options))
        real = batch["attention_mask"].astype(bool)
        rows.extend(row[mask] if row.ndim == 2 else row for row, mask in zip(run(batch), real, strict=True))
    return [[float(value) for value in row.ravel()] for row in rows]


def vectors(path: str, texts: list[list[str]], batch: bool) -> list[list[float]]:
    """The embedding of each text, one at a time; with `batch` also of the first texts as one batch."""
    from sentence_transformers import SentenceTransformer

    model, all_texts = SentenceTransformer(path, device="cpu", trust_remote_code=False), [text for text, *_ in texts]
    # No prompt, because texts have theirs already.
    parts = [model.encode(all_texts, prompt="", batch_size=1, show_progress_bar=False)]
    if batch:
        parts.append(model.encode(all_texts[:MANY], prompt="", batch_size=MANY, show_progress_bar=False))
    return [[float(value) for value in row] for rows in parts for row in rows]


def main(request: dict[str, Any]) -> list[list[list[float]]]:
    from transformers import AutoTokenizer

    outputs = []
    for backend, path, folder in request["artifacts"]:
        texts = request["texts"][folder]
        if backend == "sentence-transformers":
            outputs.append(vectors(path, texts, request["extremes"]))
            continue
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        outputs.append(logits(backend, path, tokenizer, texts, request["max_length"], request["extremes"]))
    return outputs


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
