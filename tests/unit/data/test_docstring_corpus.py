"""Prose out of source files: a made-up package, and texts whose right answer is plain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distill.data import docstring_corpus
from distill.data.docstring_corpus import Document
from distill.runtime.storage import file_hashes

SOURCE = '''"""Keeps the weather of an island in a small table.

The table has a row for each day, and is read from the start.
"""
import nothing_of_this_name


def rain(day: int) -> float:
    r"""
    Return the rain of a day as it was measured in the morning.

    Args:
        day: the number of the day, counted from the first.

    >>> rain(3)
    2.0

    Days before the first are taken to be dry by the :class:`~weather.Table`.
    """
    template = """This is a string that is no docstring at all."""
    return 2.0


class Wind:
    """x = y"""
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `weather`, the only one there is."""
    root = tmp_path / "weather"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text(SOURCE)
    (root / "tests" / "case.py").write_text('"""A text of the tests that is not to be read."""')
    monkeypatch.setattr(docstring_corpus, "folder", lambda name: root)
    monkeypatch.setattr(docstring_corpus, "versions", lambda: {"weather": "1"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    docstring_corpus.documents.cache_clear()
    yield root
    docstring_corpus.documents.cache_clear()


def test_docstrings_are_found_without_importing(package: Path) -> None:
    assert list(docstring_corpus.read("weather")) == [
        Document(
            "weather",
            "__init__.py",
            (
                "Keeps the weather of an island in a small table.",
                "The table has a row for each day, and is read from the start.",
            ),
        ),
        Document(
            "weather",
            "__init__.py",
            (
                "Return the rain of a day as it was measured in the morning.",
                "Days before the first are taken to be dry by the weather.Table.",
            ),
        ),
    ]


def test_documents_are_kept_in_a_cache_that_survives_damage(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = docstring_corpus.documents()
    (file,) = (tmp_path / "cache" / "distill" / "tables").rglob("*.arrow")
    (package / "__init__.py").write_text("")
    docstring_corpus.documents.cache_clear()
    assert docstring_corpus.documents() == first
    assert len(first) == 2
    file.write_bytes(file.read_bytes()[:-9])
    docstring_corpus.documents.cache_clear()
    assert docstring_corpus.documents() == ()
    monkeypatch.setattr(docstring_corpus, "versions", lambda: {"weather": "2"})
    docstring_corpus.documents.cache_clear()
    docstring_corpus.documents()
    assert len(list((tmp_path / "cache" / "distill" / "tables").rglob("*.arrow"))) == 2


@pytest.mark.parametrize(
    ("installed", "noticed"),
    [
        (None, False),
        ('{"archive_info": {}, "url": "file:///weather.whl"}', False),
        ('{"dir_info": {"editable": true}, "url": "file:///weather"}', True),
        ('{"dir_info": {}, "url": "file:///weather"}', True),
        ('{"vcs_info": {"vcs": "git"}, "url": "https://example.org/weather"}', True),
    ],
)
def test_sources_without_a_version_of_their_own_are_known_by_their_content(
    installed: str | None, noticed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "weather-1.0.dist-info"
    for file, content in {
        info / "METADATA": "Metadata-Version: 2.1\nName: weather\nVersion: 1.0\n",
        tmp_path / "weather" / "__init__.py": SOURCE,
        **({info / "direct_url.json": installed} if installed else {}),
    }.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(docstring_corpus, "PACKAGES", ("weather",))
    file_hashes.of_code.cache_clear()
    before = docstring_corpus.versions()
    assert before["weather"].startswith("1.0")
    (tmp_path / "weather" / "__init__.py").write_text(SOURCE.replace("small", "large"))
    file_hashes.of_code.cache_clear()
    assert (docstring_corpus.versions() != before) is noticed
    file_hashes.of_code.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "Too short.",
        "no capital at the start of the sentence here.",
        "There is no full stop at the end of this",
        "The value of x = 3 is the one that is used.",
        ">>> the code of a test is not a sentence.",
        "    This is indented as the code of an example is.",
        "Alpha beta gamma delta epsilon zeta eta theta.",
    ],
)
def test_text_that_is_not_prose_is_dropped(text: str) -> None:
    assert docstring_corpus.prose("Some heading\n\nand more\n\n" + text) == ()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("The ``name`` of *the* **day** is kept.", "The name of the day is kept."),
        ("See the :func:`~a.b.rain` of\nthe day.", "See the a.b.rain of the day."),
        ("This is `the table <https://x.org>`_ of days.", "This is the table of days."),
        ("This is [the table](https://x.org) of days.", "This is the table of days."),
    ],
)
def test_markup_is_taken_out(text: str, clean: str) -> None:
    assert docstring_corpus.prose(text) == (clean,)


def test_a_paragraph_occurs_once() -> None:
    found = [
        Document("a", "x.py", ("The wind is from the west.", "It is a calm day.")),
        Document("b", "y.py", ("THE wind is from the West!", "It is a wet day.")),
        Document("b", "z.py", ("It is a calm day.",)),
    ]
    assert [d.paragraphs for d in docstring_corpus.unique(found)] == [
        ("The wind is from the west.", "It is a calm day."),
        ("It is a wet day.",),
    ]


def test_validation_is_a_share_of_the_files_and_whole_files() -> None:
    flags = [Document("a", f"{i}.py", ()).validation for i in range(4000)]
    share = docstring_corpus.VALIDATION_SHARE
    assert abs(sum(flags) / 4000 - share) < 4 * (share * (1 - share) / 4000) ** 0.5
    assert Document("a", "7.py", ("Any.",)).validation == Document("a", "7.py", ()).validation


def test_torch_can_still_compile() -> None:
    """It imports setuptools for that, which fails once `importlib.util.find_spec` was asked for pip."""
    code = "from distill.data import docstring_corpus; docstring_corpus.versions(); import setuptools"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
