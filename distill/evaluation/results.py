"""The content of `results.json`: the contract between the stages, which write it, and the reports, which show it.

Unknown keys are refused, so that a misspelt key is caught. All scores are in percent. What a run with `older_rules` did
not measure is UNSET, which is false; what was measured and has no value is None.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from msgspec import UNSET, Meta, UnsetType

from distill.config.loads import BATCH, Load
from distill.evaluation.kind_results import Detection, Entities, VectorForm
from distill.evaluation.openings import Opening
from distill.evaluation.record import Amount, Count, Interval, Number, Record, Share, Text
from distill.evaluation.time_results import FromText, Latency, Requests, Speedup
from distill.evaluation.tried import Tried
from distill.inference.variants import Role

T = TypeVar("T")

VERSION: Literal[4] = 4
"""Number of the schema, in every results.json. A file with another number is refused."""

Bin = tuple[Share, Share, Count]
"""Mean confidence and accuracy, 0 to 1, and number of the rows of a bin."""
Fact = str | int | float | bool | None
Scores = dict[str, dict[str, Number]]
"""Task -> metric -> score."""


class Worst(Record, frozen=True):
    task: Text
    percent: Number
    """Of the teacher's score."""


class Retained(Record, frozen=True):
    """Percent of the teacher's score: of the macro scores over all tasks, and over the tasks of the headline."""

    macro: Number | None
    """Of the macro score over all tasks."""
    headline: Number | None
    """Of the macro score over the tasks of the headline: the retained % of the reports."""
    mean_of_ratios: Number | None
    """Mean of the percents of the single tasks."""
    worst: Worst | None
    """The task that retains least."""
    ci95: Interval | None
    """Of `headline`."""
    left_out: list[Text] | UnsetType = UNSET
    """Tasks that do not count, because the teacher's score is not above 0."""
    above_chance: Number | UnsetType | None = UNSET
    """Of the scores minus `chance`."""
    above_chance_ci95: Interval | UnsetType | None = UNSET
    development: Number | UnsetType | None = UNSET
    """On the rows on which the student is chosen."""
    development_above_chance: Number | UnsetType | None = UNSET
    at_least: Number | UnsetType | None = UNSET
    """Lower end of the one-sided 95% interval of `headline`: that it keeps at least so much is shown."""


class Calibration(Record, frozen=True):
    """The temperature is None where no development rows can choose it, or the model makes no error on them."""

    ece: Amount
    """Expected calibration error."""
    temperature: Amount | None
    """By which the logits are divided; chosen on development rows."""
    ece_scaled: Amount | None
    """Expected calibration error with it."""
    bins: list[Bin]
    bins_scaled: list[Bin] = []


class OfLength(Record, frozen=True, rename={"first": "from", "last": "to"}):
    """Of the rows whose texts have `first` to `last` tokens."""

    first: Count
    last: Count
    rows: Count
    scores: dict[str, Number]


class Identity(Record, frozen=True):
    """Tells the models of a run apart."""

    name: Text
    """The label shown to people, e.g. `student 2x`."""
    scheme: Text
    """Number format: fp32, bf16, int8, ..."""
    backend: Text
    """The runtime: torch, onnxruntime or openvino."""


class Model(Identity, frozen=True):
    """A model in one scheme on one backend. A failed one has only what was measured before it failed."""

    role: Role
    """teacher, student, baseline, self-trained, pruned (before recovery) or member (of an ensemble)."""
    step: Text
    """The stage of the recipe that made the model."""
    target: Text | None
    """The target that it was made for."""
    member: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Which model of an ensemble, counted from 1."""
    path: Text | UnsetType | None = UNSET
    """Of its file or folder, in the run folder."""
    parameters: Count | UnsetType | None = UNSET
    """Number of weights."""
    size_mib: Amount | UnsetType | None = UNSET
    """Of its file."""
    gmacs: Amount | UnsetType | None = UNSET
    """Billions of multiply-accumulates for a sequence of 128 tokens."""
    latency_ms: list[Latency] | UnsetType = UNSET
    """For each of the timed inputs."""
    throughput_per_second: Amount | UnsetType | None = UNSET
    """Texts a second, in batches."""
    requests: Requests | UnsetType | None = UNSET
    """Times of single texts."""
    requests_ms: list[Amount] = []
    """The time of each of these texts, in an order that all models share."""
    from_text: dict[str, FromText] = {}
    """Name of the timed inputs -> times from texts."""
    cold_start_ms: Amount | UnsetType | None = UNSET
    """Of a new process, from its start to its first prediction."""
    memory_mib: Amount | UnsetType | None = UNSET
    """The resident memory of that process then."""
    energy_j: Amount | UnsetType | None = UNSET
    """Joules of a request."""
    energy_missing: Text = ""
    """Why they are None."""
    scores: Scores | UnsetType = UNSET
    """On the reported rows."""
    macro: Number | UnsetType | None = UNSET
    """The macro score over all tasks."""
    development_macro: Number | UnsetType | None = UNSET
    """The macro score over the tasks of the headline on the rows on which the student is chosen."""
    calibration_error: Amount | UnsetType | None = UNSET
    """Mean of `ece` over tasks."""
    calibration: dict[str, Calibration] = {}
    """Of each task with classes."""
    near_constant: list[Text] | UnsetType = UNSET
    """Tasks on which at least 99% of the predictions are one class."""
    score_ci95: dict[str, dict[str, Interval]] = {}
    """Intervals of `scores` over the rows."""
    by_length: dict[str, list[OfLength]] = {}
    """Of each task, for parts of the rows by length."""
    recall: Scores = {}
    """Task -> label -> percent."""
    beside: Scores = {}
    """Task -> metrics that its kind shows beside those of its score."""
    teachers_index: Scores = {}
    """Task of queries and documents -> metrics of the queries' vectors among the teacher's vectors of the documents."""
    detection: dict[str, dict[str, Detection]] = {}
    """Task -> label -> how well it is detected; of tasks with two classes or with labels."""
    entities: dict[str, dict[str, Entities]] = {}
    """Task -> type -> its spans, on the first reported split."""
    vectors: dict[str, dict[str, VectorForm]] = {}
    """Task -> form of the vectors of an embedder -> its size and its scores; of models in torch float32."""
    retained: Retained | UnsetType | None = UNSET
    """null where there is no teacher to compare with."""
    speedup: Speedup | UnsetType | None = UNSET
    cost_per_million: Amount | UnsetType | None = UNSET
    """The price of a million rows at report.hourly_rate, in its currency."""
    failed: Text = ""
    """Why it has no more numbers."""


MEASURED = ("parameters", "size_mib", "latency_ms", "scores", "retained", "speedup")
"""Fields of every model that did not fail."""


class Coverage(Record, frozen=True):
    task: Text
    split: Text
    """Of the reported rows."""
    rows: Count
    """Number of rows that were scored."""
    official_rows: Count | None
    """Number of rows of the whole split, where that is known."""
    in_headline: bool
    """Whether the headline counts the task."""
    limited: bool | UnsetType = UNSET
    """Whether a limit left rows out."""
    labels: dict[str, Count] | UnsetType = UNSET
    """Label -> number of rows; with spans, type of spans -> number of spans."""
    spans: bool | UnsetType = UNSET
    """Whether `labels` counts spans."""
    columns: list[Text] | UnsetType = UNSET
    """Names of the texts of a row that a model is asked about."""
    choices: bool | UnsetType = UNSET
    """Whether a row has choices beside them."""
    stand_in: bool | UnsetType = UNSET
    """Whether generated rows stand in for the real data set."""


class Stage(Record, frozen=True):
    name: Text
    target: Text | None
    """Where a recipe has several."""
    kind: Text
    """train, baseline, prune, vocabulary, quantize, evaluate or export."""
    seconds: Amount | None
    """null where it was not measured."""
    tokens_per_second: Amount | None
    """Of training."""
    peak_memory_mib: Amount | None
    """Of the process, or of the GPU."""
    skipped: Text = ""
    """Why it was not run."""
    reused: bool | UnsetType = UNSET
    """Whether an earlier run made it. These figures are that run's."""
    log: Annotated[list[tuple[Number, Number]], Meta(max_length=50)] = []
    """Pairs of a step and its training loss."""
    tried: list[Tried] = []
    """Of each task whose model was trained and scored on development rows."""


class Pruned(Record, frozen=True):
    """The fields from `tried` on belong to a model that was pruned to a predicted speed."""

    step: Text
    target: Text | None
    layers: Count
    """Number of layers."""
    hidden: Count
    """Width of the hidden states."""
    ffn: Count
    """Width of the feed-forward layers."""
    over: Literal["same", "float32"] | UnsetType = UNSET
    """The reference of the speedups: the teacher in the same variant, or its fastest float32 variant. In older results
    it is the same variant for torch alone."""
    tried: Count | UnsetType = UNSET
    """Number of shapes whose time was predicted."""
    predicted_ms: Amount | UnsetType = UNSET
    predicted_speedup: Amount | UnsetType = UNSET
    backend: Text = ""
    """With the scheme, the variant that was timed; without a backend, torch."""
    scheme: Text = ""
    batch: Count | UnsetType | None = UNSET
    """Batch and length are None for texts of their own lengths in batches of up to eight; the length alone is None for
    these texts one at a time. Times are then those of a text, otherwise of a batch."""
    length: Count | UnsetType | None = UNSET
    measured_ms: Amount | UnsetType | None = UNSET
    measured_speedup: Amount | UnsetType | None = UNSET


_FIELDS = Pruned.__struct_fields__
PREDICTED = tuple(key for key in _FIELDS[_FIELDS.index("tried") :] if key != "backend")
"""Fields of every model that was pruned to a predicted speed."""


class MadeFrom(Record, frozen=True):
    """A given model, its repository on the hub, and the licence that its own model card names."""

    name: Text
    hub: Text | None
    """Its repository."""
    license: Text | None
    license_name: Text = ""
    license_link: Text = ""


class Waterfall(Record, frozen=True):
    """What each change gave, cumulative from the teacher on: depth, width, vocabulary, the runtime, the scheme."""

    step: Text
    """The change."""
    speedup: Amount
    retained: Number | None
    target: Text | UnsetType | None = UNSET


class Test(Record, frozen=True):
    """A paired test of two models on the same rows."""

    a: Identity
    b: Identity
    difference: Number
    """Score of a minus score of b, in points."""
    ci95: Interval | None
    p: Amount
    """Of the difference."""
    test: Literal["mcnemar", "bootstrap"]
    scope: Text | None
    """A task; None for the macro scores over the tasks of the headline."""
    distinguishable: bool
    """Whether p, corrected for the number of tests of the report, is below 0.05."""
    p_corrected: Amount | UnsetType = UNSET


class Statistics(Record, frozen=True):
    """Comparisons of the models with chance and with each other."""

    chance: Scores | UnsetType = UNSET
    """The scores of the best constant predictors or, for the tasks in `guessed`, of guesses."""
    guessed: list[Text] = []
    """Tasks whose classes are better guessed, as often as in the labels or all equally often; in older results none."""
    near_chance: list[Text] | UnsetType = UNSET
    """Tasks on which the interval of the teacher's score does not lie above chance."""
    tests: list[Test] | UnsetType = UNSET
    detectable: dict[str, Amount | None] | UnsetType = UNSET
    """Task -> smallest difference in points that its rows can show; None where it is not known."""
    drawn_together: dict[str, Count] = {}
    """Task and split of which some rows share a text -> number of parts of its rows that are drawn together."""
    seen: list[Text] = []
    """Tasks whose development rows a given teacher may have learned before the run; in older results none."""


class Disagreement(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A row on which a student, whose name, scheme and backend these are, and the teacher disagree."""

    task: str
    split: str
    name: str = ""
    scheme: str = ""
    backend: str = ""
    row: int
    """Its number from 0."""
    text: str
    teacher: str
    """The prediction in a few words, as that of the student."""
    student: str
    label: str | Number | None


class Origin(Record, frozen=True):
    """Where the models of a run come from."""

    recipe: Text
    command: str
    """As it was typed."""
    version: Text
    """Of distill."""
    seeds: Annotated[list[int], Meta(min_length=1)]
    teacher_name: Text = ""
    made_from: list[MadeFrom] = []
    smoke: bool | UnsetType = UNSET
    """Whether `limit=smoke` was set: then no number means anything."""
    untaught: bool | UnsetType = UNSET
    """What is exported learned from labels alone, or was not trained by the run: from no teacher."""


class Results(Origin, frozen=True, kw_only=True):
    """With the fields of `Statistics`."""

    schema: Literal[4]
    older_rules: Text = ""
    """A sentence on the rules under which it was measured, if they are not the current ones."""
    load: Load = BATCH
    """How the models will be asked, in batches or one text at a time. Speedups without a name of inputs are with it."""
    taught_start: bool | UnsetType = UNSET
    """Whether the student and its control start from weights that a teacher trained."""
    own_baseline: bool | UnsetType = UNSET
    """Whether the settings name another stage as the baseline, with a start of its own."""
    heads: Literal["shared"] | UnsetType = UNSET
    """The student's tasks share one encoder: sizes and times are those of all tasks together."""
    least_retained: Number | UnsetType = UNSET
    """`target.retained`, where it was set."""
    environment: dict[str, Fact]
    """The machine and its packages: an open list of facts."""
    fingerprints: dict[str, Text | None] | UnsetType = UNSET
    """Of the data, the models and the code of the run."""
    coverage: Annotated[list[Coverage], Meta(min_length=1)]
    """The rows that were scored, of each task and split."""
    openings: list[Opening] | UnsetType = UNSET
    """Each time that the run read the rows that it reports; UNSET for a run without this record."""
    models: Annotated[list[Model], Meta(min_length=1)]
    """Every model in every variant."""
    chance: Scores | UnsetType = UNSET
    guessed: list[Text] = []
    near_chance: list[Text] | UnsetType = UNSET
    tests: list[Test] | UnsetType = UNSET
    detectable: dict[str, Amount | None] | UnsetType = UNSET
    drawn_together: dict[str, Count] = {}
    seen: list[Text] = []
    notes: list[Text] | UnsetType = UNSET
    """Sentences on what a reader should know."""
    pruned: list[Pruned] = []
    """The shapes that pruning chose."""
    waterfall: list[Waterfall] | UnsetType = UNSET
    """What each change gave."""
    stages: list[Stage]
    """The steps of the run, in their order."""

    @property
    def gpu(self) -> str:
        """The name of the GPU; an empty text for a run without one."""
        return str(self.environment.get("gpu") or "")

    @property
    def threads(self) -> int:
        return int(self.environment["threads"] or 0)


def known(value: T | UnsetType | None) -> T | None:
    """The value; None for UNSET."""
    return None if value is UNSET else value
