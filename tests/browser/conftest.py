"""Headless Chromium, and pages for it. Tests are skipped where there is no browser or no playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distill.report.variants import Run
from distill.report.web import page
from distill.runtime.storage.atomic import read_json
from tests.decoded import decoded
from tests.enriched import disagreeing, enriched

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is absent: install the extra `browser`")
    binary = next((found for name in NAMES if (found := shutil.which(name))), None)
    if binary is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with playwright.sync_playwright() as started:  # each launch has a fresh profile
        running = started.chromium.launch(executable_path=binary, args=list(QUIET))
        yield running
        running.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """`opened(runs, **settings of the browser's page)`: the page, drawn. An error or a request fails the test."""
    pages, problems, requests = [], list[str](), list[str]()

    def show(runs: list[Run], **settings: Any) -> Any:
        file = tmp_path / f"{len(pages)}.html"
        file.write_text(page(runs, "Test"), encoding="utf-8")
        shown = browser.new_page(**settings)
        pages.append(shown)
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        shown.on("request", lambda request: requests.append(request.url))
        shown.goto(file.as_uri())
        shown.wait_for_selector("html[data-ready=figure]")
        return shown

    yield show
    for shown in pages:
        shown.close()
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def committed(name: str) -> dict[str, Any]:
    """Results of a committed run."""
    found: dict[str, Any] = read_json(ROOT / "docs" / "results" / name / "results.json")
    return found


@pytest.fixture
def run() -> Run:
    """A committed run with invented values of all new keys."""
    results = enriched(committed("compression/frontier/seed0"))
    tasks = [row["task"] for row in results["coverage"] if row["split"] == "validation"]
    return Run("outputs/frontier", decoded(results), disagreeing(tasks))
