"""Data sets on the Hugging Face hub: the revision that is loaded."""

from __future__ import annotations

import functools


def parted(name: str) -> tuple[str, str]:
    """(owner and name, configuration) of a data set `owner/name` or `owner/name/config`; empty without one."""
    parts = name.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


@functools.cache
def newest(name: str) -> str | None:
    """The newest commit of a data set; None if the hub cannot be reached, where the cached one is used."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    # Besides its own errors, the library raises errors of the network.
    except Exception:
        return None
