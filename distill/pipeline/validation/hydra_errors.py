"""Turns exceptions of Hydra and OmegaConf into one line per problem: `<key>: got X; must be Y; do Z`.

Hydra stops at the first problem. To find the others, the argument that causes it is removed and the remaining ones are
composed again, until they compose.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from distill.config import Config, Train, folder, load_config, recipes, words
from distill.config.instantiate import PLACES
from distill.errors import UserError, discreet, printable
from distill.pipeline.validation import likely, settings
from distill.pipeline.validation.rules import flatten, nearest, of_student
from distill.pipeline.validation.words import several
from distill.runtime.quoting import command, hydra
from distill.runtime.storage import disk_errors

USUAL = "distilbert"
"""Recipe whose settings are suggested if no recipe is chosen, or if the chosen one does not compose."""

_RULES = {
    "could not be converted to Integer": "a whole number",
    "could not be converted to Float": "a number",
    "not a valid bool": "true or false",
    "is not Optional": "a value, not null",
    "is not a ListConfig": "a list, as in KEY=[a,b]",
    "Cannot convert 'list' to string": "a string",
    "Cannot assign ": "a group of settings, each set as KEY.NAME=VALUE",
    "is not a subclass of": "a group of settings, each set as KEY.NAME=VALUE",
}
"""Part of OmegaConf's message -> what the value must be."""


def messages(error: BaseException, arguments: list[str]) -> list[str] | None:
    """The lines that describe an error which the user can correct; None for any other error, a bug of distill."""
    lines = _described(error, words(arguments))
    return None if lines is None else [printable(discreet(line)) for line in lines]


def _described(error: BaseException, arguments: list[str]) -> list[str] | None:
    if isinstance(error, UserError):
        return error.messages
    if (line := disk_errors.problem(error)) is not None:
        return [line]
    if isinstance(error, ValueError) and str(error).startswith("The --"):  # Hydra's, about its options
        return [f"command line: got {' '.join(arguments)}; {error}; leave the option out"]
    if not _about_settings(error):
        return None
    overrides, lines = _overrides(arguments), []
    composed: Config | BaseException = error
    if not any(_key(a) == "recipe" for a in overrides):
        lines, overrides = settings(Config(), None)[:1], [f"recipe={USUAL}", *overrides]
        composed = _composed(*overrides)
    while isinstance(composed, BaseException):
        if isinstance(composed, UserError):
            return lines + composed.messages
        cause = _cause(composed, overrides)
        others = [a for a in overrides if a != cause]
        lines.append(_line(composed, cause, others, arguments))
        # Further lines would be about settings that the user did not mean.
        if others == overrides or _key(cause or "") == "recipe" or {"-m", "--multirun"} & set(arguments):
            return lines
        overrides, composed = others, _composed(*others)
    recipe = next(a.partition("=")[2] for a in overrides if _key(a) == "recipe")
    return lines + settings(composed, recipe)


def _about_settings(error: BaseException) -> bool:
    # Hydra raises a bare ValueError for `group=null`.
    null_group = isinstance(error, ValueError) and str(error).startswith("Config group override")
    ours = isinstance(error, HydraException | OmegaConfBaseException | yaml.MarkedYAMLError)
    return null_group or ours or _raised_by_hydra(error)


def _raised_by_hydra(error: BaseException) -> bool:
    """Whether an error was raised by Hydra's own code, which adds a list of names to a path without looking at it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__")).startswith(("hydra.", "omegaconf."))


def _overrides(arguments: list[str]) -> list[str]:
    """The overrides among the arguments, with `--config-dir FOLDER` as an override too."""
    overrides = [a for a in arguments if a[:1] not in ("", "-") and ("=" in a or a.startswith("~"))]
    words = [word for a in arguments for word in (a.split("=", 1) if a.startswith("--") else [a])]
    for flag, value in pairwise(words):
        if flag in ("--config-dir", "-cd"):
            # Hydra decodes no percent signs in a file:// address, so spaces and accents must not be encoded.
            overrides.append(f"hydra.searchpath={hydra([f'file://{Path(value).resolve()}'])}")
    return overrides


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


@functools.cache
def _composed(*overrides: str) -> Config | BaseException:
    handled = sys.exception()
    try:
        return load_config(list(overrides))
    except UserError as error:
        return error
    except Exception as error:
        if not _about_settings(error):
            raise
        link: BaseException | None = error
        while link is not None:  # the error that is being explained is no cause of this one
            if link.__context__ is handled:
                link.__context__ = None
            link = link.__cause__ or link.__context__
        return error


def _cause(error: BaseException, overrides: list[str]) -> str | None:
    """The override that an error is about; None if it is about no override."""
    text = _chain(error)
    if isinstance(error, MissingConfigException):
        choices = {f"{_key(a).partition('@')[0]}/{a.partition('=')[2].strip('[]')}": a for a in overrides}
        return choices.get(str(error.missing_cfg_file))
    if text.startswith("Config group override"):
        return next((a for a in overrides if "." not in _key(a) and a.endswith("=null")), None)
    named = re.search(r"(?:override|argument) '([^']+)'|merging override (.+)|Override (.+?) looks like", text)
    named = named or re.search(r"delete from config\. '([^']+)'|already at '([^']+)'|Interpolation key '([^']+)'", text)
    name = next(group for group in named.groups() if group) if named else None
    exact = (a for a in overrides if name in (a, _key(a)))
    return next(exact, None) or next((a for a in overrides if f"${{{name}}}" in a), None)


def _line(error: BaseException, cause: str | None, others: list[str], arguments: list[str]) -> str:
    """The line for one error. `cause` is the override that it is about, `others` are all others."""
    if isinstance(error, MissingConfigException):
        return _choice(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        where = f"{error.problem_mark.name}, line {error.problem_mark.line + 1}"
        return f"{where}: got {error.problem}; must be YAML; correct the line"
    text = _chain(error)
    line = _anywhere(text, others)
    if line is None and cause is not None and "Error parsing" not in text:
        line = _value(text, cause) or _name(text, cause, others)
    return line or f"command line: got {' '.join(arguments)}; must be settings; {text.splitlines()[0]}"


def _choice(error: MissingConfigException) -> str:
    group, _, name = str(error.missing_cfg_file).partition("/")
    options = list(error.options or [])
    if group == "recipe":
        inside = name.rpartition("/")[0].strip("./")
        options = sorted({*recipes(), *(f"{inside}/{option}".lstrip("/") for option in options)})
    return f"{group}: got {name}; must be a choice that exists; {likely.choice(group, name, options)}"


def _anywhere(text: str, others: list[str]) -> str | None:
    """The line for a problem that a recipe file or an override can cause; None for problems of overrides only."""
    full = re.search(r"full_key: (\S+)", text)
    key = full.group(1) if full else ""
    if missing := re.search(r"Interpolation key '([^']+)' not found", text):
        return (
            f"{key}: got ${{{missing.group(1)}}}; must be a setting that exists; {_near(missing.group(1), '', others)}"
        )
    if unset := re.search(r"[Mm]issing mandatory value: (\S+)", text):
        unset_key = key or unset.group(1)
        return f"{unset_key}: got nothing; must be set; add {unset_key}=VALUE"
    if file := re.match(r"In '(\S+)': ", text):
        if "Overriding hydra.searchpath" in text:
            return f"hydra.searchpath: got this key in {file.group(1)}.yaml; must be left out; use --config-dir FOLDER"
        if rule := next((rule for part, rule in _RULES.items() if part in text), None):
            return f"{key}: got a value of another type in {file.group(1)}.yaml; must be {rule}; correct the file"
        # A recipe without a package is composed below the key `recipe`, and so are the groups that it chooses.
        recipe = next((a.partition("=")[2] for a in others if _key(a) == "recipe"), None) if key == "recipe" else None
        if recipe or file.group(1).startswith(f"{key}/"):
            name = f"recipe/{recipe}" if recipe else file.group(1)
            return f"{name}.yaml: got no package; must begin with '# @package _global_'; add that line"
        return f"{key}: got this key in {file.group(1)}.yaml; must be a setting that exists; {_near(key, '', others)}"
    return None


def _value(text: str, cause: str) -> str | None:
    """The line for an override whose value is wrong; None if its name is."""
    key, value = _key(cause), cause.partition("=")[2]
    for part, rule in _RULES.items():
        if part in text:
            return f"{key}: got {value}; must be {rule}; {likely.value(key, value) or 'see docs/settings.md'}"
    if "Ambiguous value" in text:
        return several(cause)
    return None


def _name(text: str, cause: str, others: list[str]) -> str:
    """The line for an override whose name is wrong, or whose group has no such choice."""
    key, value = _key(cause), cause.partition("=")[2] or cause
    if "already at" in text:
        return f"{key}: got {cause}; must be without + where the setting exists; write {command([f'{key}={value}'])}"
    if "Config group override" in text:
        options = sorted(file.stem for file in (folder("conf") / key).glob("*.yaml"))
        return f"{key}: got {value}; must be a choice that exists; {nearest(value, options)}"
    if key in PLACES and (places := re.search(r"Did you mean to override (?:one of )?(.+)\?", text)):
        meant = (command([f"{place}={value}"]) for place in places[1].split(", "))
        return f"{key}: got {value}; must be chosen for a stage; set {' or '.join(meant)}"
    if (advice := likely.value(key, value)) is not None:  # a list, which OmegaConf merges as if it were a group
        return f"{key}: got {value}; must be {_RULES['Cannot assign ']}; {advice}"
    given = cause.partition("=")[2]
    advice = likely.name(key, given) if given else None
    return f"{key}: got {value}; must be a setting that exists; {advice or _near(key, given, others)}"


def _chain(error: BaseException | None) -> str:
    """The messages of an exception and of its causes, one per line."""
    lines = []
    while error is not None:
        lines.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def _near(key: str, value: str, overrides: list[str]) -> str:
    """Advice with names like `key` among the settings that the overrides, or else their recipe or `USUAL`, compose to.

    For a setting that a baseline stage shares with its student, the student's setting; for one that each stage that
    trains has, those of the stages.
    """
    group, name, setting = (*key.split(".", 2), "", "")[:3]
    for candidate in (overrides, [a for a in overrides if _key(a) == "recipe"], [f"recipe={USUAL}"]):
        config = _composed(*candidate)
        if isinstance(config, Config):
            advice = of_student(config.stages.get(name), setting) if group == "stages" else None
            trained = [stage for stage in config.pipeline if type(config.stages.get(stage)) is Train]
            if key in likely.OF_STAGES and value and trained:
                return likely.of_stages(key, value, trained)
            return advice or nearest(key, ["recipe", *_names(config)])
    return "see python -m distill --help"


def _names(config: Config) -> Iterable[str]:
    """Dotted names of all groups of settings and of all settings, each group before its members."""
    parts = [key.split(".") for key in flatten(config)]
    return dict.fromkeys(".".join(p[:n]) for p in parts for n in range(1, len(p) + 1))
