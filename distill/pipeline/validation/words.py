"""Checks of the words of a command line, before Hydra reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distill.config import Config, bounds, typed, words
from distill.pipeline.validation import likely
from distill.runtime import quoting


def problems(command: Sequence[str]) -> Iterator[str]:
    """A line for each word that is no setting as Hydra reads one, though it was written as it was meant."""
    if found := list(bounds.of_words(command)):
        yield from found
        return
    yield from _one_folder(command)
    before = ""
    for number, (word, meant) in enumerate(zip(command, words(command), strict=True)):
        if not (word.startswith("-") or typed.is_value(before, word)):
            if "=" not in word and not word.startswith("~"):
                # Of several such words, one line with all of them.
                if number + 1 == len(command) or "=" in command[number + 1] or command[number + 1].startswith("-"):
                    yield _no_setting(word, command[:number])
            elif typed.parsed(meant) is None:
                yield _unreadable(word)
        elif word.startswith("--") and "=" in word and word.partition("=")[0] not in typed.FLAGS_WITH_VALUE:
            key, _, value = word[2:].partition("=")
            yield f"command line: got {word}; must be KEY=VALUE; set {quoting.setting(key, value)}"
        before = word


def _one_folder(command: Sequence[str]) -> Iterator[str]:
    """A line for a sweep whose runs would all have one folder: the second would be refused when the first has ended."""
    if not {"-m", "--multirun"} & {*command}:
        return
    output = next((word for word in command if word.startswith("output=") and "${" not in word), None)
    swept = [word.partition("=")[0] for word in command if not word.startswith("-") and _has_several(word)]
    if output is not None and swept:
        # A choice of a group, such as a recipe, is no value that a path can have.
        values = [key.lstrip("+") for key in swept if key == "seed" or "." in key]
        place = f", or set {quoting.command([f'{output}/${{{values[0]}}}'])}" if len(values) == len(swept) == 1 else ""
        yield f"output: got {output[7:]} for several runs; must differ between them; leave it out{place}"


def _has_several(word: str) -> bool:
    """Whether a sweep takes several values of a word: those between commas, or of `range(3)`, `interval(1,8)` and such
    functions."""
    if "=" not in word:
        return False
    # Hydra's grammar refuses some values with commas, which `config.words` puts in quotes before Hydra reads them.
    read = typed.parsed(word)
    return len(typed.elements(word.partition("=")[2])) > 1 or (read is not None and read.is_sweep_override())


def _no_setting(word: str, before: Sequence[str]) -> str:
    """The line for a word without `=`, which may belong to the one before: the shell divides a value at its spaces."""
    line = f"command line: got {word}; must be KEY=VALUE"
    last = next((number for number in reversed(range(len(before))) if "=" in before[number]), None)
    ways = []
    if meant := likely.words([*before[0 if last is None else last + 1 :], word]):
        ways.append(f"set {' '.join(quoting.setting(key, value) for key, value in meant.items())}")
    if last is not None and not any(each.startswith("-") for each in before[last:]):
        joined = quoting.command([" ".join([*before[last:], word])])
        ways.append(f"if it belongs to the value before it, type {joined}")
    return f"{line}; {', or, '.join(ways) or 'add the key'}"


def _unreadable(word: str) -> str:
    key, equals, value = word.partition("=")
    if typed.parsed(f"{key}=x") is None and not key.startswith("~"):
        return (
            f"command line: got the key {key}; must be names of A-Z, a-z, 0-9, _ and - between dots; write other names "
            "in a recipe of your own, see docs/data/several-tasks.md"
        )
    if not equals or key.startswith("~"):
        return f"command line: got {word}; must be KEY=VALUE, or ~KEY; correct it"
    if len(typed.elements(value)) > 1:
        return several(word)
    if value.startswith("{"):
        return (
            f"{key}: got a mapping with a name that is not of A-Z, a-z, 0-9, _ and -; must have such names on the "
            "command line; write other names in a recipe of your own, see docs/data/several-tasks.md"
        )
    plain = typed.unescaped(value)
    return (
        f"{key}: got {value}; must be {value} with or without its backslashes; set {quoting.setting(key, plain)}, or "
        f"{quoting.setting(key, value)}"
    )


def several(word: str) -> str:
    """The line for a value with commas where it must be one value."""
    key, _, value = word.partition("=")
    kind = typed.texts(Config, key.lstrip("+").split("."))
    ways = ["add -m to run each in turn"]
    if typed.holds_list(kind):
        ways.append(f"for a list set {quoting.command(words([f'{key}=[{value}]']))}")
    if typed.holds_text(kind):
        ways.append(f"for one value with a comma set {quoting.setting(key, value)}")
    return f"{key}: got {value}; must be one value; {', or '.join(ways)}"
