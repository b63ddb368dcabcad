"""What the stages hand over to each other: for each kind of step the type of its `manifest.json`, and its parts."""

from __future__ import annotations

from msgspec import field

from distill.compression.pruning.search import Choice, Shape, Speed
from distill.config.loads import Load
from distill.deploy.export.artifacts import Proof
from distill.evaluation.results import Coverage, Fact, Model, Statistics
from distill.evaluation.similarity import Similarity
from distill.evaluation.tried import Tried
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.storage.structs import Stored
from distill.training import Row


class Cost(Stored, frozen=True, kw_only=True):
    """What a stage took in its last try. What goes on after a stop has `seconds` of its own, of all tries."""

    seconds: float | None
    """None if it was skipped."""
    peak_memory_mib: float | None
    """None where the system does not measure it."""


class Key(Stored, frozen=True, kw_only=True):
    """What a step is made from, by name."""

    inputs: dict[str, str]
    """Folder of each finished step that it reads -> hash of what that step made."""
    given: dict[str, str]
    """Name of each given model or data set that it reads -> fingerprint."""
    versions: dict[str, str | None]
    """Package -> version."""
    packages: str
    """Hash of the code of distill and of the versions of all packages that may run it."""
    settings: str | None = None
    """Hash of the settings on which its models depend; None for a step whose models are not kept for other runs."""
    arithmetic: str | None = None
    """Hash of the code, the arithmetic and the number of processes by which such models are made."""

    @property
    def name(self) -> str | None:
        """Name in the cache, which equal steps of other runs have; None if the models are not kept there."""
        return None if self.settings is None else fingerprint([self.inputs, self.given, self.settings, self.arithmetic])


class Record(Stored, frozen=True, kw_only=True):
    """How a step was run. The run adds it to what the stage hands over, and the step is finished by it."""

    key: Key
    cost: Cost
    reused: bool = False
    """Whether its models are those of an earlier run."""
    files: str = ""
    """Hash of the files that it made, and of the scores that it measured."""


class Artefact(Stored, frozen=True, kw_only=True):
    """Base of the types that stages hand over."""

    record: Record | None = None
    """None until the step is finished."""
    skipped: str | None = None
    """Why there was nothing to do; None if the stage ran."""


class Moment(Stored, frozen=True, kw_only=True):
    """The best moment of a training so far."""

    step: int
    score: float
    """Of the model after this step on the development rows, in percent."""
    score_at_end: float | None = None
    """Of the model at the end; None before."""


class TransferSet(Stored, frozen=True, kw_only=True):
    """The rows without labels that were made for a task."""

    own: int
    """Number of the task's own training rows."""
    sources: dict[str, int]
    """Source -> number of rows."""
    held_out: int
    """Number of rows that were left out because one of their texts is, or is nearly, a text of a development or
    reported split."""
    predicted: float | None = None
    """Share of the words that replace others in edited texts that a masked language model predicted; None without such
    a model."""
    used: int | None = None
    """Number of rows that a training used; None for the set itself."""


class Fold(Stored, frozen=True, kw_only=True):
    """What the training of the model of a fold took."""

    tokens: int
    seconds: float


class Logits(Stored, frozen=True, kw_only=True):
    """Outputs of teachers for the training rows of a task."""

    teachers: str
    """Hash of the teachers, of what they read, and of the code and the arithmetic that ran them."""


class TaskModel(Stored, frozen=True, kw_only=True):
    """The model of one task that a train step trained."""

    steps: int
    """Number of optimizer steps; 0 for a given model that is used as it is."""
    tokens: int
    """Number of tokens that were processed, with those of its folds and of other tries."""
    seconds: float
    """Seconds of its training, its folds, other tries and the logits of its teacher."""
    log: list[Row] = field(default_factory=list)
    best: Moment | None = None
    """The moment whose weights are kept; None for the end."""
    transfer: TransferSet | None = None
    expected: dict[str, float] = field(default_factory=dict)
    """Expected sizes by name that its gates leave open; empty without such gates."""
    tried: Tried | None = None
    """Its training or, where several were tried, all of them; None if it was not scored on development rows."""


class EncodedCorpus(Stored, frozen=True, kw_only=True):
    """The corpus on which a model was trained."""

    sequences: int
    tokens: int


class Trained(Artefact, frozen=True, kw_only=True):
    """The models of a train step: one of the corpus, one for each task, or these of each teacher of an ensemble."""

    steps: int = 0
    """Number of optimizer steps of all models; `tokens` and `seconds` likewise."""
    tokens: int = 0
    seconds: float | None = None
    """None if the step was skipped."""
    tokens_per_second: float | None = None
    members: list[str] = field(default_factory=list)
    """Folder of each teacher of an ensemble, which has a `Trained` of its own; empty without an ensemble."""
    tasks: list[str] = field(default_factory=list)
    """Folder of each task's model, which has a `TaskModel`; empty for a model of the corpus, and for an ensemble."""
    log: list[Row] = field(default_factory=list)
    """Of the model of the corpus, or of the one encoder of all tasks."""
    weights: dict[str, list[float]] = field(default_factory=dict)
    """Task -> learned weight of each teacher."""
    choice: Choice | None = None
    """The shape that the gates were trained for; None without gates, or with gates that leave the shape open."""
    expected: dict[str, dict[str, float]] = field(default_factory=dict)
    """Task -> `TaskModel.expected`."""
    corpus: EncodedCorpus | None = None


class Cut(Stored, frozen=True, kw_only=True):
    """What a pruned model of a task kept of the model before."""

    layers: list[int]
    hidden: list[int]
    """Channels."""


class Pruned(Artefact, frozen=True, kw_only=True):
    """The models of a prune step."""

    shape: Shape
    seconds: float
    """Of all tries."""
    tasks: dict[str, Cut]
    largest_difference: dict[str, float]
    """Task -> largest difference of a logit in a fresh process."""
    tried: int | None = None
    """Number of candidates for a target; None without a target, and for a baseline, which has its student's shape."""
    speed: Speed | None = None
    """Predicted for the shape; None where `tried` is."""


class SmallVocabulary(Artefact, frozen=True, kw_only=True):
    """The models of a vocabulary step."""

    tokens_before: int
    tokens: int
    share_of_texts: float
    """Share of the occurrences of tokens in the texts that the kept tokens have."""
    largest_difference: dict[str, float]
    """Task -> largest difference of a logit in a fresh process."""


class Quantized(Artefact, frozen=True, kw_only=True):
    """The models of a quantize step in all schemes."""

    schemes: list[str]
    failed: dict[str, str]
    """Scheme -> why it has no model."""
    kept: dict[str, dict[str, list[str]]]
    """Task -> scheme -> modules that stay in float."""
    development: dict[str, dict[str, float]]
    """Task -> `float32` or scheme -> points on the development rows, for the schemes that were scored."""


class Exported(Artefact, frozen=True, kw_only=True):
    """The folders of an export step."""

    proofs: dict[str, dict[str, Proof]] = field(default_factory=dict)
    """Task -> artifact -> its proof."""
    largest_difference: float | None = None
    """Of an entry of an embedder's vectors in a fresh process; None for models of tasks."""
    similarity: Similarity | None = None
    """None for models of tasks."""


class Evaluated(Artefact, frozen=True, kw_only=True):
    """What an evaluate step measured, as results.json has it."""

    environment: dict[str, Fact]
    command: str
    version: str
    models: list[Model]
    coverage: list[Coverage]
    statistics: Statistics
    load: Load
    """How the models will be asked, as in `distill.config.loads`."""
