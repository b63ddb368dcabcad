"""`python -m distill.family`: the families there are, as the table of docs/families.md."""

from __future__ import annotations

import sys

from distill.family import FAMILIES, STUDENTS, Family

HEAD = """# Families

Made by `python -m distill.family`; tests hold every entry against transformers. A model of any of these types, whatever
its size, can be teacher and student: its layers can be chosen, its hidden states, queries, keys, values and attention
scores compared, and what comes out loads with plain transformers and exports to ONNX. A model that comes without a
language-model head (a sentence embedder, a fine-tuned classifier, an ELECTRA discriminator, DeBERTa v3) gets one in the
stage `adapt`.

| Family | Token types | Attention kernels | Trains in | Layers | A student's layers |
| --- | --- | --- | --- | --- | --- |
"""


TAIL = """

Models of type {} can be teachers of tasks: `recipe=task`
fine-tunes them with their classification head, and a student of a type above, with its own tokenizer, learns their
answers.
"""


def row(record: Family) -> str:
    cells = [
        f"`{record.name}`",
        _token_types(record),
        ", ".join(record.attention),
        "bf16, fp32" if record.bf16 else "fp32",
        "one, run many times" if record.shared_layers else "each its own",
        "fewer turns of the same layer" if record.shared_layers else "any" + ", 0 among them" * record.first_layer,
    ]
    return f"| {' | '.join(cells)} |"


def _token_types(record: Family) -> str:
    if record.token_types and record.published.get("type_vocab_size") == 0:
        return "if the model has any"
    return "yes" if record.token_types else "no"


def table() -> str:
    alone = ", ".join(f"`{name}`" for name in FAMILIES if name not in STUDENTS)
    return HEAD + "\n".join(row(record) for record in STUDENTS.values()) + TAIL.format(alone)


if __name__ == "__main__":
    sys.stdout.write(table())
