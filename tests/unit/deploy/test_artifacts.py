"""What an export states for the libraries that load its models, beside their weights."""

from __future__ import annotations

from pathlib import Path

from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import artifacts
from distill.models.families import sentence, vectors
from distill.runtime.storage import atomic

FORMS = (".", "torchao", "bitsandbytes")
"""Folders of an export that libraries load: the float model, and quantized forms of it."""


def test_quantized_embedders_read_texts_as_the_float_one(tmp_path: Path) -> None:
    """Their files are written by the model, which knows neither the length nor the prompts of its training."""
    for form in FORMS:
        (tmp_path / form).mkdir(exist_ok=True)
        vectors.write(tmp_path / form, vectors.Vectors(), 16, {})
    prompts = ("query: ", "passage: ")
    task = Task("search", TASK_TYPES["retrieval"], ("query", "document"), (), (), prompts=prompts)
    artifacts.configure(tmp_path, task, [tmp_path], 24)
    for form in FORMS:
        settings = atomic.read_json(tmp_path / form / sentence.LENGTHS)
        assert (settings["max_seq_length"], settings["do_lower_case"]) == (24, False)
        stated = atomic.read_json(tmp_path / form / sentence.MODEL)
        assert stated["prompts"] == {"query": "query: ", "document": "passage: "}


def test_quantized_rerankers_read_pairs_as_the_float_one(tmp_path: Path) -> None:
    for form in FORMS:
        (tmp_path / form).mkdir(exist_ok=True)
        atomic.write_json(tmp_path / form / "config.json", {"model_type": "bert"})
        atomic.write_json(tmp_path / form / "tokenizer_config.json", {"model_max_length": 512, "pad_token": "[PAD]"})
    task = Task("pairs", TASK_TYPES["reranking"], ("query", "document"), (), ())
    artifacts.configure(tmp_path, task, [tmp_path], 24)
    for form in FORMS:
        settings = atomic.read_json(tmp_path / form / "tokenizer_config.json")
        assert settings == {"model_max_length": 24, "pad_token": "[PAD]"}
        assert atomic.read_json(tmp_path / form / "config.json")["sentence_transformers"]
