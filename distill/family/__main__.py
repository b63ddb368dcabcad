"""`python -m distill.family`: the families and what can be done with each, as the tables of docs/families.md."""

from __future__ import annotations

import sys

from distill.family import FAMILIES, STUDENTS, Family

HEAD = """# Families

Made by `python -m distill.family`; tests hold it against what happens with tiny models. A model of a type in the first
table, whatever its size, can be teacher and student. Its hidden states, queries, keys, values and attention scores can
be compared. What comes out loads with plain transformers and exports to ONNX. A model that comes without a
language-model head (a sentence embedder, a fine-tuned classifier, an ELECTRA discriminator, DeBERTa v3) gets one in
the stage `adapt`.

| {} |
| {} |
"""

TAIL = """

- **Layers**: `student.layers`. **Width**: `student.hidden_size`, `num_attention_heads`, `intermediate_size`; heads stay
  whole.
- **Narrower embeddings**: `student.embedding_size`, started from the singular value decomposition of the teacher's.
- **Shared layers**: one layer that is run many times.
- **Starts**: families (`student.family`) that a student can be of and start from such a teacher's weights. With
  `student=random` it can be of any. MPNet takes a tokenizer that pads with token 1, as RoBERTa's does. What holds of
  ALBERT holds of an ELECTRA whose embeddings are narrower than its layers.

"""

TEACHERS = """Models of a type in this table can be teachers of tasks alone: `recipe=task` fine-tunes them with their
classification head, and a student of a type above, with its own tokenizer, learns their answers.

| Family | Padding | Exports to ONNX |
| --- | --- | --- |
"""


def capabilities(record: Family) -> dict[str, str]:
    """Column -> what it says of a family that can be a student's."""
    shape = record.bert_shape
    narrow = [other.name for other in STUDENTS.values() if other.bert_shape and other.bert_shape.projection]
    sharing = [other.name for other in STUDENTS.values() if other.shared_layers]
    keeps = shape is not None and shape.always_projects
    return {
        "Family": f"`{record.name}`",
        "Layers": "fewer turns of the same" if record.shared_layers else "any" + ", 0 among them" * record.first_layer,
        "Width": "yes",
        "Narrower embeddings": "no" if shape is None else "its own" if keeps else _as(record, narrow),
        "Shared layers": "no" if shape is None else _as(record, sharing),
        "Starts": "itself" if shape is None else _names(narrow) if keeps else "BERT's shape",
        "Token types": _token_types(record),
        "Attention kernels": ", ".join(record.attention),
        "Trains in": "bf16, fp32" if record.bf16 else "fp32",
    }


def _as(record: Family, able: list[str]) -> str:
    return "yes" if record.name in able else f"as {_names(able)}"


def _names(able: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in able)


def _token_types(record: Family) -> str:
    if record.token_types and record.published.get("type_vocab_size") == 0:
        return "if the model has any"
    return "yes" if record.token_types else "no"


def _teacher(record: Family) -> str:
    cells = [f"`{record.name}`", "left" if record.pads_left else "right", "yes" if record.onnx else "no"]
    return f"| {' | '.join(cells)} |"


def table() -> str:
    rows = [capabilities(record) for record in STUDENTS.values()]
    shaped = ", ".join(f"`{record.name}`" for record in STUDENTS.values() if record.bert_shape)
    head = HEAD.format(" | ".join(rows[0]), " | ".join("---" for _ in rows[0]))
    body = "\n".join(f"| {' | '.join(row.values())} |" for row in rows)
    alone = "\n".join(_teacher(record) for name, record in FAMILIES.items() if name not in STUDENTS)
    return f"{head}{body}{TAIL}Of BERT's shape are {shaped}.\n\n{TEACHERS}{alone}\n"


if __name__ == "__main__":
    sys.stdout.write(table())
