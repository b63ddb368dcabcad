"""Each claim of SECURITY.md has a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = re.findall(r"^- (.*?)(?=^- |^\n|^#|\Z)", (ROOT / "SECURITY.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[:40])
def test_a_claim_has_its_test(claim: str) -> None:
    (file, name), *others = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", claim)
    assert not others
    functions = [node for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)]
    assert name in {function.name for function in functions}


def test_there_are_claims() -> None:
    assert len(CLAIMS) > 20
