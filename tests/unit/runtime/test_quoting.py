"""What messages print to be typed: a real bash and Hydra's own parser give back exactly the value."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from distill.runtime import quoting

ODD = [
    "", " ", "  a  ", ";", ",", "#", "'", '"', "\\", "\\\\", "a\\", '\\"', "''", '""', "'\"'", "!", "!!", "$", "${",
    "$(id)", "`id`", "${x}", "\\${x}", "\\\\${x}", "${oc.env:HOME}", "a${b", "}", "[", "]", "{a: 1}", "[a,b]", "(x)",
    "a(1).csv", "rows[v2].csv", "a=b", "=", "~", "~/x", "-x", "--text", "401", "401.0", "005.74", "1e3", "1_000",
    ".5", "5.", "+5", "-5", "0x1F", "true", "True", "null", "NULL", "none", "None", "nan", "NaN", "inf", "-inf",
    "yes", "no", "*", "?", "*.csv", "a b", "a\tb", "a\nb", "\r\n", "\x1b[31m", "\x7f", "текст", "Rückfrage",
    "C#-Kurs", "質問", "🙂", "a\u200db", "\ufeffa", "\u00a0", "a&b", "a|b", "a>b", "<a>", "%PATH%",
    "C:\\data\\rows.csv",
    "//server/x", "a:b", "a: b", ":", "@x", "x@y", "???", "key=val,other=1", "range(3)", "choice(a,b)", "str(1)",
    "a\\\n", "\\\n", "\n\\\\\n", "o'brien", 'say "hi"', "\\\\\"", "\"\\", "a\\ b", "a\\,b", "\udce9.csv",
]  # fmt: skip
ALPHABET = "ab 01.-+_/\\\\\\\"\"''${}$[](),;:#!&|<>~*?=@%^`\t\néя質🙂\u200d"


def words(number: int, longest: int = 9) -> list[str]:
    source = random.Random(number)
    return ["".join(source.choices(ALPHABET, k=source.randint(0, longest))) for _ in range(number)]


def in_bash(typed: list[str]) -> list[str]:
    """The words that bash makes of what is typed, each of which is one word."""
    lines = "".join(f"printf '%s\\0' {word}; printf '\\0'\n" for word in typed)
    done = subprocess.run(
        ["bash", "-c", lines], capture_output=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    )
    assert done.stderr == b""
    return [word.decode("utf-8", "surrogateescape") for word in done.stdout.split(b"\0\0")[:-1]]


def meant(words: list[str]) -> list[Any]:
    """The values that Hydra and OmegaConf make of overrides of the key `a.b`."""
    values = []
    for parsed in OverridesParser.create().parse_overrides(words):
        assert (parsed.key_or_group, parsed.is_sweep_override()) == ("a.b", False)
        values.append(OmegaConf.to_container(OmegaConf.create({"v": parsed.value()}), resolve=True)["v"])  # type: ignore[index, call-overload]
    return values


def values() -> list[Any]:
    texts = [*ODD, *words(300)]
    numbers = [0, -3, 401, 1e-05, 2.5, 1e22, True, False, None]
    source = random.Random(0)
    lists = [[source.choice([*texts, *numbers]) for _ in range(source.randint(0, 4))] for _ in range(100)]
    keys = ["train", "a-b", "_x", "B2"]
    return [*texts, *numbers, *lists, [["a", "ü"], []], *({k: v} for k, v in zip(keys * 9, lists, strict=False))]


def test_a_setting_arrives_as_the_value_that_it_was_made_of() -> None:
    given = [value for value in values() if "\0" not in str(value)]
    arrived = in_bash([quoting.setting("a.b", value) for value in given])
    # `repr` distinguishes 401 from "401", and 1 from True.
    assert [repr(value) for value in meant(arrived)] == [repr(value) for value in given]


def test_a_setting_is_one_line_that_a_terminal_can_show() -> None:
    assert all(quoting.setting("a", text).isprintable() for text in ODD)
    assert quoting.setting("tasks.text", "отзыв") == "'tasks.text=\"отзыв\"'"
    assert quoting.setting("output", "outputs/run-2") == "output=outputs/run-2"


def test_paths_and_options_arrive_in_bash() -> None:
    texts = [text for text in [*ODD, *words(200)] if text]
    assert in_bash([quoting.path(text) for text in texts]) == [f"./{t}" if t.startswith("-") else t for t in texts]
    typed = in_bash([quoting.option("--text", text).replace("--text ", "--text=", 1) for text in texts])
    assert typed == [f"--text={text}" for text in texts]
    shown = quoting.command(["python", *texts])
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {shown}"], capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[1:-1] == texts


@pytest.mark.parametrize("name", ["ü", "a b", "401", "true", "a:b", ""])
def test_a_key_that_the_grammar_cannot_express_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the key"):
        quoting.setting("a", {name: 1})


@pytest.mark.parametrize(("file", "editable"), [("pyproject.toml", "-e "), ("absent.toml", "")])
def test_an_installation_stays_what_it_is(
    file: str, editable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(quoting, "_PROJECT", tmp_path / file)
    start = f"pip install -c constraints.txt {editable}"
    assert quoting.install() == f"{start}. in a checkout of distill"
    assert quoting.install("sweep") == f"{start}'.[sweep]' in a checkout of distill"


def test_the_command_by_which_a_stopped_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.cli import run

    typed = [f"tasks.text={text}" for text in ODD if text.isprintable()]
    monkeypatch.setattr(run, "_typed", typed)
    command = run._stopped().removeprefix("stopped; to go on, run: python -m distill ")
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1] == typed
