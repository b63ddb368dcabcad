"""Every setting, as typed dataclasses, and their registration with Hydra.

Hydra is imported when a config is composed, so that a process that only serves a model does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.config.allowed import above, at_least, one_of, pattern
from distill.config.data import TRANSFER_SOURCES, Corpus, Limit, Task, Tasks, Transfer
from distill.config.models import NO_TEACHER, Budget, Cache, Report, Student, Target, Teacher
from distill.config.stages import (
    REFERENCES,
    STAGES,
    Baseline,
    Batch,
    Evaluate,
    Export,
    Prune,
    Quantize,
    Stage,
    Term,
    Train,
    Vocabulary,
)
from distill.errors import refuse

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = [
    "NO_TEACHER",
    "REFERENCES",
    "STAGES",
    "TRACKERS",
    "TRANSFER_SOURCES",
    "Baseline",
    "Batch",
    "Budget",
    "Config",
    "Corpus",
    "Evaluate",
    "Export",
    "Limit",
    "Prune",
    "Quantize",
    "Stage",
    "Student",
    "Target",
    "Task",
    "Tasks",
    "Teacher",
    "Term",
    "Train",
    "Transfer",
    "Vocabulary",
    "folder",
    "implied",
    "load_config",
    "recipes",
    "resolved",
    "words",
]


TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
"""Experiment trackers, each of which is also the name of its package and of an extra."""


@dataclass
class Config:
    """All settings of a run."""

    teacher: Teacher = field(default_factory=Teacher)
    student: Student = field(default_factory=Student)
    target: Target = field(default_factory=Target)
    budget: Budget = field(default_factory=Budget)
    corpus: Corpus = field(default_factory=Corpus)
    tasks: Tasks = field(default_factory=Tasks)
    transfer: Transfer = field(default_factory=Transfer)
    limit: Limit = field(default_factory=Limit)
    cache: Cache = field(default_factory=Cache)
    report: Report = field(default_factory=Report)
    pipeline: list[str] = field(default_factory=list)
    """Names of the stages in the order in which they run."""
    stages: dict[str, Stage] = field(default_factory=dict)
    """Settings of each stage, by its name."""
    temperature: float = field(default=2.0, metadata=above(0, "2 is usual"))
    """Softmax temperature of the soft targets, in each stage that does not set its own."""
    seed: int = field(default=0, metadata=at_least(0, "0 is the default"))
    """Seed of all random numbers."""
    precision: str = field(
        default="auto", metadata=one_of("auto", "bf16", "fp16", "tf32", "fp32", advice="auto detects")
    )
    """Arithmetic of training: bf16, fp16 (with scaled losses), tf32 (on GPUs alone) or fp32. auto takes bf16 where the
    hardware is fast in it, else fp16 on a GPU that is fast in that, else fp32. Weights are float32."""
    device: str = field(default="auto", metadata=one_of("auto", "cpu", "cuda", advice="auto detects"))
    """cpu, cuda, or auto (a GPU if there is one)."""
    threads: int | None = field(default=None, metadata=at_least(1, "null uses every core"))
    """Number of CPU threads; one for each core when null."""
    push: str | None = field(
        default=None,
        metadata=pattern(
            r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]{0,95}",
            "OWNER/NAME or null",
            "it is a repository on the Hugging Face hub",
        ),
    )
    """Repository on the Hugging Face hub to which the exported folder is uploaded, e.g. me/student. Several folders go
    to one repository each, with the folder's target and task appended to this name. Nothing is uploaded when null."""
    push_private: bool = True
    """Whether the repositories that `push` creates are private. An existing repository keeps its visibility."""
    push_dry_run: bool = False
    """Print which files `push` would upload and delete, and change nothing on the hub."""
    tracker: str | None = field(
        default=None,
        metadata=one_of(*TRACKERS, advice="null tracks nothing", words=f"one of {', '.join(TRACKERS)}, or null"),
    )
    """Experiment tracker that gets losses, learning rates, throughput and results while a run goes on."""
    log: str = field(default="text", metadata=one_of("text", "json", "quiet", advice="text is for people"))
    """What a run prints: lines of text, one JSON object a line for programs, or, with quiet, its end alone."""
    output: str | None = None
    """Run folder. When null, a folder under outputs/ that is named after the recipe and the changed settings."""


UNITS = {"speedup": "x", "latency_ms": "ms", "size_mib": "MiB"}
"""Setting of `target` for which a shape can be searched -> unit in the target's label, e.g. `2x`."""

SIZES = ("layers", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
"""Settings of `student` that are sizes to which models are pruned."""


def folder(name: str) -> Path:
    """Path of `conf` or `recipes`: inside an installed package, or beside the package in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def recipes() -> dict[str, Path]:
    """Name (e.g. `paper/distilbert`) -> file of every recipe."""
    root = folder("recipes")
    return {p.relative_to(root).with_suffix("").as_posix(): p for p in sorted(root.rglob("*.yaml"))}


def register() -> None:
    """Register the schemas and the recipes with Hydra. A recipe is a config of group `recipe`, package `_global_`."""
    from hydra.core.config_store import ConfigStore

    from distill.config import typed

    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for kind, node in STAGES.items():
        store.store(group="stage", name=f"{kind}_schema", node=node)
    for name, path in recipes().items():
        group, _, leaf = f"recipe/{name}".rpartition("/")
        content = typed.from_yaml(path.read_text(encoding="utf-8"), Config)
        store.store(group=group, name=leaf, node=content, package="_global_")


def words(arguments: Sequence[str]) -> list[str]:
    """The words of a command line, changed so that Hydra reads them as they were meant; see `typed`."""
    from distill.config import typed

    return typed.words(arguments, Config)


def load_config(overrides: list[str] | str) -> Config:
    """Compose the config from command-line settings, e.g. `["recipe=distilbert", "seed=1"]`, or from a single one. It
    is not checked yet."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    from distill.config import bounds, hydra_hooks

    if "schema.yaml" not in ConfigStore.instance().repo:
        register()
    overrides = words([overrides] if isinstance(overrides, str) else overrides)
    conf = str(folder("conf").resolve())
    with hydra_hooks.apart(), bounds.guarded(Config), bounds.composing():
        with initialize_config_dir(conf, version_base="1.3"):
            composed = compose("config", overrides=overrides)
    bounds.check_expanded(composed)
    return resolved(composed, overrides)


def resolved(composed: DictConfig, overrides: Iterable[str]) -> Config:
    """The settings that Hydra composed, and the settings that they imply. `overrides`: the settings that were given.

    Raises:
        ConfigError: for a value with a resolver, such as ${oc.env:NAME}. With it, a stranger's config folder could put
            secrets of the environment into results and messages.
    """
    from omegaconf import OmegaConf

    from distill.config import bounds

    plain = OmegaConf.to_container(composed, resolve=False)
    refuse(
        bounds.no_resolver(key, value)
        for key, value in _leaves(plain, "")
        if isinstance(value, str) and bounds.has_resolver(value)
    )
    loaded = OmegaConf.to_object(composed)
    assert isinstance(loaded, Config)
    return implied(loaded, overrides)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def implied(settings: Config, overrides: Iterable[str]) -> Config:
    """The config with the settings that others imply. `overrides`: the settings that were given.

    A teacher with a name has kind hub, and a corpus with a path has kind parquet or text. Without a teacher, the model
    of `student.name` takes its place in the recipe. Rows of `transfer.files` have a share of 1 if they have none. Your
    own task replaces the `tasks.names` of the recipe's group, and sizes of a pruned model replace the target of the
    recipe, unless `overrides` state them.
    """
    teacher, student = settings.teacher, settings.student
    if teacher.kind == "embedded" and teacher.name is not None:
        teacher = replace(teacher, kind="hub")
    if teacher.kind == NO_TEACHER and teacher.name is None:
        teacher = replace(teacher, name=student.name)
        starts = [getattr(settings.stages.get(name), "start", None) for name in settings.pipeline]
        student = student if "student" in starts else replace(student, name=None)
    tasks = settings.tasks
    given = {word.partition("=")[0].lstrip("+") for word in overrides}
    if (tasks.train is not None or tasks.hub is not None) and "tasks.names" not in given:
        tasks = replace(tasks, names=None)
    corpus, transfer, target = settings.corpus, settings.transfer, settings.target
    if corpus.kind == "docstrings" and corpus.path and not given & {"corpus", "corpus.kind"}:
        corpus = replace(corpus, kind="parquet" if _of_parquet(Path(corpus.path)) else "text")
    if transfer.files is not None and "files" not in transfer.sources:
        transfer = replace(transfer, sources={"files": 1.0, **transfer.sources})
    sized = [name for name in SIZES if f"student.{name}" in given and getattr(student, name) is not None]
    builds = any(getattr(settings.stages.get(name), "build_student", False) for name in settings.pipeline)
    aimed = builds or settings.budget.minutes is not None or given & {"target", *(f"target.{name}" for name in UNITS)}
    if sized and not aimed:
        target = replace(target, speedup=None, latency_ms=None, size_mib=None)
    return replace(
        settings, teacher=teacher, student=student, tasks=tasks, corpus=corpus, transfer=transfer, target=target
    )


def _of_parquet(path: Path) -> bool:
    """Whether a path leads to parquet files: a file, or a folder with such files."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))
