"""Names and texts of strangers in reports, cards, tables and pages; damaged and hostile files in folders of runs."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from distill.errors import DataError
from distill.report import __main__ as command
from distill.report import figure, html, markdown, model_card, read_runs, show, web
from distill.report import page as pages
from distill.report.card import front_matter
from distill.report.choose import Ask
from distill.report.export import write_csv
from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph
from distill.report.read import read_one, read_rows
from distill.report.table import Table
from distill.report.variants import Run, groups, variants
from distill.report.web.data import page_data
from tests.decoded import decoded
from tests.enriched import Parsed

Results = dict[str, Any]
ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)

LINKS = ("![a](https://evil.example/x.png)", "[a](javascript:alert(1))", "[a]: https://evil.example", "[a][a]")
HTML = ("<img src=x onerror=alert(1)>", "<https://evil.example>", "</td>", "<!--", "<script>", "&lt;", "&#60;")
PIECES = (
    *(*LINKS, *HTML, "[a]", "![", "](", "[", "]", "(", ")", "&", "`", "```", "~~~", "~~", "**", "*", "_", "__", "|"),
    *(
        "\\",
        "\\|",
        "\n",
        "\n\n",
        "\r",
        "\t",
        "    ",
        " ",
        "#",
        "# ",
        " #",
        "- ",
        "+ ",
        "1. ",
        "1) ",
        "---",
        "===",
        "> ",
    ),
    *(":", "$", "!", "x", "a b", "0", "é", "\u2028", "\u202e", "\x1b[31m", "\x9b", "\x85", "\ufeff", "\U0001f600"),
    *("https://evil.example", "www.evil.example", "ann@evil.example", "@ann", "mailto:a@b.example"),
    *("'", '"', "{{ 7 * 7 }}", "%{x}"),
)
strangers = st.lists(st.sampled_from(PIECES), max_size=7).map("".join)

RENDERED = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {
    "paragraph",
    "inline",
    "text",
    "text_special",
    "strong",
    "heading",
    "blockquote",
    "bullet_list",
    "list_item",
    "fence",
}
OURS |= {"table", "thead", "tbody", "tr", "th", "td"}


ADDRESS = r"(?i)://\S|www\.\S|@\S"


def shown(text: str) -> list[tuple[str, str]]:
    """(kind, content) of all tokens that a page of Markdown becomes, without empty comments."""
    every = RENDERED.parse(text)
    flat = [each for token in every for each in (token, *(token.children or ()))]
    tokens = [(re.sub("_(open|close)$", "", token.type), token.content) for token in flat]
    return [token for token in tokens if token != ("html_inline", "<!-- -->")]


def plain(text: str) -> str:
    from distill.errors import visible

    return " ".join(visible(text).split())


@ANY
@given(strangers)
def test_any_text_is_text_in_markdown(text: str) -> None:
    assume(plain(text))
    blocks: list[Block] = [
        Heading(text, 2),
        Banner(text),
        Headline(text),
        Paragraph(text),
        Bullets([text, text]),
        Code(text),
        Table("t", (text, "n"), [(text, text), ("-", "1")], 1, [text]),
    ]
    tokens = shown(markdown.text(blocks))
    assert {kind for kind, _ in tokens} <= OURS
    # GitHub looks for addresses and names of users in each text by itself, after entities are replaced.
    assert not [content for kind, content in tokens if kind == "text" and re.search(ADDRESS, content)]
    # One of each block, whatever the text begins or ends with, and the table has its two columns.
    kinds = [kind for kind, _ in tokens]
    counts = {kind: kinds.count(kind) for kind in ("heading", "bullet_list", "list_item", "blockquote", "fence", "td")}
    assert counts == {"heading": 2, "bullet_list": 4, "list_item": 6, "blockquote": 2, "fence": 1, "td": 8}


@ANY
@given(strangers)
def test_a_text_reads_as_it_is_in_markdown(text: str) -> None:
    for block in (Paragraph(text), Heading(text, 1), Bullets([text])):
        tokens = shown(markdown.text([block]))
        assert "".join(content for kind, content in tokens if kind in ("text", "text_special")) == plain(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("93.1 [92.0, 94.0]", "93.1 [92.0, 94.0]"),
        ("Retained % [95%]", "Retained % [95%]"),
        ("fp32_medium", "fp32_medium"),
        ("_seen_ __init__", r"\_seen\_ \_\_init\_\_"),
        ("[1](x)", r"\[1\](x)"),
        ("[1]: x", r"\[1\]: x"),
        ("[x] done", r"\[x\] done"),
        ("http://evil.example www.evil.example", "http:<!-- -->//evil.example www<!-- -->.evil.example"),
        ("https://huggingface.co/a/b", "https:<!-- -->//huggingface.co/a/b"),
        ("mailto:a@evil.example @someone", "mailto:a@<!-- -->evil.example @<!-- -->someone"),
        ("-", "-"),
    ],
)
def test_what_is_escaped(text: str, wanted: str) -> None:
    assert markdown.escaped(text) == wanted


@pytest.mark.parametrize("text", ["# x", "- x", "+ x", "1. x", "12) x", "---", "- - -"])
def test_a_line_begins_no_block(text: str) -> None:
    kinds = {kind for kind, _ in shown(markdown.text([Paragraph(text)]))}
    assert kinds <= {"paragraph", "inline", "text", "text_special"}


@pytest.mark.slow
@ANY
@given(
    st.recursive(
        strangers | st.text() | st.integers() | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | strangers, inner, max_size=3),
        max_leaves=6,
    )
)
def test_front_matter_reads_back_exactly(value: Any) -> None:
    front = {"license": value, "tags": [value], "model-index": [{"name": value}]}
    text = front_matter(front)
    assert yaml.safe_load(text) == front
    assert not re.search(r"^(---|\.\.\.)", text, flags=re.MULTILINE)
    assert text.splitlines()[0].startswith("license:")


def hostile(results: Results, text: str) -> Results:
    """Results in which every name and text is the stranger's."""
    results["recipe"] = results["teacher_name"] = results["version"] = text
    results["notes"] = [text]
    results["environment"] |= {"cpu": text, "gpu": text}
    results["made_from"] = [
        {"name": text, "hub": None, "license": text, "license_name": text, "license_link": text},
    ]
    for number, model in enumerate(results["models"]):
        model["name"] = f"{text}{number}"
        model["target"] = text
        model["scheme"] = text
        model["recall"] = {"rte": {text: 50.0}}
        model["scores"][text] = {text: 50.0}
    for row in results["coverage"]:
        row["labels"] = {text: 1}
    results["stages"][0] |= {"name": text, "target": text}
    return results


EVIL = "![a](https://evil.example/a.png)<img src=x onerror=alert(1)>|[b](javascript:x) \x1b[31m\u202e\n# c\n---\n=1"


def test_names_of_strangers_in_every_output(results: Results, tmp_path: Path) -> None:
    import copy

    evil, tame = (hostile(copy.deepcopy(results), text) for text in (EVIL, "tame"))
    report = markdown.text(pages.run_page(Run("", decoded(evil)), ""))
    card = model_card(decoded(evil), EVIL, "rte")
    front, body = card.removeprefix("---\n").split("---\n\n", 1)
    for text in (report, body):
        pictures = [content for kind, content in shown(text) if kind in ("image", "link", "html_inline", "html_block")]
        assert pictures == ["Retained % against speedup"] * (text is report)
        assert "\u202e" not in text
        assert "\x1b" not in text
    assert yaml.safe_load(front)["license"] == EVIL
    assert "license_link" not in yaml.safe_load(front)
    drawn = [figure.svg(figure.points(decoded(each))) for each in (evil, tame)]
    documents = [
        html.document("t", pages.run_page(Run("", decoded(each)), svg))
        for each, svg in zip((evil, tame), drawn, strict=True)
    ]
    ours, plain_ones = (Parsed(document).tags for document in documents)
    assert {tag for tag, _ in ours} == {tag for tag, _ in plain_ones}
    assert not [name for _, attributes in ours for name in attributes if name.startswith("on")]
    assert not {"\u202e", "\x1b"} & {*documents[0], *drawn[0]}
    data = web.embedded(page_data([Run("here", decoded(evil))]))
    assert not {"<", ">", "&", "\u202e", "\x1b"} & {*data}
    assert json.loads(data)["variants"][0]["name"].startswith("![a](https://evil.example/a.png)<img")
    console = Console(file=io.StringIO(), width=200)
    show(Run("", decoded(evil)), {EVIL: Path(EVIL)}, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert not [character for character in printed if not character.isprintable() and character != "\n"]
    write_csv([Run("=here", decoded({**evil, "recipe": "=1"}))], tmp_path / "variants.csv")
    import csv

    with (tmp_path / "variants.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["run"], rows[0]["recipe"]) == ("'=here", "'=1")
    assert float(rows[0]["retained"]) == 100.0
    assert len(rows) == len(evil["models"])


@pytest.mark.parametrize("link", ["javascript:alert(1)", "data:text/html,x", "https://a b", "//evil.example", "x:y"])
def test_a_link_to_a_licence_is_a_web_page_or_a_file(link: str, results: Results) -> None:
    source = {"name": "bert", "hub": None, "license": "other", "license_name": "n", "license_link": link}
    results["made_from"] = [source]
    front = model_card(decoded(results), None, "cola").split("---\n")[1]
    assert "license_link" not in yaml.safe_load(front)
    for good in ("https://example.org/LICENSE", "LICENSE.md"):
        source["license_link"] = good
        assert f"license_link: {good}" in model_card(decoded(results), None, "cola")


def test_a_choice_prints_no_commands_to_a_terminal(
    results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a\u202e\x1b]0;x\x07"
    folder.mkdir()
    for model in results["models"]:
        model["name"] = f"\x1b[31m{model['name']}\u200b"
    (folder / "results.json").write_text(json.dumps(results))
    assert command.main([str(tmp_path), "--choose", "retained=50"]) == 0
    printed = capsys.readouterr().out
    assert "Ship \\x1b[31m" in printed
    assert not [character for character in printed if not character.isprintable() and character != "\n"]


def test_progress_shows_names_as_they_are() -> None:
    from distill.runtime.progress import Bar, shown_on, waiting

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=100)
    with Bar(console, "[red]a[/b]\u202e", 2) as bar:
        bar.update(2, "[link=x]\x9b2J")
    with shown_on(console), waiting("[blink]b[/x]"):
        pass
    assert "[red]a[/b]\\u202e" in file.getvalue()
    assert "[link=x]\\x9b2J" in file.getvalue()
    assert "[blink]b[/x]" in file.getvalue()


def row(**more: Any) -> dict[str, Any]:
    known = {"task": "t", "split": "validation", "row": 1, "text": "x", "teacher": "a", "student": "b", "label": None}
    return known | more


DAMAGE: dict[str, tuple[str, str]] = {
    "list": ("[]", "results.json"),
    "nothing": ("", "results.json"),
    "half": ('{"schema": 3', "results.json"),
    "schema of another type": ('{"schema": [3]}', "schema"),
    "true": ('{"schema": true}', "schema"),
    "deep": ("[" * 100_000, "too deep"),
    "deep, but closed": ("[" * 900 + "]" * 900, "too deep"),
    "deep objects": ('{"a":' * 60 + "1" + "}" * 60, "too deep"),
    "NaN": ('{"schema": NaN}', "NaN"),
    "infinite": ('{"schema": 1e999}', "a number beyond"),
    "long number": ('{"schema": ' + "9" * 5000 + "}", "results.json"),
    "large number": ('{"schema": ' + "9" * 400 + "}", "a number beyond"),
    "surrogate": ('{"recipe": "\\ud800"}', "lone surrogate"),
    "surrogate as a key": ('{"\\udfff": 1}', "lone surrogate"),
}


@pytest.mark.parametrize("content", ['{"schema": 3}', '{"schema": 5}', '{"accuracy": 0.91}'])
def test_a_file_of_another_version_or_program_is_left_out(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], results: Results
) -> None:
    for name, text in (("good", json.dumps(results)), ("other", content)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(text)
    assert command.main([str(tmp_path), "--choose", "retained=50"]) == 0
    assert capsys.readouterr().err.startswith(f"left out: {tmp_path}/other/results.json: ")
    assert command.main([str(tmp_path / "other"), "--choose", "retained=50"]) == 2


@pytest.mark.parametrize(("content", "wanted"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused_by_name(
    content: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], results: Results
) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "good/results.json").write_text(json.dumps(results))
    file = tmp_path / "bad/results.json"
    file.write_text(content)
    began = time.monotonic()
    assert command.main([str(tmp_path), "--choose", "retained=50"]) == 2
    assert time.monotonic() - began < 5
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert wanted in printed.err
    assert printed.err.startswith(f"{file}: ")


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    import os

    (tmp_path / "results.json").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * ((8 << 20) + 1))
    (tmp_path / "latin").write_bytes(b'{"a": "\xff"}')
    (tmp_path / "zero").symlink_to("/dev/zero")
    wanted = {"results.json": "a folder", "pipe": "a device or a pipe", "large": "MiB", "latin": "not UTF-8"}
    for name, what in (wanted | {"zero": "a device or a pipe", "absent": "cannot be read"}).items():
        with pytest.raises(DataError, match=re.escape(f"{tmp_path / name}: got ")) as error:
            read_one(tmp_path / name)
        assert what in str(error.value)
    with pytest.raises(DataError, match="a folder"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[1]",
        "[{}]",
        json.dumps([row(task=["sst2"])]),
        json.dumps([row(), row(text=None)]),
        json.dumps([row(row="1")]),
        json.dumps([row(label=[1])]),
        json.dumps([row(label=True)]),
        json.dumps([row()]).replace("null", "NaN"),
        json.dumps([row(text="\ud800")]),
        "[" * 5000,
    ],
)
def test_damaged_rows_are_refused_by_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "disagreements.json").write_text(content)
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'disagreements.json'}")):
        read_rows(tmp_path)


def test_rows_of_every_type_are_read(tmp_path: Path) -> None:
    rows = [row(), row(label="a"), row(label=1.5), row(label=2), row(extra=[1])]
    (tmp_path / "disagreements.json").write_text(json.dumps(rows))
    assert [read.label for read in read_rows(tmp_path)] == [None, "a", 1.5, 2, None]


def leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [place, *(leaf for key, item in value.items() for leaf in leaves(item, (*place, key)))]
    if isinstance(value, list):
        return [place, *(leaf for key, item in enumerate(value) for leaf in leaves(item, (*place, key)))]
    return [place]


ODD: list[Any] = [None, " ", 0, -1, 1, 10**17, 1e17, 5e-324, 0.5, "", "x", [], {}, True, [1, 2], [2, 1], {"x": 1}, EVIL]


def changed(results: Results, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> None:
    *way, last = place
    inner: Any = results
    for key in way:
        inner = inner[key]
    change(inner, last)


@pytest.mark.slow
@settings(ANY, max_examples=300)
@given(data=st.data())
def test_any_change_of_results_ends_in_a_page_or_a_message(data: st.DataObject, tmp_path_factory: Any) -> None:
    from tests.unit.report.conftest import complete

    results = complete()
    places = [place for place in leaves(results) if place]
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places))
        value = data.draw(st.sampled_from([*ODD, "remove"]))
        try:
            changed(results, place, (lambda inner, key: inner.pop(key)) if value == "remove" else set_to(value))
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change took it away
    file = Path(str(tmp_path_factory.getbasetemp())) / "results.json"
    file.write_text(json.dumps(results))
    try:
        read = read_one(file)
    except DataError:
        return
    run = Run("here", decoded(read))
    markdown.text(pages.run_page(Run("", decoded(read)), ""))
    web.embedded(page_data([run]))
    command._choices([run], Ask())
    assert variants([run])
    assert groups([run])


def set_to(value: Any) -> Callable[[Any, Any], None]:
    def change(inner: Any, key: Any) -> None:
        inner[key] = value

    return change


def test_brackets_without_end_are_escaped_at_once() -> None:
    """They took minutes."""
    assert markdown.escaped("[" * 60_000) == r"\[" * 60_000
    assert markdown.escaped("97.1 [96.0, 98.2]") == "97.1 [96.0, 98.2]"


def test_ctrl_c_ends_a_report_in_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "write_overview", stop)
    assert command.main([str(tmp_path)]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_the_card_of_a_retriever_has_the_calls_for_queries_and_documents(results: Results) -> None:
    """`encode` puts the prompt of neither before a text."""
    kind = "sentence-similarity"
    alike, retriever = (model_card(decoded(results), None, "cola", kind, retrieves=which) for which in (False, True))
    assert "embedder.encode([" in alike
    assert "embedder.encode_query([" in retriever
    assert "embedder.encode_document([" in retriever
    assert "embedder.encode([" not in retriever
