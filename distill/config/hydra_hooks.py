"""Hooks where Hydra reads and composes configs. It has no public ones: these replace methods of its internal classes.

No other module of distill imports from `hydra._internal`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigSource

Hook = tuple[type, str]
"""A class and the name of a method. What is called in its place gets the method, the object and the arguments."""

COMPOSES: Hook = (ConfigLoaderImpl, "load_configuration")
"""Composes a config; the arguments are its name, the settings, and more. The object has `get_search_path()`."""
NAMES: Hook = (CachingConfigRepository, "load_config")
"""Finds a config that a command, or a defaults list, names; the argument is the name."""


def reads() -> Hook:
    """Reads a file; the argument is its path without the ending. The object is a `ConfigSource`."""
    sources: Any = Plugins.instance().discover(ConfigSource)
    return next(source for source in sources if source.scheme() == "file"), "load_config"


def file_of(source: Any, config_path: str) -> Path:
    """The file that a source reads for a path without its ending."""
    return Path(source.path, source._normalize_file_name(config_path))


@contextmanager
def hooked(hook: Hook, around: Callable[..., Any]) -> Iterator[None]:
    """Within the block, call `around(method, object, *arguments)` wherever Hydra calls the method."""
    owner, name = hook
    method = getattr(owner, name)

    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        return around(method, *args, **kwargs)

    setattr(owner, name, called)
    try:
        yield
    finally:
        setattr(owner, name, method)
