"""What `distill advise` prints, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from distill.cli import advise


def test_what_may_be_a_secret_in_an_address_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = advise.Row("the teacher", "torch fp32", 2.0, 4.0, 1.0, 100.0)

    def measured(configs: Mapping[str, Any], shown: Callable[[str, advise.Advice], None]) -> None:
        for name in configs:
            shown(name, advise.Advice([row], False, {}, [4.0]))

    monkeypatch.setattr(advise, "settings", lambda *given: None)
    monkeypatch.setattr(advise, "advise", measured)
    assert advise.main(["bert", "https://me:thepassword@host/a.csv?sig=thesignature", "--speedup", "4"]) == 0
    shown = "".join(capsys.readouterr())
    assert """teacher.name=bert 'tasks.train="https://...@host/a.csv?..."' target.speedup=4""" in shown
    assert "thepassword" not in shown
    assert "thesignature" not in shown
