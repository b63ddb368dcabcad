"""The first word of the command line names a command, and other words go to a run."""

from __future__ import annotations

import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from distill.cli import commands, help_text, run
from distill.cli.commands import COMMANDS, main
from distill.config import recipes
from distill.pipeline import sweep
from distill.runtime import streams as standard

ROOT = Path(__file__).resolve().parents[3]
OTHERS = sorted({*COMMANDS} - {"run"})
STARTS = {"/somewhere/bin/distill": "distill", "/somewhere/distill/__main__.py": "python -m distill"}
"""What Python puts before the words -> what the user typed."""


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the streams be as before after a command, which puts its own in their place."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)


def typed(monkeypatch: pytest.MonkeyPatch, *words: str, start: str = "/somewhere/bin/distill") -> None:
    monkeypatch.setattr(sys, "argv", [start, *words])


def test_the_console_script_is_the_same_function_as_the_module() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert pkgutil.resolve_name(scripts["distill"]) is main
    assert list(scripts) == ["distill"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_command_is_the_function_of_its_module(name: str) -> None:
    """`python -m distill.NAME` and `distill NAME` call one function."""
    module = import_module("distill.report.__main__" if name == "report" else f"distill.{name}")
    assert commands._main(name) is module.main


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("start", STARTS)
def test_usage_and_errors_show_what_the_user_typed(
    name: str, start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, name, "--help", start=start)
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert shown.out.startswith(f"usage: {STARTS[start]} {name} [-h]")
    typed(monkeypatch, name, "--none", start=start)
    assert main() == 2
    assert capsys.readouterr().err.endswith(f"; see {STARTS[start]} {name} --help\n")


@pytest.mark.parametrize("name", OTHERS)
def test_a_module_shows_its_own_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands._main(name)(["--none"]) == 2
    assert capsys.readouterr().err.endswith(f"; see python -m distill.{name} --help\n")


@pytest.mark.parametrize("words", [["--help"], ["recipe=prune"], ["report", "outputs"], ["advise", "my-bert"]])
def test_an_environment_that_only_serves_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(module: str) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(commands, "import_module", absent)
    typed(monkeypatch, *words)
    name = words[0] if words[0] in COMMANDS else "run"
    assert main() == 2
    assert capsys.readouterr().err.startswith(
        f"distill {name}: got no package torch; must be installed for this command; run pip install "
    )


def test_words_and_exit_code_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    module = import_module(COMMANDS["predict"].module)
    monkeypatch.setattr(module, "main", lambda *given: called.append(given) or 130)
    typed(monkeypatch, "predict", "folder", "-m", "a=b", "--", "run")
    assert main() == 130
    assert called == [(["folder", "-m", "a=b", "--", "run"], "distill predict")]


@pytest.mark.parametrize(("name", "first"), [("predict", True), ("compare", False), ("label", False)])
def test_predictions_end_with_their_reader(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`yes | distill predict FOLDER | head -1` would never end; others have files to write."""
    given: list[bool] = []
    monkeypatch.setattr(standard, "printed", lambda main, first=False: given.append(first) or 0)
    typed(monkeypatch, name, "folder")
    assert main() == 0
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / f"distill/{name}.py"), run_name="__main__")
    assert (ended.value.code, given) == (0, [first, first])


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["recipe=task", "seed=1"], ["recipe=task", "seed=1"]),
        (["run", "recipe=task"], ["recipe=task"]),
        (["-m", "recipe=task", "seed=0,1"], ["-m", "recipe=task", "seed=0,1"]),
        (["run", "-m", "recipe=task", "seed=0,1"], ["-m", "recipe=task", "seed=0,1"]),
        (["--multirun", "recipe=task"], ["--multirun", "recipe=task"]),
        (["--config-dir", "predict", "recipe=task"], ["--config-dir", "predict", "recipe=task"]),
        (["--cfg", "job", "recipe=task"], ["--cfg", "job", "recipe=task"]),
        (["~stages.pretrain.terms.mlm", "recipe=task"], ["~stages.pretrain.terms.mlm", "recipe=task"]),
        (["+term@stages.pretrain.terms.mse=mse"], ["+term@stages.pretrain.terms.mse=mse"]),
        (["--help"], ["--help"]),
        (["run"], []),
        ([], []),
    ],
)
def test_settings_and_options_of_hydra_go_to_a_run(
    words: list[str], read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(run, "main", lambda: called.append(sys.argv[1:]))
    typed(monkeypatch, *words)
    assert main() == 0
    assert called == [read]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("predcit", "did you mean {} predict?"),
        ("advice", "did you mean {} advise?"),
        ("rnu", "did you mean {} run?"),
        ("tickets.csv", "see {} --help"),
        ("auto", "did you mean {} recipe=auto seed=1?"),
        ("my-bert", "did you mean {} recipe=auto teacher.name=my-bert seed=1?"),
        ("\x1b[2J", "see {} --help"),
    ],
)
def test_another_word_is_one_line_that_names_the_commands(
    word: str,
    advice: str,
    start: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "main", lambda: pytest.fail("it is no run"))
    monkeypatch.chdir(tmp_path)
    Path("my-bert").mkdir()
    typed(monkeypatch, word, "seed=1", start=start)
    assert main() == 2
    shown = word.replace("\x1b", "\\x1b")
    assert capsys.readouterr().err == (
        f"command line: got {shown}; must be run, predict, label, compare, look, report, example, recipes, choose, "
        f"advise, or a setting KEY=VALUE of a run; {advice.format(STARTS[start])}\n"
    )


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["my-bert", "recipe=prune", "-m", "seed=0,1"], "distill teacher.name=my-bert recipe=prune -m seed=0,1?"),
        (
            ["my-bert", "tasks.train=my tickets.csv"],
            "distill recipe=auto teacher.name=my-bert 'tasks.train=my tickets.csv'?",
        ),
        (
            ["my-bert", "new.csv", "budget.minutes=5"],
            "distill recipe=auto teacher.name=my-bert tasks.train=new.csv budget.minutes=5?",
        ),
        (["bert-base-uncased", "new.csv"], "see distill --help"),
    ],
)
def test_what_was_typed_beside_a_mistyped_word_is_kept(
    words: list[str],
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-bert").mkdir()
    Path("new.csv").touch()
    typed(monkeypatch, *words)
    assert main() == 2
    assert capsys.readouterr().err.endswith(f"; {'did you mean ' * advice.endswith('?')}{advice}\n")


def test_help_has_a_line_for_each_command_and_recipe() -> None:
    text = help_text.text("distill")
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    of_papers = {name.partition("/")[2] for name in recipes() if "/" in name}
    others = {name: file for name, file in recipes().items() if "/" not in name}
    assert {*COMMANDS, *others, "teacher", "tasks", "corpus"} <= lines.keys()
    assert of_papers == {*re.findall(r"[a-z]\w+(?=[,;])", lines["paper/NAME"])}
    assert all(lines[name].endswith(f"   {command.summary}") for name, command in COMMANDS.items())
    assert all(lines[name].endswith(f"   {help_text.purpose(file)}") for name, file in others.items())
    assert "\n  distill -m recipe=distilbert seed=0,1,2 " in text
    longest = help_text.text("python -m distill").splitlines()
    assert max(map(len, longest)) <= 120
    assert len(longest) <= 2 * 30, "more than two screens"


@pytest.mark.slow
def test_a_sweep_after_the_word_run(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "distill", "run", "-m", "recipe=task", "temperature=-1,-2"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"job {job} (temperature={value}): temperature: got {value}.0; must be > 0; 2 is usual"
        for job, value in enumerate((-1, -2))
    ]


@pytest.mark.parametrize(("code", "lines"), [(2, ["seed: got -1"]), (1, ["process: got SIGKILL"])])
def test_a_search_of_which_every_run_failed_is_no_traceback(
    code: int,
    lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def search() -> None:
        sweep._leave(sweep.Failure(0, ["seed=-1"], lines, code, ""))
        raise ValueError("No trials are completed yet.")  # as Optuna does

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "_job", search)
    monkeypatch.setattr(run.errors, "listen", lambda: None)  # signals of the tests stay as they are
    typed(monkeypatch, "-m", "recipe=task", "hydra/sweeper=optuna", "seed=range(-3,-1)")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert capsys.readouterr().err.splitlines() == [
        "the sweep ended (ValueError: No trials are completed yet.); these of its runs failed:",
        f"job 0 (seed=-1): {lines[0]}",
    ]


def test_the_exit_code_of_a_command_is_that_of_the_process(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "distill", "predict", "missing", "a text"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("folder: got missing; must be a local folder; ")
    assert done.stderr.count("\n") == 1
