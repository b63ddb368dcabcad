"""int8 weights, in a form that transformers loads and in a form that ONNX Runtime runs."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from distill.checkpoint import writing


def _heads(config: Any) -> list[str]:
    """Linear modules outside the encoder: small, freshly trained and the most sensitive, so they
    stay float32.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
    return [
        name
        for name, child in model.named_children()
        if name != model.base_model_prefix and any(isinstance(m, torch.nn.Linear) for m in child.modules())
    ]


def bitsandbytes_int8(folder: Path, out: Path) -> None:
    """Quantize the sequence classifier in `folder` (LLM.int8) into the new folder `out`, its
    tokenizer copied along.

    `out` loads with plain `from_pretrained` wherever bitsandbytes is installed. The head stays
    float32.
    """
    # bitsandbytes is slow to import, and tells of kernels it does not find and of every cast it
    # makes.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification, BitsAndBytesConfig

    settings = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=_heads(AutoConfig.from_pretrained(folder)))
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, quantization_config=settings, dtype=torch.float32, use_safetensors=True
    )
    with writing(out) as temporary:
        # The tokenizer and whatever else lies there; the weights and the config are written anew.
        for path in folder.iterdir():
            if path.is_file() and not path.name.startswith(("model", "config.json", ".")):
                shutil.copy2(path, temporary)
        model.save_pretrained(temporary)


def onnxruntime_int8(onnx_path: Path, out_path: Path) -> None:
    """Quantize an exported ONNX file dynamically: int8 weights per channel, activations per tensor
    at run time.
    """
    import onnx
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    model = onnx.load(onnx_path)
    # The exporter's notes on shapes are of the weights before quantization and make shape inference
    # fail.
    del model.graph.value_info[:]
    # Or it asks for its own graph clean-up, which the exporter has done.
    add_pre_process_metadata(model)
    temporary = out_path.with_name(f".{out_path.name}.tmp")
    quantize_dynamic(model, temporary, per_channel=True)
    temporary.replace(out_path)
