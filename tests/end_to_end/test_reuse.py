"""What one run made, another with the same settings and data takes from the cache, and ends with the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distill.runtime.storage import cache
from tests import tiny

SMALL = (
    "teacher.kind=hub", "student.name=small", "tasks=own", "tasks.train=rows.jsonl", "tasks.name=own",
    "tasks.max_length=32", "limit.steps=6", "cache.dir=cache", "precision=fp32", "transfer=none",
    "pipeline=[finetune_teacher,finetune]", "stages.finetune_teacher.dropout=0.1",
)  # fmt: skip
MODELS = ("finetune_teacher/own", "finetune/own")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a teacher, a student and a file of 64 labelled rows."""
    tiny.save(tmp_path / "given", "bert", "", num_hidden_layers=4)
    tiny.save(tmp_path / "small", "bert", "", num_hidden_layers=2)
    texts = [f"{tiny.SENTENCES[i % 8]} on day {i}" for i in range(64)]
    rows = [json.dumps({"text": text, "label": "ab"[i % 2]}) for i, text in enumerate(texts)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    return tmp_path


@pytest.fixture
def trained(run: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`trained(name, *settings)`: trains teacher and student in a run folder. Returns the stages that were reused."""

    def call(name: str, *settings: str) -> list[str]:
        capsys.readouterr()
        run(folder, "task", "teacher.name=given", *SMALL, f"output={name}", *settings)
        lines = capsys.readouterr().out.splitlines()
        return [line.partition(":")[0] for line in lines if "made by an earlier run" in line]

    return call


def weights(folder: Path, run: str) -> list[bytes]:
    return [(folder / run / model / "model.safetensors").read_bytes() for model in MODELS]


def test_an_equal_run_trains_nothing_unless_models_are_damaged(trained: Any, folder: Path) -> None:
    assert trained("first") == []
    assert trained("second") == ["finetune_teacher", "finetune"]
    assert weights(folder, "second") == weights(folder, "first")
    assert trained("second") == []  # finished
    manifest = json.loads((folder / "second" / "finetune" / "manifest.json").read_text())
    assert manifest["record"]["reused"]
    assert "reused" not in json.loads((folder / "first" / "finetune" / "manifest.json").read_text())["record"]
    for file in (folder / "cache" / "models").rglob("model.safetensors"):  # damaged models are made again
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    assert trained("third") == []
    assert weights(folder, "third") == weights(folder, "first")


@pytest.mark.slow
def test_a_sweep_over_the_students_training_shares_teacher_and_logits(trained: Any, folder: Path) -> None:
    trained("first")
    assert len(list((folder / "cache" / "logits").iterdir())) == 1
    assert trained("second", "temperature=4") == ["finetune_teacher"]
    assert len(list((folder / "cache" / "logits").iterdir())) == 1  # they were not computed again
    assert trained("apart", "temperature=4", "cache.max_gib=0") == []
    assert weights(folder, "second") == weights(folder, "apart")
    assert weights(folder, "second")[1] != weights(folder, "first")[1]


@pytest.mark.slow
def test_runs_with_several_seeds_share_a_teacher_with_a_seed_of_its_own(trained: Any, folder: Path) -> None:
    assert trained("alone", "seed=3", "cache.max_gib=0") == []
    assert trained("first", "seed=0", "teacher.seed=3") == []
    assert trained("second", "seed=1", "teacher.seed=3") == ["finetune_teacher"]
    (teacher, one), (again, other) = weights(folder, "first"), weights(folder, "second")
    assert teacher == again == weights(folder, "alone")[0]
    assert one != other


@pytest.mark.slow
def test_a_stage_that_was_stopped_is_taken_whole(trained: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run finished it meanwhile."""
    from distill.training import state

    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    often = "stages.finetune_teacher.checkpoint_seconds=1e-9"
    with monkeypatch.context() as patch:
        patch.setattr(state, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            trained("stopped", often)
    (folder / "stopped" / "finetune_teacher.state" / "own").mkdir(parents=True)
    trained("other")
    assert trained("stopped", often) == ["finetune_teacher", "finetune"]
    assert not (folder / "stopped" / "finetune_teacher.state").exists()
    assert weights(folder, "stopped") == weights(folder, "other")


@pytest.mark.slow
def test_an_encoded_corpus_is_reused(run: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "corpus.txt").write_text("\n".join(f"{text} and so on" for text in tiny.SENTENCES * 4))
    settings = (
        "teacher.kind=hub", "teacher.name=given", "corpus=text", "corpus.path=corpus.txt", "corpus.max_length=32",
        "limit.steps=2", "cache.dir=cache", "precision=fp32", "pipeline=[adapt,pretrain]",
    )  # fmt: skip
    run(folder, "distilbert", *settings, "output=first")
    assert "corpus: 32 documents" in capsys.readouterr().out
    assert len(list((folder / "cache" / cache.PARTS[2]).iterdir())) == 1
    run(folder, "distilbert", *settings, "output=second", "stages.pretrain.clip=0.5")
    said = capsys.readouterr().out
    assert "corpus: encoded by an earlier run, in the teacher's tokens" in said
    assert "adapt: made by an earlier run" in said
    run(folder, "distilbert", *settings, "output=apart", "stages.pretrain.clip=0.5", "cache.max_gib=0")
    second, apart = ((folder / name / "pretrain" / "model.safetensors").read_bytes() for name in ("second", "apart"))
    assert second == apart
