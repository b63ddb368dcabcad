"""Code from outside of distill has another hash after every change of what a run may call, and of nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REGISTERED = """
import functools, sys
from distill.runtime import outside
from records import Record

own = {"one": Record("one"), "loss": ("distill.losses.mse", "torch.optim.AdamW")}
outside.registry("things", own)
assert outside.code() == ""
"""
"""A registry of distill's, in a new process that has added nothing."""
RECORDS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Record:
    name: str
    size: int = 1
    call: object = None
"""


@pytest.fixture
def code(tmp_path: Path) -> Callable[[str], str]:
    """`code(added)`: the hash after these lines have added something, in a new process with the modules of a folder."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("START = 1\n")
    (tmp_path / "package" / "mine.py").write_text("from .parts import twice\n\ndef made(x):\n    return twice(x)\n")
    (tmp_path / "package" / "parts.py").write_text("def twice(x):\n    from lazy import two\n    return two * x\n")
    (tmp_path / "lazy.py").write_text("import numpy.linalg, json\ntwo = 2\ndef other():\n    import nowhere.at_all\n")
    (tmp_path / "records.py").write_text(RECORDS)
    (tmp_path / "unrelated.py").write_text("x = 1\n")

    def call(added: str) -> str:
        lines = f"{REGISTERED}\nimport package.mine, unrelated\n{added}\nprint(outside.code())"
        (tmp_path / "script.py").write_text(lines)
        command = [sys.executable, "-B", "script.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return call


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "added",
    [
        'own["two"] = Record("two", call=package.mine.made)',
        'own["two"] = functools.partial(package.mine.made, 3)',
        'own["one"] = Record("one", call=[package.mine.made])',
        'own["loss"] = (*own["loss"], "package.mine.made")',
        'own["two"] = Record("package.mine:made")',
    ],
)
def test_each_file_that_is_imported_changes_it(added: str, code: Callable[[str], str], tmp_path: Path) -> None:
    before = code(added)
    assert len(before) == 16
    (tmp_path / "records.py").write_text(RECORDS)
    (tmp_path / "unrelated.py").write_text("x = 2\n")
    assert code(added) == before
    for name in ("package/mine.py", "package/parts.py", "package/__init__.py", "lazy.py"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "# edited\n")
        now = code(added)
        assert now != before, name
        before = now


def test_so_does_each_value_of_a_record_of_plain_values(code: Callable[[str], str]) -> None:
    names = [
        code(f'own["two"] = Record({values})') for values in ('"two"', '"two", 2', '"three"', '"two", call={1: 2}')
    ]
    assert len({*names}) == len(names)
    assert code("") == ""


SCRIPT = """
import lazy
factor = 2
def mine(x):
    return [factor * lazy.two for _ in x]
own["two"] = functools.partial(mine)
functools.partial(print, "recipe=task")
"""


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("edit", "other"),
    [
        (("recipe=task", "recipe=prune"), False),
        (("in x", "in x[1:]"), True),
        (("factor = 2", "factor = 3"), True),
        (("mine(x)", "mine(x, scale=2)"), True),
    ],
)
def test_of_a_script_all_counts_but_what_it_runs(
    edit: tuple[str, str], other: bool, code: Callable[[str], str], tmp_path: Path
) -> None:
    before = code(SCRIPT)
    assert (code(SCRIPT.replace(*edit)) != before) == other
    (tmp_path / "lazy.py").write_text("two = 3\n")
    assert code(SCRIPT) != before


@pytest.mark.quick(1)
@pytest.mark.parametrize("package", ["__init__.py", "nothing.txt"], ids=["package", "without __init__"])
def test_a_module_of_a_package_counts_with_its_decorated_functions(
    package: str, code: Callable[[str], str], tmp_path: Path
) -> None:
    """What decorators and dataclasses make is in no file, also after the module is imported."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / package).touch()
    file = tmp_path / "plugins" / "loss.py"
    lines = ["from dataclasses import dataclass", "import torch", "", "@dataclass", "class Size:", "    n: int = 1", ""]
    file.write_text("\n".join([*lines, "@torch.no_grad()", "def scaled(s, t):", "    return s * t", ""]))
    register = 'own["loss"] = (*own["loss"], "plugins.loss.scaled")'
    before = code(register)
    assert code(f"{register}\noutside.code()\nimport plugins.loss") == before
    file.write_text(file.read_text().replace("s * t", "s + t"))
    assert code(register) != before


def test_a_function_of_a_function_counts_with_what_it_has(code: Callable[[str], str]) -> None:
    made = """
def maker(factor):
    def loss(s, t):
        return factor * s
    return loss
"""
    one, other = (code(f"{made}\nown['two'] = maker({number})") for number in (3, 4))
    assert one != other


def test_code_without_a_source_is_known_to_no_other_process(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS)
    lines = f"{REGISTERED}\ndef mine(x):\n    return x\nown['two'] = mine\nprint(outside.code(), outside.code())"
    command = [sys.executable, "-c", lines]
    said = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True) for _ in range(2)]
    (one, again), (other, _) = (each.stdout.split() for each in said)
    assert one == again != other


@pytest.mark.parametrize("edited", [("2 * x", "3 * x"), ("START = 1", "START = 2")], ids=["a function", "a constant"])
def test_code_that_was_edited_after_it_was_imported_is_no_other_code(
    edited: tuple[str, str], code: Callable[[str], str], tmp_path: Path
) -> None:
    """What runs is what was imported. A new process, and one that imports the file again, runs what the file says."""
    (tmp_path / "lazy.py").write_text("START = 1\n\ndef two(x):\n    return 2 * x\n")
    register = 'own["loss"] = (*own["loss"], "lazy.two")'
    before = code(register)
    edit = f"""
import importlib, lazy
from pathlib import Path
{register}
file = Path("lazy.py")
file.write_text(file.read_text().replace(*{edited!r}))
importlib.invalidate_caches()
"""
    stale = code(edit)
    now = code(register)
    (tmp_path / "lazy.py").write_text("START = 1\n\ndef two(x):\n    return 2 * x\n")
    again = code(f"{edit}outside.code()\nimportlib.reload(lazy)")
    assert len({before, stale, now}) == 3
    assert again == now
