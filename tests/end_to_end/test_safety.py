"""What a run does to users' files, and to results whose input was replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distill
from distill.config.schemes import ONNX
from distill.deploy.export import quantized
from distill.errors import UserError
from distill.pipeline.stages import prune, vocabulary
from tests import tiny
from tests.small import content

SMOKE = ("recipe=distilbert", "limit=smoke", "limit.steps=1", "pipeline=[adapt,pretrain]")
BEGUN = "must be a new or empty folder, or one that a run began; set output=NEW_FOLDER"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a user's, with files under names that a run uses."""
    names = (
        "pretrain/important.txt",
        ".mine.tmp",
        ".thesis.tmp/chapter.txt",
        "pretrain.state/1/state.json",
        "a.targets/x",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a year of work")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*settings: str) -> str:
    """The one line that refuses a run."""
    with pytest.raises(UserError) as caught:
        distill.run(*settings)
    (line,) = caught.value.messages
    assert "\n" not in line
    return line


@pytest.mark.parametrize("output", [".", "pretrain", "pretrain/../.thesis.tmp"])
def test_a_folder_of_the_users_is_refused(output: str, mine: Path) -> None:
    before = content(mine)
    assert refused(*SMOKE, f"output={output}") == f"output: got {Path(output)}; {BEGUN}"
    assert content(mine) == before


def rte(folder: Path, split: str, count: int, first: int = 0) -> Path:
    """Invented rows in the columns of GLUE's RTE."""
    end = "" if split == "train" else " again"  # no training row is a copy of a validation row
    words = [tiny.SENTENCES[(first + row) % 8] + end for row in range(count)]
    columns = {"sentence1": words, "sentence2": words[::-1]}
    table = {name: pa.array(texts, pa.string()) for name, texts in columns.items()}
    table |= {"label": pa.array([row % 2 for row in range(count)], pa.int64())}
    file = folder / "rte" / f"{split}-00000-of-00001.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), file)
    return file


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    """Settings of a run with files for everything that can be replaced."""
    for split in ("train", "validation"):
        rte(tmp_path / "glue", split, 40)
    (tmp_path / "corpus.txt").write_text("\n".join(tiny.SENTENCES * 5))
    tiny.save(tmp_path / "teacher", "bert", "MaskedLM", length=128, num_hidden_layers=4)
    return [
        "limit=smoke", "limit.steps=1", "teacher=hub", f"teacher.name={tmp_path / 'teacher'}", "corpus=text",
        f"corpus.path={tmp_path / 'corpus.txt'}", "tasks=glue", f"tasks.path={tmp_path / 'glue'}", "tasks.names=[rte]",
        "pipeline=[pretrain,finetune_teacher,finetune]", "stages.pretrain.start=teacher",
        "stages.pretrain.teacher=teacher", "output=run",
    ]  # fmt: skip


@pytest.mark.slow
def test_what_depends_on_a_replaced_file_is_made_again(
    run: Any, given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made() -> tuple[list[str], str]:
        """Stages that a run of the same command makes, and what it prints."""
        stages = ("pretrain", "finetune_teacher", "finetune")
        files = {stage: tmp_path / "run" / stage / "manifest.json" for stage in stages}
        before = {stage: file.stat().st_mtime_ns if file.is_file() else 0 for stage, file in files.items()}
        capsys.readouterr()
        run(tmp_path, "distilbert", *given)
        return [stage for stage in stages if files[stage].stat().st_mtime_ns != before[stage]], capsys.readouterr().out

    assert made()[0] == ["pretrain", "finetune_teacher", "finetune"]
    assert made()[0] == []
    rte(tmp_path / "glue", "train", 40, first=3)
    stages, printed = made()
    assert stages == ["finetune_teacher", "finetune"]
    assert "finetune_teacher: runs again, because the rows of the tasks changed" in printed
    assert "pretrain: finished earlier, skipped" in printed
    (tmp_path / "corpus.txt").write_text("\n".join(tiny.SENTENCES[::-1] * 5))
    stages, printed = made()
    assert stages == ["pretrain", "finetune"]
    assert "pretrain: runs again, because the corpus changed" in printed
    tiny.save(tmp_path / "teacher", "bert", "MaskedLM", length=128, num_hidden_layers=4, seed=1)
    stages, printed = made()
    assert stages == ["pretrain", "finetune_teacher", "finetune"]
    assert "finetune_teacher: runs again, because the teacher changed" in printed
    record = json.loads((tmp_path / "run" / "finetune" / "manifest.json").read_text())["record"]["key"]
    assert record["given"].keys() >= {"tasks"}
    assert record["versions"].keys() == {"distill", "torch", "transformers"}


WATCHED = """
import os, sys
from distill.__main__ import main

def watch(event, arguments):
    local = event == "socket.connect" and isinstance(arguments[1], str)
    if event in ("socket.getaddrinfo", "socket.sendto", "socket.connect") and not local:
        os.write(2, f"{event} {arguments}\\n".encode())
        os._exit(9)

sys.addaudithook(watch)
main()
"""


def traced(command: list[str], file: Path) -> list[str]:
    """The command, and where strace works, one that writes every connection of its processes to the file."""
    trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o"]
    if shutil.which("strace") is None or subprocess.run([*trace, os.devnull, "true"], capture_output=True).returncode:
        return command
    return [*trace, str(file), *command]


@pytest.mark.slow
def test_a_run_opens_no_connection_and_keeps_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with an odd name, with the C locale, without assertions, and with a umask of its own."""
    folder, home = tmp_path / "a ' \" \n é😀 $X,=[]{}%" / ("x" * 255), tmp_path / "home"
    folder.mkdir(parents=True)
    home.mkdir()
    words = [f"kumquat number {row} is {('ripe', 'sour')[row % 2]}" for row in range(60)]
    rows = "".join(f"{text},{text.split()[-1]}\n" for text in words)
    (folder / "rows.csv").write_text(f"text,label\n{rows}")
    for name in ("HF_HUB_OFFLINE", "CI", "XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    secrets = {"HF_TOKEN": "hf_thesecret", "AWS_SECRET_ACCESS_KEY": "aws_thesecret"}
    for name, value in {**secrets, "HOME": str(home), "LC_ALL": "C", "PYTHONSAFEPATH": "1"}.items():
        monkeypatch.setenv(name, value)
    # With a model of its own, because it takes long to gather a corpus for a random one, and to export its four layers.
    tiny.save(folder / "given", "bert", "", num_hidden_layers=2)
    settings = [
        "recipe=prune", "limit=smoke", "limit.steps=2", "limit.repeats=1", "tasks.train=rows.csv", "teacher.name=given",
        "tasks.max_length=32", "target.speedup=1.05", "target.scheme=fp32", "target.shape=[1,16]",
        "stages.prune.dimensions=[layers]",
        "stages.evaluate.baseline=null", "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]",
        "stages.evaluate.shapes=[[1,16]]", "stages.quantize.schemes=[onnxruntime]", "output=run",
    ]  # fmt: skip
    command = [sys.executable, "-O", "-c", WATCHED, *settings]
    connections = tmp_path / "connections"
    done = subprocess.run(
        traced(command, connections), cwd=folder, capture_output=True, text=True, timeout=500, umask=0o027
    )
    assert done.returncode == 0, done.stderr
    if connections.exists():
        addresses = re.findall(r'(?:inet_addr\(|AF_INET6, )"([^"]+)"', connections.read_text())
        assert set(addresses) <= {"127.0.0.1", "::1"}
    assert {path.name for path in home.rglob("*") if path.is_file()} & {"deviceid", "onnxruntime.db"} == set()
    caches = {".cache/distill", ".cache/matplotlib", ".config/matplotlib"}
    assert {path.relative_to(home).as_posix() for path in home.glob("*/*")} <= caches
    files = content(folder / "run")
    assert {"results.json", "report.html", "export/rows/README.md"} <= files.keys()
    assert {(folder / "run" / name).stat().st_mode & 0o777 for name in files} == {0o640}
    assert not [name for name, data in files.items() for secret in secrets.values() if secret.encode() in data]
    # Texts of users are in the files that show on which rows models disagree, and in no others that are shown.
    assert [name for name in ("results.json", "report.md", "export/rows/README.md") if b"kumquat" in files[name]] == []
    command = [*command[:4], "recipe=prune", "tasks.train=rows.csv", "target.speedup=2", "teacher.name=a/b"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)
    assert done.returncode == 9, "a name on the hub is looked up"


TASK = ("limit=smoke", "limit.steps=1", "tasks.names=[order]", "output=run")


def fail(*given: Any) -> Any:
    for path in given:
        if isinstance(path, dict):
            assert all(folder.is_dir() and ".distill-tmp" in str(folder) for folder in path), "proved where it is made"
    raise UserError("its logits are others")


@pytest.mark.parametrize(
    ("recipe", "module", "settings"),
    [
        ("prune", prune, ["target.speedup=null", "student.num_hidden_layers=2", "stages.prune.retrain_steps=0"]),
        ("vocabulary", vocabulary, ["stages.vocabulary.start=finetune_teacher"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_that_fails_its_proof_is_not_there(
    recipe: str, module: Any, settings: list[str], run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prove_reload", fail)
    with pytest.raises(UserError, match="its logits are others"):
        run(tmp_path, recipe, *TASK, f"pipeline=[finetune_teacher,{recipe}]", *settings)
    folder = tmp_path / "run"
    assert (folder / "finetune_teacher" / "manifest.json").is_file()
    assert not (folder / recipe).exists()
    assert not [path for path in folder.rglob("*") if "distill-tmp" in path.name]


def test_a_quantized_model_that_fails_its_proof_is_not_there(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "export_onnx", lambda folder, path: path.write_bytes(b"others"))
    monkeypatch.setattr(quantized, "onnx_parity", fail)
    stages = ("stages.quantize.start=finetune_teacher", "stages.quantize.schemes=[onnxruntime]")
    run(tmp_path, "distilbert", *TASK, "pipeline=[finetune_teacher,quantize]", *stages)
    manifest = json.loads((tmp_path / "run" / "quantize" / "manifest.json").read_text())
    assert manifest["failed"] == dict.fromkeys([ONNX, "onnxruntime"], "order: UserError: its logits are others")
    assert not list((tmp_path / "run").rglob("*.onnx"))
