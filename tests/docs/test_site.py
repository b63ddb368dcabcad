"""The site of the documents: what it lists, what is generated for it, and how long its first pages are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from distill import config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOST_WORDS, MOST_IN_A_SENTENCE = 900, 40


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name functions, without calling any."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, name, node: name)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
START = [page if isinstance(page, str) else next(iter(page.values())) for page in SITE["nav"][0]["Start"]]


def pages(part: Any) -> list[str]:
    """The files of a part of the navigation."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [file for each in parts for file in pages(each)]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = pages(SITE["nav"])
    assert sorted(listed) == sorted({*listed})
    assert {*listed} == {"results/README.md", *(page.name for page in DOCS.glob("*.md"))}


@pytest.mark.parametrize("name", ["settings", pytest.param("recipes", marks=pytest.mark.slow)])
def test_a_generated_page_is_current(name: str) -> None:
    generator = runpy.run_path(str(DOCS / f"{name}.py"))
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == generator["page"](), f"run python docs/{name}.py"


def test_settings_have_every_setting_of_a_composed_run() -> None:
    """Of the groups that are not stages: their keys are those that Hydra composes."""
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    composed = config.load_config(["recipe=prune"])
    for group in ("teacher", "student", "target", "budget", "tasks", "transfer", "report"):
        for key in vars(getattr(composed, group)):
            assert f"| `{group}.{key}" in text, key


@pytest.mark.parametrize("name", START)
def test_a_first_page_is_short_and_so_are_its_sentences(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^\|.*$|^#.*$", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    assert len(text.split()) <= MOST_WORDS
    long = [s for part in re.split(r"\n\n|\n- |\n\d+\. ", text) for s in re.split(r"(?<=[.:?!])\s", part)]
    assert not [sentence for sentence in long if len(sentence.split()) > MOST_IN_A_SENTENCE]


def test_every_recipe_of_the_table_of_choices_exists() -> None:
    named = re.findall(r"recipe=([\w/]+)", (DOCS / "which-recipe.md").read_text(encoding="utf-8"))
    assert {*named} <= config.recipes().keys()
