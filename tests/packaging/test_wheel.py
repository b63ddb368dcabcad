"""What the wheel installs works in an empty folder, with nothing of the checkout in reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "distill" / "report" / "web"


def run(*arguments: str | Path, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with `arguments`."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **settings)


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder the wheel is installed into."""
    folder = tmp_path_factory.mktemp("site")
    done = run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", folder, wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def installed(target: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run python in `folder` with the installed wheel in front of everything else."""
    return run(*arguments, cwd=folder, env=os.environ | {"PYTHONPATH": str(target)})


def relative(folder: Path, pattern: str) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob(pattern)}


def test_holds_the_source_the_settings_and_the_recipes_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
    expected = {f"distill/{n}" for n in relative(ROOT / "distill", "*.py")}
    expected |= {f"distill/report/web/{n}" for ending in ("html", "css", "js") for n in relative(WEB, f"*.{ending}")}
    expected |= {f"distill/conf/{n}" for n in relative(ROOT / "conf", "*.yaml")}
    expected |= {f"distill/recipes/{n}" for n in relative(ROOT / "recipes", "*.yaml")}
    expected |= {"distill/cli/choose/encoders.yaml", "distill/cli/example/tickets.yaml"}
    assert {"distill/conf/config.yaml", "distill/recipes/distilbert.yaml"} <= names
    assert "distill/report/web/page.js" in names
    assert names == expected | {"distill/py.typed"}


def test_the_wheel_is_what_runs(target: Path, tmp_path: Path) -> None:
    done = installed(target, tmp_path, "-c", "import distill; print(distill.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(target)


def test_help(target: Path, tmp_path: Path) -> None:
    done = installed(target, tmp_path, "-m", "distill", "--help")
    assert done.returncode == 0, done.stderr
    assert "recipe" in done.stdout
    assert "distilbert" in done.stdout
    assert not any(tmp_path.iterdir()), "--help leaves nothing behind"


@pytest.mark.slow
def test_main_job_at_smoke_size(target: Path, tmp_path: Path) -> None:
    few = ["limit.documents=60", "limit.repeats=1", "stages.evaluate.shapes=[[1,16]]", "tasks.names=[order]"]
    few += ["stages.quantize.schemes=[onnxruntime]", "stages.evaluate.baseline=null"]
    few += ["pipeline=[finetune_teacher,finetune,quantize,evaluate,export]", "stages.finetune.start=teacher"]
    done = installed(target, tmp_path, "-m", "distill", "recipe=distilbert", "limit=smoke", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = tmp_path.rglob("results.json")
    assert results.is_relative_to(tmp_path / "outputs")
    roles = {model["role"] for model in json.loads(results.read_text())["models"]}
    assert roles == {"teacher", "student"}
