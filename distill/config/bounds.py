"""Bounds on settings that come from strangers: their size and nesting. They may not read the environment.

Configs are checked before Hydra reads them: a few lines of YAML can stand for 10^9 values, and Hydra shows the value of
`${oc.env:NAME}` in its messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from distill.config import hydra_hooks, typed
from distill.errors import ConfigError, reason

CHARACTERS = 20_000
"""Maximum characters of all words of a command line. The time that Hydra takes grows with their square."""
BYTES = 50_000
"""Maximum size of a config file."""
VALUES = 3_000
"""Maximum values of a config file, each counted as often as an alias repeats it."""
DEPTH = 20
"""Maximum nesting of lists, mappings and interpolations."""
DIGITS = 1_000
"""Maximum digits of a number on a command line. Python refuses to read a few thousand."""
READS = 1_000
"""Maximum times that a config names another one in its defaults list, all configs together."""
EXPANDED = 1_000_000
"""Maximum characters and values of a config in which the names of other settings are replaced by their values."""
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")


def has_resolver(value: str) -> bool:
    """Whether there is a colon in an interpolation: `${NAME:...}`, where the name may be an interpolation. After one
    backslash it is text.
    """
    depth = 0
    for part in re.findall(r"\$\{|\}|:", re.sub(r"(?<!\\)\\\$\{", "", value)):
        depth += {"${": 1, "}": -1 if depth else 0}.get(part, 0)
        if part == ":" and depth:
            return True
    return False


def of_words(words: Iterable[str]) -> Iterator[str]:
    """Yield a line for each word of a command line that reads something from elsewhere or exceeds the bounds."""
    if (number := sum(map(len, words := list(words)))) > CHARACTERS:
        yield (
            f"command line: got {number:,} characters; must be at most {CHARACTERS:,}; write long lists in a recipe of "
            "your own, see docs/data/several-tasks.md"
        )
        return
    for word in words:
        key, _, value = word.partition("=")
        if (depth := _depth(word)) > DEPTH:
            yield f"{key[:80]}: got brackets in {depth} others; must be in at most {DEPTH}; write it with fewer"
        elif (digits := max(map(len, re.findall(r"\d[\d_]*", word)), default=0)) > DIGITS:
            yield f"{key[:80]}: got a number of {digits:,} digits; must have at most {DIGITS:,}; write a smaller one"
        elif "\0" in word:
            yield f"{key[:80]}: got a NUL character; must be text; remove it"
        elif has_resolver(_times(value) if key.lstrip("+").startswith("hydra.") else word):
            yield no_resolver(key if "${" not in key else "command line", value or word)


def _times(value: str) -> str:
    """The value of one of Hydra's settings without the time, which the name of a folder may contain."""
    return re.sub(r"\$\{now:[%\w:-]*\}", "", value)


def no_resolver(where: str, value: str) -> str:
    """The message for a value with a resolver."""
    return f"{where}: got {value}; must be a value or the name of another setting, ${{NAME}}; write the value"


def _depth(word: str) -> int:
    deepest = depth = 0
    for character in word:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    return deepest


@contextmanager
def guarded(schema: type) -> Iterator[None]:
    """Check each config file that Hydra reads within the block before it reads it, and how many it reads.

    Args:
        schema: the schema of all settings. Where it has a text, the text in a file is kept as it is written.

    Raises:
        ConfigError: for more files than `READS`, and as from `check_file`.
    """

    def checked(read: Callable[..., Any], source: Any, config_path: str) -> Any:
        file = hydra_hooks.file_of(source, config_path)
        if source.provider == "main" or not file.is_file():  # the main ones are distill's own
            return read(source, config_path)
        check_file(file)
        result = _constructed(read, source, config_path, file)
        package = result.header.get("package") or "_group_"
        group = config_path.rpartition("/")[0].replace("/", ".")
        names = package.replace("_global_", "").replace("_group_", group).split(".")
        kind = typed.of_file(schema, [name for name in names if name])
        if kind is not None and OmegaConf.is_dict(result.config):
            result.config = OmegaConf.create(typed.from_yaml(file.read_text(encoding="utf-8"), kind))
        return result

    def counted(load: Callable[..., Any], repository: Any, config_path: str) -> Any:
        repository.reads = getattr(repository, "reads", 0) + 1
        if repository.reads > READS:
            raise ConfigError(
                f"{config_path}.yaml: got configs that name each other more than {READS} times; must end; take those "
                "out of `defaults` that name one they are named by"
            )
        return load(repository, config_path)

    with hydra_hooks.hooked(hydra_hooks.reads(), checked), hydra_hooks.hooked(hydra_hooks.NAMES, counted):
        yield


@contextmanager
def composing() -> Iterator[None]:
    """Raise ConfigError in place of RecursionError, which Hydra raises for a config that names itself."""
    try:
        yield
    except RecursionError as error:
        raise ConfigError(
            "defaults: got configs that name each other without end; must end; take those out of `defaults` that name "
            "one they are named by"
        ) from error


def _constructed(read: Callable[..., Any], source: Any, config_path: str, file: Path) -> Any:
    """What `read` returns for a file. Raises ConfigError for a value that does not fit the type that its YAML states,
    such as `!!int x`, for which YAML raises errors of Python."""
    try:
        return read(source, config_path)
    except OmegaConfBaseException:  # some are such errors too
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{file}: got a wrong value ({reason(error)}); must be YAML; correct the file") from error


def check_file(file: Path) -> None:
    """Raise ConfigError for a config file that is too large, or reads something from elsewhere."""
    size = file.stat().st_size
    if size > BYTES:
        raise ConfigError(f"{file}: got {size:,} bytes; must be at most {BYTES:,}; leave out what is no setting")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: got bytes that are not UTF-8; must be YAML in UTF-8; save it as UTF-8") from error
    try:
        check_text(text, str(file))
    except yaml.MarkedYAMLError:
        return  # Hydra's error is then explained
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: got {str(error).splitlines()[0]}; must be YAML; correct the file") from error


def check_text(text: str, name: str) -> None:
    """Raise ConfigError for YAML beyond the bounds, or with an interpolation that reads something from elsewhere.

    Raises:
        yaml.YAMLError: if the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise ConfigError(
                f"{_place(name, event)}: got values in {depth} others; must be in at most {DEPTH}; write it with fewer"
            )
        value = getattr(event, "value", None) or ""
        if "\0" in value:
            raise ConfigError(f"{_place(name, event)}: got a NUL character; must be text; remove it")
        if has_resolver(_times(value)):
            raise ConfigError(no_resolver(_place(name, event), value))
    number = _values(yaml.compose(text, Loader=yaml.SafeLoader), {})
    if number > VALUES:
        raise ConfigError(
            f"{name}: got {_rounded(number)} values, with those that aliases repeat; must be at most {VALUES:,}; leave "
            "out what is no setting"
        )


def _place(name: str, event: yaml.Event) -> str:
    return name if event.start_mark is None else f"{name}, line {event.start_mark.line + 1}"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number < 1e9 else f"{number:.0e}"


def _values(node: yaml.Node | None, known: dict[int, float]) -> float:
    """The number of values in a node, with values that aliases repeat; infinite for a node that contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = float("inf")  # until it is known
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def check_expanded(composed: DictConfig) -> None:
    """Raise ConfigError for a config whose settings refer to each other so that their values would fill the memory."""
    plain = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(plain, dict)
    known: dict[str, float] = {}

    def size(names: tuple[str, ...], depth: int) -> float:
        key = ".".join(names)
        if depth > DEPTH:
            raise ConfigError(
                f"{key}: got the name of a setting that is one of another, and so on; must end after {DEPTH}; write "
                "the value"
            )
        if key not in known:
            known[key] = float("inf")
            known[key] = of(_select(plain, names), names, depth)
        return known[key]

    def of(value: Any, names: tuple[str, ...], depth: int) -> float:
        if isinstance(value, Mapping | list):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            return 1 + sum(size((*names, str(name)), depth) for name, _ in items)
        if not isinstance(value, str) or "${" not in value:
            return len(value) if isinstance(value, str) else 1
        if re.search(r"\$\{[^{}]*\$\{", value):
            raise ConfigError(no_resolver(".".join(names), value))
        return len(value) + sum(size(_absolute(name, names), depth + 1) for name in _REFERENCE.findall(value))

    for name in map(str, plain):
        if size((name,), 0) > EXPANDED:
            raise ConfigError(
                f"{name}: got settings that name each other, of more than {EXPANDED:,} values; must be fewer; write "
                "values in place of names"
            )


def _absolute(reference: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the setting that the setting with these names refers to: `a.b`, `a[b]`, or `.b` beside itself."""
    dots = len(reference) - len(reference.lstrip("."))
    own = re.split(r"[.\[\]]+", reference[dots:].strip(".[]"))
    return (*(names[:-dots] if dots else ()), *(name.strip("'\"") for name in own))


def _select(node: Any, names: tuple[str, ...], hops: int = DEPTH) -> Any:
    """The value with these names, also below a setting that refers to another one."""
    plain = node
    for number, name in enumerate(names):
        if isinstance(node, str) and hops and (found := _REFERENCE.fullmatch(node)):
            return _select(plain, (*_absolute(found[1], names[:number]), *names[number:]), hops - 1)
        if isinstance(node, list):
            node = node[int(name)] if name.isdigit() and int(name) < len(node) else None
        else:
            node = node.get(name) if isinstance(node, Mapping) else None
    return node
