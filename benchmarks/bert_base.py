"""Writes a BERT-base with random weights and the tokenizer of the embedded teacher, to time a whole run at that size.

    python benchmarks/bert_base.py                       # writes outputs/bert-base
    python -m distill recipe=prune teacher.name=outputs/bert-base ...

The whole command is in docs/results/bert-base/results.json. Scores of such a run mean nothing; its times do.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from distill import checkpoint, teacher
from distill.config import Teacher

FOLDER = Path("outputs/bert-base")


def main() -> None:
    tokenizer = teacher.load_tokenizer(teacher.resolve(Teacher()))
    torch.manual_seed(0)
    with checkpoint.writing(FOLDER) as temporary:
        BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    print(FOLDER)


if __name__ == "__main__":
    main()
