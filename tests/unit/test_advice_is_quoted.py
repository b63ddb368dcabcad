"""What messages print to be typed comes from `distill.runtime.quoting`: no value is put behind `KEY=` by hand."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "distill"
FILES = sorted(PACKAGE.rglob("*.py"))
_TYPED = re.compile(
    r"\b(?:set|type|run|write|add|choose with|or)\b(?: [^;,]*)?? ['\"]?"
    r"(?:[+~]?[\w.\x00-]+=|--[\w-]+[ =])[\['\"]*(\x00)"
)
"""A setting or an option that a message gives to be typed, up to a value that is put in; \\x00 is what is put in."""


def by_hand(source: str) -> list[str]:
    """The strings in a source that give something to be typed with a value that is not quoted."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "\x00" for part in node.values)
            if _TYPED.search(text):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('f"x: got {a}; must be b; set tasks.text={a}"', 1),
        ('f"x; set {key}.text={a}"', 1),
        ("f\"x; set '{key}={a}'\"", 1),
        ('f"x; set {key}=[{a}]"', 1),
        ('f"x; run python -m distill recipe={a}"', 1),
        ('f"x; set --text {a}"', 1),
        ('f"x; set a=b or c={a}"', 1),
        ('f"x; set {key}=COLUMN"', 0),
        ('f"x; set {advice.setting(key, a)}"', 0),
        ('f"x; set {key}.text=COLUMN, of {names}"', 0),
        ('f"{key}={a}"', 0),
    ],
)
def test_advice_by_hand_is_found(source: str, number: int) -> None:
    assert len(by_hand(source)) == number


def test_advice_is_quoted() -> None:
    found = {str(file.relative_to(PACKAGE)): by_hand(file.read_text(encoding="utf-8")) for file in FILES}
    assert {name: strings for name, strings in found.items() if strings} == {}
    assert len(found) > 200
