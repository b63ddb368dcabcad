"""Notes of the report: what a reader must know of how a run made and measured its models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import UNSET

from distill.config import NO_TEACHER, Config, Prune, Quantize, Train, Vocabulary
from distill.config.baselines import BASELINE, SELF_TRAINED
from distill.config.plan import STATIC, Plan
from distill.config.schemes import SCHEMES
from distill.evaluation.tried import warnings
from distill.pipeline import artefacts
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.context.given import GivenModels
from distill.pipeline.context.keys import has_own_seed
from distill.pipeline.origin import member_names, teacher_name
from distill.pipeline.train_steps.transfer import described
from distill.pipeline.train_steps.tries import tried_in
from distill.runtime.storage import atomic, run_folder, structs


def of_teacher(
    given: GivenModels, settings: Train, weights: Mapping[str, Sequence[float]], *, vectors: bool
) -> Iterator[str]:
    """Notes on a missing teacher, an ensemble, and a teacher with folds, with its own seed, or that reads windows.
    `settings`: of its training on the tasks; `vectors`: whether the teachers are embedders."""
    if given.config.teacher.kind == NO_TEACHER:
        yield (
            "No teacher is given: soft labels stand in for its outputs. What this report calls the teacher is "
            f"{teacher_name(given)} at full size, trained on the same soft labels."
        )
    if len(given.teachers) > 1:
        for number, name in enumerate(member_names(given)):
            yield f"member {number + 1} is {name} alone."
        yield (
            "For two texts, the teacher's cosine is the weighted mean of the members'. Its vector of a text is made of "
            "those of all members, side by side. Students keep their own width. They learn these vectors after a "
            "linear map to that width, the one that best keeps the similarities of the training texts."
            if vectors
            else "The teacher outputs the weighted mean of the members' probabilities."
        )
        for task, of_task in weights.items():
            shares = ", ".join(f"{100 * weight / sum(of_task):.0f}%" for weight in of_task)
            yield f"Weights of the members on {task}: {shares}."
    if isinstance(settings, Train) and settings.folds > 1:
        yield (
            f"For a task's training rows students learn the outputs of {settings.folds} further teachers, each of "
            "a model that was not trained on the row (stages.*.folds), where the teacher was fine-tuned by this run."
        )
    if isinstance(settings, Train) and has_own_seed(given.config, settings):
        yield (
            f"Where the teacher was fine-tuned by this run, it was with the seed {given.config.teacher.seed} "
            "(teacher.seed), as in runs with other seeds. An interval over the seeds of such runs is for this one "
            "teacher: it has the variance of the students' trainings, and none of the teacher's."
        )
    if (window := given.config.teacher.window) is not None:
        yield (
            f"The teacher processes texts in windows of at most {window} tokens. Scores and timings of a longer text "
            "are those of all its windows."
        )


def of_rows(given: GivenModels, tasks: Collection[str]) -> Iterator[str]:
    """Notes on few training rows, and on tasks with rows on which the teacher was trained before."""
    if given.config.limit.examples is not None:
        yield f"Training used at most {given.config.limit.examples} examples of each task."
    embedded = given.config.teacher.kind == "embedded" and not given.is_random(given.teacher)
    if embedded and {"mnli", "qqp", "qnli", "stsb"} & set(tasks):
        yield (
            "The embedded teacher was trained on MultiNLI, Quora duplicates and SQuAD, which are the sources of MNLI, "
            "QQP and QNLI, and on captions of Flickr30k, from which a part of STS-B comes."
        )


def of_baseline(config: Config, plan: Plan, folder: RunFolder, embeds: bool) -> Iterator[str]:
    """What the baseline, and the self-trained student, have in common with the student; and a student without a
    teacher, which is a baseline itself. `embeds`: whether a task has embedders."""
    if plan.untaught(embeds):
        yield "The student learned from the labels alone, and from no teacher: it is what other recipes compare with."
    if any(step.settings.role == SELF_TRAINED for step in plan.of(Train)):
        yield (
            "The self-trained student starts as the baseline does, and is trained for as many steps. It learns the "
            "labels and, for the same rows as the student, the outputs of the baseline in the teacher's place. What "
            "the student retains beyond it does not come from more rows."
        )
    cut_for_all = [step for step in plan.of(Train) if step.source("shape_of") is not None]
    if cut_for_all and any(step.settings.role == BASELINE for step in plan.of(Train)):
        tokens = max(folder.result(step, artefacts.Trained).tokens for step in cut_for_all)
        yield (
            "The baseline is a student of the same shape, cut from the task's fine-tuned teacher and trained for the "
            "same number of steps on the labelled rows without a teacher. The student was cut from the given teacher "
            f"and distilled on {tokens:,} tokens of a corpus before it learned the task."
        )
    elif len(plan.pruners) < len(plan.of(Prune)):
        yield (
            "The baseline is a student of the same shape, trained without a teacher, for the same number of steps, on "
            "the labelled rows. The one of the slowest target starts from the same pruned model as its student"
            + (", which was distilled from a teacher before; " if plan.taught_start else "; ")
            + "each other is cut from the baseline of the target before it."
        )
    elif any(step.settings.role == BASELINE for step in plan.of(Train)):
        start = {
            "teacher_layers": "layers copied from the teacher",
            STATIC: "vectors of tokens that the teacher made",
        }.get(config.student.init, "random weights")
        start = "the given student" if plan.given_student else start
        start = "the pruned model" if plan.of(Prune, Vocabulary) else start
        start += ", which was distilled from a teacher" if plan.taught_start else ""
        yield (
            f"The baseline is the same student with the same initial weights ({start}), trained for the same number of "
            "steps on the labelled rows without a teacher."
        )


def of_pruning(plan: Plan) -> Iterator[str]:
    """Notes on models that are pruned one from the other, and on layers of different sizes."""
    if any(step.first_pruner is not step for step in plan.pruners):
        yield (
            "The models of the targets are pruned one from the other: the slowest from the unpruned one, each other "
            "from the student that recovered for the target before it."
        )
    if any(not step.settings.uniform for step in plan.of(Prune)):
        yield (
            "The student's layers differ in their numbers of heads and FFN channels, which a transformers config "
            "cannot express. Its checkpoint therefore contains zeros in place of the pruned weights, and is neither "
            "smaller nor faster in torch. Its ONNX files do not contain these zeros."
        )


def of_budget(folder: RunFolder) -> list[str]:
    """Sentences on what a run with a budget tried; empty without a budget."""
    file = folder.ladder
    sentences: list[str] = atomic.read_json(file).get("account", []) if file.is_file() else []
    return sentences


def of_transfer(plan: Plan, folder: RunFolder, tasks: Collection[str]) -> Iterator[str]:
    """Notes on the rows without labels, of the training that used most of them."""
    steps = [step for step in plan.of(Train) if step.settings.transfer and folder.finished(step)]
    for task in tasks if steps else ():
        files = [folder.of(step) / task / run_folder.MANIFEST for step in steps]
        sets = [made for file in files if (made := structs.read(file, artefacts.TaskModel).transfer) is not None]
        if sets:
            most = max(sets, key=lambda made: made.used or 0)
            yield f"{described(task, most)}. Students learned from {most.used:,} of them."


def of_tries(plan: Plan, folder: RunFolder) -> Iterator[str]:
    """Notes on models that collapsed, and on learning rates at an end of what was tried."""
    for step in plan.of(Train):
        for tried in tried_in(folder.of(step)) if folder.finished(step) else ():
            part = tried.task if tried.member is UNSET else f"{tried.member}/{tried.task}"
            yield from (f"{step.folder}/{part}: {line}." for line in warnings(tried))


def of_vocabulary(plan: Plan, folder: RunFolder) -> Iterator[str]:
    """How many tokens are kept, and what they cover."""
    for step in plan.of(Vocabulary):
        small = folder.result(step, artefacts.SmallVocabulary)
        yield (
            f"The vocabulary has {small.tokens:,} of its original {small.tokens_before:,} tokens. They cover "
            f"{100 * small.share_of_texts:.2f}% of the token occurrences in the {' and '.join(step.settings.texts)}."
        )


def of_quantized(plan: Plan, folder: RunFolder) -> Iterator[str]:
    """Notes on quantized variants: which are scored with batch size 1, and which modules stay in float."""
    steps = plan.of(Quantize)
    names = dict.fromkeys(name for step in steps for name in step.settings.schemes)
    for scheme in (SCHEMES[name] for name in names if SCHEMES[name].row_by_row):
        yield (
            f"{scheme.backend} {scheme.scheme} is scored and timed one row at a time, as distill.load runs it: its "
            "activations have one scale for the whole batch, so that the logits of a row depend on the other rows."
        )
    for step in filter(folder.finished, steps):
        for task, kept in folder.result(step, artefacts.Quantized).kept.items():
            for name, modules in kept.items():
                scheme = SCHEMES[name]
                model = f"{step.folder}/{task}"
                yield f"{model}: {scheme.backend} {scheme.scheme} keeps these modules in float: {', '.join(modules)}."
