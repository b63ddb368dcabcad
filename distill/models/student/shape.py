"""The student's config, from the teacher's config and the sizes in `student.*`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeGuard, cast

from distill.config import Student
from distill.errors import ConfigError
from distill.models import families
from distill.models.families.record import UNBOUNDED
from distill.models.families.settings import OLD
from distill.models.families.vectors import KEY
from distill.runtime import quoting

SIZES = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
"""Settings of `student.*` that are sizes."""

_ALIKE = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps", "initializer_range")
"""Settings that a student of another family copies from the teacher where both families have BERT's architecture."""

_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")

_LONGEST = 512
"""Rows of the student's position embedding where the teacher has none."""


def student_config(teacher: Any, layers: Sequence[int], family: str | None, sizes: Mapping[str, int | None]) -> Any:
    """Config of a student that starts from the layers `layers` of a teacher with config `teacher`.

    `family` is the student's; None for the teacher's. `sizes` has values for the names in SIZES. A missing or None
    `hidden_size` is the teacher's; heads and FFN channels are then in proportion to the hidden size.

    Raises:
        ConfigError: for layers that the teacher does not have, and for sizes that the family does not allow.
    """
    check_layers(layers, teacher)
    record = _record(teacher, family)
    values = _sizes(teacher, record, sizes) | {"num_hidden_layers": len(layers)}
    if record.name == teacher.model_type:
        config = copy.deepcopy(teacher)
        for key, value in values.items():
            setattr(config, record.settings.get(key, key), value)
        if getattr(config, "layer_types", None):
            config.layer_types = [config.layer_types[number] for number in layers]
        _set_followers(config, teacher)
        for old, (name, _) in OLD.get(record.name, {}).items():
            if name in values and hasattr(config, old):
                setattr(config, old, values[name])
        return config
    return _of_another_family(teacher, record, values)


def _set_followers(config: Any, teacher: Any) -> None:
    """Set what some configs store beside the sizes from which it follows."""
    if hasattr(config, "pooler_hidden_size"):
        config.pooler_hidden_size = config.hidden_size
    if getattr(config, "prediction_head_size", None) == teacher.hidden_size:  # of the same channels
        config.prediction_head_size = config.hidden_size
    own = config.model_type.startswith("deberta")  # others project narrower embeddings
    if own and getattr(config, "embedding_size", None) == teacher.hidden_size:
        config.embedding_size = config.hidden_size
    # Heads may have another size than the width over their number, in teachers whose models are timed.
    widths = [(each.hidden_size, each.num_attention_heads) for each in (config, teacher)]
    for name in ("attention_head_size", "head_dim") if widths[0] != widths[1] else ():
        if getattr(config, name, None) is not None:
            setattr(config, name, config.hidden_size // config.num_attention_heads)
    if getattr(config, "num_key_value_heads", None) is not None:
        heads, group = config.num_attention_heads, heads_in_group(teacher)
        config.num_key_value_heads = heads // (group if heads % group == 0 else 1)


def setting(config: Any, name: str) -> Any:
    """Value of a config's setting by its common name (`hidden_size`), whatever the family calls it (`dim`)."""
    return getattr(config, families.family_of(config).settings.get(name, name))


def heads_in_group(config: Any) -> int:
    """Number of heads that share keys and values: 1, except in EuroBERT of some sizes."""
    heads = int(config.num_attention_heads)
    return heads // int(getattr(config, "num_key_value_heads", None) or heads)


def check_type(config: Any, key: str, action: str = "choose such a model") -> None:
    """Raise ConfigError, about the argument `key`, for a model of a family that can only be a teacher.

    Args:
        action: what to do then.
    """
    if config.model_type not in families.STUDENTS:
        types = ", ".join(families.STUDENTS)
        raise ConfigError(f"{key}: got a model of type {config.model_type}; must be one of {types}; {action}")


def check_layers(layers: Sequence[int], config: Any) -> None:
    """Raise ConfigError unless `layers` are distinct ascending numbers of layers that a model of this config has."""
    depth, record = int(config.num_hidden_layers), families.family_of(config)
    shown = ",".join(map(str, layers))
    if record.first_layer and layers and layers[0] != 0:
        raise ConfigError(
            f"student.layers: got [{shown}]; must begin with 0, because the first layer of {record.name} has other "
            "modules than the others; put 0 in front"
        )
    ascending = list(layers) == sorted(set(layers))
    if not layers or not ascending or layers[0] < 0 or layers[-1] >= depth:
        example = quoting.setting("student.layers", [*half_depth(depth)])
        raise ConfigError(
            f"student.layers: got [{shown}]; must be distinct ascending layer numbers of the "
            f"teacher, 0 to {depth - 1}; leave it out for half of them, or set {example}"
        )


def initial_layers(settings: Student, depth: int) -> list[int]:
    """The layers, of `depth` layers of a model, from which a student starts: `layers`, or `num_hidden_layers` evenly
    spaced ones, or half of them."""
    count = settings.num_hidden_layers
    return settings.layers or (half_depth(depth) if count is None else evenly(depth, count))


def half_depth(n: int) -> list[int]:
    """Half of `n` layers, evenly spaced from the first to the last: 12 -> [0, 2, 4, 7, 9, 11].

    After Sanh et al. 2019, arXiv 1910.01108, section 3, who take one layer out of two.
    """
    return evenly(n, max(n // 2, 1))


def evenly(n: int, count: int) -> list[int]:
    """`count` of `n` layers, evenly spaced from the first to the last."""
    return [round(i * (n - 1) / max(count - 1, 1)) for i in range(count)]


def _record(teacher: Any, family: str | None) -> families.Family:
    if family is not None and family not in families.STUDENTS:
        raise ConfigError(
            f"student.family: got {family}; must be one of {', '.join(families.STUDENTS)}; set null for the teacher's"
        )
    record = families.FAMILIES[family] if family is not None else families.family_of(teacher)
    if record.padding not in (None, teacher.pad_token_id):
        raise ConfigError(
            f"student.family: got {record.name}; must be a family that can pad with token {teacher.pad_token_id}, as "
            f"the tokenizer does ({record.name} pads with {record.padding}); choose another family or student.tokenizer"
        )
    return record


def _sizes(teacher: Any, record: families.Family, given: Mapping[str, int | None]) -> dict[str, int]:
    families.check_head_size(teacher)
    hidden = given.get("hidden_size") or teacher.hidden_size
    heads, size = given.get("num_attention_heads"), teacher.hidden_size // teacher.num_attention_heads
    if heads is not None and hidden % heads:
        raise ConfigError(
            f"student.num_attention_heads: got {heads}; must divide the student's width, {hidden}; set "
            f"{max(hidden // size, 1)} to keep the size of the teacher's heads"
        )
    if heads is None and hidden % size:
        raise ConfigError(
            f"student.hidden_size: got {hidden}; must be a multiple of {size}, the size of the teacher's heads; set a "
            "multiple, or student.num_attention_heads as well"
        )
    if not given.get("intermediate_size") and not _has(teacher, "intermediate_size"):
        raise ConfigError(
            f"student.intermediate_size: got none; must be a number for a teacher of type {teacher.model_type}, whose "
            "config has no such size; set it"
        )
    ffn = given.get("intermediate_size") or setting(teacher, "intermediate_size") * hidden // teacher.hidden_size
    sizes = {"hidden_size": hidden, "num_attention_heads": heads or hidden // size, "intermediate_size": ffn}
    embedding = given.get("embedding_size")
    if record.bert_like is not None and record.bert_like.projection is not None:
        return sizes | {"embedding_size": embedding or (teacher.embedding_size if projects(teacher) else hidden)}
    if embedding not in (None, hidden):
        others = (r.name for r in families.FAMILIES.values() if r.bert_like and r.bert_like.projection)
        raise ConfigError(
            f"student.embedding_size: got {embedding}; must be left out in family {record.name}, whose embeddings are "
            f"as wide as its layers; set {quoting.setting('student.family', next(others))}"
        )
    return sizes


def projects(config: Any) -> bool:
    """Whether models of this config have a linear projection between embeddings and layers."""
    shape = families.family_of(config).bert_like
    if shape is None or shape.projection is None:
        return False
    return shape.always_projects or config.embedding_size != config.hidden_size


def _of_another_family(teacher: Any, record: families.Family, sizes: Mapping[str, int]) -> Any:
    from transformers import AutoConfig

    blank = AutoConfig.for_model(record.name)
    values: dict[str, Any] = {"vocab_size": teacher.vocab_size, **sizes}
    values |= {name: getattr(teacher, name, None) for name in _TOKENS if hasattr(blank, name)}
    if record.bert_like and families.family_of(teacher).bert_like:
        values |= {name: setting(teacher, name) for name in _ALIKE if _has(teacher, name) and _has(blank, name)}
    if record.token_types:
        values["type_vocab_size"] = max(getattr(teacher, "type_vocab_size", 2), 2)
    named = {record.settings.get(name, name): value for name, value in values.items()}
    config = AutoConfig.for_model(record.name, **(named | dict(record.published)))
    longest = families.max_length(teacher)
    longest = _LONGEST if longest >= UNBOUNDED else longest
    if families.max_length(config) < UNBOUNDED:
        config.max_position_embeddings += longest - families.max_length(config)
    config.id2label, config.label2id = dict(teacher.id2label), dict(teacher.label2id)
    config.problem_type = teacher.problem_type
    if hasattr(teacher, KEY):
        setattr(config, KEY, getattr(teacher, KEY))
    return config


def _has(config: Any, name: str) -> bool:
    return hasattr(config, families.family_of(config).settings.get(name, name))


def is_count(layers: int | Iterable[int]) -> TypeGuard[int]:
    """Whether layers are counted, and not named by their numbers."""
    if isinstance(layers, bool):
        raise ConfigError(f"layers: got {layers}; must be a number of layers, or their numbers; correct it")
    return isinstance(layers, Integral) or getattr(layers, "ndim", 1) == 0


def numbers_of(depth: int, layers: int | Iterable[int]) -> list[int]:
    """Numbers of layers: `layers` of `depth` evenly spaced, or those given. ConfigError for a count out of range."""
    if not is_count(layers):
        if not (numbers := [int(each) for each in cast(Iterable[int], layers)]):
            raise ConfigError("layers: got none; must be one layer or more; name them")
        return numbers
    layers = int(layers)
    if not 1 <= layers <= depth:
        raise ConfigError(f"layers: got {layers}; must be from 1 to {depth}, the number that the model has; set fewer")
    return evenly(depth, layers)
