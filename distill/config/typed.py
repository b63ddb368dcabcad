"""Reads settings typed in a shell: names in any script, paths with brackets, codes that look like numbers.

Hydra's grammar has no such characters outside of quotes, which a shell removes, and reads 005.740 as a number. Here a
word is put in quotes where Hydra refuses its value, and where the setting is a text but Hydra would make a number, a
boolean or null of it. A value that could still be two things stays, and Hydra refuses it.
"""

from __future__ import annotations

import functools
import os
import re
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf._utils import get_yaml_loader

from distill.config import data, stages
from distill.runtime import quoting

FLAGS_WITH_VALUE = frozenset(
    "--config-dir -cd --config-path -cp --config-name -cn --package -p --cfg -c --info -i --experimental-rerun".split()
)
"""Hydra's options that are followed by a value."""
_INFO = frozenset({"--info", "-i"})
"""Of these, those whose value may be left out."""
_GROUPS = {"stage": stages.Stage, "term": stages.Term}
"""Group whose options may be put anywhere in the settings -> the type of its options."""
_ESCAPE = re.compile(r"\\[\\()\[\]{}:=, \t]")
"""The escapes that Hydra reads outside of quotes."""
_PLAIN = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
"""Texts that Hydra reads as they are written, except `_WORDS`. Most of the time is saved by not parsing them."""
_WORDS = frozenset({"true", "false", "null", "nan", "inf"})
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_CALL = re.compile(r"[A-Za-z_]\w*\s*\(.*\)", re.ASCII | re.DOTALL)
"""A function of Hydra's grammar, such as `range(3)` or `glob(*)`."""


def options_last(words: Sequence[str]) -> list[str]:
    """The words of a command line with Hydra's options after the settings: it takes none between them, and would read a
    setting after `--info` as its value."""
    options, settings = list[str](), list[str]()
    for before, word in zip(["", *words], words, strict=False):
        (options if word.startswith("-") or is_value(before, word) else settings).append(word)
    return [*settings, *options]


def is_value(before: str, word: str) -> bool:
    """Whether a word is the value of the option before it, and no setting."""
    return before in FLAGS_WITH_VALUE and not (before in _INFO and ("=" in word or word.startswith("~")))


def words(typed: Sequence[str], schema: type) -> list[str]:
    """The words of a command line, with each setting changed so that Hydra reads it as it was meant. A second call
    changes nothing."""
    sweep = bool({"-m", "--multirun"} & {*typed})
    before = ["", *typed]
    return [
        word if word.startswith("-") or is_value(last, word) else _word(word, schema, sweep)
        for last, word in zip(before, typed, strict=False)
    ]


def from_yaml(text: str, schema: Any) -> Any:
    """The content of a YAML file of settings, of the type `schema`, with each text as it is written: YAML reads no as
    false, and 1.10 as 1.1."""
    loader = get_yaml_loader()(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _keep(node, schema, False)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _keep(node: yaml.Node, kind: Any, in_list: bool) -> None:
    if isinstance(node, yaml.SequenceNode):
        for part in node.value:
            _keep(part, _element(kind), True)
    elif isinstance(node, yaml.MappingNode):
        for name, part in node.value:
            _keep(part, kind if name.tag.endswith(":merge") else _below(kind, str(name.value)), False)
    elif holds_text(kind) and (in_list or not node.tag.endswith(":null")):
        node.tag = "tag:yaml.org,2002:str"


@functools.lru_cache(maxsize=512)
def parsed(word: str) -> Override | None:
    """An override as Hydra reads it; None if its grammar refuses it."""
    try:
        return OverridesParser.create().parse_override(word)
    except (HydraException, RecursionError):
        return None


def of_file(schema: Any, names: Sequence[str]) -> Any:
    """The type of what is in a config file whose settings have these names before them; None if it is not known."""
    kind = texts(schema, names)
    return _GROUPS.get(names[0]) if kind is None else kind


def texts(schema: Any, names: Sequence[str]) -> Any:
    """The type of the setting with these names below `schema`; None if there is no such setting."""
    for name in names:
        schema = _below(schema, name)
    return schema


def elements(value: str) -> list[str]:
    """The parts of a value between its commas. Commas in brackets and in quotes do not count."""
    return [part.strip(" \t") for part in _split(value, ",")]


def holds_text(kind: Any) -> bool:
    """Whether a setting of this type is a text, or may be one."""
    return kind is data.Texts or _plain(kind) is str


def holds_list(kind: Any) -> bool:
    """Whether a setting of this type is a list, or may be one."""
    return kind in (data.Texts, Any) or get_origin(_plain(kind)) is list


def unescaped(value: str) -> str:
    """A value without the escapes, as Hydra would read it if its grammar had the other characters of the value."""
    return _ESCAPE.sub(lambda found: found[0][1:], value)


def _word(word: str, schema: type, sweep: bool) -> str:
    key, equals, value = word.partition("=")
    if not equals or key.startswith("~") or parsed(f"{key}=x") is None:
        return word
    read, kind = parsed(word), texts(schema, key.lstrip("+").partition("@")[0].split("."))
    if read is not None and (not _has_text(kind) or (read.is_sweep_override() and not sweep)):
        return word
    if value and not value.strip() and holds_text(kind):  # a tab, which Hydra would leave out
        return f"{key}={quoting.quoted(value)}"
    parts = elements(value)
    parts = parts if any(parts) else [value]  # a comma alone separates nothing
    if len(parts) > 1 and not sweep:
        return word
    meant = f"{key}=" + ",".join(_meant(part, kind, False) for part in parts)
    new = parsed(meant)
    # A word with the same value keeps its form, and the run its folder. Where a text is declared, 401 is "401".
    same = repr if kind is data.Texts else _leaves
    return word if new is None or (read is not None and same(new.value()) == same(read.value())) else meant


def _leaves(value: Any) -> Any:
    """A value with its numbers as texts."""
    if isinstance(value, dict):
        return {str(name): _leaves(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_leaves, value))
    return repr(value) if isinstance(value, bool) or value is None else str(value)


def _meant(value: str, kind: Any, in_list: bool) -> str:
    """A value, or a part of one, in Hydra's grammar."""
    if _encloses(value, "["):
        inner = [_meant(part, _element(kind), True) for part in elements(value[1:-1])] if value[1:-1].strip() else []
        return f"[{','.join(inner)}]"
    if _encloses(value, "{"):
        pairs = [_split(part, ":") for part in elements(value[1:-1])] if value[1:-1].strip() else []
        named = [(pair[0].strip(), ":".join(pair[1:]).strip()) for pair in pairs]
        return "{" + ",".join(f"{name}:{_meant(part, _below(kind, name), False)}" for name, part in named) + "}"
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    read = parsed(f"a={value}")
    if read is None:
        # Hydra's grammar has no ~. bash expands it after the `=` of a variable alone, whose name has no dot.
        home = os.path.expanduser(value) if value.startswith("~/") else value
        return value if _ESCAPE.search(value) else quoting.quoted(home)
    unset = read.value() is None and not in_list
    if holds_text(kind) and not unset and not isinstance(read.value(), str) and not _CALL.fullmatch(value):
        return quoting.quoted(value)
    return value


def _split(value: str, separator: str) -> list[str]:
    """The parts of a value between separators. Separators in brackets, in quotes, or after a backslash do not count."""
    parts: list[str] = []
    closing: list[str] = []
    start = position = 0
    while position < len(value):
        character, begins = value[position], not value[start:position].strip() or value[position - 1] in "[{,:"
        if character in "'\"" and begins and (end := _end_of_quotes(value, position)):
            position = end
        elif character == "\\":
            position += 1
        elif character in _CLOSING:
            closing.append(_CLOSING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == separator and not closing:
            parts.append(value[start:position])
            start = position + 1
        position += 1
    return [*parts, value[start:]]


def _end_of_quotes(value: str, start: int) -> int | None:
    """Where the string in quotes ends that begins here; None if it does not end before a separator."""
    quote = value[start]
    end = re.compile(rf"(?:[^\\{quote}]|\\.)*{quote}(?=\s*(?:[\]}},:)]|$))", re.DOTALL).match(value, start + 1)
    return end and end.end() - 1


def _encloses(value: str, opening: str) -> bool:
    """Whether a value begins with this bracket, and ends with the one that closes it."""
    if not (value.startswith(opening) and value.endswith(_CLOSING[opening])):
        return False
    # Within a pair of brackets a separator does not count: one after the first would, if that were closed before.
    return len(_split(f"{value[:-1]},{value[-1]}", ",")) == 1


def _plain(kind: Any) -> Any:
    """A type without `| None`."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def _below(kind: Any, name: str) -> Any:
    """The type of the setting with this name below a setting of a type."""
    if kind is data.Texts:
        return kind
    kind = _plain(kind)
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    for each in stages.STAGES.values() if kind is stages.Stage else [kind]:
        if isinstance(each, type) and is_dataclass(each) and name in (found := _types(each)):
            return found[name]
    return None


@functools.cache
def _types(schema: type) -> dict[str, Any]:
    """Name -> type of each setting of a dataclass; `data.Texts` for settings that hold text in any form."""
    hints = get_type_hints(schema)
    return {each.name: data.Texts if data.Texts in each.metadata else hints[each.name] for each in fields(schema)}


def _element(kind: Any) -> Any:
    if kind is data.Texts:
        return kind
    kind = _plain(kind)
    return get_args(kind)[0] if get_origin(kind) is list else None


def _has_text(kind: Any) -> bool:
    """Whether a setting of this type holds text, or has others in it that do."""
    if kind is None or holds_text(kind):
        return kind is not None
    plain = _plain(kind)
    return is_dataclass(plain) or (get_origin(plain) in (list, dict) and _has_text(get_args(plain)[-1]))
