"""The README is correct: its commands compose, its tree is the folder tree, its names exist."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from distill.config import load_config
from distill.terms import KINDS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Arguments of each `-m distill` command in a bash block, whatever launches it."""
    lines = "".join(blocks(text, "bash")).replace("\\\n", " ").splitlines()
    every = []
    for words in (shlex.split(line, comments=True) for line in lines):
        if "distill" in words:
            at = words.index("distill")
            assert words[at - 1] == "-m"
            every.append(words[at + 1 :])
    return every


def first_job(arguments: list[str]) -> list[str]:
    """The first job of a sweep: Hydra shows the configuration of a single job only."""
    if "-m" not in arguments:
        return arguments
    parser = OverridesParser.create()
    overrides = [parser.parse_override(a) for a in arguments if a != "-m"]
    return [
        f"{o.get_key_element()}={next(o.sweep_string_iterator())}" if o.is_sweep_override() else line
        for o in overrides
        if (line := o.input_line) is not None
    ]


COMMANDS = commands(README)


def test_commands_are_found() -> None:
    text = "```bash\npython -m distill a=1 \\\n  b=2  # why\nmake demo\nt -m distill a=3\n```\n"
    assert commands(text) == [["a=1", "b=2"], ["a=3"]]
    assert first_job(["-m", "a=1,2", "b=[0,2],[1]", "c=[0]"]) == ["a=1", "b=[0,2]", "c=[0]"]
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_command_composes(arguments: list[str], tmp_path: Path) -> None:
    if not any(a.startswith("--") for a in arguments):
        assert load_config(first_job(arguments)).pipeline
        return
    done = subprocess.run([sys.executable, "-m", "distill", *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--help" in arguments or "pipeline:" in done.stdout


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shell = "".join(block for d in DOCUMENTS for block in blocks(d.read_text(), "bash"))
    named = set(re.findall(r"^make (\w+)", shell, re.M))
    assert {"demo", "test"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in named)


def test_the_tree_lists_the_modules() -> None:
    (tree,) = [b for b in blocks(README, "text") if b.startswith("distill/\n")]
    source = (ROOT / "distill").iterdir()
    folders = {f"{p.name}/" for p in source if list(p.glob("*.py"))}
    modules = folders | {p.name for p in (ROOT / "distill").glob("*.py")}
    assert set(re.findall(r"^ {2}(\S+) +\S", tree, re.M)) == modules
    beside = set(re.findall(r"^(\w+)/ +\S", tree, re.M))
    assert {"conf", "recipes", "tests", "outputs"} <= beside
    assert all((ROOT / name).is_dir() for name in beside)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_linked_files_exist(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_markers_of_the_results_are_in_order() -> None:
    assert README.count("<!-- results:begin -->") == README.count("<!-- results:end -->") == 1
    assert README.index("<!-- results:begin -->") < README.index("<!-- results:end -->")


def test_architecture_lists_every_kind_of_term() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert [kind.name for kind in KINDS.values() if f"| `{kind.name}` | {kind.compares} |" not in text] == []


def test_no_part_imports_one_below_it_in_the_tree() -> None:
    (tree,) = [b for b in blocks(README, "text") if b.startswith("distill/\n")]
    order = [re.sub(r"(\.py|/)$", "", name) for name in re.findall(r"^ {2}(\S+) +\S", tree, re.M)]
    for part, imported in ARCHITECTURE["parts"]().items():
        assert {other for other in imported if order.index(other) > order.index(part)} == set(), part


def test_python_code_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it but the training, which other tests run."""
    monkeypatch.setattr("distill.walk.run", lambda *settings: {"models": [{"role": "student"}]})
    (code,) = blocks(README, "python")
    exec(code, {})
    assert "distill.losses.soft_targets" in capsys.readouterr().out


def test_the_picture_of_the_imports_is_current() -> None:
    assert ARCHITECTURE["main"](["--check"]) == 0


def test_architecture_names_modules_that_exist() -> None:
    named = re.findall(r"`(distill(?:[/.]\w+)*(?:\.py|/)?)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 20
    for name in named:
        path = ROOT / (name if name.endswith((".py", "/")) else name.replace(".", "/"))
        assert path.exists() or path.with_suffix(".py").is_file(), name
