"""What the stages of a config make of each other: whose models they leave, and one stage for each of several targets.

A target may be a list: one run then makes a model for each of its values, and compares them all.
"""

from __future__ import annotations

from dataclasses import replace

from distill.config import REFERENCES, Config, Evaluate, Export, Prune, Stage, Target, Train, Vocabulary

UNITS = {"speedup": "x", "latency_ms": "ms", "size_mib": "MiB"}
"""What a shape is searched for by -> what the model made for it is called by, e.g. `2x`."""


def has_target(config: Config) -> bool:
    """Whether the sizes of a pruned model are to be found."""
    return any(getattr(config.target, name) is not None for name in UNITS)


def goals(config: Config) -> dict[str, Target]:
    """Label -> target of each model that a prune stage makes; one without a label where no target is a list."""
    for name, unit in UNITS.items():
        values = getattr(config.target, name)
        if isinstance(values, list):
            return {f"{value:g}{unit}": replace(config.target, **{name: value}) for value in values}
    return {"": config.target}


def unrolled(config: Config) -> Config:
    """The config with a stage for each goal, `recover/2x` for `recover`, of all that goes on from a pruned model.

    A prune stage makes all its models, in `prune/2x` and so on, from one set of measurements; an evaluate stage
    compares them all.
    """
    labels = [label for label in goals(config) if label]
    if not labels:
        return config
    stages, pipeline, several = dict(config.stages), list[str](), set[str]()
    for name in config.pipeline:
        stage = config.stages[name]
        if isinstance(stage, Prune):
            pipeline.append(name)
            several.add(name)
        elif not isinstance(stage, Evaluate) and any(getattr(stage, key, None) in several for key in REFERENCES):
            pipeline += [f"{name}/{label}" for label in labels]
            several.add(name)
        else:
            pipeline.append(name)
    for name in several:
        for label in labels:
            named = {key: getattr(stages[name], key, None) for key in REFERENCES}
            own = {key: f"{other}/{label}" for key, other in named.items() if other in several}
            stages[f"{name}/{label}"] = replace(stages[name], **own)
    return replace(config, stages=stages, pipeline=pipeline)


def made_by(config: Config, name: str) -> list[str]:
    """The stages that stand for one of the recipe: itself, or those of its goals."""
    return [found for label in goals(config) if (found := f"{name}/{label}") in config.stages] or [name]


def references(config: Config, stage: Stage) -> list[str]:
    """Every stage that a stage is made from."""
    named = dict.fromkeys(getattr(stage, key, None) for key in REFERENCES)
    return [found for name in named if name in config.stages for found in made_by(config, str(name))]


def ancestry(config: Config, name: str) -> list[str]:
    """A stage, the one whose checkpoints it goes on from, and so on; last what is given, `teacher` or `student`."""
    found: list[str] = []
    while name not in found:  # a circle is told of elsewhere
        found.append(name)
        name = getattr(config.stages.get(name), "start", None) or name
    return found


def of_student(config: Config, name: str) -> bool:
    """Whether what a stage leaves is a student's: given, built there, or made of what an earlier stage left."""
    line = ancestry(config, name)
    made = (config.stages.get(other) for other in line)
    built = any(isinstance(stage, Vocabulary) or getattr(stage, "build_student", False) for stage in made)
    return built or line[-1] == "student"


def taught_start(config: Config) -> bool:
    """Whether what a baseline starts from was made with a teacher."""
    for name in config.pipeline:
        stage = config.stages[name]
        if isinstance(stage, Train) and stage.role == "baseline":
            made = (config.stages.get(other) for other in ancestry(config, name)[1:])
            if any(isinstance(one, Train) and one.role == "student" and one.teacher is not None for one in made):
                return True
    return False


def cut_by(config: Config, name: str) -> str | None:
    """The vocabulary stage that what a stage leaves was made from, or that is itself; None if there is none."""
    return next((n for n in ancestry(config, name) if isinstance(config.stages.get(n), Vocabulary)), None)


EMBEDDER = "embedder"
"""What an embedder is exported as, where models of tasks are called by their task."""


def embeds(config: Config, name: str) -> bool:
    """Whether a stage exports an embedder: what learned vectors on a corpus, and no task."""
    stage = config.stages[name]
    start = config.stages.get(stage.start) if isinstance(stage, Export) else None
    return isinstance(start, Train) and start.data == "corpus"


def given_student(config: Config) -> bool:
    """Whether the recipe's student is a pretrained one, with its own tokenizer, and not built from the teacher."""
    stages = (config.stages[name] for name in config.pipeline if name in config.stages)
    return any(isinstance(stage, Train) and stage.start == "student" for stage in stages)
