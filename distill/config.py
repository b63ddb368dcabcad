"""Every setting there is, as typed dataclasses, and how Hydra gets to know them.

Only hydra, omegaconf and the standard library are imported here, so that a wrong setting is answered at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf


@dataclass
class Teacher:
    kind: str = "embedded"
    """embedded (weights inside an installed package), hub (a hub name or a local folder), ensemble (several of those,
    taken as one), random (tiny, for smoke)."""
    name: str | None = None
    """Hub name or folder when kind is hub."""
    revision: str | None = None
    """Hub revision; the newest when null."""
    names: list[str] = field(default_factory=list)
    """Hub names or folders when kind is ensemble. Students are built from the first."""
    weights: Any = None
    """Share of each of `names` in the mean of their probabilities, e.g. [2,1]; equal when null. `learned`: what does
    best, for each task, on every tenth training row, which the teachers are then not fine-tuned on; equal elsewhere."""
    window: int | None = None
    """Most tokens of a task's text that the teacher reads at once; of a longer one it reads windows that overlap, and
    the mean of their probabilities counts. What it can read is the bound when null."""


@dataclass
class Student:
    layers: list[int] | None = None
    """Teacher layers the student starts from, counted from 0; half of them, evenly spaced, when null."""
    num_hidden_layers: int | None = None
    """In a prune stage: number of layers, chosen by measured loss."""
    init: str = "teacher_layers"
    """teacher_layers (copy layers, embeddings and language-model head, or channels of them) or random."""
    name: str | None = None
    """Hub name or folder of a pretrained student, in recipes whose stages start from `student`."""
    tokenizer: str | None = None
    """Folder or hub name of a tokenizer of the student's own; the teacher's when null."""
    family: str | None = None
    """Model type of the student, e.g. distilbert or albert; the teacher's when null."""
    hidden_size: int | None = None
    """Width of the student's layers; the teacher's when null."""
    num_attention_heads: int | None = None
    """Heads of a layer; as many as keep their size when null."""
    intermediate_size: int | None = None
    """Width of the feed-forward part of a layer; in proportion to hidden_size when null."""
    embedding_size: int | None = None
    """Width of the embeddings, in families that can have them narrower than the layers; the teacher's when null."""


@dataclass
class Target:
    speedup: Any = None
    """Times faster than the unpruned model, in torch float32. A list, here or below, makes a model for each number."""
    latency_ms: Any = None
    """Most milliseconds for one batch of `shape`."""
    size_mib: Any = None
    """Most MiB of float32 weights."""
    retained: float | None = None
    """Least percent of the teacher's macro score to keep: of several models, the report names the fastest that does."""
    shape: list[int] = field(default_factory=lambda: [8, 128])
    """Batch size and length that are timed for it."""


@dataclass
class Corpus:
    kind: str = "docstrings"
    """docstrings (of installed packages), parquet, text (one document a line), hub."""
    path: str | None = None
    """File or folder when kind is parquet or text; parquet needs a `text` column."""
    name: list[str] = field(default_factory=list)
    """Hub data sets when kind is hub, as `name` or `name/config`."""
    max_length: int = 128
    """Tokens in a training sequence, special tokens counted."""


@dataclass
class Tasks:
    kind: str = "docstrings"
    """docstrings (five tasks of GLUE's shapes made from installed packages) or glue."""
    path: str | None = None
    """Folder in the layout of nyu-mll/glue when kind is glue; the hub when null."""
    names: list[str] | None = None
    """Tasks to use; all when null."""
    max_length: int = 128
    """Tokens in an example, special tokens counted; longer ones are cut."""


@dataclass
class Limit:
    examples: int | None = None
    """Most training examples a task."""
    validation: int | None = None
    """Most validation examples a split; whole when null."""
    documents: int | None = None
    """Most corpus documents."""
    steps: int | None = None
    """Most optimizer steps a training stage."""
    repeats: int | None = None
    """Most timing rounds."""
    smoke: bool = False
    """Tiny random teacher and small stand-ins for whatever would need a hub. Its numbers mean nothing."""


@dataclass
class Term:
    """One weighted part of the training loss: a pure function and where to look."""

    weight: float = 1.0
    """Factor in the weighted sum."""
    features: str = "logits"
    """What is compared: logits; hidden (states); pooled (one vector a text, as a sentence embedder makes it); relations
    (of tokens among queries, among keys and among values); scores (of attention, before the softmax)."""
    layers: str = "last"
    """Of which layers: last, or uniform (each layer of the student with the teacher's at the same share of depth)."""
    teacher_layer: int | None = None
    """With layers=last, the teacher's layer, counted from 0, for relations and scores; its last when null."""
    heads: int | None = None
    """Relation heads, into which queries, keys and values of both are split; the student's heads when null."""
    against: str = "teacher"
    """teacher (the same features of the teacher) or labels."""
    positions: str = "masked"
    """On a corpus: masked (positions the language model must fill in) or all (every position that is not padding)."""
    loss: Any = MISSING
    """`_target_` of a function in distill.losses, with `_partial_: true` and its hyper-parameters."""


@dataclass
class Masking:
    probability: float = 0.15
    """Share of the tokens of each sequence to predict; 80% become [MASK], 10% a random token, 10% stay."""
    smoothing: float = 0.0
    """Tokens are drawn with weight count^-smoothing, rare ones more often. 0.7 in DistilBERT; 0 is uniform."""


@dataclass
class Batch:
    tokens: int = 4096
    """Most tokens (padding counted) in one optimizer step, over all processes."""
    examples: int | None = None
    """Most sequences in one optimizer step, over all processes; no such bound when null."""
    accumulate: int = 1
    """Parts that each process computes an optimizer step in, to save memory; the result is the same."""


@dataclass
class Gates:
    """Parts of the model that training closes, so that a prune stage which starts from it cuts them."""

    kind: str = "none"
    """none, l0 (random gates, closed by a penalty on what is open) or movement (what moves away from zero stays)."""
    heads: float = 0.75
    """Share of the heads of a layer that is left in the end."""
    ffn: float = 0.5
    """Share of the FFN channels of a layer that is left in the end."""
    lr: float = 0.05
    """Learning rate of the gates."""


@dataclass
class Stage:
    kind: str = MISSING
    """train, prune, vocabulary, quantize, evaluate or export."""


REFERENCES = ("start", "teacher", "student", "baseline", "pruned", "quantized", "evaluated")
"""Settings of a stage that name an earlier stage."""


@dataclass
class Train(Stage):
    kind: str = "train"
    role: str = "student"
    """Which model is trained: teacher, student or baseline (the student without a teacher)."""
    data: str = "corpus"
    """corpus (masked-language modelling) or tasks (one model for each task)."""
    start: str = "teacher"
    """Stage whose checkpoint it goes on from; `teacher` or `student` for those as given."""
    build_student: bool = False
    """Build the student of `student.*` from that checkpoint first."""
    teacher: str | None = None
    """Stage whose checkpoint is the teacher of the terms, or `teacher` for the teacher as given; none when null."""
    skip_if_mlm_head: bool = False
    """Skip when the checkpoint it starts from has a language-model head already."""
    temperature: float = "${temperature}"  # type: ignore[assignment]
    """Softmax temperature of the soft targets."""
    terms: dict[str, Term] = field(default_factory=dict)
    """The weighted sum that is minimized."""
    masking: Masking = field(default_factory=Masking)
    """How tokens are masked on a corpus."""
    batch: Batch = field(default_factory=Batch)
    """How large a step is."""
    epochs: float = 1.0
    """Passes over the data."""
    steps: int | None = None
    """Most optimizer steps; no bound when null."""
    min_steps: int = 0
    """Fewest optimizer steps, so that a small task is trained long enough: more epochs are made until reached."""
    optimizer: Any = MISSING
    """`_target_` of an optimizer, with `_partial_: true` and its settings."""
    schedule: Any = MISSING
    """`_target_` of a function (step, total steps) -> factor of the learning rate, with `_partial_: true`."""
    clip: float = 1.0
    """Largest gradient norm."""
    dropout: float | None = None
    """Dropout probability while training; the model's own when null."""
    gates: Gates = field(default_factory=Gates)
    """Gates that are trained along."""
    quantization_aware: bool = False
    """Let the linear modules of a task's model work in simulated int8, so that it learns to."""
    checkpoint_seconds: float = 120.0
    """Seconds between resumable checkpoints."""


@dataclass
class Prune(Stage):
    kind: str = "prune"
    start: str = MISSING
    """Stage whose checkpoints, one for each task, are pruned to the sizes of `student.*`, or to meet `target.*`."""
    dimensions: list[str] = field(default_factory=lambda: ["layers", "hidden", "ffn"])
    """What may be cut to meet the target: layers, hidden (hidden channels and the heads that fill them), ffn."""
    uniform: bool = True
    """As many heads and FFN channels in each layer. When false, `student.num_attention_heads` and `intermediate_size`
    are means over layers: what matters least anywhere becomes zero, and only ONNX files are smaller and faster."""
    importance: Any = MISSING
    """`_target_` of a function of distill.compress that scores heads and channels, with `_partial_: true`. Where the
    models have been trained with gates, these score what they are on."""
    examples: int = 256
    """Training rows of each task that importances and losses are measured on."""
    retrain_steps: int = 20
    """Training steps, on other rows, after which the loss of a cut is measured; 0 measures it as it is cut."""


@dataclass
class Vocabulary(Stage):
    kind: str = "vocabulary"
    start: str = MISSING
    """Stage whose checkpoints, one for each task, lose the tokens that texts do not need."""
    texts: list[str] = field(default_factory=lambda: ["tasks"])
    """Whose tokens are kept: of the tasks (their training rows), of the corpus, or of both."""
    min_count: int = 1
    """Tokens that come up fewer times than this go; what they stood for is then spelt in smaller ones."""
    tokens: int | None = None
    """Most tokens, the most frequent ones; no bound when null. Those that a tokenizer cannot do without come on top."""


@dataclass
class Quantize(Stage):
    kind: str = "quantize"
    start: str = MISSING
    """Stage whose checkpoints are quantized."""
    schemes: list[str] = field(default_factory=lambda: ["bitsandbytes", "onnxruntime"])
    """What to make: bitsandbytes (int8), bitsandbytes_nf4, torchao (int8), which load with transformers; onnxruntime
    (int8), onnxruntime_static and openvino (int8, with measured ranges), from an ONNX file."""
    examples: int = 256
    """Training rows of each task that ranges of activations are measured on."""
    max_drop: float | None = 2.0
    """Most points of a task's score that a form may lose: the modules that hurt most then stay float, and where that is
    not enough the form is refused. Null lets anything pass, and so does WNLI, too small a task to tell."""


@dataclass
class Evaluate(Stage):
    kind: str = "evaluate"
    teacher: str = MISSING
    """Stage with the fine-tuned teacher."""
    student: str = MISSING
    """Stage with the fine-tuned student."""
    baseline: str | None = None
    """Stage with the same student fine-tuned without a teacher."""
    pruned: str | None = None
    """Prune stage whose models are scored as they are, before they recover."""
    quantized: str | None = None
    """Quantize stage."""
    shapes: list[list[int]] = field(default_factory=lambda: [[1, 128], [8, 128], [32, 128]])
    """Batch size and length of the timed inputs; the tasks' own lengths are always timed too."""
    repeats: int = 8
    """Timing rounds: every model is run once a round, in turn."""


@dataclass
class Export(Stage):
    kind: str = "export"
    start: str = MISSING
    """Stage whose checkpoints are exported."""
    quantized: str | None = None
    """Quantize stage whose ONNX files go along."""
    evaluated: str | None = None
    """Evaluate stage whose numbers go into the model card."""


@dataclass
class Config:
    teacher: Teacher = field(default_factory=Teacher)
    student: Student = field(default_factory=Student)
    target: Target = field(default_factory=Target)
    corpus: Corpus = field(default_factory=Corpus)
    tasks: Tasks = field(default_factory=Tasks)
    limit: Limit = field(default_factory=Limit)
    pipeline: list[str] = field(default_factory=list)
    """Stages in the order they run."""
    stages: dict[str, Stage] = field(default_factory=dict)
    """Settings of each stage."""
    temperature: float = 2.0
    """Softmax temperature of the soft targets of every stage that does not set its own."""
    seed: int = 0
    """Seed of everything random."""
    precision: str = "auto"
    """auto (bf16 where the hardware has it, else fp32), bf16 or fp32: arithmetic of training. Weights stay float32."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu or cuda."""
    threads: int | None = None
    """CPU threads; all cores when null."""
    push: str | None = None
    """Repository on the Hugging Face hub that what is exported is uploaded to, e.g. me/student; one for each task, and
    each target, with its name after it, where there are several. Nothing is uploaded when null."""
    output: str | None = None
    """Run folder; made from the recipe and the settings under outputs/ when null."""


def folder(name: str) -> Path:
    """`conf` or `recipes`: the copy inside an installed package, else the one beside the package in a checkout."""
    inside = Path(__file__).parent / name
    return inside if inside.is_dir() else Path(__file__).parent.parent / name


def recipes() -> dict[str, Path]:
    """Name -> file of every recipe, e.g. `paper/distilbert`."""
    root = folder("recipes")
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(root.rglob("*.yaml"))}


def register() -> None:
    """Make the schema and the recipes known to Hydra (a recipe is a config of group `recipe`, package `_global_`)."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for node in (Train, Prune, Vocabulary, Quantize, Evaluate, Export):
        store.store(group="stage", name=f"{node.kind}_schema", node=node)
    for name, path in recipes().items():
        group, _, leaf = f"recipe/{name}".rpartition("/")
        store.store(group=group, name=leaf, node=yaml.safe_load(path.read_text()), package="_global_")


def load_config(overrides: list[str]) -> Config:
    """The config that command-line settings compose, e.g. `["recipe=distilbert", "seed=1"]`."""
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(folder("conf").resolve()), version_base="1.3"):
        loaded = OmegaConf.to_object(compose("config", overrides=overrides))
    assert isinstance(loaded, Config)
    return loaded


def run_folder(recipe: str, overrides: list[str], output: str | None) -> Path:
    """Deterministic: the same recipe and settings (in any order) give the same folder, so that a run can resume."""
    if output is not None:
        return Path(output)
    settings = sorted(o for o in overrides if not o.startswith(("recipe=", "hydra.", "output=", "push=")))
    name = ",".join(settings) or "default"
    if len(name) > 80 or not re.fullmatch(r"[\w=.,\[\]+~-]+", name):
        name = hashlib.sha256(name.encode()).hexdigest()[:12]
    return Path("outputs") / recipe.replace("/", "-") / name


def fingerprint(settings: Any) -> str:
    """Hash of anything JSON can hold."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


register()
