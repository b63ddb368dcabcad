"""Tiny random models of every family, with tokenizers; a machine that runs them; and a comparison of weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SENTENCES = [
    "the small boat crossed the quiet harbour before dawn",
    "nobody in the village remembered the name of the old baker",
    "she painted every door on the street in a different colour",
    "a sudden storm sent the fishermen back to the shore",
    "the library closes early when snow begins to fall",
    "he repaired the clock with a spoon and a piece of string",
    "two goats were asleep on the roof of the school",
    "the orchard smelled of rain and ripe plums all summer",
]

PADDING = 1
"""Id of the padding token: RoBERTa's, because MPNet's code assumes it."""

FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "ernie": {},
    "roberta": {},
    "xlm-roberta": {},
    "camembert": {},
    "data2vec-text": {},
    "distilbert": {},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "mpnet": {},
    "deberta": {},
    "deberta-v2": {"position_buckets": 8},
    "modernbert": {
        "local_attention": 8,
        "global_attn_every_n_layers": 2,
        "cls_token_id": 0,
        "sep_token_id": 2,
        "embedding_dropout": 0.1,
        "attention_dropout": 0.1,
        "mlp_dropout": 0.1,
    },
    "eurobert": {"attention_dropout": 0.1},
    "ultrabert": {"attention_dropout": 0.1, "prediction_head_size": 32, "sliding_window": 8},
    "nomic_bert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "gte": {"attention_probs_dropout_prob": 0.1},
    "jina_embeddings_v3": {},
}
"""Family -> settings that it needs for a tiny model, besides the sizes below."""

SAME = {"ernie": "bert", "xlm-roberta": "roberta", "camembert": "roberta", "data2vec-text": "roberta"}
"""Family -> the family whose record differs from its own in names alone. Only tests against transformers include it."""

SHAPES = [name for name in FAMILIES if name not in SAME]
"""Families that differ in more than names."""

_SEQ2SEQ = {"pad_token_id": PADDING, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
_DECODER = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "intermediate_size": 24, "max_position_embeddings": 130, "pad_token_id": PADDING,
}  # fmt: skip
TEACHERS: dict[str, dict[str, Any]] = {
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "pad_token_id": PADDING},
    "bart": {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 130,
        **_SEQ2SEQ,
    },
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, **_SEQ2SEQ},
    "qwen2": {**_DECODER, "pad_token_id": None},
    "qwen3": _DECODER,
    "gemma2": _DECODER,
    "gemma3_text": _DECODER,
    "openai_privacy_filter": {
        **_DECODER, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8, "eos_token_id": 2,
    },
}  # fmt: skip
"""Family that can only be a teacher on tasks -> settings of a tiny config."""


def config(name: str, *, length: int = 32, **settings: Any) -> Any:
    """A config for texts of at most `length` tokens. Sizes that are not set are tiny."""
    from transformers import AutoConfig

    from distill.models import families as family
    from distill.models.families.record import position_table_after_padding

    if name in TEACHERS:
        return AutoConfig.for_model(name, **({"vocab_size": 60} | TEACHERS[name] | settings))
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": 60, "pad_token_id": PADDING}
    after_padding = family.FAMILIES[name].max_length is position_table_after_padding
    sizes["max_position_embeddings"] = length + (PADDING + 1 if after_padding else 0)
    values = dict(family.FAMILIES[name].published) | FAMILIES[name] | sizes | settings
    values = {family.FAMILIES[name].settings.get(key, key): value for key, value in values.items()}
    return AutoConfig.for_model(name, **values)


def model(family: str, head: str, *, std: float | None = None, seed: int = 0, **settings: Any) -> Any:
    """A random model in eval mode; `head` as in transformers' class names, "" for none.

    With `std` every parameter is random, even those that a new model sets to 0 or 1, so that a test fails if one is
    left out. Without it only biases are, because a zero bias is omitted from an ONNX graph.
    """
    import torch
    import transformers

    auto = getattr(transformers, f"AutoModel{f'For{head}' if head else ''}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        created = auto.from_config(config(family, **settings)).eval()
        with torch.no_grad():
            for name, parameter in created.named_parameters():
                if std is not None or name.endswith("bias"):
                    parameter.normal_(std=std or 0.2)
    return created


def tokenizer(names: tuple[str, ...] = ("input_ids", "attention_mask", "token_type_ids")) -> Any:
    """A WordPiece tokenizer of the words of `SENTENCES`, whose outputs have these names."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    backend = Tokenizer(
        models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")  # type: ignore
    )
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=list(names),
    )


def save(folder: Path, name: str, head: str, **settings: Any) -> Path:
    """A random model of a family with its tokenizer, as a folder that transformers loads."""
    from distill.models import families as family

    words = tokenizer()
    created = model(name, head, vocab_size=len(words) + 3, **settings)  # some tokenizers add tokens when loaded
    created.save_pretrained(folder)
    words.model_input_names = list(family.input_names(created.config))
    words.padding_side = "left" if name == "xlnet" else "right"
    words.save_pretrained(folder)
    return folder


def change(file: Path, /, **values: Any) -> None:
    """Set keys of a JSON file, which may be absent; a value of ... removes the key."""
    content = (json.loads(file.read_text()) if file.is_file() else {}) | values
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


@contextmanager
def weights(folder: Path) -> Iterator[dict[str, Any]]:
    """The tensors of a folder, which are saved as the block leaves them."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    yield tensors
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`classifier(family, labels)`: folder of a random classifier, created once per test session."""
    folders: dict[tuple[str, int], Path] = {}

    def create(name: str = "bert", labels: int = 2) -> Path:
        if (name, labels) not in folders:
            # Weights larger than usual, so that the logits of two texts differ.
            sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.2}
            folder = tmp_path_factory.mktemp(f"{name}{labels}")
            folders[name, labels] = save(folder, name, "SequenceClassification", length=130, num_labels=labels, **sizes)
        return folders[name, labels]

    return create


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Invented sentences, whose words are in the vocabulary of the tokenizers."""
    return SENTENCES


def check_trained_alike(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Weights after the same steps are the same up to rounding.

    Adam divides a gradient by its own size. Where a gradient is no more than rounding, so is the sign of its step: one
    weight in a hundred may lie further apart, by less than what the steps of a test move it.
    """
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        apart = np.abs(value - theirs[name])
        assert np.count_nonzero(apart > 2e-5) <= max(1, value.size // 100), name
        assert apart.max() < 1e-3, name


def machine(precision: str = "fp32") -> Any:
    """The CPU, as one process with one thread uses it, which prints nothing."""
    from accelerate import Accelerator
    from rich.console import Console

    from distill.runtime.machine import Machine

    return Machine(Accelerator(cpu=True), Console(quiet=True), precision, 1, 1, fast_float32=False)
