"""The service of docs/service.py, started as its first line says and asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distill
from distill.data.task_types import TASK_TYPES
from distill.deploy.export.record import Entry, Record, write
from tests import tiny
from tests.forked import PYTHON

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny.save(tmp_path, "bert", "SequenceClassification", length=45, num_labels=2)
    kind, artifacts = TASK_TYPES["classification"], (Entry("torch", "fp32", "."),)
    write(tmp_path, Record("t", kind, ("calm", "storm"), ("text",), 40, artifacts))
    return tmp_path


@pytest.fixture
def address(folder: Path, tmp_path: Path) -> Iterator[str]:
    command = [PYTHON, "-m", "uvicorn", "service:app", "--port", "0"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    log = tmp_path / "service.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=ROOT / "docs", env=os.environ | {"FOLDER": str(folder), "PYTHONPATH": path}, stderr=errors
        ) as process,
    ):
        try:
            while (found := re.search(r"running on (http://\S+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield found[1]
        finally:
            process.terminate()


def got(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/{path}", timeout=30) as answer:
        return json.load(answer)


def asked(address: str, body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{address}/predict", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_the_service_answers_as_the_model_does(folder: Path, address: str) -> None:
    texts = ["a small boat", "snow"]
    assert asked(address, {"texts": texts}) == (200, distill.load(folder, threads=1).predict(texts))
    assert asked(address, {})[0] == 422
    health = got(address, "health")
    assert {name: health[name] for name in ("model", "backend", "scheme")} == {
        "model": folder.name, "backend": "torch", "scheme": "fp32"
    }  # fmt: skip
    assert re.fullmatch("[0-9a-f]{12}", health["version"])
    for wrong in ([1] * 1000, [1] * 100_000, [float("nan")], ["a", None], [[]], [{"a": "b"}], "a", None, {"a": 1}):
        began = time.monotonic()
        status, answer = asked(address, {"texts": wrong})
        assert status == 422
        assert len(answer) < 300
        assert time.monotonic() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("THREADS", "two"), ("THREADS", "0"), ("FOLDER", "missing")])
def test_a_service_that_cannot_start_says_so_in_a_line(name: str, value: str, folder: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    given = os.environ | {"FOLDER": str(folder), "PYTHONPATH": path} | {name: value}
    code = "import service"
    done = subprocess.run(
        [PYTHON, "-c", code], cwd=ROOT / "docs", env=given, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    (line,) = [each for each in done.stderr.splitlines() if "torchao" not in each]
    assert line.lower().startswith(name.lower())
