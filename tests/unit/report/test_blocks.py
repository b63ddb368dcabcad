"""Markdown, HTML and the terminal render each kind of block, with all of its text."""

from __future__ import annotations

import io
from typing import Any, get_args

import pytest
from rich.console import Console

from distill.report import html, markdown, terminal
from distill.report import page as pages
from distill.report.decision import decided
from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph, Picture
from distill.report.table import Table
from distill.report.variants import Run
from tests.decoded import decoded

BLOCKS: list[tuple[Block, str, str]] = [
    (Heading("Runs", 1), "# Runs", "<h1>Runs</h1>"),
    (Heading("a <b>"), "## a &lt;b&gt;", "<h2>a &lt;b&gt;</h2>"),
    (Banner("a | b"), "> **a \\| b**", '<div class="banner" role="alert">a | b</div>'),
    (Headline("1 * 2"), "**1 \\* 2**", '<p class="headline">1 * 2</p>'),
    (Paragraph("a `b`"), "a \\`b\\`", '<p class="meta">a `b`</p>'),
    (Code("a <b>\n\nc"), "```bash\na <b>\n\nc\n```", "<pre><code>a &lt;b&gt;\n\nc</code></pre>"),
    (Bullets(["a", "b & c"]), "- a\n- b &amp; c", '<ul class="notes"><li>a</li><li>b &amp; c</li></ul>'),
    (Bullets([]), "", ""),
    (Picture("a.svg", '<?xml?><svg fill="#24292f"/>', "P"), "![P](a.svg)", '<svg fill="currentColor"/>'),
    (Table("T", ("A", "B"), [("x", "1")], 1, ["n"], ["student"]), "| A | B |\n| --- | ---: |\n| x | 1 |\n\n- n", ""),
]


@pytest.mark.parametrize(("block", "text", "element"), BLOCKS)
def test_a_block_in_markdown_and_html(block: Block, text: str, element: str) -> None:
    assert markdown.text([block]) == f"{text}\n"
    assert element in html.document("T", [block])


def test_every_kind_of_block_is_tested() -> None:
    assert {type(block) for block, *_ in BLOCKS} == set(get_args(Block))


def test_every_kind_of_block_but_a_picture_is_shown_on_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    for block, *_ in BLOCKS:
        for part in terminal.parts(block, 80):
            console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.strip() for line in lines if line.strip()] == [
        *("Runs", "a <b>", "a | b", "1 * 2", "a `b`", "a <b>", "c", "a", "b & c", "A  B", "x  1", "n"),
    ]


def test_the_terminal_shows_a_selection_of_the_page(results: dict[str, Any]) -> None:
    results["smoke"] = True
    run = Run("", decoded(results))
    page, made = pages.run_page(run, ""), decided(run)
    whole = [line for block in page if isinstance(block, Bullets) for line in block.lines]
    for block in [*pages.summary(run.results, made), *pages.use(made)]:
        assert set(block.lines) <= set(whole) if isinstance(block, Bullets) else block in page
