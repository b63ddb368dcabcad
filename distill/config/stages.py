"""Settings of the stages and of the terms, batches and gates of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distill.config.allowed import above, at_least, members, one_of
from distill.config.feature_kinds import FEATURE_KINDS, kinds_of
from distill.config.masking_units import MASKING_UNITS, TOKEN
from distill.config.schemes import default
from distill.runtime import outside

MISSING: Any = "???"
"""Value of a setting that every config has to state, as `omegaconf.MISSING`."""


_SHARE = above(0, "see conf/term", below=1)
_LOSSES = {
    "temperature": above(0, "2 is usual"),
    **dict.fromkeys(("skew", "share"), _SHARE),
    **dict.fromkeys(("target", "others"), at_least(0, "see conf/term")),
}
"""Hyper-parameter of a loss -> its bounds."""


@dataclass
class Term:
    """One weighted part of the training loss: a pure function and the features that it compares."""

    weight: float = field(default=1.0, metadata=at_least(0, "drop the term with weight 0"))
    """Factor in the weighted sum."""
    features: str = field(default="logits", metadata=one_of(*FEATURE_KINDS, advice="see conf/term"))
    """The features that are compared: logits; replaced (whether a generator replaced a token); margins (between the
    outputs for two documents of the same query, of rerankers); vectors (the outputs of embedders); span_boundary
    (logits of masked tokens, predicted from the tokens around their spans); hidden (states); first (hidden states of
    each text's first token); pooled (one vector per text, as a sentence embedder computes it); relations (of tokens
    among queries, among keys and among values); query_relations, key_relations, value_relations (one of these); scores
    (of attention, before the softmax); next_sentence and sentence_order (on a corpus, whether the second of two
    segments was replaced, or both were swapped)."""
    layers: Any = "last"
    """The layers that are compared: last; uniform (each layer of the student with the teacher's layer that it was
    copied from or, if it was not copied, with the one at the same relative depth); or pairs [student's layer, teacher's
    layer] counted from 0, e.g. [[0,1],[1,3]]. Of hidden states, -1 is the input of the first layer."""
    teacher_layer: int | None = field(default=None, metadata=at_least(0, "null is the last"))
    """With layers=last, the teacher's layer, counted from 0, that the student's last is compared with; the teacher's
    last when null."""
    heads: int | None = field(default=None, metadata=at_least(1, "null is the student's attention heads"))
    """Relation heads, into which queries, keys and values of both models are split; the student's heads when null."""
    compare_with: str = field(default="teacher", metadata=one_of("teacher", "labels", advice="see conf/term"))
    """teacher (the same features of the teacher) or labels."""
    positions: str = field(default="masked", metadata=one_of("masked", "all", advice="see conf/term"))
    """On a corpus: masked (positions whose token the language model restores) or all (every position but padding)."""
    loss: Any = field(default=MISSING, metadata=members(_LOSSES))
    """`_target_` of a function in distill.losses, with `_partial_: true` and its hyper-parameters."""


@dataclass
class Masking:
    probability: float = field(default=0.15, metadata=above(0, "0.15 is usual", below=1))
    """Share of each sequence's tokens to predict. Of these, 80% become [MASK], 10% a random token, 10% stay."""
    smoothing: float = field(
        default=0.0, metadata=at_least(0, "0 masks every token alike, 0.7 rare ones more often", at_most=1)
    )
    """Tokens to predict are drawn with weight count^-smoothing: 0 is uniform, 0.7 (DistilBERT) prefers rare tokens."""
    unit: str = field(default=TOKEN.name, metadata=one_of(*MASKING_UNITS, advice="token masks each token by itself"))
    """What is masked together: token; word (whole words, as in BERT's later release); ngram (1 to 3 whole words, as in
    ALBERT) or span (1 to 10 whole words, as in SpanBERT, which all become [MASK], or random tokens, or stay). The share
    of masked tokens is at most `probability`, and nearly that. `smoothing` draws single tokens alone."""
    fixed: bool = False
    """Mask a sequence alike in every epoch, as in BERT's data. Otherwise each epoch has masks of its own."""


@dataclass
class Batch:
    """Size of one optimizer step."""

    tokens: int = field(default=4096, metadata=at_least(1, "4096 is the default"))
    """Maximum tokens, padding included, in one optimizer step over all processes."""
    examples: int | None = field(default=None, metadata=at_least(1, "null sets no limit"))
    """Maximum sequences in one optimizer step over all processes; no maximum when null."""
    device_tokens: int | None = field(default=None, metadata=at_least(1, "null sets no limit"))
    """Maximum tokens, padding included, that a process computes at once. Its share of a step is computed in as many
    parts as that takes, with the same result in less memory. No maximum when null. Of embedders it is the maximum of
    all processes together, and the texts of a part are compared. It must be left out with a loss that compares all
    rows of a step with each other."""


@dataclass
class Gates:
    """Trained factors on the parts of a model. The prune stage that starts from the model prunes by them. Its target,
    or the sizes in `student.*`, decide how many are open at the end of training."""

    kind: str = field(default="none", metadata=one_of("none", "l0", "movement", advice="see docs/settings.md"))
    """none; l0 (a penalty closes random gates on layers, heads and channels until the model is expected to meet the
    target) or movement (for the evenly scaled shape that meets the target, gates on heads and channels stay open if
    weights move away from zero)."""
    lr: float = field(default=0.05, metadata=above(0, "0.05 is the default"))
    """Learning rate of the gates."""

    @property
    def trained(self) -> bool:
        """Whether the stage trains gates."""
        return self.kind != "none"


_CONTROLS = {"baseline": "same student without a teacher", "self-trained": "same student on its own outputs"}
"""Role of a control -> what it is."""


@dataclass
class Stage:
    writes_models = True
    """Whether other stages can start from what it writes. Not a setting."""
    about = ""
    """What it does. Not a setting."""
    kind: str = MISSING
    """train, baseline, prune, vocabulary, quantize, evaluate or export."""


_POWER = at_least(0, "it is the power of the compression; 0 changes nothing", at_most=2)


@dataclass
class ScaleWithCompression:
    """How the training of a pruned model depends on its compression: the weights of its layers before pruning, divided
    by the weights after it. A stage whose models are not pruned is not affected."""

    epochs: float = field(default=0.0, metadata=_POWER)
    """The number of epochs is multiplied by the compression to this power. With 1, a student of a fifth of the size
    trains for five times as many epochs, in about the same time. 0 changes nothing, here and below."""
    lr: float = field(default=0.0, metadata=_POWER)
    """The learning rate for a model of width 384, `base_lr`, is multiplied by the compression to this power."""


_FACTORS = above(0, "1 is the stage's own rate, 0.5 half of it")

BASE_WIDTH = 384
"""Width, the hidden size, of the model that `base_lr` is for."""

REFERENCES = (
    *("start", "teacher", "generator", "shape_of", "student", "baseline", "self_trained", "pruned", "quantized"),
    "evaluated",
)
"""Settings of a stage that name another stage, whose checkpoints, files or scores it uses."""


@dataclass
class Train(Stage):
    kind: str = "train"
    role: str = field(
        default="student", metadata=one_of("teacher", "student", advice="a baseline is a stage of kind baseline")
    )
    """The model that is trained. A baseline has a stage of kind baseline."""
    data: str = field(default="corpus", metadata=one_of("corpus", "tasks", advice="see docs/settings.md"))
    """corpus (masked texts, one model) or tasks (one model for each task)."""
    start: str = "teacher"
    """Stage whose checkpoint is trained further, or `teacher` or `student` for the given one."""
    build_student: bool = False
    """Build the student that `student.*` describes from that checkpoint, and train this student."""
    shape_of: str | None = None
    """Prune stage to whose shape the model is cut before it is trained, on a corpus: one model for all tasks, which
    keeps the layers, heads and channels that are most important on average over the tasks."""
    teacher: str | None = None
    """Stage whose checkpoint is the teacher of the terms, or `teacher` for the given one; no teacher when null."""
    generator: str | None = None
    """On a corpus, stage whose language model replaces masked tokens by tokens that it draws, for terms on `replaced`
    (ELECTRA, Clark et al. 2020, arXiv 2003.10555). It is not trained along."""
    only_head: bool = False
    """Train the head alone. The encoder, and what the head shares with it, does not change."""
    skip_if_mlm_head: bool = False
    """Skip the stage when the checkpoint that it starts from already has a language-model head."""
    skip_if_head: bool = False
    """Do not train on a task when the checkpoint that it starts from already has a head for it. The checkpoint is used
    unchanged."""
    temperature: float = field(default="${temperature}", metadata=above(0, "2 is usual"))  # type: ignore[assignment]
    """Softmax temperature of the soft targets."""
    terms: dict[str, Term] = field(default_factory=dict)
    """Terms whose weighted sum is minimized."""
    masking: Masking = field(default_factory=Masking)
    """How tokens are masked on a corpus."""
    batch: Batch = field(default_factory=Batch)
    """Size of one optimizer step."""
    epochs: float = field(default=1.0, metadata=above(0, "3 is usual"))
    """Number of optimizer steps, in passes over the data. The rows of `transfer` do not count."""
    scale_with_compression: ScaleWithCompression = field(default_factory=ScaleWithCompression)
    """How epochs and learning rate depend on how much was pruned."""
    steps: int | None = field(default=None, metadata=at_least(1, "null sets no limit"))
    """Maximum optimizer steps; no maximum when null."""
    min_steps: int = field(default=0, metadata=at_least(0, "0 sets no minimum"))
    """Minimum optimizer steps. A small task is trained for more epochs until this number is reached."""
    base_lr: float = field(default=1e-4, metadata=above(0, "1e-4 is the default"))
    """Learning rate for a model of width 384. For another width it is base_lr x 384 / width, where the width is the
    hidden size of the given model that the stage's lineage starts from. Not used where `optimizer.lr` is set."""
    optimizer: Any = field(default=MISSING, metadata=members({"lr": above(0, "5e-5 is usual")}))
    """`_target_` of an optimizer, with `_partial_: true` and its settings."""
    schedule: Any = field(
        default=MISSING, metadata=members({"warmup": at_least(0, "it is a share of the steps", at_most=1)})
    )
    """`_target_` of a function (step, total steps) -> factor of the learning rate, with `_partial_: true`."""
    clip: float = field(default=1.0, metadata=above(0, "1 is usual"))
    """Maximum gradient norm, of the model and, apart from it, of its gates. Larger gradients are scaled down to it."""
    dropout: float | None = field(default=None, metadata=at_least(0, "null keeps the model's own", at_most=0.9))
    """Dropout probability during training; the value of the model's config when null."""
    best_of: int = field(default=1, metadata=at_least(1, "1 keeps the model at the end, and is the default"))
    """For a stage on tasks, the number of moments of its training at which the model is scored on the development rows.
    They are evenly spaced over the second half, the last at the end. The best model is kept; with 1, the model at the
    end."""
    lr_factors: list[float] = field(default_factory=list, metadata=_FACTORS)
    """For a stage on tasks, learning rates to try, as factors of the stage's own, e.g. [0.5,1,2]. The model of each
    task is trained in full with each, and the one with the best score on the development rows is kept. With three
    factors the stage takes three times as long. Without factors, only the stage's own rate is used."""
    retries: int = field(default=0, metadata=at_least(0, "0 never trains again, and is the default"))
    """For a stage on tasks, the number of further trainings, each with another seed, of a model that collapsed: on the
    development rows it is not better than a predictor without any skill. They end with the first that has not
    collapsed, and the best model is kept. A baseline has as many further trainings as its student."""
    folds: int = field(default=1, metadata=at_least(1, "1 trains no further models, and is the default"))
    """For a stage that fine-tunes a teacher on tasks. With K > 1, K further models of each task are trained, each on
    the training rows of K - 1 of K folds. A student then learns, for each training row, the outputs of the model that
    was not trained on it. Rows with the same first text are in the same fold. The stage takes about K times as long."""
    transfer: bool = False
    """Train a student on the rows of `transfer` too, on which it is compared with its teacher alone. They change which
    rows the steps process, not the number of steps."""
    gates: Gates = field(default_factory=Gates)
    """Gates that are trained together with the model."""
    replacing: float | None = field(
        default=None, metadata=at_least(0, "it is the probability at the first step; null replaces nothing", at_most=1)
    )
    """For a stage on tasks that builds its student from its teacher: run the student's layers within the teacher, each
    in place of a group of the teacher's layers with a probability that rises from this one to 1, and train them alone
    (Xu et al. 2020, arXiv 2002.02925). null trains the student by itself."""
    quantization_aware: bool = False
    """Train with the linear layers of each task's model in simulated int8, so that the weights adapt to it."""
    checkpoint_seconds: float = field(default=120.0, metadata=above(0, "120 is the default"))
    """Seconds between checkpoints from which a stopped run resumes."""

    @property
    def segments(self) -> str | None:
        """The kind of term for which texts of a corpus become pairs of segments; None where they are single texts."""
        return next((kind.name for kind in kinds_of(self.terms).values() if kind.segments), None)

    @property
    def factors(self) -> list[float]:
        """The factors of the learning rates that are tried, each once."""
        return list(dict.fromkeys(self.lr_factors)) or [1.0]

    @property
    def about(self) -> str:  # type: ignore[override]
        where = "a corpus" if self.data == "corpus" else "each task"
        head = "a language-model head" if self.skip_if_mlm_head else "a head for it" if self.skip_if_head else ""
        return f"train the {_CONTROLS.get(self.role, self.role)} on {where}{', unless it has ' * bool(head)}{head}"

    @property
    def tries_several(self) -> bool:
        """Whether a model of a task may be trained more than once."""
        return bool(self.lr_factors) or self.retries > 0


@dataclass
class Baseline(Stage):
    """The student of a train stage, trained without its teacher and otherwise with that stage's settings.

    With `teacher`, another baseline, it is self-trained: it also learns from that model's outputs, on the same rows as
    the student, those of `transfer` among them (Xie et al. 2020, arXiv 1911.04252). What the student has beyond it does
    not come from more rows. Deviations: no noise is added, and the pseudo-labels are soft.
    """

    about = "train the same student without a teacher"
    kind: str = "baseline"
    baseline_of: str = MISSING
    """Train stage whose settings are used, except those below. That stage need not be in the pipeline."""
    start: str | None = None
    """Stage whose checkpoint is trained further; when null, the `start` of the stage that `baseline_of` names. With
    `teacher` null: it is that baseline's start."""
    teacher: str | None = None
    """Stage of another baseline of the same student, which takes the teacher's place in a self-trained one; null trains
    on labels alone."""
    lr_factors: list[float] = field(default_factory=list, metadata=_FACTORS)
    """Learning rates to try, as factors of the rate that the student's stage would have here. Without factors, those of
    the student's stage are tried. [1] tries the stage's own rate alone."""
    terms: dict[str, Term] = field(default_factory=dict)
    """Terms whose weighted sum is minimized. Without `teacher`, all of them compare with labels."""


_EXAMPLES = at_least(32, "fewer rows measure too coarsely; 256 is the default")

DIMENSIONS = ("layers", "hidden", "ffn")
"""Dimensions of a model that a prune stage can cut."""


@dataclass
class Prune(Stage):
    about = "search for a shape that meets the target, and prune to it"
    kind: str = "prune"
    start: str = MISSING
    """Stage whose checkpoints, one for each task, are pruned to the sizes in `student.*` or to meet `target.*`."""
    dimensions: list[str] = field(default_factory=lambda: [*DIMENSIONS])
    """Dimensions that may be reduced to meet the target: layers, hidden (hidden channels with the heads that fill
    them), ffn."""
    uniform: bool = True
    """Whether each layer keeps the same number of heads and FFN channels. When false, sizes in `student.*` are means
    over layers. Removed heads and channels then become zero, and only the model's ONNX files are smaller and faster."""
    importance: Any = MISSING
    """`_target_` of a function in distill.compression that scores heads and channels, with `_partial_: true`. Layers,
    heads and channels with trained gates are chosen by their gates instead."""
    refit: bool = False
    """Refit the output weights of the heads and FFN channels that are kept, by least squares, to the output of each
    layer before pruning, on the `examples`, as importance=reconstruction does. Trials of `finalists` and stages with
    `shape_of` never refit."""
    examples: int = field(default=256, metadata=_EXAMPLES)
    """Training rows of each task on which importances and losses are measured."""
    retrain_steps: int = field(default=20, metadata=at_least(0, "0 measures right after the cut; 20 is the default"))
    """Training steps, on other rows, between a cut and the measurement of its loss. 0 measures right after the cut."""
    finalists: int = field(default=1, metadata=at_least(1, "1 tries none, and is the default"))
    """Number of shapes that are tried before one is chosen for a target. The shapes with the least estimated loss are
    cut, distilled briefly, and compared on other rows; of shapes with the same number of layers one is tried. With 1
    the estimate decides: trials on the training rows alone favour a single wide layer, which recovers less."""
    trial_steps: int = field(default=100, metadata=at_least(1, "100 is the default"))
    """Distillation steps of a model of the unpruned size in a trial; one with half the weights gets twice as many."""


@dataclass
class Vocabulary(Stage):
    about = "leave out tokens that the texts do not need"
    kind: str = "vocabulary"
    start: str = MISSING
    """Stage from whose checkpoints, one for each task, the tokens that `texts` do not use are removed."""
    texts: list[str] = field(default_factory=lambda: ["tasks"])
    """Texts whose tokens are kept: tasks (their training rows), corpus, or both."""
    min_count: int = field(default=1, metadata=at_least(1, "1 keeps every token that is used"))
    """Tokens that occur fewer times than this are removed. The tokenizer then splits their text into smaller tokens."""
    tokens: int | None = field(default=None, metadata=at_least(1, "null sets no limit"))
    """Maximum tokens to keep, the most frequent first, besides the tokens that the tokenizer needs; no maximum when
    null."""


@dataclass
class Quantize(Stage):
    writes_models = False
    about = "make the forms in int8 and other schemes"
    kind: str = "quantize"
    start: str = MISSING
    """Stage whose checkpoints are quantized."""
    schemes: list[str] = field(default_factory=default)
    """Schemes to quantize with: bitsandbytes (int8), bitsandbytes_nf4 and torchao (int8), which transformers loads;
    onnxruntime (int8), onnxruntime_static and openvino (int8, with measured ranges), which are made from ONNX files. By
    default onnxruntime and, where it is installed, openvino; on a machine with a GPU bitsandbytes and onnxruntime."""
    examples: int = field(default=256, metadata=_EXAMPLES)
    """Training rows of each task on which ranges of activations are measured."""
    max_drop: float | None = field(default=2.0, metadata=at_least(0, "null sets no limit"))
    """Maximum points of a task's score on the development rows that a scheme may lose. Beyond it, up to half of its
    modules stay in float; if that is not enough, it fails for all tasks. A loss whose 95% interval includes 0 may be
    noise and does not count. No maximum when null, nor for a task that is not in the headline."""
    max_recall_drop: float | None = field(default=10.0, metadata=at_least(0, "null sets no limit"))
    """Maximum points of the recall of any label that a scheme may lose, as `max_drop`. A label may always lose one
    row."""


@dataclass
class Evaluate(Stage):
    writes_models = False
    about = "score and time all variants"
    kind: str = "evaluate"
    teacher: str = MISSING
    """Stage with the fine-tuned teacher."""
    student: str = MISSING
    """Stage with the fine-tuned student."""
    baseline: str | None = None
    """Stage with the same student, fine-tuned without a teacher."""
    self_trained: str | None = None
    """Stage with the same student, self-trained."""
    pruned: str | None = None
    """Prune stage whose models are also scored right after pruning, before they are trained again."""
    quantized: str | None = None
    """Quantize stage whose models are scored and timed too."""
    shapes: list[list[int]] = field(default_factory=list)
    """Inputs of a fixed [batch size, length in tokens] that are timed too, e.g. [[8,128]]. No choice depends on them.
    Texts of the tasks' own lengths, in batches and one at a time, are always timed."""
    repeats: int = field(default=24, metadata=at_least(1, "24 is the default"))
    """Number of timing rounds. Each round runs every model once, in a new random order."""


@dataclass
class Export(Stage):
    writes_models = False
    about = "write the folders to deploy, and verify each"
    kind: str = "export"
    start: str = MISSING
    """Stage whose checkpoints are exported."""
    quantized: str | None = None
    """Quantize stage whose models are exported too."""
    evaluated: str | None = None
    """Evaluate stage whose results the model card contains."""


STAGES: dict[str, type[Stage]] = {
    stage.kind: stage for stage in (Train, Baseline, Prune, Vocabulary, Quantize, Evaluate, Export)
}
"""Kind of a stage -> its settings. A kind of your own is added here before `register()` is called again."""
outside.registry("settings of stages", STAGES)
