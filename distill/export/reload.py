"""What a user of an exported folder does, with transformers and torch alone.

Run by `huggingface.prove_reload` as a script of its own, so nothing of distill may be imported
here: `python -I reload.py` reads `{"folders": {FOLDER: [[text], [text, second], ...]}, "max_length": ...}`
from standard input and prints `{FOLDER: logits}` as JSON.
"""

from __future__ import annotations

import json
import sys


def logits(folder: str, texts: list[list[str]], max_length: int) -> list[list[float]]:
    """Logits [n, C] of each row of one or two texts, one row at a time on one thread: repeatable to
    the last bit.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            rows = [tokenizer(*row, truncation=True, max_length=max_length, return_tensors="pt") for row in texts]
            return [model(**row).logits[0].float().tolist() for row in rows]
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    request = json.load(sys.stdin)
    answers = {folder: logits(folder, texts, request["max_length"]) for folder, texts in request["folders"].items()}
    json.dump(answers, sys.stdout)
