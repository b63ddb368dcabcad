"""Configs of strangers: nothing of the environment, no bombs, and texts as they are written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from distill.config import Config, bounds, load_config
from distill.errors import ConfigError
from distill.pipeline.validation import words as command_line

pytestmark = pytest.mark.usefixtures("real_compose")
SECRET = "a-secret-of-the-environment"
GLOBAL = "# @package _global_\n"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTILL_TEST_SECRET", SECRET)


def composed(folder: Path, *words: str, **files: str) -> Config:
    """The config with these files in a `--config-dir`; `__` in a name is a slash."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return load_config([f"hydra.searchpath=['{folder.as_uri()}']", *words])


def refused(folder: Path, *words: str, **files: str) -> str:
    """The message for such a config, which must come within seconds."""
    began = time.monotonic()
    with pytest.raises(ConfigError) as error:
        composed(folder, *words, **files)
    (line,) = error.value.messages
    assert SECRET not in line
    assert time.monotonic() - began < 20  # on a machine that does other work too
    return line


ENV = "${oc.env:DISTILL_TEST_SECRET}"


@pytest.mark.parametrize(
    "text",
    [
        f"defaults: [/recipe/task, /term@stages.finetune.terms.x: '{ENV}']",
        f"defaults: [/recipe/task, '/{ENV}']",
        f"defaults: [/recipe/task, '/term@{ENV}': mse]",
        f"defaults: [/recipe/task, 'override /tasks': '{ENV}']",
        f"tasks: {{text: '{ENV}'}}",
        f"tasks: {{each: {{'{ENV}': {{text: a}}}}}}",
        f"hydra: {{job: {{name: '{ENV}'}}}}",
        f"hydra: {{sweep: {{dir: 'x/{ENV}'}}}}",
        f"output: 'runs/{ENV}'",
        "tasks: {text: '${oc.decode:${oc.env:DISTILL_TEST_SECRET}}'}",
        "tasks: {labels: ['${oc.dict.keys:x}', b]}",
        "output: '${hydra:runtime.cwd}'",
        "output: '${now:x}${oc.env:DISTILL_TEST_SECRET}'",
        "tasks: {text: \"${oc.env:'DISTILL_TEST_SECRET'}\"}",
        "tasks: {text: \"\\x24{oc.env:DISTILL_TEST_SECRET}\"}",
        "tasks:\n  text: >-\n    ${oc.env:DISTILL_TEST_SECRET}",
        "tasks: {text: '${ oc.env : DISTILL_TEST_SECRET }'}",
    ],
)  # fmt: skip
def test_a_file_takes_nothing_of_the_environment(text: str, tmp_path: Path) -> None:
    line = refused(tmp_path, "recipe=theirs", recipe__theirs=f"{GLOBAL}{text}\n")
    assert "/recipe/theirs.yaml, line " in line
    assert "must be a value or the name of another setting, ${NAME}; write the value" in line


@pytest.mark.parametrize(
    "word",
    [f"recipe={ENV}", f"+term@stages.finetune.terms.x={ENV}", f"tasks.each.a={{text: '{ENV}'}}", f"tasks.text=ü{ENV}",
     f"output=a,{ENV}", f"hydra.run.dir={ENV}", f"~tasks={ENV}", f"tasks.text='{ENV}'", f"+{ENV}=1", ENV],
)  # fmt: skip
def test_a_word_takes_nothing_of_the_environment(word: str) -> None:
    for command in (["recipe=task", word], ["-m", "recipe=task", word]):
        (line,) = command_line.problems(command)
        assert "must be a value or the name of another setting, ${NAME}; write the value" in line
        assert SECRET not in line


def aliases(depth: int) -> str:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "aliases": (aliases(9), "theirs.yaml: got 1e+09 values, with those that aliases repeat; must be at most 3,000"),
    "itself": ("tasks: &a {each: {b: *a}}\n", "theirs.yaml: got inf values"),
    "merged": ("a: &a {b: 1}\n" + "".join(f"x{n}: &x{n} {{<<: *a}}\n" for n in range(1000)), "theirs.yaml: got 6,0"),
    "nested": ("tasks: {train: " + "[" * 3000 + "]" * 3000 + "}\n", "theirs.yaml, line 2: got values in 21 others"),
    "block": ("tasks:\n" + "".join(" " * n + "a:\n" for n in range(1, 200)), "line 22: got values in 21 others"),
    "large": ("tasks: {about: " + "x" * 60_000 + "}\n", "theirs.yaml: got 60,070 bytes; must be at most 50,000"),
    "long": ("tasks: {labels: [" + "a," * 5000 + "b]}\n", "theirs.yaml: got 5,01"),
    "control": ("tasks: {about: '\x00'}\n", "theirs.yaml: got unacceptable character #x0000"),
    "recipe": ("defaults: [/recipe/theirs]\n", "got configs that name each other "),
    "names": (
        "tasks:\n  each:\n" + "".join(
            f"    t{n}: {{text: '${{tasks.each.t{n + 1}.text}}${{tasks.each.t{n + 1}.text}}'}}\n" for n in range(8)
        ) + f"    t8: {{text: {'a' * 10_000}}}\n",
        "tasks: got settings that name each other, of more than 1,000,000 values; must be fewer",
    ),
    "lists": (
        "tasks:\n  each:\n" + "".join(
            f"    t{n}: {{train: ['${{tasks.each.t{n + 1}.train}}', '${{tasks.each.t{n + 1}.train}}']}}\n"
            for n in range(8)
        ) + f"    t8: {{train: {'a' * 10_000}}}\n",
        "tasks: got settings that name each other, of more than 1,000,000 values; must be fewer",
    ),
    "chain": (
        "tasks:\n  each:\n" + "".join(f"    t{n}: {{text: '${{tasks.each.t{n + 1}.text}}'}}\n" for n in range(25))
        + "    t25: {text: a}\n",
        "got the name of a setting that is one of another, and so on; must end after 20",
    ),
}  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb: str, tmp_path: Path) -> None:
    text, line = BOMBS[bomb]
    start = GLOBAL if "defaults" in text else f"{GLOBAL}defaults: [/recipe/task, _self_]\n"
    if bomb in ("nested", "block"):
        start = GLOBAL
    assert line in refused(tmp_path, "recipe=theirs", recipe__theirs=start + text)


@pytest.mark.parametrize("value", ["!!int x", "!!bool x", "!!float x", "!!timestamp x", "0x_", "9" * 5000])
def test_a_value_that_yaml_cannot_read_is_refused(value: str, tmp_path: Path) -> None:
    text = f"{GLOBAL}defaults: [/recipe/task, _self_]\nseed: {value}\n"
    assert "theirs.yaml: got a wrong value (" in refused(tmp_path, "recipe=theirs", recipe__theirs=text)


def test_a_nul_character_is_refused(tmp_path: Path) -> None:
    text = f'{GLOBAL}defaults: [/recipe/task, _self_]\noutput: "a\\0b"\n'
    assert "theirs.yaml, line 3: got a NUL character" in refused(tmp_path, "recipe=theirs", recipe__theirs=text)
    assert [*command_line.problems(["output=a\0b"])] == ["output: got a NUL character; must be text; remove it"]


def test_a_number_that_python_refuses_to_read_is_refused() -> None:
    (line,) = command_line.problems(["recipe=task", f"seed={'9' * 5000}"])
    assert line == "seed: got a number of 5,000 digits; must have at most 1,000; write a smaller one"


def test_configs_that_name_others_twice_are_refused(tmp_path: Path) -> None:
    files = {
        f"recipe__x{n}": f"{GLOBAL}defaults: ['/recipe/x{n + 1}@a', '/recipe/x{n + 1}@b', _self_]\n" for n in range(20)
    }
    assert "got configs that name each other more than 1000 times" in refused(
        tmp_path, "recipe=x0", recipe__x20=f"{GLOBAL}seed: 1\n", **files
    )


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "theirs.yaml").write_bytes(b"a: \xff\xfe\n")
    assert "theirs.yaml: got bytes that are not UTF-8; must be YAML in UTF-8" in refused(tmp_path, "recipe=theirs")


def test_a_large_recipe_of_ones_own_is_read(tmp_path: Path) -> None:
    tasks = "".join(f"    t{n}: {{train: rows-{n}.csv, text: text, label: label}}\n" for n in range(50))
    text = f"{GLOBAL}defaults: [/recipe/task, override /tasks: own, _self_]\ntasks:\n  each:\n{tasks}"
    config = composed(tmp_path, "recipe=mine", recipe__mine=text)
    assert [task.train for task in config.tasks.each.values()] == [f"rows-{n}.csv" for n in range(50)]


TEXTS: dict[str, Any] = {
    "labels: [yes, no]": ["yes", "no"],
    "labels: [1.0, 2.10, 005.74, 1e3, 0x10, 1_000]": ["1.0", "2.10", "005.74", "1e3", "0x10", "1_000"],
    "labels: [null, true, ~]": ["null", "true", "~"],
    "labels: [2024-01-01, 'a b', \"c\"]": ["2024-01-01", "a b", "c"],
    "label: 401": "401",
    "label: [1.50, b]": ["1.50", "b"],
    "text: null": None,
    "text: off": "off",
    "train: {a: 2024-01-01}": {"a": "2024-01-01"},
    "threshold: 0.50": 0.5,
    "range: [1.0, 2]": [1.0, 2.0],
    "rows: {train: 0x10}": {"train": 16},
}
"""A setting of a task in YAML -> its value."""


def test_texts_of_a_file_are_as_they_are_written(tmp_path: Path) -> None:
    each = "".join(f"    t{number}: {{{setting}}}\n" for number, setting in enumerate(TEXTS))
    files = {
        "recipe__mine": f"{GLOBAL}defaults: [/recipe/task, override /tasks: own, _self_]\ntasks:\n  each:\n{each}",
        "tasks__mine": f"defaults: [own, _self_]\ntext: 1.50\neach:\n{each}",
    }
    for words in (["recipe=mine"], ["recipe=task", "tasks=mine"]):
        tasks = composed(tmp_path, *words, **files).tasks
        names = [setting.partition(":")[0] for setting in TEXTS]
        got = [getattr(tasks.each[f"t{number}"], name) for number, name in enumerate(names)]
        assert got == [*TEXTS.values()]
    assert tasks.text == "1.50"


def test_what_is_no_bomb_passes() -> None:
    bounds.check_text("", "x")
    bounds.check_text("a: &a [1, 2]\nb: *a\nc: '${seed}'\nhydra: {sweep: {dir: 'x/${now:%Y}'}}\n", "x")
