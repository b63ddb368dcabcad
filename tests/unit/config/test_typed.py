"""Settings as they are typed in a shell arrive as they were meant, and what parses keeps its meaning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from distill.config import Config, load_config, words
from distill.pipeline.validation import words as command_line
from distill.pipeline.validation.rules import flatten
from distill.runtime.storage import run_folder

pytestmark = pytest.mark.usefixtures("real_compose")


def composed(word: str) -> Config:
    """The settings with this one, as Hydra reads it."""
    if word.startswith("stages."):
        return load_config(["recipe=task", word])
    (parsed,) = OverridesParser.create().parse_overrides(words([word]))
    config = OmegaConf.structured(Config)
    OmegaConf.update(config, parsed.key_or_group, parsed.value(), merge=True)
    loaded = OmegaConf.to_object(config)
    assert isinstance(loaded, Config)
    return loaded


def setting(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@pytest.mark.quick(10)
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("tasks.text=отзыв", "отзыв"),
        ("tasks.label=类别", "类别"),
        ("tasks.separator=;", ";"),
        ("tasks.separator=|", "|"),
        ("tasks.separator=,", ","),
        ("tasks.separator=\t", "\t"),
        ("tasks.train=umsatz[neu].csv", "umsatz[neu].csv"),
        ("tasks.train=table (2) & more.csv", "table (2) & more.csv"),
        ("tasks.train=/home/d'arc/Größe #1.csv", "/home/d'arc/Größe #1.csv"),
        ("tasks.train=[März.csv,b (1).csv]", ["März.csv", "b (1).csv"]),
        ("tasks.validation={early: [ä.csv,b.csv], late: {}}", {"early": ["ä.csv", "b.csv"], "late": {}}),
        ("tasks.labels=[Beschwerde,C#,it's,a & b,don't]", ["Beschwerde", "C#", "it's", "a & b", "don't"]),
        ("tasks.labels=[Köln,'a,b',\"c]\"]", ["Köln", "a,b", "c]"]),
        ("tasks.labels=[401,401.0,005.74,1e3,1_0,.5,true,NO,null,nan]", "401 401.0 005.74 1e3 1_0 .5 true NO null nan"),
        ("tasks.labels=[1.10, 2.20]", ["1.10", "2.20"]),
        ("tasks.text=401", "401"),
        ("tasks.text=1.50", "1.50"),
        ("tasks.text=True", "True"),
        ("tasks.label=1e3", "1e3"),
        ("tasks.label=[1.0,x]", ["1.0", "x"]),
        ("tasks.text=null", None),
        ("tasks.label=null", None),
        ("tasks.name=2024", "2024"),
        ("teacher.name=my=model", "my=model"),
        ("teacher.name=modèle", "modèle"),
        ("teacher.names=[1e3,ü]", ["1e3", "ü"]),
        ("tasks.prompts=[query: ,пассаж: ]", ["query:", "пассаж:"]),
        ("output=läufe/${seed}", "läufe/0"),
        ("stages.finetune.start=1e3", "1e3"),
        # What Hydra reads keeps its meaning.
        ("tasks.text=a b", "a b"),
        ("tasks.text='401'", "401"),
        ("tasks.text=a\\,b", "a,b"),
        ("tasks.train=C:\\data\\rows.csv", "C:\\data\\rows.csv"),
        ("seed=3", 3),
        ("temperature=1e1", 10.0),
        ("student.layers=[0,1]", [0, 1]),
        ("target.speedup=[2,4.0]", [2, 4.0]),
        ("teacher.weights=[1,2]", [1, 2]),
        ("push_private=false", False),
        ("tasks.text=str(5)", "5"),
    ],
)  # fmt: skip
def test_a_setting_is_what_was_typed(word: str, value: Any) -> None:
    meant = words([word])
    assert words(meant) == meant
    key = word.partition("=")[0]
    if key == "tasks.labels" and isinstance(value, str):
        value = value.split()
    got = setting(composed(word), key)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    "word",
    """seed=1,2 seed=range(3) seed=choice(1,2) tasks.text=choice(1,2) recipe=glob(*) ~limit ~limit=none +a.b=401
    tasks.train=a,b term@stages.x.terms.y=mse hydra.sweeper.params={a:1} tasks.labels=[a,b] tasks.labels=[] tasks.text=
    tasks.each={} optimizer=adamw tasks.train=${output} +tasks.each.x={} hydra/launcher=joblib tasks.text="401"
    tasks.labels=["a",b] student.layers=[1,2]""".split(),
)
def test_what_needs_nothing_does_not_change(word: str) -> None:
    assert words([word]) == [word] == words(["-m", word])[1:]


def test_values_of_a_sweep_are_divided_at_commas() -> None:
    typed = ["-m", "tasks.text=текст,1e3,b", "tasks.labels=[1.0,é],[ü]", "tasks.train=a (1,2).csv,b=c.csv", "seed=1,2"]
    expected: list[Any] = [["текст", "1e3", "b"], [["1.0", "é"], ["ü"]], ["a (1,2).csv", "b=c.csv"], [1, 2]]
    got = [
        [OverridesParser.create().parse_override(f"a={each}").value() for each in override.sweep_string_iterator()]
        for override in OverridesParser.create().parse_overrides(words(typed)[1:])
    ]
    assert got == expected


def test_a_path_in_the_home_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """bash leaves the ~ in `teacher.name=~/x`, because a variable's name has no dot."""
    monkeypatch.setenv("HOME", "/home/me")
    typed = ["teacher.name=~/my bert", "tasks.train=[~/a.csv,b.csv]", "tasks.separator=~", 'tasks.text="~/x"']
    home = ['teacher.name="/home/me/my bert"', 'tasks.train=["/home/me/a.csv",b.csv]', 'tasks.separator="~"', typed[3]]
    assert words(typed) == home == words(home)
    assert words(["-m", "tasks.train=~/a.csv,b.csv"])[1] == 'tasks.train="/home/me/a.csv",b.csv'


def test_values_of_options_are_no_settings() -> None:
    typed = ["--config-dir", "a=ü", "-cd", "б=1", "--cfg", "job", "--config-dir=ü", "tasks.text=ü"]
    assert words(typed) == [*typed[:-1], 'tasks.text="ü"']


def test_the_same_command_has_the_same_folder() -> None:
    for typed in (["recipe=task", "tasks.text=текст"], ["recipe=task", "tasks.text=401", "seed=1"]):
        folders = {run_folder.run_folder("task", each, None) for each in (words(typed), words(words(typed)))}
        assert {folder.parent for folder in folders} == {Path("outputs/task")}
        assert len(folders) == 1
    # Runs of earlier versions keep their folders.
    plain = ["tasks.train=rows.csv", "tasks.labels=[a, b]", "seed=1"]
    assert run_folder.run_folder("task", words(plain), None) == run_folder.run_folder("task", plain, None)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (
            ["tasks.train=my", "own", "file.csv"],
            "command line: got file.csv; must be KEY=VALUE; if it belongs to the value before it, type "
            "'tasks.train=my own file.csv'",
        ),
        (["rows.csv"], "command line: got rows.csv; must be KEY=VALUE; add the key"),
        (
            ["tasks.text=é,b"],
            "tasks.text: got é,b; must be one value; add -m to run each in turn, or for one value with a comma set "
            "'tasks.text=\"é,b\"'",
        ),
        (
            ["tasks.labels=é,b"],
            "tasks.labels: got é,b; must be one value; add -m to run each in turn, or for a list set "
            "'tasks.labels=[\"é\",b]'",
        ),
        (
            ["tasks.train=é\\,b"],
            "tasks.train: got é\\,b; must be é\\,b with or without its backslashes; set 'tasks.train=\"é,b\"', or "
            "'tasks.train=\"é\\,b\"'",
        ),
        (["tasks.each.ü.train=x"], "command line: got the key tasks.each.ü.train; must be names of A-Z, a-z, "),
        (["tasks.validation={früh: ä.csv}"], "tasks.validation: got a mapping with a name that"),
        (["seed=${oc.env:HOME}"], "seed: got ${oc.env:HOME}; must be a value or the name of another setting"),
        (["recipe=${oc.env:HOME}"], "recipe: got ${oc.env:HOME}; must be a value or the name of another setting"),
        (["tasks.train=[ü,${oc.env:HOME}]"], "tasks.train: got [ü,${oc.env:HOME}]; must be a value or the name"),
        (["+a=${oc.decode:${oc.env:HOME}}"], "+a: got ${oc.decode:${oc.env:HOME}}; must be a value or the name of"),
        (["${oc.env:HOME}=1"], "command line: got 1; must be a value or the name of another setting"),
        (["hydra.job.name=${oc.env:HOME}"], "hydra.job.name: got ${oc.env:HOME}; must be a value or the name of"),
        (["hydra.job.name=${hydra:runtime.cwd}"], "hydra.job.name: got ${hydra:runtime.cwd}; must be a value or"),
        (["hydra.sweep.dir=x/${now:%Y}"], None),
        (["-m", "seed=1,2", "~limit", "--cfg", "job"], None),
        (["tasks.labels=[" + "[" * 50 + "]" * 51], "tasks.labels: got brackets in 51 others; must be in at most 20"),
        (["tasks.labels=[" + "abcdefgh," * 9000 + "]"], "command line: got 81,015 characters; must be at most 20,000;"),
    ],
)
def test_a_word_that_hydra_would_refuse_gets_a_line(typed: list[str], line: str | None) -> None:
    lines = list(command_line.problems(typed))
    assert [each.startswith(line or "?") for each in lines] == ([] if line is None else [True])


def test_every_type_of_the_settings_is_known() -> None:
    """Each setting of a recipe has a type, also one whose stage is chosen by the recipe."""
    from distill.config import typed

    for key, value in flatten(OmegaConf.to_container(OmegaConf.structured(load_config(["recipe=auto"])))).items():  # type: ignore[arg-type]
        kind = typed.texts(Config, key.split("."))
        if isinstance(value, str) and not {"optimizer", "schedule", "loss", "importance"} & {*key.split(".")}:
            assert typed.holds_text(kind) or key.endswith(("temperature", "layers", "shape")), key


def bash(command: str) -> subprocess.CompletedProcess[str]:
    """`python -m distill` with these words, as bash reads them."""
    root = str(Path(__file__).parents[3])
    env = os.environ | {"PYTHONPATH": root, "PYTHONIOENCODING": "utf-8"}
    words = ["bash", "-c", f"{sys.executable} -m distill {command}"]
    return subprocess.run(words, capture_output=True, text=True, encoding="utf-8", cwd=root, env=env, timeout=200)


def test_a_command_as_it_is_typed_in_bash() -> None:
    typed = "tasks.text=текст tasks.separator=';' tasks.train='März (2).csv' 'tasks.labels=[Rückfrage,C#-Kurs,005.740]'"
    tasks = yaml.safe_load(bash(f"recipe=task {typed} --cfg job").stdout)["tasks"]
    assert [tasks[name] for name in ("text", "separator", "train", "labels")] == [
        "текст", ";", "März (2).csv", ["Rückfrage", "C#-Kurs", "005.740"],
    ]  # fmt: skip


@pytest.mark.slow
def test_a_sweep_as_it_is_typed_in_bash() -> None:
    done = bash("-m recipe=task tasks.text=é,1e3 temperature=-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "job 0 ('tasks.text=\"é\"'): temperature: got -1.0; must be > 0; 2 is usual",
        "job 1 ('tasks.text=\"1e3\"'): temperature: got -1.0; must be > 0; 2 is usual",
    ]


@pytest.mark.parametrize("before", [None, "0"])
def test_the_command_line_leaves_the_environment_as_it_was(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from distill.cli.run import main

    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    if before is not None:
        monkeypatch.setenv("HYDRA_FULL_ERROR", before)
    monkeypatch.setattr("sys.argv", ["distill", "recipe=task", "temperature=-1"])
    environment = dict(os.environ)
    with pytest.raises(SystemExit):
        main()
    assert dict(os.environ) == environment
