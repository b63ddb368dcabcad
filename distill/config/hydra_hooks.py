"""Hooks where Hydra reads and composes configs. It has no public ones: these replace methods of its internal classes.

No other module of distill imports from `hydra._internal`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.plugins.config_source import ConfigSource
from hydra.version import VersionBase

Hook = tuple[type, str]
"""A class and the name of a method. What is called in its place gets the method, the object and the arguments."""

COMPOSES: Hook = (ConfigLoaderImpl, "load_configuration")
"""Composes a config; the arguments are its name, the settings, and more. The object has `get_search_path()`."""
NAMES: Hook = (CachingConfigRepository, "load_config")
"""Finds a config that a command, or a defaults list, names; the argument is the name."""

_STATE: tuple[type, ...] = (GlobalHydra, JobRuntime, VersionBase)
"""What Hydra has once in a process, and changes when it is initialized."""
_taking_turns = threading.RLock()


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


@contextmanager
def apart() -> Iterator[None]:
    """Within the block, Hydra can be initialized, as in a new process: a program that calls distill may have done it,
    and Hydra refuses to be initialized twice. Threads take turns."""
    known: Any = Singleton._instances
    with _taking_turns:
        before = {kind: known.pop(kind) for kind in _STATE if kind in known}
        try:
            yield
        finally:
            for kind in _STATE:
                known.pop(kind, None)
            known.update(before)
