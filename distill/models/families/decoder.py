"""Models with a decoder's modules, as teachers on tasks: Qwen2, Qwen3, Gemma 2 and 3; and OpenAI's privacy filter."""

from __future__ import annotations

from dataclasses import replace

from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS, VECTORS, Family

QWEN2 = Family(
    name="qwen2", encoder="model", layers="layers", embeddings="embed_tokens", head="score", without=(CHOICES,)
)
QWEN3 = replace(QWEN2, name="qwen3")
GEMMA2 = replace(QWEN2, name="gemma2", recordable=False, attention=("eager",), without=(CHOICES, ANSWERS))
GEMMA3 = replace(QWEN2, name="gemma3_text", recordable=False, without=(TOKENS, CHOICES, ANSWERS))
PRIVACY_FILTER = replace(
    QWEN2,
    name="openai_privacy_filter",
    recordable=False,
    attention=("eager",),
    onnx=False,  # its experts run in a loop whose length depends on the texts
    without=(TEXTS, CHOICES, ANSWERS, VECTORS),
)
"""A tagger that reads both ways, with experts in its layers."""
