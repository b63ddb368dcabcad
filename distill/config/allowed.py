"""Which values a setting may have: rules that stand in the metadata of the dataclass fields."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True)
class Rule:
    """Which values a setting may have. null is always allowed: where it is not, the type of the setting refuses it."""

    valid: Callable[[Any], bool]
    words: str
    """The rule in a message, after "must be"."""
    advice: str
    """What to do, at the end of a message."""


Metadata = dict[Any, Any]
"""Metadata of a field. `Rule` -> the rule for its value or for each value in a list; for a mapping, a dictionary of the
rules for its members by name, in which `*` stands for any name."""


def above(low: float, advice: str, *, below: float = math.inf) -> Metadata:
    """The setting must be a number between two others. The two themselves are refused."""
    words = f"> {low}" if below == math.inf else f"between {low} and {below}"
    return matching(lambda value: isinstance(value, int | float) and low < value < below, words, advice)


def at_least(low: float, advice: str, *, at_most: float = math.inf, words: str | None = None) -> Metadata:
    """The setting must be a finite number from `low` to `at_most`."""
    words = words or (f">= {low}" if at_most == math.inf else f"from {low} to {at_most}")
    return matching(lambda x: isinstance(x, int | float) and low <= x <= at_most and math.isfinite(x), words, advice)


def one_of(*names: str, advice: str, words: str | None = None) -> Metadata:
    """The setting must be one of these names."""
    return matching(lambda value: value in names, words or f"{', '.join(names[:-1])} or {names[-1]}", advice)


def pattern(regular: str, words: str, advice: str) -> Metadata:
    """The setting must be a text that a regular expression matches as a whole."""
    return matching(lambda x: isinstance(x, str) and re.fullmatch(regular, x) is not None, words, advice)


def matching(valid: Callable[[Any], bool], words: str, advice: str) -> Metadata:
    """The setting must be a value for which a function is true."""
    return {Rule: Rule(valid, words, advice)}


def members(rules: Mapping[str, Metadata]) -> Metadata:
    """The setting is a mapping, each member of which has a rule."""
    return {Rule: {name: metadata[Rule] for name, metadata in rules.items()}}


def ruled(value: Any, rule: Any = None, key: str = "") -> Iterator[tuple[str, Any, Rule]]:
    """(dotted key, value, rule) of each setting with a rule in a tree of dataclasses and mappings."""
    if is_dataclass(value):
        settings = [(each.name, getattr(value, each.name), each.metadata.get(Rule)) for each in fields(value)]
        # A list is of several targets, each of which is a number.
        parts = [(name, one, own) for name, got, own in settings for one in (got if isinstance(got, list) else [got])]
    elif isinstance(value, Mapping):
        rules = rule if isinstance(rule, Mapping) else {}
        parts = [(str(name), part, rules.get(name, rules.get("*"))) for name, part in value.items()]
    else:
        if isinstance(rule, Rule):
            yield key, value, rule
        return
    for name, part, own in parts:
        yield from ruled(part, own, f"{key}.{name}" if key else name)
