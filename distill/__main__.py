"""The command line: compose, check, run. Only hydra is imported until the config is right."""

from __future__ import annotations

import os
import sys
from typing import Any, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from distill import check, config, errors, explain

_failed: list[str] = []
_full = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user wants tracebacks."""


@hydra.main(version_base="1.3", config_path=str(config.folder("conf").resolve()), config_name="config")
def _job(composed: DictConfig) -> Any:
    settings = cast(config.Config, OmegaConf.to_object(composed))
    choices, overrides = HydraConfig.get().runtime.choices, list(HydraConfig.get().overrides.task)
    try:
        if wrong := check.settings(settings, choices["recipe"]):
            raise errors.ConfigError(wrong)
        from distill.walk import walk

        return walk(settings, choices["recipe"], overrides)
    except errors.Stopped as error:
        sys.exit(_say(error.messages, 130))
    except errors.UserError as error:
        if _full:
            raise
        # Kept here, so that one bad job of a sweep does not take the others with it.
        _failed.extend(error.messages)
        return None


def _say(lines: list[str], code: int) -> int:
    sys.stderr.write("\n".join(lines) + "\n")
    return code


def main() -> None:
    """Run the command line. Exit code 2 for what the user can mend, 130 after Ctrl-C."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing its own message and a stack
    try:
        _job()
    except KeyboardInterrupt:
        sys.exit(_say(["stopped; run the same command to go on"], 130))
    except Exception as error:
        lines = explain.messages(error, sys.argv[1:])
        if _full or lines is None:
            raise
        sys.exit(_say(lines, 2))
    if _failed:
        sys.exit(_say(_failed, 2))


if __name__ == "__main__":
    main()
