"""English prose from the docstrings of the Python packages that are installed anyway.

Sources are read as text and never imported. A regular expression finds the docstrings: it reads in
seconds what the `ast` module takes half a minute to parse, and the odd string that is none is prose
too or is filtered out.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from distill import checkpoint

PACKAGES = (
    "torch", "python", "transformers", "sympy", "pandas", "numpy", "networkx", "huggingface_hub",
    "scipy", "sklearn", "matplotlib", "datasets", "accelerate", "onnx", "fsspec", "rich", "PIL",
    "jinja2", "sentence_transformers", "pyarrow", "mpmath", "setuptools", "pip",
)  # fmt: skip
"""Import names, `python` for the standard library. What is not installed is passed over."""

VALIDATION_SHARE = 0.1
"""Share of the source files whose docstrings are kept for validation, and out of the corpus."""

_FORMAT = "1"
"""Changed whenever the same sources give other documents, so that old caches are not used."""

_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow"}
_SKIPPED = set("test tests testing _testing site-packages _vendor externals lib2to3 idlelib".split())

_DOCSTRING = re.compile(r'(?:\A|:[ \t]*(?:#[^\n]*)?\n)\s*[rR]?"""(.*?)"""', re.DOTALL)
_ROLE = re.compile(r":[a-z:]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_*|\[([^\]]+)\]\([^)]*\)")
_MARK = re.compile(r"`+_?|\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)")
_NO_PROSE = re.compile(r"[\\{}<>|=#@~^]|>>>|\.\. |::|https?:|:param|--|\[\d|\bnan\b|^\W*\d")
_COMMON = frozenset("the a an of to is in and for are be this that it with as by or from on which".split())
_KEY = re.compile(r"[^a-z]+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Document:
    """The prose of one docstring."""

    package: str
    file: str
    """Path of the source file below its package."""
    paragraphs: tuple[str, ...]

    @property
    def validation(self) -> bool:
        """Whether its source file is kept for validation: a hash of its name, whatever the seed."""
        digest = hashlib.sha256(f"{self.package}/{self.file}".encode()).digest()
        return int.from_bytes(digest[:4], "big") < VALIDATION_SHARE * 2**32


def versions() -> dict[str, str]:
    """Installed packages of PACKAGES and their versions, in that order."""
    found = {}
    for package in PACKAGES:
        if package == "python":
            found[package] = platform.python_version()
        elif _spec(package) is not None:
            try:
                found[package] = metadata.version(_DISTRIBUTIONS.get(package, package))
            except metadata.PackageNotFoundError:  # a stray folder of that name
                continue
    return found


@functools.cache
def documents() -> tuple[Document, ...]:
    """Every document of every package, always in the same order; no paragraph occurs twice.

    Kept in `$XDG_CACHE_HOME/distill` (default `~/.cache`) for these versions of the packages.
    """
    installed = versions()
    key = hashlib.sha256(repr((_FORMAT, sorted(installed.items()))).encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = root / "distill" / f"docstrings-{key}.parquet"
    try:
        rows = pq.read_table(cache).to_pylist()
        return tuple(Document(r["package"], r["file"], tuple(r["paragraphs"])) for r in rows)
    except (pa.ArrowException, OSError):  # not there yet, or cut short
        found = tuple(unique(d for package in installed for d in read(package)))
        with contextlib.suppress(OSError):  # without a cache the next run takes some seconds longer
            _save(found, cache)
        return found


def read(package: str) -> Iterator[Document]:
    """The documents of one package, file by file."""
    root = _folder(package)
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        if _SKIPPED.isdisjoint(path.parts) and not file.name.startswith("test_"):
            for text in _DOCSTRING.findall(file.read_text(encoding="utf-8", errors="ignore")):
                if found := prose(text):
                    yield Document(package, path.as_posix(), found)


def prose(docstring: str) -> tuple[str, ...]:
    """The paragraphs of a docstring that are English sentences, a line each, without markup."""
    blocks = re.split(r"\n[ \t]*\n", inspect.cleandoc(docstring))
    # Indented lines are code, or the meaning of a parameter.
    flat = (block for block in blocks if not re.search(r"(?m)^[ \t]", block.strip("\n")))
    return tuple(text for text in map(_clean, flat) if _is_prose(text))


def sentences(paragraph: str) -> list[str]:
    return _SENTENCE.split(paragraph)


def unique(found: Iterable[Document]) -> Iterator[Document]:
    """Without the paragraphs that came before, case and everything but letters disregarded."""
    seen: set[str] = set()
    for document in found:
        kept = []
        for paragraph in document.paragraphs:
            key = _KEY.sub("", paragraph.lower())
            if key not in seen:
                seen.add(key)
                kept.append(paragraph)
        if kept:
            yield Document(document.package, document.file, tuple(kept))


def _clean(block: str) -> str:
    text = _ROLE.sub(r"\1", block)
    text = _LINK.sub(lambda match: match[1] or match[2], text)
    return " ".join(_MARK.sub("", text).split())


def _is_prose(text: str) -> bool:
    words = text.split()
    if not (4 <= len(words) <= 400 and text[0].isupper() and text[-1] in ".!?"):
        return False
    if _NO_PROSE.search(text):
        return False
    letters = sum(map(str.isalpha, text)) + len(words)
    common = sum(word.lower() in _COMMON for word in words)
    return letters >= 0.9 * len(text) and common >= max(1, len(words) // 10)


def _spec(package: str) -> ModuleSpec | None:
    """Where a package is. Whoever asks `find_spec` for pip has setuptools' distutils taken away by setuptools, and
    torch can compile no more: pip is looked for on the path alone.
    """
    return PathFinder.find_spec(package) if package == "pip" else util.find_spec(package)


def _folder(package: str) -> Path:
    if package == "python":
        return Path(sysconfig.get_path("stdlib"))
    spec = _spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _save(found: tuple[Document, ...], cache: Path) -> None:
    table = pa.table(
        {
            "package": [d.package for d in found],
            "file": [d.file for d in found],
            "paragraphs": [list(d.paragraphs) for d in found],
        }
    )
    with checkpoint.writing_file(cache) as temporary:
        pq.write_table(table, temporary)
