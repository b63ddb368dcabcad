"""Turns what Hydra and OmegaConf raise into one line a problem: `<key>: got X; must be Y; do Z`.

They stop at the first problem. Here the argument to blame is taken out and the rest composed again, until all is said.
"""

from __future__ import annotations

import errno
import functools
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import yaml
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from distill.check import settings
from distill.check.rules import flatten, nearest, of_student
from distill.config import Config, folder, load_config, recipes
from distill.errors import UserError

USUAL = "distilbert"
"""The recipe whose settings are told where none is chosen that composes."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)

_RULES = {
    "could not be converted to Integer": "a whole number",
    "could not be converted to Float": "a number",
    "not a valid bool": "true or false",
    "is not Optional": "a value, not null",
    "is not a ListConfig": "a list, as in KEY=[a,b]",
    "Cannot convert 'list' to string": "one text",
    "Cannot assign ": "a group of settings, each set as KEY.NAME=VALUE",
    "is not a subclass of": "a group of settings, each set as KEY.NAME=VALUE",
}
"""Part of OmegaConf's message -> what the value must be."""


def messages(error: BaseException, arguments: list[str]) -> list[str] | None:
    """Lines for an error the user can mend; None for a defect of ours."""
    if isinstance(error, UserError):
        return error.messages
    if isinstance(error, OSError) and error.errno in _DISK:
        return [
            f"{error.filename or 'disk'}: got {error.strerror}; must be writable; mend it, then run the same command"
        ]
    if not _about_settings(error):
        return None
    left, lines = _overrides(arguments), []
    if not any(_key(a) == "recipe" for a in left):
        lines, left = settings(Config(), None), [f"recipe={USUAL}", *left]
        found = _composed(*left)
    else:
        found = error
    while isinstance(found, BaseException):
        blamed = _blamed(found, left)
        rest = [a for a in left if a != blamed]
        lines.append(_line(found, blamed, rest, arguments))
        # Other lines would be about settings that are not meant.
        if rest == left or _key(blamed or "") == "recipe" or {"-m", "--multirun"} & set(arguments):
            return lines
        left, found = rest, _composed(*rest)
    chosen = next(a.partition("=")[2] for a in left if _key(a) == "recipe")
    return lines + settings(found, chosen)


def _about_settings(error: BaseException) -> bool:
    # Hydra raises a plain ValueError for `group=null`.
    plain = isinstance(error, ValueError) and str(error).startswith("Config group override")
    return plain or isinstance(error, HydraException | OmegaConfBaseException | yaml.MarkedYAMLError)


def _overrides(arguments: list[str]) -> list[str]:
    """The settings among the arguments, and the folder of `--config-dir` as one."""
    found = [a for a in arguments if a[:1] not in ("", "-") and ("=" in a or a.startswith("~"))]
    words = [word for a in arguments for word in (a.split("=", 1) if a.startswith("--") else [a])]
    for flag, value in pairwise(words):
        if flag in ("--config-dir", "-cd"):
            found.append(f"hydra.searchpath=['{Path(value).resolve().as_uri()}']")
    return found


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


@functools.cache
def _composed(*overrides: str) -> Config | BaseException:
    try:
        return load_config(list(overrides))
    except Exception as error:
        if not _about_settings(error):
            raise
        return error


def _blamed(error: BaseException, overrides: list[str]) -> str | None:
    """The override that an error is about, if it is about one."""
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


def _line(error: BaseException, blamed: str | None, rest: list[str], arguments: list[str]) -> str:
    if isinstance(error, MissingConfigException):
        return _choice(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        where = f"{error.problem_mark.name}, line {error.problem_mark.line + 1}"
        return f"{where}: got {error.problem}; must be YAML; correct the line"
    text = _chain(error)
    line = _anywhere(text, rest)
    if line is None and blamed is not None and "Error parsing" not in text:
        line = _value(text, blamed) or _name(text, blamed, rest)
    return line or f"command line: got {' '.join(arguments)}; must be settings; {text.splitlines()[0]}"


def _choice(error: MissingConfigException) -> str:
    missing, options = str(error.missing_cfg_file), list(error.options or [])
    group, _, name = missing.rpartition("/")
    if missing.startswith("recipe/"):
        inside = group.removeprefix("recipe").lstrip("/")
        options = sorted({*recipes(), *(f"{inside}/{option}".lstrip("/") for option in options)})
        group, name = "recipe", missing.removeprefix("recipe/")
    return f"{group}: got {name}; must be a choice that exists; {nearest(name, options)}"


def _anywhere(text: str, rest: list[str]) -> str | None:
    """Problems that may also stand in a file."""
    full = re.search(r"full_key: (\S+)", text)
    key = full.group(1) if full else ""
    if unfound := re.search(r"Interpolation key '([^']+)' not found", text):
        return f"{key}: got ${{{unfound.group(1)}}}; must be a setting that exists; {_near(unfound.group(1), rest)}"
    if unset := re.search(r"[Mm]issing mandatory value: (\S+)", text):
        unset_key = key or unset.group(1)
        return f"{unset_key}: got nothing; must be set; add {unset_key}=VALUE"
    if file := re.match(r"In '(\S+)': ", text):
        if "Overriding hydra.searchpath" in text:
            return f"hydra.searchpath: got it in {file.group(1)}.yaml; must be left out there; use --config-dir FOLDER"
        if rule := next((rule for part, rule in _RULES.items() if part in text), None):
            return f"{key}: got another kind of value in {file.group(1)}.yaml; must be {rule}; correct the file"
        if file.group(1).startswith(f"{key}/"):
            return f"{file.group(1)}.yaml: got no package; must begin with '# @package _global_'; add that line"
        return f"{key}: got it in {file.group(1)}.yaml; must be a setting that exists; {_near(key, rest)}"
    return None


def _value(text: str, blamed: str) -> str | None:
    key, value = _key(blamed), blamed.partition("=")[2]
    for part, rule in _RULES.items():
        if part in text:
            return f"{key}: got {value}; must be {rule}; see distill/config.py"
    if "Ambiguous value" in text:
        return f"{key}: got {value}; must be one value; add -m to run each in turn, or write [{value}] for a list"
    return None


def _name(text: str, blamed: str, rest: list[str]) -> str:
    key, value = _key(blamed), blamed.partition("=")[2] or blamed
    if "already at" in text:
        return f"{key}: got {blamed}; must be without + where the setting exists; write {key}={value}"
    if "Config group override" in text:
        options = sorted(file.stem for file in (folder("conf") / key).glob("*.yaml"))
        return f"{key}: got {value}; must be a choice that exists; {nearest(value, options)}"
    return f"{key}: got {value}; must be a setting that exists; {_near(key, rest)}"


def _chain(error: BaseException | None) -> str:
    lines = []
    while error is not None:
        lines.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(lines)


def _near(key: str, overrides: list[str]) -> str:
    """Names like `key` among the settings that the overrides compose (of the usual recipe if they do not).

    For a baseline that is given a setting of its student, the student's setting.
    """
    group, name, setting = (*key.split(".", 2), "", "")[:3]
    for tried in (overrides, [a for a in overrides if _key(a) == "recipe"], [f"recipe={USUAL}"]):
        found = _composed(*tried)
        if isinstance(found, Config):
            advice = of_student(found.stages.get(name), setting) if group == "stages" else None
            return advice or nearest(key, ["recipe", *_names(found)])
    return "see python -m distill --help"


def _names(config: Config) -> Iterable[str]:
    """Every setting, and every group of settings before those in it."""
    parts = [key.split(".") for key in flatten(config)]
    return dict.fromkeys(".".join(p[:n]) for p in parts for n in range(1, len(p) + 1))
