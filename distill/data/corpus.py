"""Unlabelled documents for language-model training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distill import config
from distill.data import docstring_corpus, docstrings, documents
from distill.data.hub import newest, parted
from distill.errors import ConfigError, DataError
from distill.runtime.storage import file_hashes

_TRAINING = re.compile(r"(?<![^\W\d_])train(?![^\W\d_])", re.IGNORECASE)

SMOKE_DOCUMENTS = 200
"""Maximum number of documents under `limit.smoke`."""


def load_corpus(corpus: config.Corpus, limit: config.Limit, seed: int) -> Sequence[str]:
    """The documents, shuffled by the seed.

    They are shuffled so that the part kept by `limit` is a random sample. Under `limit.smoke` a few docstrings of the
    standard library replace the sources that are slow to load: all installed docstrings, and data sets of the hub.

    Raises:
        ConfigError: an unknown `corpus.kind`, no file at `corpus.path`, or a data set that the hub does not return.
        DataError: a file that cannot be read, or no text in any file.
    """
    texts: Sequence[str]
    if limit.smoke and corpus.kind in ("docstrings", "hub"):
        texts = docstrings.sample(SMOKE_DOCUMENTS)
    elif corpus.kind == "docstrings":
        texts = [" ".join(d.paragraphs) for d in docstring_corpus.documents() if not d.validation]
    elif corpus.kind == "hub":
        return _from_hub(corpus.name, limit, seed)
    elif corpus.kind in ("parquet", "text"):
        texts = (documents.of_parquet if corpus.kind == "parquet" else documents.of_text)(files(corpus))
    else:
        raise ConfigError(f"corpus.kind: got {corpus.kind}; must be docstrings, parquet, text or hub; choose one")
    if not texts:
        raise DataError(f"{corpus.path}: got no text; must hold documents; set corpus.path")
    order = np.random.default_rng(seed).permutation(len(texts))[: _max_documents(limit)]
    if isinstance(texts, documents.Documents):
        texts.keep(order)
    else:
        texts = [texts[i] for i in order]
    return texts


def _max_documents(limit: config.Limit) -> int | None:
    bounds = [limit.documents, SMOKE_DOCUMENTS if limit.smoke else None]
    return min((bound for bound in bounds if bound is not None), default=None)


def versions(corpus: config.Corpus) -> dict[str, Any]:
    """The facts that determine a corpus that is not read from files: names of data sets, with the contents of those
    that are folders, or versions of packages."""
    packages = docstring_corpus.versions() if corpus.kind == "docstrings" else {}
    named = [parted(name)[0] for name in corpus.name] if corpus.kind == "hub" else []
    folders = {name: file_hashes.of_folder(Path(name)) for name in named if Path(name).is_dir()}
    return {"kind": corpus.kind, "names": corpus.name, "packages": packages} | ({"folders": folders} if folders else {})


def revisions(corpus: config.Corpus) -> list[str | None]:
    """The revision of each data set on the hub that is loaded. A finished run is not outdated by a newer one, but what
    another run made from an older one is not used."""
    return [_revision(parted(name)[0]) for name in corpus.name] if corpus.kind == "hub" else []


def _revision(name: str) -> str | None:
    return None if Path(name).is_dir() else newest(name)


def files(corpus: config.Corpus) -> list[Path]:
    """`corpus.path` if it is a file; else the folder's files with the word `train` in their names, or all of them if
    none has it.

    Raises ConfigError without a file.
    """
    suffix = {"parquet": "parquet", "text": "txt"}[corpus.kind]
    path = Path(corpus.path) if corpus.path else None
    if path is not None and path.is_file():
        return [path]
    named = sorted(path.glob(f"*.{suffix}")) if path is not None else []
    in_folder = [file for file in named if file.is_file() or not file.exists()]  # a pipe would be waited for
    if not in_folder:
        raise ConfigError(
            f"corpus.path: got {corpus.path or 'null'}; must be a .{suffix} file or a folder of "
            "them; set corpus.path=PATH"
        )
    return [file for file in in_folder if _TRAINING.search(file.stem)] or in_folder


def _from_hub(names: list[str], limit: config.Limit, seed: int) -> Sequence[str]:
    """Data sets named `owner/name` or `owner/name/config`. Texts are read from disk lazily."""
    from datasets import concatenate_datasets, load_dataset

    if not names:
        raise ConfigError("corpus.name: got []; must name data sets on the Hugging Face hub; set corpus.name=[NAME]")
    parts = []
    for name in names:
        owner_and_name, subset = parted(name)
        try:
            part = load_dataset(owner_and_name, subset or None, split="train", revision=_revision(owner_and_name))
        # The libraries that `datasets` uses raise many unrelated errors when a host is unreachable.
        except Exception as error:
            raise ConfigError(
                f"corpus.name: got {name}; must be a data set on the Hugging Face hub (it is unreachable, or has no "
                "such data set); set corpus.kind=parquet corpus.path=DIR"
            ) from error
        if "text" not in part.column_names:
            raise DataError(
                f"{name}: got columns {part.column_names}; must have a column text; choose another data set"
            )
        parts.append(part.select_columns(["text"]))
    whole = concatenate_datasets(parts).shuffle(seed=seed)
    if (count := _max_documents(limit)) is not None:
        whole = whole.select(range(min(count, len(whole))))
    return whole["text"]
