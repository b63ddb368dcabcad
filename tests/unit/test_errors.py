"""What is printed for users."""

from __future__ import annotations

import pytest

from distill.errors import DataError, printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ein Größe 大 😀, 'x' \\n", "ein Größe 大 😀, 'x' \\n"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("safe\u202egpj.exe", "safe\\u202egpj.exe"),
        ("\x9b31m \udc80", "\\x9b31m \\udc80"),
    ],
)
def test_a_message_has_no_characters_that_a_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert DataError([f"rows.csv: got {text}"]).messages == [f"rows.csv: got {shown}"]
    assert printable(shown) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("a\x1b\n\nb\n") == "a\\x1b\n\nb\n"
