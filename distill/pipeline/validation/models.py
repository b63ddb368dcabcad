"""The second phase: checks that the given models fit the settings and each other, before any row is read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.compression.pruning.ragged import STEP
from distill.config import UNITS, Config, Evaluate, Prune, Student, Train, Vocabulary
from distill.config.feature_kinds import LOGITS, REPLACED
from distill.config.plan import STATIC, STUDENT, TEACHER, Plan, Step
from distill.data.encode import separates
from distill.data.whole_words import can_mask
from distill.errors import ConfigError, Line, Problem
from distill.inference.timing import OWN
from distill.models import families, student, teacher
from distill.models.families.head import stored_head, stores_rtd_head
from distill.models.families.record import UNBOUNDED
from distill.models.student.shape import projects, setting
from distill.pipeline.train_steps.prepare import finds_replaced, headless, taught_by_head, untaught, uses_head
from distill.pipeline.validation.memory import too_large
from distill.runtime import quoting

PROBE = "Zoë isn't naïve: 42% of THIS\tcosts 3.50 €"
"""Text that is tokenized differently with and without folding of case or accents, or splitting of numbers."""


@dataclass(frozen=True)
class Model:
    """A given model."""

    folder: str
    config: Any
    tokenizer: Any


@dataclass(frozen=True)
class Models:
    """The given models."""

    key: str
    """The setting that names the teachers."""
    teachers: list[Model]
    student: Model | None
    student_tokenizer: Any
    """Tokenizer of the student, given or built."""

    @property
    def configs(self) -> list[Any]:
        """Config of each teacher."""
        return [each.config for each in self.teachers]

    def unpruned(self, step: Step, settings: Student) -> Any:
        """Config of the models that a step prunes, which may not exist yet. ConfigError if they cannot be built."""
        if step.builder is not None:
            return built(self, settings)
        return self.student.config if self.student is not None and step.lineage[-1] is STUDENT else self.configs[0]


def problems(models: Models, config: Config, plan: Plan, steps: Sequence[Step], memory: int | None) -> Iterator[Line]:
    """Yield a problem for each setting or given model that does not fit the steps. `memory`: bytes of memory of the
    machine, if models are trained on a CPU."""
    for each in models.teachers:
        yield from found(teacher.check_vocabulary, each.tokenizer, each.config, models.key)
    window, longest = config.teacher.window, min(map(families.max_length, models.configs))
    if window is not None and window > longest:
        must = f"be <= {longest}, the maximum length of the teachers"
        yield Problem("teacher.window", window, must, f"set {longest}")
    students: list[tuple[Step, Any]] = []
    for step in steps:
        made, wrong = _student_of(models, config.student, step)
        students.append((step, made))
        yield from wrong
        if step.on_corpus:
            yield from _unfit_for_corpus(models, step)
            yield from _without_rtd_head(models, config.student, step)
            if any(not families.family_of(each).mlm_head for each in models.configs):
                break
            yield from _without_mlm_head(models, step)
    most = [families.max_length(made) for _, made in students if made is not None]
    yield from _too_long(lengths(config, plan, [s for s in steps if s.on_corpus]), longest, most, "")
    # Only for tasks, because a corpus is cut into sequences anyway.
    by_windows = f", or {quoting.setting('teacher.window', longest)} where a whole text has one class or number"
    windows = by_windows if window is None else ""
    on_tasks = lengths(config, plan, [s for s in steps if not s.on_corpus])
    yield from _too_long(on_tasks, longest if window is None else None, most, windows)
    if memory is not None:
        yield from too_large(((step, trained_configs(models, step, made)) for step, made in students), memory)


def found(check: Callable[..., object], *arguments: Any) -> list[Line]:
    """The problems for which a check raises ConfigError."""
    try:
        check(*arguments)
    except ConfigError as error:
        return [*error.messages]
    return []


def beyond_trained(models: Models, config: Config, plan: Plan, steps: Sequence[Step]) -> Iterator[str]:
    """A line for texts that are longer than those a teacher without a maximum length was trained on."""
    trained = [families.trained_length(each) for each in models.configs if families.max_length(each) >= UNBOUNDED]
    for key, value in lengths(config, plan, steps).items():
        if trained and value > min(trained) and not (config.teacher.window and key == "tasks.max_length"):
            yield (
                f"{key}: {value} tokens; the teacher has no maximum, but was most likely trained on at most "
                f"{min(trained)} (max_position_embeddings, or 512)"
            )


def unused_objective(models: Models, steps: Sequence[Step]) -> Iterator[str]:
    """A line for a teacher that detects replaced tokens, in a run whose stages on the corpus do not."""
    on_corpus = [step for step in steps if step.on_corpus]
    if on_corpus and not any(finds_replaced(step.settings) for step in on_corpus):
        for each in models.teachers:
            if stores_rtd_head(each.folder):
                yield (
                    f"{models.key}: the head of {each.folder}, which detects replaced tokens, is not used on a corpus "
                    "here; recipe=electra_small uses it"
                )


def lengths(config: Config, plan: Plan, steps: Sequence[Step]) -> dict[str, int]:
    """Setting of a length -> its value in tokens, for the settings that the steps use."""
    used: dict[str, int] = {}
    for step in steps:
        if isinstance(step.settings, Evaluate):
            used |= {f"stages.{step.stage}.shapes {shape}": shape[1] for shape in step.settings.shapes}
        if isinstance(step.settings, Prune) and plan.has_target and config.target.shape != OWN:
            used["target.shape"] = config.target.shape[1]
        if step.on_corpus:
            used["corpus.max_length"] = config.corpus.max_length
        else:
            used["tasks.max_length"] = config.tasks.max_length
    return used


def _student_of(models: Models, settings: Student, step: Step) -> tuple[Any, Sequence[Line]]:
    """Config of the student that a step builds, cuts or is given, and its problems. None for any other step."""
    stage, first = step.settings, models.configs[0]
    try:
        if isinstance(stage, Prune | Vocabulary):
            loaded = models.unpruned(step, settings)
            return loaded, _unprunable(models, settings, step, loaded) if isinstance(stage, Prune) else []
        if not isinstance(stage, Train):
            return None, []
        pruned, key = (_given_student(models), "student.name") if step.lineage[-1] is STUDENT else (first, models.key)
        if stage.gates.trained and pruned.model_type not in families.STUDENTS:
            return None, [_no_student(key, pruned)]
        if stage.build_student:
            return built(models, settings), []
        return (_given_student(models) if step.start is STUDENT else None), []
    except ConfigError as error:
        return None, error.messages


def _too_long(used: Mapping[str, int], teacher: int | None, students: list[int], advice: str) -> Iterator[Line]:
    """Settings of lengths above the maximum length of a student, or of the teachers: None if they read windows. `used`:
    setting -> tokens; `advice`: added if the length exceeds only the teacher's maximum."""
    maximum = min([*students, *([] if teacher is None else [teacher])], default=None)
    for key, value in used.items():
        if maximum is not None and value > maximum:
            action = f"set it to {maximum}{advice if students and value <= min(students) else ''}"
            yield Problem(key, value, f"be <= {maximum}, the maximum length of teacher and student", action)


def _unfit_for_corpus(models: Models, step: Step) -> Iterator[Line]:
    """Reasons why a step cannot train on a corpus with these teachers."""
    for config in models.configs:
        if not families.family_of(config).mlm_head:
            types = ", ".join(families.STUDENTS)
            yield Problem(
                models.key,
                f"a model of type {config.model_type}",
                f"be one that stages on a corpus can use, of type {types}",
                "use recipe=task, which trains on tasks alone",
            )
            return
    first, *others = (each.tokenizer for each in models.teachers)
    own = models.student_tokenizer if step.tokenizer is STUDENT else first
    if uses_head(step.settings) and own.mask_token_id is None:
        yield Problem(
            models.key,
            "a tokenizer (or student.tokenizer) without a mask token",
            "have one for masked-language modelling",
            "choose an encoder's",
        )
    elif uses_head(step.settings) and not can_mask(step.settings.masking.unit, own):
        yield Problem(
            models.key,
            "a tokenizer (or student.tokenizer) whose vocabulary does not mark where words begin",
            f"have such marks for masking.unit={step.settings.masking.unit}",
            "set stages.STAGE.masking.unit=token",
        )
    if step.settings.segments is not None and not separates(own):
        yield Problem(
            models.key,
            "a tokenizer (or student.tokenizer) without a special token between the texts of a pair",
            f"have one for a term on {step.settings.segments}",
            "choose an encoder's, or leave the term out",
        )
    sizes = {config.vocab_size for config in models.configs}
    if len(sizes) > 1 or any(not same_tokens(first, other) for other in others):
        yield Problem(
            "teacher.names",
            "teachers with different tokenizers, or vocabularies of different sizes",
            "have the same for stages on a corpus, where the probabilities of tokens are averaged",
            "use recipe=task",
        )


def _without_rtd_head(models: Models, settings: Student, step: Step) -> Iterator[Line]:
    """Whether a step that detects replaced tokens trains a model of a family without a head for it."""
    if not finds_replaced(step.settings):
        return
    try:
        trained = models.unpruned(step, settings)
    except ConfigError:  # which is a problem of the step that builds the student
        return
    weighted = [label for label, term in step.settings.terms.items() if term.weight > 0]
    alone = weighted if weighted == taught_by_head(step.settings.terms, REPLACED) and step.teacher is TEACHER else []
    if alone and not all(stores_rtd_head(each.folder) for each in models.teachers):
        yield untaught(step.stage, alone)
    if families.family_of(trained).rtd_head is None:
        fit = [record.name for record in families.STUDENTS.values() if record.rtd_head]
        given = step.lineage[-1] is STUDENT
        yield Problem(
            "student.name" if given else "student.family",
            f"a model of type {trained.model_type}",
            f"be {' or '.join(fit)}, the only type with a head for replaced-token detection in transformers",
            "choose such a model" if given else f"set {quoting.setting('student.family', fit[0])}",
        )


def _without_mlm_head(models: Models, step: Step) -> Iterator[Line]:
    """Whether a step compares with the language-model head of a given teacher that has none."""
    taught = taught_by_head(step.settings.terms, LOGITS) if step.teacher is TEACHER else []
    stored = stores_rtd_head if finds_replaced(step.settings) else teacher.stores_mlm_head
    if taught and not all(stored(each.folder) for each in models.teachers):
        yield headless(step.stage, taught[0])


def same_tokens(first: Any, second: Any) -> bool:
    """Whether two tokenizers have the same vocabulary and split `PROBE` into the same tokens."""
    return bool(first.get_vocab() == second.get_vocab() and first(PROBE)["input_ids"] == second(PROBE)["input_ids"])


def _given_student(models: Models) -> Any:
    """Config of the given student. ConfigError if it cannot be one."""
    assert models.student is not None
    config = models.student.config
    teacher.check_vocabulary(models.student_tokenizer, config, "student.name")
    if config.model_type not in families.STUDENTS:
        raise ConfigError(_no_student("student.name", config))
    return config


def built(models: Models, settings: Student) -> Any:
    """Config of the student that would be built from the first teacher. ConfigError if none can be."""
    loaded, own = models.configs[0], models.student_tokenizer
    if settings.tokenizer is not None:
        loaded = copy.deepcopy(loaded)
        student.config_for(loaded, own)
    if loaded.model_type not in families.STUDENTS:
        types = ", ".join(families.STUDENTS)
        raise ConfigError(
            Problem(
                models.key,
                f"a model of type {loaded.model_type}",
                f"be of type {types} for a student to be built from it",
                "use recipe=task",
            )
        )
    if student.is_static(loaded):
        raise ConfigError(_without_layers(models.key))
    if (settings.num_hidden_layers or 1) > loaded.num_hidden_layers:
        raise ConfigError(_too_deep(settings, loaded))
    sizes = {name: getattr(settings, name) for name in student.SIZES}
    if settings.init == STATIC:
        return student.static_config(loaded, own, sizes)
    layers = student.initial_layers(settings, loaded.num_hidden_layers)
    config = student.student_config(loaded, layers, settings.family, sizes)
    teacher.check_vocabulary(own, config)
    if settings.init == "teacher_layers":
        student.check_transfer(loaded, config)
    return config


def _unprunable(models: Models, target: Student, step: Step, loaded: Any) -> list[Line]:
    """Problems of the sizes in `student.*` to which models of a config are to be pruned."""
    uniform = step.settings.uniform
    key = "student.name" if step.lineage[-1] is STUDENT else models.key
    if loaded.model_type not in families.STUDENTS:
        return [_no_student(key, loaded)]
    if student.is_static(loaded):
        return [_without_layers(key)]
    if lines := list(_of_fixed_width(key, target, step, loaded)):
        return lines
    if step.builder is not None:
        return []  # a target decides: sizes are of the student before it is pruned
    if (target.num_hidden_layers or 1) > loaded.num_hidden_layers:
        return [_too_deep(target, loaded)]
    layers = target.layers or list(range(target.num_hidden_layers or loaded.num_hidden_layers))
    sizes = {name: getattr(target, name) for name in student.SIZES} if uniform else {}
    if not uniform and (errors := list(_too_many(target, loaded))):
        return errors
    try:
        config = student.student_config(loaded, layers, None, sizes)
        if projects(loaded) != projects(config):
            return [
                Problem(
                    "student.hidden_size",
                    target.hidden_size,
                    "not be the width of the embeddings, because a model of that config would have no projection of "
                    "them",
                    "choose another",
                )
            ]
        student.check_transfer(loaded, config)
    except ConfigError as error:
        return [line.removesuffix("; or set student.init=random") for line in error.messages]
    return []


def _of_fixed_width(key: str, target: Student, step: Step, loaded: Any) -> Iterator[Line]:
    """The problem of a model whose width cannot be pruned, in a step that may prune it. Of ALBERT's layers in groups
    nothing can be pruned."""
    if (found := families.unprunable(loaded)) is None:
        return
    (name, got, required), whole = found, families.family_of(loaded).shared_layers
    if any(getattr(step.goal, unit) is not None for unit in UNITS):
        cut = "hidden" in step.settings.dimensions
        stage = (step.pruner or step).stage  # and not that of a baseline
        instead = f", or set {quoting.setting(f'stages.{stage}.dimensions', ['layers', 'ffn'])}"
    else:
        sizes = [each for each in ("hidden_size", "num_attention_heads") if getattr(target, each) is not None]
        cut = any(getattr(target, each) != setting(loaded, each) for each in sizes)
        instead = f", or leave out {' and '.join(f'student.{each}' for each in sizes)}"
    if whole or cut:
        must = f"be {required} {'' if whole else 'for its width '}to be pruned"
        yield Problem(key, f"a model with {name} {got}", must, f"choose another{'' if whole else instead}")


def _too_many(target: Student, loaded: Any) -> Iterator[Line]:
    """Mean numbers of heads or FFN channels per layer that exceed the teacher's, or are too small."""
    for name, fewest in (("num_attention_heads", 1), ("intermediate_size", STEP)):
        most, got = setting(loaded, name), getattr(target, name)
        if got is not None and not fewest <= got <= most:
            yield Problem(f"student.{name}", got, f"be from {fewest} to {most}, the teacher's", "set such a number")


def _too_deep(settings: Student, config: Any) -> Problem:
    """The problem of more layers than a model has."""
    got, most = settings.num_hidden_layers, config.num_hidden_layers
    return Problem(
        "student.num_hidden_layers", got, f"be <= {most}, the number of the model that it is made from", "set fewer"
    )


def _without_layers(key: str) -> Problem:
    """The problem of a static model that a student is to be made from."""
    must = "have layers for a student to be made from it"
    return Problem(key, "a static model, which has no layers", must, "choose another model, or use recipe=task")


def _no_student(key: str, config: Any) -> Problem:
    """The problem of a model of a family that cannot be a student."""
    types = ", ".join(families.STUDENTS)
    return Problem(key, f"a model of type {config.model_type}", f"be one of {types}", "choose such a model")


def trained_configs(models: Models, step: Step, made: Any) -> list[Any]:
    """Configs of the models that a step trains and that are known: of the student `made` that it builds or is given, or
    else of the given teachers, without teachers whose stored head is used."""
    settings = step.settings
    if made is not None:
        return [made]
    if not isinstance(settings, Train) or settings.role != "teacher":
        return []
    return [each.config for each in models.teachers if not settings.skip_if_head or stored_head(each.folder) is None]
