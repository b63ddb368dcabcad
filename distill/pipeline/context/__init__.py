"""What the inputs of the stages come from: machine, run folder, given models, tasks and encoded corpus."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from distill.config import Config, Train
from distill.config.plan import SHARED_HEADS, STUDENT, TEACHER, Given, Plan, Source, Step, tokenizer_of
from distill.data import align, corpus, encode, segments, sequences
from distill.data.files import Table
from distill.data.held_out import Apart
from distill.data.members import with_own_prompts
from distill.data.task_tables import read_unlabelled
from distill.data.tasks import Loaded, TaskData, load_tasks
from distill.errors import UserError
from distill.models import teacher
from distill.models.families.head import stored_head
from distill.pipeline.artefacts import Trained
from distill.pipeline.context import fingerprints
from distill.pipeline.context.checkpoints import WHOLE, Checkpoints
from distill.pipeline.context.folder import CORPUS, RunFolder
from distill.pipeline.context.given import GivenModels
from distill.pipeline.context.keys import NAMES, Keys
from distill.pipeline.runtime import Runtime
from distill.runtime import outside, progress
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic, run_folder, store, structs


@dataclass(frozen=True)
class Form:
    """A form in which a corpus is stored."""

    suffix: str
    """Of the name of its folder."""
    encode: Callable[..., int]
    """(folder, texts, tokenizers ..., maximum tokens of a sequence, and of all) -> tokens written."""
    stored: Callable[[Path], Any]
    """Loads what was written."""


PLAIN = Form("", sequences.encode_corpus, sequences.stored_corpus)
ALIGNED = Form("", align.encode_aligned, align.stored_aligned)
PAIRS = Form(".pairs", segments.encode_segments, segments.stored_segments)


@dataclass(frozen=True)
class Context:
    """One run."""

    config: Config
    plan: Plan
    recipe: str
    command: str
    machine: Machine
    folder: RunFolder
    epochs: dict[str, float] = field(default_factory=dict)
    """Label of a target -> share of the epochs of its trainings that the budget of the run is enough for."""
    _fingerprints: dict[str, str] = field(default_factory=dict)
    """Cache: name of a given model or data set -> its fingerprint."""
    _cut_tokenizers: dict[Step, Any] = field(default_factory=dict)
    """Cache: vocabulary step -> its tokenizer."""

    @functools.cached_property
    def given(self) -> GivenModels:
        """Teachers and student that the user gives, with their tokenizers."""
        return GivenModels(self.config, self.machine, self.folder.path, lambda: self.texts, self.plan.given_student)

    def with_plan(self, plan: Plan) -> Context:
        """This run with other steps. What was loaded is not loaded again, which would synchronize the processes."""
        other = replace(self, plan=plan)
        own = {field.name for field in fields(self)}
        other.__dict__.update({name: value for name, value in vars(self).items() if name not in own})
        return other

    @property
    def keys(self) -> Keys:
        """Says what the steps are made from."""
        return Keys(
            self.config, self.plan, self.machine, self.folder, self.epochs, self.corpus_tokens, self.fingerprint
        )

    def fingerprint(self, name: str) -> str:
        """Fingerprint of a given model or of data, named in `keys.NAMES`."""
        if name not in self._fingerprints:
            self._fingerprints[name] = self._fingerprint(name)
        return self._fingerprints[name]

    def check_unchanged(self, given: Mapping[str, str], step: Step | None = None) -> None:
        """Check that files that were read in the course of the run still have the content with which it began.

        Rows are not checked, because the run reads them from a copy, nor code, which it has imported.

        Args:
            given: name -> fingerprint with which the run began.
            step: the step that was made, whose files are removed if it was made from others.

        Raises:
            UserError: for the first files that changed.
        """
        for name in given:
            if name not in ("tasks", "unlabelled", "code") and self._fingerprint(name) != given[name]:
                if step is not None:
                    self.folder.forget(step)
                self.folder.forget_given()
                raise UserError(
                    f"{NAMES[name]}: got other files while the run read them; must not change during a "
                    "run; wait for what writes them, then run the same command again"
                )

    def _fingerprint(self, name: str) -> str:
        if name == "code":
            return outside.code()
        if name == "tasks":
            return fingerprints.of_tasks(self.tasks)
        if name == "unlabelled":
            assert self.unlabelled is not None
            return fingerprints.of_rows(self.unlabelled.rows)
        if name == "corpus":
            return fingerprints.of_corpus(self.config.corpus)
        given = self.given
        folders = {
            "teacher": lambda: given.teachers,
            "student": lambda: [given.student],
            "masked_lm": lambda: [given.masked_lm or ""],
        }
        return fingerprints.of_models(folders.get(name, lambda: [given.tokenizer_folder])())

    @property
    def shared(self) -> bool:
        """Whether the student of all tasks has one encoder."""
        return self.config.student.heads == SHARED_HEADS

    def shares_encoder(self, settings: Any) -> bool:
        """Whether the models that a stage trains, one for each task, have one encoder."""
        on_tasks = isinstance(settings, Train) and settings.data == "tasks"
        return self.shared and on_tasks and settings.role != "teacher"

    @functools.cached_property
    def tasks(self) -> dict[str, TaskData]:
        """Name -> rows of every task, in order."""
        return self._loaded.tasks

    @property
    def embeds(self) -> bool:
        """Whether a task has embedders."""
        return any(data.task.kind.separate for data in self.tasks.values())

    @property
    def step_tasks(self) -> dict[str, TaskData]:
        """As `tasks`, but empty if all steps are on the corpus: such a run loads no rows of tasks."""
        return self.tasks if any(not step.on_corpus for step in self.plan.steps) else {}

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """A row for each split of each task: the number of rows it has, and officially should have."""
        return self._loaded.coverage

    @property
    def held_out(self) -> Apart:
        """What the development and reported splits have, for transfer sets."""
        return self._loaded.held_out

    @property
    def notes(self) -> list[str]:
        """How files were read, which columns and labels of own tasks were chosen, and which rows were left out."""
        unlabelled = () if self.unlabelled is None else self.unlabelled.notes
        return [*self._loaded.notes, *unlabelled]

    @functools.cached_property
    def _loaded(self) -> Loaded:
        folder = self.given.teacher  # on every process, because finding the teacher synchronizes them
        # The embedded teacher is an embedder, but nobody chose it as one: it does not decide the kind of a task.
        head = None if self.config.teacher.kind == "embedded" else stored_head(folder)
        with self.machine.main_first():
            transfer = self.config.transfer.times > 0
            loaded = load_tasks(self.config.tasks, self.config.limit, self.config.seed, head, transfer=transfer)
        several = self.given.teachers if self.config.teacher.kind == "ensemble" else []
        return with_own_prompts(loaded, [stored_head(each) for each in several], self.config.tasks)

    @functools.cached_property
    def unlabelled(self) -> Table | None:
        """The rows of `transfer.files`; None without."""
        per_token = any(data.task.kind.per_token for data in self.tasks.values())
        return read_unlabelled(self.config, per_token=per_token)

    @functools.cached_property
    def texts(self) -> Sequence[str]:
        """Documents of the corpus. Only the main process loads them."""
        return corpus.load_corpus(self.config.corpus, self.config.limit, self.config.seed)

    def corpus(self, step: Step) -> encode.Encoded | align.Aligned:
        """The encoded corpus for a step, with no more tokens than the longest stage uses.

        Encoded once for all stages and processes, kept on disk until the run is finished, and in the user's cache.
        """
        own, kind = step.tokenizer is STUDENT, step.settings.segments
        # A baseline has no teacher, but gets the same aligned sequences as its student.
        form = PAIRS if kind is not None else ALIGNED if own else PLAIN
        owner = "student" if own else "teacher"
        folder = self.folder.path / CORPUS / f"{owner}{form.suffix}"
        tokenizers = [self.tokenizer(step), *([self.given.tokenizer] if form is ALIGNED else [])]
        sizes = (self.config.corpus.max_length, self.corpus_tokens)
        with self.machine.main_first():
            if not run_folder.finished(folder):
                texts = [self.fingerprint("corpus"), self.config.limit.documents, self.config.seed]
                texts += [*corpus.revisions(self.config.corpus), form.suffix]
                key = None if self.config.limit.smoke else fingerprints.of_encoded(texts, tokenizers, sizes)
                store.get_or_make(
                    "corpora", key, lambda folder: self._encode(folder, owner, tokenizers, sizes, form), folder,
                    waits=lambda end: self.machine.log(f"corpus: another run encodes it; waiting{end}"),
                    taken=lambda: self.machine.log(f"corpus: encoded by an earlier run, in the {owner}'s tokens"),
                )  # fmt: skip
        encoded: encode.Encoded | align.Aligned = form.stored(folder)
        if kind is not None:
            assert isinstance(encoded, encode.Encoded)
            segments.check_pairs(encoded, kind)
        return encoded

    def _encode(
        self, folder: Path, owner: str, tokenizers: list[Any], sizes: tuple[int, int | None], form: Form
    ) -> None:
        texts = self.texts
        self.machine.log(f"corpus: {len(texts)} documents, in the {owner}'s tokens")
        with atomic.writing(folder) as temporary:
            with progress.counted("encoding the corpus", len(texts)) as done:
                count = form.encode(temporary, progress.counting(texts, done), *tokenizers, *sizes)
            if not count:
                raise UserError(
                    f"corpus.path: got no sequence of {sequences.SHORTEST} tokens or more; must contain prose; "
                    "choose another corpus"
                )
            atomic.write_json(temporary / run_folder.MANIFEST, {})
        self.check_unchanged({"corpus": self.fingerprint("corpus")})

    @property
    def corpus_tokens(self) -> int | None:
        """Maximum tokens that a step on the corpus trains on; None without such a step, and if one has no maximum."""
        stages = [step.settings for step in self.plan.of(Train) if step.on_corpus]
        most = [s.steps * s.batch.tokens if s.steps else None for s in stages]
        if self.config.limit.steps:
            most = [self.config.limit.steps * s.batch.tokens for s in stages]
        return None if None in most else max((m for m in most if m is not None), default=None)

    def checkpoint(self, source: Source, task: str | None = None) -> Path:
        """Model folder of a finished step, or of a given model; the folder of `task` if the step has one for each task.

        If the step has a model for each teacher of an ensemble, the first one.
        """
        return self.checkpoints(source, task)[0]

    def checkpoints(self, source: Source, task: str | None = None) -> list[Path]:
        """Model folders as from `checkpoint`, one for each teacher of an ensemble."""
        if isinstance(source, Given):
            return [Path(name) for name in (self.given.teachers if source is TEACHER else [self.given.student])]
        folder = self.folder.of(source)
        members = self.folder.result(source, Trained).members if isinstance(source.settings, Train) else []
        parts = [folder / member for member in members] or [folder]
        return [self._model_folder(source, part, number, task) for number, part in enumerate(parts)]

    def _model_folder(self, step: Step, folder: Path, number: int, task: str | None) -> Path:
        """Model folder below the folder of a step or of one teacher, by its index `number` in an ensemble. For a
        skipped step, the folder that it starts from."""
        if isinstance(step.settings, Train) and structs.read(folder / run_folder.MANIFEST, Trained).skipped:
            return self.checkpoints(step.start, task)[number]
        names = [] if task is None else [task, SHARED_HEADS] if self.shared else [task]
        return next((folder / name for name in names if (folder / name).is_dir()), folder)

    def models(self, source: Source) -> Checkpoints:
        """The models of a finished step, or of a given model, for a step that reads them."""
        tasks = [None, *(() if isinstance(source, Step) and source.on_corpus else self.step_tasks)]
        folders = {task or WHOLE: self.checkpoints(source, task) for task in tasks}
        return Checkpoints(
            name=source.folder if isinstance(source, Step) else source.name,
            folders=folders,
            weights={task or WHOLE: self.shares(source, task) for task in tasks},
            tokenizers=[self.tokenizer(source, member) for member in range(len(folders[WHOLE]))],
        )

    @property
    def runtime(self) -> Runtime:
        """What every stage gets besides its inputs and its settings."""
        config = self.config
        return Runtime(self.machine, self.folder.path, config.seed, config.limit, config.tasks.max_length)

    def shares(self, source: Source, task: str | None = None) -> list[float]:
        """Weight of each teacher of a step in the mean of their probabilities for a task."""
        if len(self.checkpoints(source, task)) == 1:
            return [1.0]
        weights = self.config.teacher.weights
        if weights not in (None, "learned"):
            return list(weights)
        learned = self.folder.result(source, Trained).weights if isinstance(source, Step) else {}
        return learned.get(task or "") or [1.0] * len(self.given.teachers)

    def tokenizer(self, source: Source, member: int = 0) -> Any:
        """The tokenizer of a step's models. `member`: index of the teacher in an ensemble."""
        owner = tokenizer_of(source)
        if not isinstance(owner, Step):
            return self.given.student_tokenizer if owner is STUDENT else self.given.tokenizers[member]
        if owner not in self._cut_tokenizers:
            tokenizer = teacher.load_tokenizer(self.folder.of(owner) / next(iter(self.tasks)))
            tokenizer.padding_side = self.tokenizer(owner.start).padding_side
            self._cut_tokenizers[owner] = tokenizer
        return self._cut_tokenizers[owner]

    @property
    def every_tokenizer(self) -> list[Any]:
        """All tokenizers of the run's models: of each teacher, of the student, and of vocabulary steps."""
        cut = dict.fromkeys(step.tokenizer for step in self.plan.steps if isinstance(step.tokenizer, Step))
        return [*self.given.tokenizers, self.given.student_tokenizer, *map(self.tokenizer, cut)]
