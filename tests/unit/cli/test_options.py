"""Settings in messages as options: what is typed in a shell gives the command the same values."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distill.cli.options import as_options
from distill.runtime import quoting

NAMES = ("text", "text_pair", "choices", "label", "separator")

ODD = [
    "text", "текст", "Rückfrage", "C#-Kurs", ";", "it's", 'a "b"', "a=b", "a b", "-x", "$HOME", "${x}", "\\", "a\\",
    '\\"', "a,b", "", "[a]", "x'\"'\"'y", "`id`", "!", "*", "true", "1",
]  # fmt: skip


def typed(message: str) -> list[str]:
    """The words of the advice at the end of a message, as bash reads them."""
    words = message.rpartition("; set ")[2]
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_each_odd_value_reaches_the_command() -> None:
    for value in ODD:
        for name in ("text", "text_pair"):
            message = f"tasks.{name}: got x; must be y; set {quoting.setting(f'tasks.{name}', value)}"
            option = f"--{name.replace('_', '-')}"
            shown = as_options(message, ["tasks"], NAMES)
            assert shown.startswith(f"{option}: got x; must be y; set {option}")
            words = shlex.split(shown.rpartition("; set ")[2])
            assert words == ([f"{option}={value}"] if value.startswith("-") else [option, value])
    quoted = "; set " + " ".join(quoting.option("--text", value) for value in ODD if not value.startswith("-"))
    assert typed(quoted)[1::2] == [value for value in ODD if not value.startswith("-")]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab\"'\\${}[],;= \u00e9"), max_size=8))
def test_any_value_reaches_the_command(value: str) -> None:
    shown = as_options(f"x; set {quoting.setting('tasks.text', value)}", ["tasks"], NAMES)
    assert shlex.split(shown.rpartition("; set ")[2]) == ["--text", value]


@pytest.mark.parametrize(
    ("message", "repeated", "wanted"),
    [
        ("set tasks.text=COLUMN", False, "set --text COLUMN"),
        ("set tasks.text=COLUMN tasks.text_pair=COLUMN", False, "set --text COLUMN --text-pair COLUMN"),
        ("set tasks.separator=';'", False, "set --separator ';'"),
        ("set '{key}.choices=[A,B]'", False, "set --choices A,B"),
        ("set '{key}.label=[A,\"b c\"]'", True, "set --label A --label 'b c'"),
        ("set $'tasks.text=\"a\\x1b\\xc3\\xa9\"'", False, "set --text 'a\x1bé'"),
        ("tasks.texts and subtasks.text stay", False, "tasks.texts and subtasks.text stay"),
        ("tasks.text_pair: got a", False, "--text-pair: got a"),
        ("set tasks.kind=regression", False, "set tasks.kind=regression"),
    ],
)
def test_messages(message: str, repeated: bool, wanted: str) -> None:
    got = as_options(message.replace("{key}", "tasks"), ["tasks", "compare"], NAMES, repeated=repeated)
    assert re.sub(r"\$'a\\x1bé'", "'a\x1bé'", got) == wanted
