"""Data sets on the Hugging Face hub: the revision that is loaded."""

from __future__ import annotations

import functools


@functools.cache
def newest(name: str) -> str | None:
    """The newest commit of a data set; None if the hub cannot be reached, where the cached one is used."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    # Besides its own errors, the library raises errors of the network.
    except Exception:
        return None
