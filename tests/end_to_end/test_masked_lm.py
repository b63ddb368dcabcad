"""Whole runs whose edited rows have words that a masked language model predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distill.errors import UserError
from distill.pipeline.context.folder import TRANSFER, RunFolder
from distill.runtime.storage import atomic
from tests import tiny


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    rows = [f"{tiny.SENTENCES[n % 8]} on day {n},{'xy'[n % 2]}" for n in range(64)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    tiny.save(tmp_path / "masked", "bert", "MaskedLM", std=0.8)
    return [
        "limit=smoke", "limit.steps=8", "tasks.max_length=32", "target.speedup=null", "student.num_hidden_layers=2",
        "stages.prune.dimensions=[layers]", "pipeline=[finetune_teacher,prune,recover]",
        f"tasks.train={tmp_path / 'rows.csv'}", f"transfer.masked_lm={tmp_path / 'masked'}", "transfer.passes=0",
        "output=out",
    ]  # fmt: skip


@pytest.mark.slow
def test_rows_are_made_again_with_another_model(
    run: Any, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    forget_given = RunFolder.forget_given

    def finish(folder: RunFolder) -> None:
        if (rows := folder.path / TRANSFER / "rows" / "rows.json").is_file():
            kept.append(atomic.read_json(rows))
        forget_given(folder)

    monkeypatch.setattr(RunFolder, "forget_given", finish)
    run(tmp_path, "prune", *given)
    printed = capsys.readouterr().out
    assert ". transfer.masked_lm predicted" in printed
    made = atomic.read_json(tmp_path / "out" / "recover" / "rows" / "manifest.json")["transfer"]
    assert made["sources"].keys() == {"edits"}
    assert 0.3 < made["predicted"] <= 1
    assert 0 < made["used"]

    run(tmp_path, "prune", *given[:-1], "output=again")
    assert kept[1] == kept[0]
    tiny.save(tmp_path / "masked", "bert", "MaskedLM", std=0.8, seed=1)
    capsys.readouterr()
    run(tmp_path, "prune", *given)
    printed = capsys.readouterr().out
    assert "recover: runs again, because the masked language model changed" in printed
    assert "finetune_teacher: finished earlier, skipped" in printed
    assert kept[2] != kept[0]


def test_a_model_without_its_head_is_refused_before_anything_is_trained(
    run: Any, given: list[str], tmp_path: Path
) -> None:
    tiny.save(tmp_path / "headless", "bert", "")
    with pytest.raises(UserError, match=r"^transfer\.masked_lm: got .*headless, whose files have no head of a masked"):
        run(tmp_path, "prune", *given, f"transfer.masked_lm={tmp_path / 'headless'}")
    assert not (tmp_path / "out" / "finetune_teacher").exists()
