"""The classifier in a model folder, read from its config and from the headers of its weights. Without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.errors import DataError
from distill.models.families import vectors
from distill.models.families.names import check_names, without_outer
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS, VECTORS
from distill.models.families.records import FAMILIES
from distill.models.families.sentence import check_no_prompt
from distill.models.families.weights import CONFIG, Tensor, config_of, tensors_of, weight_files
from distill.runtime import outside

HEADS: dict[str, tuple[str, ...]] = {
    TEXTS: tuple(sorted({family.head for family in FAMILIES.values()})),
    TOKENS: ("classifier", "score"),
    CHOICES: ("classifier", "logits_proj"),
    ANSWERS: ("qa_outputs", "classifier"),
    VECTORS: ("dense",),
}
"""Architecture -> names of its last linear layer, which depend on the family. Many embedders have none."""
outside.registry("heads", HEADS)


@dataclass(frozen=True)
class Head:
    """The head of a fine-tuned model, or the modules that make an encoder an embedder."""

    outputs: int
    labels: tuple[str, ...]
    """Names of the outputs; empty if the config has only transformers' defaults, `LABEL_0` and so on."""
    problem: str | None
    """`problem_type` of the config."""
    architecture: str = TEXTS
    """A key of `HEADS`."""
    prompts: tuple[str, str] = ("", "")
    """The prompts of an embedder before a query and before a document."""
    prompt: str = ""
    """The prompt of an embedder before any other text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The labels or, without these, the numbers of the outputs."""
        return self.labels or tuple(map(str, range(self.outputs)))


OF_TASKS = (TEXTS, TOKENS, CHOICES, ANSWERS)
"""The architectures of transformers."""
REGRESSION, ONE_OF_SEVERAL, SEVERAL = "regression", "single_label_classification", "multi_label_classification"
"""Values of `problem_type`."""


def stored_head(folder: str | Path) -> Head | None:
    """The head in a model folder; None for a model without one.

    Raises:
        DataError: for a folder that cannot be read, and for a head that cannot be used or is stated in two ways.
    """
    if not (Path(folder) / CONFIG).is_file():
        vectors.read(folder)  # which has a message about a model in a sub-folder
    config = config_of(folder)
    if architecture_of(_classes(folder, config)):
        check_no_prompt(folder)
    elif (embedder := vectors.read(folder)) is not None:
        return _embedder(folder, config, embedder)
    found = _found(Path(folder), config)
    if found is None:
        return None
    architecture, outputs = found
    problem = config.get("problem_type")
    if architecture == TEXTS:
        _check_problem(Path(folder) / CONFIG, problem, outputs)
    labels = _names(Path(folder) / CONFIG, config, outputs, architecture)
    return Head(outputs, labels, problem, architecture)


def _embedder(folder: str | Path, config: Mapping[str, Any], found: vectors.Vectors) -> Head:
    """The head that makes an encoder an embedder."""
    weight_files(folder)
    width = found.width or config.get("hidden_size") or config.get("dim") or 1
    return Head(int(width), (), None, VECTORS, found.pair_of_prompts, found.prompt)


def _classes(folder: str | Path, config: Mapping[str, Any]) -> Any:
    """The classes that a config names for its model; of an embedder the first, which sentence-transformers loads."""
    named = config.get("architectures")
    return named[:1] if isinstance(named, list) and vectors.embeds(folder) else named


def architecture_of(names: Sequence[Any] | None) -> str | None:
    """The architecture in `HEADS` of the first of these class names that has one.

    The name of another class counts if it contains the purpose of the architecture, as in
    `BertForMultiLabelSequenceClassification`.
    """
    listed = [str(name) for name in names] if isinstance(names, list | tuple) else []
    exact = next((head for name in listed for head in HEADS if head in name), None)
    return exact or next((head for name in listed for head in OF_TASKS if head.removeprefix("For") in name), None)


def names_of_class(model: Any) -> list[str]:
    """Names of a model's class and of those that it extends, which `architecture_of` takes. A model with adapters has
    those of its base: peft's own class tells the head only where the adapter states its task."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return [each.__name__ for each in type(base).__mro__]


def architecture_in(folder: str | Path) -> str | None:
    """The architecture of the head in a folder, also of one that cannot be used; None without a head.

    Raises:
        DataError: for a folder that cannot be read.
    """
    config = config_of(folder)
    if not architecture_of(_classes(folder, config)) and vectors.embeds(folder):
        return VECTORS
    found = _found(Path(folder), config)
    return None if found is None else found[0]


def _found(folder: Path, config: Mapping[str, Any]) -> tuple[str, int] | None:
    """Architecture and number of outputs of the head in a folder; None without a head."""
    file, names = folder / CONFIG, class_names(config)
    tensors = without_outer(folder, config, tensors_of(folder))
    check_names(folder, config, tensors)
    parts = {architecture_of([name]) for name in names} - {None}
    if len(parts) > 1:
        raise DataError(
            f"{file}: got architectures {', '.join(names)}; must be one class, because the head is read by its name; "
            "keep the one that was trained"
        )
    architecture = next(iter(parts), None)
    if architecture is None:
        found = {each: outputs for each in OF_TASKS if (outputs := _outputs(tensors, each)) is not None}
        if found and names:
            raise DataError(
                f"{file}: got architectures {', '.join(names)}, and weights of a head ({_last(tensors, found)}); must "
                f"be the class of the head, e.g. {_example(config)}, or weights without a head; correct architectures, "
                "or save the encoder alone"
            )
        return next(iter(found.items()), None)
    rows = _outputs(tensors, architecture)
    if rows is None:
        record = FAMILIES.get(str(config.get("model_type")))
        last = (record.head,) if record is not None and architecture == TEXTS else HEADS[architecture]
        wanted = " or ".join(f"{name}.weight" for name in last)
        raise DataError(
            f"{folder}: got no {wanted} in the weights; must have it, because {CONFIG} states {', '.join(names)}; save "
            "the whole model again with save_pretrained"
        )
    return architecture, rows


def stores_rtd_head(folder: str | Path) -> bool:
    """Whether a folder has the weights of a head for replaced-token detection.

    Raises:
        DataError: for a folder that cannot be read.
    """
    record = FAMILIES.get(str(config_of(folder).get("model_type")))
    head = None if record is None else record.rtd_head
    return head is not None and any(name.startswith(f"{head}.") for name in tensors_of(folder))


def class_names(config: Mapping[str, Any]) -> list[str]:
    """The classes that a config states."""
    stated = config.get("architectures") or []
    return [str(name) for name in stated] if isinstance(stated, list | tuple) else [str(stated)]


def _last(tensors: Mapping[str, Tensor], found: Mapping[str, int]) -> str:
    """Name of the weights of the last layer of a head."""
    names = (f"{name}.weight" for each in found for name in HEADS[each])
    return next(name for name in names if name in tensors)


def _example(config: Mapping[str, Any]) -> str:
    record = FAMILIES.get(str(config.get("model_type")))
    words = re.split("[-_]", record.name if record else "bert")
    return "".join(map(str.title, words)) + TEXTS


def _check_problem(file: Path, problem: Any, outputs: int) -> None:
    """Raise DataError for a number of outputs that the problem cannot have."""
    if problem == REGRESSION and outputs > 1:
        raise DataError(
            f"{file}: got {outputs} outputs of a regression (problem_type); must be one, because several numbers for a "
            "text are no kind of task here; train a model with one output for each number, or set teacher.head=new to "
            "use its encoder alone"
        )
    if problem == ONE_OF_SEVERAL and outputs == 1:
        raise DataError(
            f"{file}: got one output with problem_type {ONE_OF_SEVERAL}; must be {REGRESSION} if it is a number, or "
            f"{SEVERAL} if its sigmoid is a probability; correct problem_type"
        )


def _names(file: Path, config: Mapping[str, Any], outputs: int, architecture: str) -> tuple[str, ...]:
    """Names of the outputs as from `without_defaults`, by id2label or else by label2id; empty too where the config does
    not name each of them."""
    stored = config.get("id2label") or {}
    try:
        names = {int(number): str(name) for number, name in stored.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(
            f"{file}: got id2label that is no list of names by number ({error}); must name each output; correct it"
        ) from error
    if names and sorted(names) != list(range(outputs)) and architecture in (TEXTS, TOKENS):
        raise DataError(
            f"{file}: got names of {len(names)} outputs in id2label, and a head of {outputs}; must be a name for each "
            "output, numbered from 0; correct id2label and label2id"
        )
    labels = tuple(names[number] for number in range(outputs)) if sorted(names) == list(range(outputs)) else ()
    if twice := [name for number, name in enumerate(labels) if name in labels[:number]]:
        raise DataError(
            f"{file}: got the name {twice[0]!r} for several outputs in id2label; must be another name for each output, "
            "because predictions name them; correct id2label and label2id"
        )
    return without_defaults(labels) or by_number(config.get("label2id"), outputs)


def by_number(numbers: Any, outputs: int) -> tuple[str, ...]:
    """The names that label2id states for the outputs; empty unless it has one for each, and none of transformers'
    defaults. A training that sets label2id alone leaves these in id2label."""
    stated = numbers if isinstance(numbers, Mapping) else {}
    names = {str(number): str(name) for name, number in stated.items()}
    whole = len(stated) == outputs and {*names} == {*map(str, range(outputs))}
    if not whole or any(re.fullmatch(r"LABEL_\d+", name) for name in names.values()):
        return ()
    return tuple(names[str(number)] for number in range(outputs))


def without_defaults(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a model's outputs; empty if they are transformers' defaults, `LABEL_0` and so on."""
    return () if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else names


def _outputs(tensors: Mapping[str, Tensor], architecture: str) -> int | None:
    """Number of rows of the weight matrix of the last layer of a head; None without one."""
    for name in HEADS[architecture]:
        tensor = tensors.get(f"{name}.weight")
        if tensor is not None and tensor.shape:
            return tensor.shape[0]
    return None
