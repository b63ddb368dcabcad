"""What a run prints in each form of the setting `log`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from distill.config import Config
from distill.runtime import progress
from distill.runtime.messages import console_for
from distill.runtime.storage.run_folder import run_folder


def printed(log: str, capsys: pytest.CaptureFixture[str]) -> str:
    console = console_for(log)
    console.print("training: 3 [rows] are " + "long " * 100, markup=False, soft_wrap=True)
    with progress.shown_on(console), progress.counted("scoring", 4) as done:
        done(1)
    return capsys.readouterr().out


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_json_is_one_object_a_line(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment asks for colours and live bars, as many servers for tests do."""
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    lines: list[dict[str, Any]] = [json.loads(line) for line in printed("json", capsys).splitlines()]
    text, step = ({key: value for key, value in line.items() if key != "time"} for line in lines)
    assert text == {"text": "training: 3 [rows] are " + "long " * 99 + "long"}
    assert step | {"seconds_left": 0} == {"name": "scoring", "step": 1, "of": 4, "text": "", "seconds_left": 0}
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    assert printed("quiet", capsys) == ""
    assert "scoring: step 1/4" in printed("text", capsys)


def test_a_run_has_one_folder_whatever_it_prints() -> None:
    assert Config().log == "text"
    assert run_folder("prune", ["recipe=prune", "log=json"], None) == run_folder("prune", ["recipe=prune"], None)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_json_is_json_in_the_encoding_of_any_terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    # As `streams.opened` lets standard output write what its encoding does not have.
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding, errors="backslashreplace"))
    text = "Größe: текст 😀 :heart:"
    console_for("json").print(text, markup=False)
    assert json.loads(written.getvalue().decode("utf-8"))["text"] == text


def test_names_that_stand_for_emoji_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console_for("text").print("labels: :heart:, :x:", markup=False)
    assert capsys.readouterr().out == "labels: :heart:, :x:\n"
