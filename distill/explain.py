"""Turns what Hydra and OmegaConf raise into one line a problem: `<key>: got X; must be Y; do Z`."""

from __future__ import annotations

import re

from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from distill.check import flatten, nearest, settings
from distill.config import Config, UserError, folder, recipes


def messages(error: BaseException, arguments: list[str]) -> list[str] | None:
    """Lines for an error the user can mend; None for a defect of ours."""
    if isinstance(error, UserError):
        return error.messages
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        options = list(error.options or [])
        if group.startswith("recipe"):
            group, name, options = "recipe", error.missing_cfg_file.removeprefix("recipe/"), list(recipes())
        return [f"{group}: got {name}; must be a choice that exists; {nearest(name, options)}"]
    if isinstance(error, HydraException | OmegaConfBaseException):
        if not any(argument.startswith("recipe=") for argument in arguments):
            return settings(Config(), None)
        return [_composition(error, arguments)]
    return None


def _composition(error: BaseException, arguments: list[str]) -> str:
    text = " ".join(_chain(error))
    unknown = re.search(r"Could not override '([^']+)'", text)
    wrong = re.search(r"Value '(.*?)' (?:of type '\w+' )?could not be converted to (\w+)", text)
    full = re.search(r"full_key: (\S+)", text)
    if wrong:
        key = full.group(1) if full else "setting"
        return f"{key}: got {wrong.group(1)}; must be {_kind(wrong.group(2))}; see distill/config.py"
    missing = re.search(r"Key '([^']+)' (?:is )?not in", text)
    if unknown or missing:
        key = unknown.group(1) if unknown else full.group(1) if full else missing.group(1)  # type: ignore[union-attr]
        value = next((a.partition("=")[2] for a in arguments if a.partition("=")[0].lstrip("+~") == key), "it")
        return f"{key}: got {value}; must be a setting that exists; {nearest(key, _keys(arguments))}"
    group = re.search(r"Could not find '([^']+)'", text)
    if group:
        return f"{group.group(1)}: got it; must be a choice that exists; see python -m distill --help"
    return f"command line: got {' '.join(arguments)}; must be settings Hydra can read; {_first_line(error)}"


def _chain(error: BaseException | None) -> list[str]:
    lines = []
    while error is not None:
        lines.append(str(error))
        error = error.__cause__ or error.__context__
    return lines


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _kind(name: str) -> str:
    return {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}.get(name, name)


def _keys(arguments: list[str]) -> list[str]:
    """Every setting of the recipe asked for (of the whole config if that does not compose)."""
    groups = [a for a in arguments if re.match(r"^[\w/@]+=[\w/-]+$", a) and "." not in a.partition("=")[0]]
    for overrides in (groups, [a for a in groups if a.startswith("recipe=")], []):
        try:
            with initialize_config_dir(str(folder("conf").resolve()), version_base="1.3"):
                tree = OmegaConf.to_container(compose("config", overrides=overrides), resolve=False)
        except (HydraException, OmegaConfBaseException, ConfigCompositionException):
            continue
        return list(flatten(tree))
    return []
