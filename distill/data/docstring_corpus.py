"""English prose from the docstrings of installed Python packages.

Source files are read as text and never imported. Docstrings are extracted with a regular expression, in seconds where
parsing with `ast` takes half a minute. Some other strings match as well; if they are not prose, they are filtered out.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pyarrow as pa

from distill.runtime.storage import file_hashes, store

PACKAGES = (
    "torch", "python", "transformers", "sympy", "pandas", "numpy", "networkx", "huggingface_hub",
    "scipy", "sklearn", "matplotlib", "datasets", "accelerate", "onnx", "fsspec", "rich", "PIL",
    "jinja2", "sentence_transformers", "pyarrow", "mpmath", "setuptools", "pip",
)  # fmt: skip
"""Import names; `python` is the standard library. Packages that are not installed are skipped."""

VALIDATION_SHARE = 0.1
"""Share of the source files whose docstrings are held out of the corpus for validation."""

_FILE = "documents.arrow"
_FORMAT = "1"
"""Version of the extraction: to be increased with every change to its output, so that old caches are not used."""

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
        """Whether its source file is held out for validation, by a hash of its name that is independent of any seed."""
        digest = hashlib.sha256(f"{self.package}/{self.file}".encode()).digest()
        return int.from_bytes(digest[:4], "big") < VALIDATION_SHARE * 2**32


def versions() -> dict[str, str]:
    """Version of each package of PACKAGES that is installed, in that order; with a hash of the sources of one that is
    installed from a folder or a repository."""
    installed = {}
    for package in PACKAGES:
        if package == "python":
            installed[package] = platform.python_version()
        elif _spec(package) is not None:
            try:
                found = metadata.distribution(_DISTRIBUTIONS.get(package, package))
                installed[package] = (
                    f"{found.version}+{file_hashes.of_code(folder(package))[:16]}" if _edited(found) else found.version
                )
            except metadata.PackageNotFoundError:  # some folder of that name, not the package
                continue
    return installed


def _edited(package: metadata.Distribution) -> bool:
    """Whether a package was installed from a folder or a repository, where many sources have the same version."""
    try:
        return not {"dir_info", "vcs_info"}.isdisjoint(json.loads(package.read_text("direct_url.json") or "{}"))
    except ValueError:
        return True


@functools.cache
def documents() -> tuple[Document, ...]:
    """All documents of all installed packages, in a fixed order and without duplicate paragraphs.

    Kept in the user's cache by the versions of the packages.
    """
    installed = versions()
    key = hashlib.sha256(repr((_FORMAT, sorted(installed.items()))).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        _save(tuple(unique(d for package in installed for d in read(package))), folder / _FILE)

    file = store.get_or_make("tables", key, make) / _FILE
    rows = pa.ipc.open_file(pa.memory_map(str(file))).read_all().to_pylist()
    return tuple(Document(r["package"], r["file"], tuple(r["paragraphs"])) for r in rows)


def read(package: str) -> Iterator[Document]:
    """The documents of one package, file by file."""
    root = folder(package)
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        if _SKIPPED.isdisjoint(path.parts) and not file.name.startswith("test_"):
            for text in _DOCSTRING.findall(file.read_text(encoding="utf-8", errors="ignore")):
                if paragraphs := prose(text):
                    yield Document(package, path.as_posix(), paragraphs)


def prose(docstring: str) -> tuple[str, ...]:
    """The paragraphs of a docstring that are English sentences, each on one line and without markup."""
    blocks = re.split(r"\n[ \t]*\n", inspect.cleandoc(docstring))
    # Blocks with indented lines are code, or descriptions of parameters.
    flat = (block for block in blocks if not re.search(r"(?m)^[ \t]", block.strip("\n")))
    return tuple(text for text in map(_clean, flat) if _is_prose(text))


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph: split after `.`, `!` or `?` before a capital letter."""
    return _SENTENCE.split(paragraph)


def unique(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents without repeated paragraphs; only letters are compared, and case is ignored."""
    seen: set[str] = set()
    for document in documents:
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
    """The import spec of a package. pip is looked up on the path alone: `find_spec("pip")` makes setuptools remove its
    distutils, after which torch cannot compile.
    """
    return PathFinder.find_spec(package) if package == "pip" else util.find_spec(package)


def folder(package: str) -> Path:
    if package == "python":
        return Path(sysconfig.get_path("stdlib"))
    spec = _spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _save(harvested: tuple[Document, ...], file: Path) -> None:
    table = pa.table(
        {
            "package": [d.package for d in harvested],
            "file": [d.file for d in harvested],
            "paragraphs": [list(d.paragraphs) for d in harvested],
        }
    )
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
