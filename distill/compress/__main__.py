"""`python -m distill.compress pruning|compression`: what can be done to which family, as that page of docs."""

from __future__ import annotations

import sys

from distill.family import STUDENTS, Family
from distill.schemes import SCHEMES

TEXT = """# Pruning

Made by `python -m distill.compress pruning`; tests prune a tiny model of every family in every dimension, hold it
against the dense model with the same parts masked, and load it with plain transformers.

`recipe=prune` cuts a fine-tuned teacher to `target.speedup`, `target.latency_ms` or `target.size_mib`, or to the
sizes of `student.*`, and lets it recover by distillation from what it was.

| Family | Layers | Hidden channels with their heads | Heads of a layer | FFN channels |
| --- | --- | --- | --- | --- |
{rows}

- **Layers** go one after the other: each time the one without which the loss on training rows is least.
- **Hidden channels and heads** go together, as many heads as fill the hidden channels that are left. Heads alone
  cannot be cut: no config of transformers says how a model with fewer heads and the same hidden size is built, and
  one that was made in memory is never loaded again.
- **FFN channels**: the same number in every layer, not the same ones.
- What goes is chosen by `importance@stages.prune.importance=NAME`: `fisher` (diagonal Fisher information of masks),
  `taylor` (first-order change of the loss), `magnitude` (weights alone), `reconstruction` (optimal brain surgeon:
  least error of each layer's output once the remaining weights are refitted by least squares, which they then are).
- **Other sizes in each layer**, heads alone among them (`stages.prune.uniform=false` with
  `student.num_attention_heads` and `student.intermediate_size` as means over layers): what matters least in the whole
  model goes. The checkpoint loads anywhere and holds zeros, at the teacher's size and speed; only its ONNX files are
  smaller and faster.
- **While distilling** (`recipe=cofi`): gates on heads and FFN channels are trained along with the weights, by an L0
  penalty (CoFi) or by movement (`stages.gated.gates.kind=movement`), and then say what goes.

## To a speed

1. On training rows of every task (`stages.prune.examples`) the loss is measured with one dimension cut at a time:
   every number of layers, and up to eight sizes of hidden and of FFN channels, after a few steps of training on other
   rows (`stages.prune.retrain_steps`), for what is lost at first is not what stays lost. What is left of what the model
   knows (how far its loss is below that of a model that knows only how often each label comes) is estimated for a shape
   as the product of what each dimension leaves; where too little is left to be measured, it goes on falling, and such
   a shape is taken only where no other is fast enough.
2. On this machine models of all those widths are timed, with one layer and with three, in torch float32 at
   `target.shape`. That gives the time of a layer and of what is fixed, for every width: a width that runs no faster
   is never chosen for it.
3. Of all shapes that meet the target the one that leaves most is cut out of every task's model, and the report has its
   predicted speed beside the measured one. A target out of reach is refused with the nearest shape and its cost.

`target.speedup=[2,4,8]` makes a model for each from one set of measurements, in one run and one report;
`recipe=frontier` does so for eight speeds, and `target.retained=97` names the fastest that keeps so much.

## What pays

In [the runs measured](results/README.md#pruned-to-a-target), of a teacher of 6 layers, 384 wide, on CoLA, MRPC, STS-B
and RTE (two seeds: differences of a few points say nothing):

- Up to 2x a layer or two and most FFN channels pay. Every importance but magnitude then recovers to about what the
  teacher scores. Where nothing can be trained afterwards, reconstruction keeps far more than the others.
- At 3x and 4x hidden channels with their heads pay. Taylor and Fisher tell which ones can go, Taylor the more steadily:
  at 3x Fisher chose another shape with each seed. By magnitude, and by reconstruction, width looks so dear that layers
  go instead, and the model recovers less.
- Layers alone keep least at every speed, and come in large steps.

`recipe=vocabulary` prunes the vocabulary: the tokens that the tasks do not use go, and the tokenizer is rebuilt
(WordPiece, BPE, Unigram; any family). `recipe=factorized` makes the table of tokens narrow.
"""


def row(record: Family) -> str:
    alike = record.shared_layers or record.shared_heads
    cells = [
        f"`{record.name}`",
        "fewer turns of the same" if record.shared_layers else "any but the first" if record.first_layer else "any",
        "yes",
        "the same in every layer" if alike else "chosen in each layer",
        "yes",
    ]
    return f"| {' | '.join(cells)} |"


COMPRESSION = """# Compression

Made by `python -m distill.compress compression`. What can be cut of which family, and the forms in which what is left
can be served. Tests make and run all of them of a tiny model of every family; families that differ in names alone
(ERNIE; XLM-R, CamemBERT) are tried as BERT and RoBERTa. The schemes of an extra are tried where it is installed.

| {head} |
| {rule} |
{rows}

| `stages.quantize.schemes` | Runs on | In results | Weights | Activations | File | Extra |
| --- | --- | --- | --- | --- | --- | --- |
{schemes}

- **Layers, hidden channels, FFN channels**: see [pruning](pruning.md).
- Head and pooler stay float everywhere; so do, under `stages.quantize.max_drop`, the modules that hurt most when they
  are rounded as the scheme rounds, tables of embeddings among them where it rounds these by one scale. Sizes that are
  no multiples of 64 (inputs) and 32 (outputs) stay float in nf4. The report names what is in float.
- Where activations have one scale for a whole batch, the logits of a row depend on the others: that form is scored row
  by row. In bitsandbytes int8 a column with an outlier in any row is exact for the whole batch: it is scored in
  batches, and may be a little less exact on single rows.
- Static ranges are measured on `stages.quantize.examples` training rows.
- bf16 (and, on a GPU, fp16) needs no file of its own: `from_pretrained(FOLDER, dtype=torch.bfloat16)`.
"""


def pruning() -> str:
    return TEXT.format(rows="\n".join(map(row, STUDENTS.values())))


def compression() -> str:
    columns = ["Family", "Layers", "Hidden channels", "FFN channels", "ONNX", *(f"`{name}`" for name in SCHEMES)]
    rows = []
    for record in STUDENTS.values():
        depth = "fewer turns" if record.shared_layers else "yes"
        cells = [f"`{record.name}`", depth, "yes", "yes", "yes" if record.onnx else "no", *["yes"] * len(SCHEMES)]
        rows.append(f"| {' | '.join(cells)} |")
    schemes = [
        f"| `{name}` | {one.backend} | {one.scheme} | {one.weights} | {one.activations} | `{one.file}` | "
        f"{f'`{one.extra}`' if one.extra else '-'} |"
        for name, one in SCHEMES.items()
    ]
    return COMPRESSION.format(
        head=" | ".join(columns),
        rule=" | ".join("---" for _ in columns),
        rows="\n".join(rows),
        schemes="\n".join(schemes),
    )


PAGES = {"pruning": pruning, "compression": compression}


def main(arguments: list[str]) -> int:
    """Exit code: 0, or 2 where no page is named."""
    if len(arguments) != 1 or arguments[0] not in PAGES:
        sys.stderr.write(f"usage: python -m distill.compress {'|'.join(PAGES)}\n")
        return 2
    sys.stdout.write(PAGES[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
