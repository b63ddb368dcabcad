"""Tiny sequence classifiers with a tokenizer of their own, made from config classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


def _tokenizer(folder: Path, token_types: bool) -> int:
    """Save a WordPiece tokenizer trained on the sentences; return its size."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if token_types else [])]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=names,
    ).save_pretrained(folder)
    return tokenizer.get_vocab_size()


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Family name, number of labels -> folder of a random classifier, made once."""
    import torch
    from transformers import AutoModelForSequenceClassification, BertConfig, DistilBertConfig, RobertaConfig

    made: dict[tuple[str, int], Path] = {}

    def make(family: str = "bert", labels: int = 2) -> Path:
        if (family, labels) in made:
            return made[family, labels]
        folder = tmp_path_factory.mktemp(f"{family}{labels}")
        size = _tokenizer(folder, token_types=family == "bert")
        # Weights larger than usual, so that the logits of two texts differ.
        shared = {"vocab_size": size, "num_labels": labels, "initializer_range": 0.2, "pad_token_id": 0}
        small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        config = {
            "bert": lambda: BertConfig(**shared, **small, max_position_embeddings=130),
            "roberta": lambda: RobertaConfig(**shared, **small, max_position_embeddings=132, type_vocab_size=1),
            "distilbert": lambda: DistilBertConfig(
                **shared, dim=64, n_layers=2, n_heads=2, hidden_dim=128, max_position_embeddings=130
            ),
        }[family]()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = AutoModelForSequenceClassification.from_config(config)
            # A zero bias is left out of an ONNX graph: it would go unseen.
            for name, value in model.named_parameters():
                if name.endswith("bias"):
                    torch.nn.init.normal_(value, std=0.2)
        model.save_pretrained(folder)
        made[family, labels] = folder
        return folder

    return make


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """The invented sentences the tokenizers were trained on."""
    return SENTENCES
