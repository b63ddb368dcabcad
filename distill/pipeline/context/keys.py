"""What the steps of a run are made from. Its difference from what they were made from says which steps run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from msgspec.structs import replace

from distill.config import Config, Prune, Quantize, Train, Vocabulary
from distill.config.plan import STUDENT, Plan, Step
from distill.data import corpus
from distill.pipeline.artefacts import Key
from distill.pipeline.context.folder import RunFolder
from distill.runtime import outside
from distill.runtime.machine import Machine
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.versions import PACKAGES, installed, processor, source_hash, versions

NAMES = {
    "teacher": "the teacher",
    "student": "the given student",
    "tokenizer": "the student's tokenizer",
    "tasks": "the rows of the tasks",
    "corpus": "the corpus",
    "unlabelled": "the rows without labels",
    "masked_lm": "the masked language model",
    "code": "code from outside of distill",
}
"""Name of a given model or data set -> its name in messages."""
_OF_NO_STAGE = (
    *("stages", "pipeline", "temperature", "report", "budget", "cache"),
    *("output", "threads", "device", "precision", "push", "push_private", "push_dry_run", "tracker", "log"),
)
"""Settings that are left out of the key of a trained stage. Training does not read them, or the key already includes
them as settings of the stage or as `arithmetic`."""
_NAMED = {
    "teacher": ("name", "names"),
    "student": ("name", "tokenizer"),
    "corpus": ("path", "name"),
    "tasks": ("name", "names", "path", "about", "train", "validation", "test", "development"),
    "transfer": ("files", "masked_lm"),
}
"""Settings, by their group, that say what is read and where it lies. They are left out of that key, which has the
fingerprints of the contents."""


@dataclass(frozen=True)
class Keys:
    """Builds the keys of a run's steps."""

    config: Config
    plan: Plan
    machine: Machine
    folder: RunFolder
    epochs: Mapping[str, float]
    """Label of a target -> share of the epochs of its trainings."""
    corpus_tokens: int | None
    """Maximum tokens that a stage on the corpus trains on; None if a stage has no maximum."""
    fingerprint: Callable[[str], str]
    """Returns the fingerprint of a given model or data set that is named in `NAMES`."""

    def of(self, step: Step) -> Key:
        """What a step that begins now is made from, with its name in the cache."""
        settings, key = self._settings(step), self.without_settings(step)
        return replace(key, settings=settings, arithmetic=None if settings is None else key.arithmetic)

    def without_settings(self, step: Step) -> Key:
        """What a step that begins now is made from besides settings, which are always the same in one run folder."""
        return Key(
            inputs=self.folder.inputs(step),
            given={name: self.fingerprint(name) for name in needed(step, self.config)},
            versions=versions(),
            packages=fingerprint([source_hash(), installed(PACKAGES)]),
            # Processes add up the gradients of a step in another order, each with random numbers of its own.
            arithmetic=fingerprint([arithmetic(self.machine), self.machine.accelerator.num_processes]),
        )

    def _settings(self, step: Step) -> str | None:
        """Hash of the settings on which a train step's models depend.

        Threads and processor are left out, because they change only the last bits. They count for gates that are
        trained to reach a measured time.

        None for a step whose result is not kept for other runs: it is not a training, or `limit.smoke` is set.
        """
        settings, config = step.settings, self.config
        if not isinstance(settings, Train) or config.limit.smoke:
            return None
        reads_corpus = "corpus" in needed(step, config)
        return fingerprint(
            {
                "folder": step.folder,
                "settings": _own(step),
                "config": _outside_of_stages(config, settings) | _only_if_read(step, config),
                "revisions": corpus.revisions(config.corpus) if reads_corpus else None,
                "corpus_tokens": self.corpus_tokens if step.on_corpus else None,
                "epochs": self.epochs.get(step.target),
                "student_is_given": self.plan.given_student,
                "gates": self._of_gates() if settings.gates.trained else None,
            }
        )

    def _of_gates(self) -> list[Any]:
        """What the goal of gates depends on: the machine on which forms are timed, and the settings of the stages that
        prune by the gates and that make the forms."""
        others = {step.stage: asdict(step.settings) for step in self.plan.of(Prune, Quantize)}
        return [processor(self.machine), self.machine.threads, others]


def changes(before: Key, now: Key) -> list[str]:
    """Names, for messages, of the inputs in which a key differs from an earlier one: steps, and given models and
    data."""
    steps = [folder for folder in now.inputs if before.inputs.get(folder) != now.inputs[folder]]
    return steps + [NAMES[name] for name in NAMES if before.given.get(name, "") != now.given.get(name, "")]


def needed(step: Step, config: Config) -> list[str]:
    """Names, in `NAMES`, of the given models and data that a step itself reads.

    Every step reads the teacher, e.g. its pooling and its width. Other inputs that only earlier steps read are not
    listed: their change shows in the models of these steps.
    """
    direct = [source for sources in step.sources.values() for source in sources]
    texts = step.settings.texts if isinstance(step.settings, Vocabulary) else ()
    transfer = _has_transfer_set(step, config)
    reads = {
        "teacher": True,
        "student": STUDENT in direct,
        "tokenizer": step.builder is step and config.student.tokenizer is not None,
        "tasks": not step.on_corpus,
        "corpus": step.on_corpus or "corpus" in texts or (transfer and config.transfer.sources.get("corpus", 0) > 0),
        "unlabelled": transfer and config.transfer.files is not None,
        "masked_lm": transfer and config.transfer.masked_lm is not None,
        "code": outside.code() != "",
    }
    return [name for name, reads_it in reads.items() if reads_it]


def _has_transfer_set(step: Step, config: Config) -> bool:
    return getattr(step.settings, "transfer", False) and config.transfer.times > 0


def _own(step: Step) -> dict[str, Any]:
    """The settings of a stage that its models depend on."""
    left_out = {"checkpoint_seconds", *(() if step.teacher else ("temperature",))}
    return {name: value for name, value in asdict(step.settings).items() if name not in left_out}


def has_own_seed(config: Config, settings: Train) -> bool:
    """Whether a stage is trained with `teacher.seed`, whatever the seed of the run is."""
    return config.teacher.seed is not None and settings.data == "tasks" and _is_of_teacher(settings)


def _is_of_teacher(settings: Train) -> bool:
    return settings.role == "teacher" and settings.shape_of is None and not settings.build_student


def _outside_of_stages(config: Config, settings: Train) -> dict[str, Any]:
    """The settings outside of its own that a train stage may read."""
    left_out = {*_OF_NO_STAGE, *(("student",) if _is_of_teacher(settings) else ())}
    left_out |= {"seed"} if has_own_seed(config, settings) else set()
    return {name: _unnamed(name, value) for name, value in asdict(config).items() if name not in left_out}


def _only_if_read(step: Step, config: Config) -> dict[str, Any]:
    """The settings that only some train stages read, each None where this one does not. Of the target, an earlier step
    has made the shape of the student, and the share of its epochs is a part of its own; gates are trained for the speed
    itself."""
    of_tasks, of_corpus, timed = not step.on_corpus, "corpus" in needed(step, config), step.settings.gates.trained
    reads = {"tasks": of_tasks, "corpus": of_corpus, "target": timed, "transfer": _has_transfer_set(step, config)}
    read = {name: _unnamed(name, asdict(getattr(config, name))) if does else None for name, does in reads.items()}
    limits = {"examples": of_tasks, "validation": of_tasks, "documents": of_corpus, "repeats": timed, "steps": True}
    return read | {"limit": {name: getattr(config.limit, name) for name, does in limits.items() if does}}


def _unnamed(group: str, settings: Any) -> Any:
    """A group of settings without those in `_NAMED`."""
    if group not in _NAMED:
        return settings
    kept = {name: value for name, value in settings.items() if name not in _NAMED[group]}
    return kept | {"each": {task: _unnamed(group, own) for task, own in kept.get("each", {}).items()}}


def arithmetic(machine: Machine) -> dict[str, Any]:
    """How models compute on this machine, and by which code. Threads and processor are left out."""
    packages = versions() | {"distill": source_hash(), "outside": outside.code()}
    packages |= installed(("tokenizers", "accelerate", "bitsandbytes"))
    return {"arithmetic": [machine.device.type, machine.precision, machine.fast_float32], "versions": packages}
