"""Every setting, as typed dataclasses, and their registration with Hydra.

Only hydra, omegaconf, yaml and the standard library are imported here, so that a wrong setting is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf


@dataclass
class Teacher:
    kind: str = "embedded"
    """embedded (its weights come inside an installed package), hub (a hub name or a local folder), ensemble (several
    hub names or local folders, whose probabilities are averaged) or random (tiny, for smoke runs)."""
    name: str | None = None
    """Hub name or local folder when kind is hub."""
    revision: str | None = None
    """Revision on the hub; the newest when null."""
    names: list[str] = field(default_factory=list)
    """Hub names or local folders when kind is ensemble. Students are built from the first."""
    weights: Any = None
    """Weight of each of `names` in the mean of their probabilities, e.g. [2,1]; equal weights when null. With
    `learned`, each task has the weights that score best on every tenth training row, on which no teacher is fine-tuned;
    on a corpus they are equal."""
    window: int | None = None
    """Maximum tokens of a task's text that the teacher reads at once. A longer text is read in overlapping windows,
    whose probabilities are averaged. When null, no text may be longer than the teacher can read."""


@dataclass
class Student:
    layers: list[int] | None = None
    """Teacher layers that initialize the student's, or that a prune stage keeps, counted from 0. When null: half of
    them, evenly spaced; with a prune stage, `num_hidden_layers` or the target decides."""
    num_hidden_layers: int | None = None
    """Number of layers after a prune stage, chosen by measured loss; all when null and no target is set."""
    init: str = "teacher_layers"
    """teacher_layers (layers, embeddings and language-model head are copied, or some of their channels) or random."""
    name: str | None = None
    """Hub name or local folder of a pretrained student, in recipes whose stages start from `student`."""
    tokenizer: str | None = None
    """Hub name or local folder of the student's own tokenizer; the teacher's tokenizer when null."""
    family: str | None = None
    """Model type of the student, e.g. distilbert or albert; the teacher's when null."""
    hidden_size: int | None = None
    """Width of the student's layers; the teacher's when null."""
    num_attention_heads: int | None = None
    """Number of attention heads in each layer. When null, heads are as wide as the teacher's."""
    intermediate_size: int | None = None
    """Width of the feed-forward part of each layer. When null, its ratio to hidden_size is the teacher's."""
    embedding_size: int | None = None
    """Width of the embeddings, in families where it may be smaller than hidden_size; the teacher's when null."""


@dataclass
class Target:
    """Requirements that pruned models must meet."""

    speedup: Any = None
    """Speedup over the unpruned model, in torch float32. A list, here or below, makes one model for each number."""
    latency_ms: Any = None
    """Maximum milliseconds for one batch of `shape`."""
    size_mib: Any = None
    """Maximum MiB of float32 weights."""
    retained: float | None = None
    """Percent of the teacher's macro score. Of several pruned models, the report names the fastest that keeps it."""
    shape: list[int] = field(default_factory=lambda: [8, 128])
    """[batch size, length in tokens] at which models are timed to meet the target."""


@dataclass
class Corpus:
    kind: str = "docstrings"
    """docstrings (of installed Python packages), parquet, text (one document per line) or hub."""
    path: str | None = None
    """File or folder when kind is parquet or text. Parquet files need a `text` column."""
    name: list[str] = field(default_factory=list)
    """Data sets on the hub when kind is hub, as `name` or `name/config`."""
    max_length: int = 128
    """Maximum tokens in a training sequence, special tokens included."""


@dataclass
class Tasks:
    kind: str = "docstrings"
    """docstrings (five tasks of the same types as GLUE's, made from installed Python packages) or glue."""
    path: str | None = None
    """Folder in the layout of nyu-mll/glue when kind is glue. When null, GLUE is read from the hub."""
    names: list[str] | None = None
    """Names of the tasks to use; all tasks when null."""
    max_length: int = 128
    """Maximum tokens in an example, special tokens included. Longer examples are truncated."""


@dataclass
class Limit:
    """Caps on data and training, for quick runs."""

    examples: int | None = None
    """Maximum training examples per task; no maximum when null, here and below."""
    validation: int | None = None
    """Maximum validation examples per split."""
    documents: int | None = None
    """Maximum documents of the corpus."""
    steps: int | None = None
    """Maximum optimizer steps per training stage."""
    repeats: int | None = None
    """Maximum timing rounds."""
    smoke: bool = False
    """Use a tiny random teacher and small stand-ins for every download. The numbers of such a run mean nothing."""


@dataclass
class Term:
    """One weighted part of the training loss: a pure function and what it compares."""

    weight: float = 1.0
    """Factor in the weighted sum."""
    features: str = "logits"
    """What is compared: logits; hidden (states); pooled (one vector per text, as a sentence embedder computes it);
    relations (of tokens among queries, among keys and among values); scores (of attention, before the softmax)."""
    layers: Any = "last"
    """Which layers are compared: last; uniform (each layer of the student with the teacher's layer that it was copied
    from or, if it was not copied, with the one at the same relative depth); or pairs [student's layer, teacher's layer]
    counted from 0, e.g. [[0,1],[1,3]]."""
    teacher_layer: int | None = None
    """With layers=last, the teacher's layer, counted from 0, that the student's last is compared with; the teacher's
    last when null."""
    heads: int | None = None
    """Relation heads, into which queries, keys and values of both models are split; the student's heads when null."""
    against: str = "teacher"
    """teacher (the same features of the teacher) or labels."""
    positions: str = "masked"
    """On a corpus: masked (positions whose token the language model restores) or all (every position but padding)."""
    loss: Any = MISSING
    """`_target_` of a function in distill.losses, with `_partial_: true` and its hyper-parameters."""


@dataclass
class Masking:
    probability: float = 0.15
    """Share of each sequence's tokens to predict. Of these, 80% become [MASK], 10% a random token, 10% stay."""
    smoothing: float = 0.0
    """Tokens to predict are drawn with weight count^-smoothing: 0 is uniform, 0.7 (DistilBERT) prefers rare tokens."""


@dataclass
class Batch:
    """Size of one optimizer step."""

    tokens: int = 4096
    """Maximum tokens, padding included, in one optimizer step over all processes."""
    examples: int | None = None
    """Maximum sequences in one optimizer step over all processes; no maximum when null."""
    accumulate: int = 1
    """Number of parts into which each process splits an optimizer step to save memory. The result is the same."""


@dataclass
class Gates:
    """Trained factors on heads and FFN channels. A prune stage that starts from the model scores heads and channels by
    them."""

    kind: str = "none"
    """none, l0 (a penalty closes random gates) or movement (gates stay open if weights move away from zero)."""
    heads: float = 0.75
    """Share of the heads of each layer that is open at the end of training."""
    ffn: float = 0.5
    """Share of the FFN channels of each layer that is open at the end of training."""
    lr: float = 0.05
    """Learning rate of the gates."""


@dataclass
class Stage:
    kind: str = MISSING
    """train, baseline, prune, vocabulary, quantize, evaluate or export."""


REFERENCES = ("start", "teacher", "student", "baseline", "pruned", "quantized", "evaluated")
"""Settings of a stage that name another stage, whose checkpoints, files or scores it uses."""


@dataclass
class Train(Stage):
    kind: str = "train"
    role: str = "student"
    """Which model is trained: teacher or student. Only a stage of kind baseline is trained as a baseline."""
    data: str = "corpus"
    """corpus (masked texts, one model) or tasks (one model for each task)."""
    start: str = "teacher"
    """Stage whose checkpoint is trained further, or `teacher` or `student` for the given one."""
    build_student: bool = False
    """Build the student that `student.*` describes from that checkpoint, and train this student."""
    teacher: str | None = None
    """Stage whose checkpoint is the teacher of the terms, or `teacher` for the given one; no teacher when null."""
    only_head: bool = False
    """Train the head alone. The encoder, and what the head shares with it, does not change."""
    skip_if_mlm_head: bool = False
    """Skip the stage when the checkpoint that it starts from already has a language-model head."""
    temperature: float = "${temperature}"  # type: ignore[assignment]
    """Softmax temperature of the soft targets."""
    terms: dict[str, Term] = field(default_factory=dict)
    """Terms whose weighted sum is minimized."""
    masking: Masking = field(default_factory=Masking)
    """How tokens are masked on a corpus."""
    batch: Batch = field(default_factory=Batch)
    """Size of one optimizer step."""
    epochs: float = 1.0
    """Number of passes over the data."""
    steps: int | None = None
    """Maximum optimizer steps; no maximum when null."""
    min_steps: int = 0
    """Minimum optimizer steps. A small task is trained for more epochs until this number is reached."""
    optimizer: Any = MISSING
    """`_target_` of an optimizer, with `_partial_: true` and its settings."""
    schedule: Any = MISSING
    """`_target_` of a function (step, total steps) -> factor of the learning rate, with `_partial_: true`."""
    clip: float = 1.0
    """Maximum gradient norm, of the model and, apart from it, of its gates. Larger gradients are scaled down to it."""
    dropout: float | None = None
    """Dropout probability during training; that of the model's config when null."""
    gates: Gates = field(default_factory=Gates)
    """Gates that are trained together with the model."""
    quantization_aware: bool = False
    """Train with the linear layers of each task's model in simulated int8, so that the weights adapt to it."""
    checkpoint_seconds: float = 120.0
    """Seconds between checkpoints from which a stopped run resumes."""


@dataclass
class Baseline(Stage):
    """The student of a train stage, trained without its teacher and otherwise with that stage's settings."""

    kind: str = "baseline"
    baseline_of: str = MISSING
    """Train stage whose settings are used, except those below. That stage need not be in the pipeline."""
    start: str | None = None
    """Stage whose checkpoint is trained further; when null, the `start` of the stage that `baseline_of` names."""
    terms: dict[str, Term] = field(default_factory=dict)
    """Terms whose weighted sum is minimized. All of them are against labels."""


DIMENSIONS = ("layers", "hidden", "ffn")
"""Dimensions of a model that a prune stage can cut."""


@dataclass
class Prune(Stage):
    kind: str = "prune"
    start: str = MISSING
    """Stage whose checkpoints, one for each task, are pruned to the sizes in `student.*` or to meet `target.*`."""
    dimensions: list[str] = field(default_factory=lambda: [*DIMENSIONS])
    """What may be removed to meet the target: layers, hidden (hidden channels with the heads that fill them), ffn."""
    uniform: bool = True
    """Whether each layer keeps the same number of heads and FFN channels. When false, sizes in `student.*` are means
    over layers; heads and channels beyond them become zero, and only the model's ONNX files are smaller and faster."""
    importance: Any = MISSING
    """`_target_` of a function in distill.compress that scores heads and channels, with `_partial_: true`. Heads and
    channels with trained gates are scored by their gates instead."""
    examples: int = 256
    """Training rows of each task on which importances and losses are measured."""
    retrain_steps: int = 20
    """Training steps, on other rows, between a cut and the measurement of its loss. 0 measures right after the cut."""


@dataclass
class Vocabulary(Stage):
    kind: str = "vocabulary"
    start: str = MISSING
    """Stage from whose checkpoints, one for each task, the tokens that `texts` do not use are removed."""
    texts: list[str] = field(default_factory=lambda: ["tasks"])
    """Texts whose tokens are kept: tasks (their training rows), corpus, or both."""
    min_count: int = 1
    """Tokens that occur fewer times than this are removed. The tokenizer then splits their text into smaller tokens."""
    tokens: int | None = None
    """Maximum tokens to keep, the most frequent first, besides those that the tokenizer needs; no maximum when null."""


@dataclass
class Quantize(Stage):
    kind: str = "quantize"
    start: str = MISSING
    """Stage whose checkpoints are quantized."""
    schemes: list[str] = field(default_factory=lambda: ["bitsandbytes", "onnxruntime"])
    """Schemes to quantize with: bitsandbytes (int8), bitsandbytes_nf4 and torchao (int8), which transformers loads;
    onnxruntime (int8), onnxruntime_static and openvino (int8, with measured ranges), which are made from ONNX files."""
    examples: int = 256
    """Training rows of each task on which ranges of activations are measured."""
    max_drop: float | None = 2.0
    """Maximum points of a task's validation score that a scheme may lose. Beyond it, up to half of its modules stay in
    float; if that is not enough, it fails for all tasks. No maximum when null, nor for WNLI, which is too small."""


@dataclass
class Evaluate(Stage):
    kind: str = "evaluate"
    teacher: str = MISSING
    """Stage with the fine-tuned teacher."""
    student: str = MISSING
    """Stage with the fine-tuned student."""
    baseline: str | None = None
    """Stage with the same student, fine-tuned without a teacher."""
    pruned: str | None = None
    """Prune stage whose models are also scored right after pruning, before they are trained again."""
    quantized: str | None = None
    """Quantize stage whose models are scored and timed too."""
    shapes: list[list[int]] = field(default_factory=lambda: [[1, 128], [8, 128], [32, 128]])
    """[batch size, length in tokens] of the timed inputs. Inputs of the tasks' own lengths are always timed too."""
    repeats: int = 8
    """Number of timing rounds. Each round runs every model once, in a new random order."""


@dataclass
class Export(Stage):
    kind: str = "export"
    start: str = MISSING
    """Stage whose checkpoints are exported."""
    quantized: str | None = None
    """Quantize stage whose models are exported too."""
    evaluated: str | None = None
    """Evaluate stage whose results the model card contains."""


@dataclass
class Config:
    """All settings of a run."""

    teacher: Teacher = field(default_factory=Teacher)
    student: Student = field(default_factory=Student)
    target: Target = field(default_factory=Target)
    corpus: Corpus = field(default_factory=Corpus)
    tasks: Tasks = field(default_factory=Tasks)
    limit: Limit = field(default_factory=Limit)
    pipeline: list[str] = field(default_factory=list)
    """Names of the stages in the order in which they run."""
    stages: dict[str, Stage] = field(default_factory=dict)
    """Settings of each stage, by its name."""
    temperature: float = 2.0
    """Softmax temperature of the soft targets, in each stage that does not set its own."""
    seed: int = 0
    """Seed of all random numbers."""
    precision: str = "auto"
    """Arithmetic of training: bf16, fp32, or auto (bf16 if the hardware has it, else fp32). Weights are float32."""
    device: str = "auto"
    """cpu, cuda, or auto (a GPU if there is one)."""
    threads: int | None = None
    """Number of CPU threads; one for each core when null."""
    push: str | None = None
    """Repository on the Hugging Face hub to upload exported folders to, e.g. me/student. Several folders go to one
    repository each, with the folder's target and task appended to this name. Nothing is uploaded when null."""
    push_private: bool = True
    """Whether the repositories that `push` creates are private. An existing repository keeps its visibility."""
    output: str | None = None
    """Run folder. When null, a folder under outputs/ that is named after the recipe and the changed settings."""


def folder(name: str) -> Path:
    """Path of `conf` or `recipes`: inside an installed package, or beside the package in a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parent.parent / name


def recipes() -> dict[str, Path]:
    """Name (e.g. `paper/distilbert`) -> file of every recipe."""
    root = folder("recipes")
    return {p.relative_to(root).with_suffix("").as_posix(): p for p in sorted(root.rglob("*.yaml"))}


def register() -> None:
    """Register the schemas and the recipes with Hydra. A recipe is a config of group `recipe`, package `_global_`."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for node in (Train, Baseline, Prune, Vocabulary, Quantize, Evaluate, Export):
        store.store(group="stage", name=f"{node.kind}_schema", node=node)
    for name, path in recipes().items():
        group, _, leaf = f"recipe/{name}".rpartition("/")
        store.store(group=group, name=leaf, node=yaml.safe_load(path.read_text(encoding="utf-8")), package="_global_")


def load_config(overrides: list[str]) -> Config:
    """Compose the config from command-line settings, e.g. `["recipe=distilbert", "seed=1"]`. It is not checked yet."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(folder("conf").resolve()), version_base="1.3"):
        loaded = OmegaConf.to_object(compose("config", overrides=overrides))
    assert isinstance(loaded, Config)
    return loaded


register()
