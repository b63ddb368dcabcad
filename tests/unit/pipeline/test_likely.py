"""Advice for what a newcomer types: the settings that it names compose, and have the value that was meant."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from distill.config import Config, load_config, recipes
from distill.config import words as typed
from distill.pipeline.validation import likely
from distill.pipeline.validation.hydra_errors import messages
from distill.pipeline.validation.words import problems
from distill.runtime.quoting import setting


def refused(*given: str) -> list[str]:
    arguments = ["recipe=prune", *given]
    try:
        load_config(typed(arguments))
    except Exception as error:
        return messages(error, arguments) or []
    raise AssertionError(f"{given} composes")


def advised(line: str) -> Config:
    """The config that the settings of an advice compose to."""
    (settings,) = re.findall(r"; (?:.* )?set (.+?)(?:, or choose from .*)?$", line)
    return load_config(typed(["recipe=prune", *shlex.split(settings)]))


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("given", "key", "meant"),
    [
        ("teacher=my-bert", "teacher.name", "my-bert"),
        ("teacher=./my-bert", "teacher.name", "./my-bert"),
        ("teacher=/models/my bert", "teacher.name", "/models/my bert"),
        ("teacher=google-bert/bert-base-uncased", "teacher.name", "google-bert/bert-base-uncased"),
        ("tasks=tickets.csv", "tasks.train", "tickets.csv"),
        ("tasks=data/my tickets.csv", "tasks.train", "data/my tickets.csv"),
        ("tasks=imdb", "tasks.train", "FILE"),
        ("tasks=stanfordnlp/imdb", "tasks.hub", "stanfordnlp/imdb"),
        ("dataset=stanfordnlp/imdb", "tasks.hub", "stanfordnlp/imdb"),
        ("tasks=./imdb", "tasks.train", "./imdb"),
        ("corpus=texts.txt", "corpus.path", "texts.txt"),
        ("corpus=parts/a.parquet", "corpus.kind", "parquet"),
        ("student=my-small", "student.name", "my-small"),
        ("target=4x", "target.speedup", 4.0),
        ("target=[4,8]", "target.speedup", [4.0, 8.0]),
        ("budget=60", "budget.minutes", 60.0),
        ("model=my-bert", "teacher.name", "my-bert"),
        ("data=tickets.csv", "tasks.train", "tickets.csv"),
        ("speedup=4", "target.speedup", 4.0),
        ("speedup=4x", "target.speedup", 4.0),
    ],
)
def test_what_is_advised_composes_to_what_was_meant(given: str, key: str, meant: Any) -> None:
    (line,) = refused(given)
    assert line.startswith(f"{given.partition('=')[0]}: got {given.partition('=')[2]}; must be ")
    assert OmegaConf.select(OmegaConf.structured(advised(line)), key) == meant


def test_a_task_of_glue() -> None:
    (line,) = refused("tasks=cola")
    config = advised(line)
    assert (config.tasks.names, "cola" in config.tasks.each) == (["cola"], True)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("teacher=embeded", "did you mean embedded?"),
        ("teacher=null", "choose from bert_base, "),
        ("tasks=glu", "did you mean glue?"),
        ("seed=a", "see docs/settings.md"),
        ("sed=1", "did you mean seed?"),
    ],
)
def test_a_misspelt_name_is_corrected(given: str, advice: str) -> None:
    (line,) = refused(given)
    assert f"; {advice}" in line


def test_every_name_of_other_programs_stands_for_a_setting_and_is_none() -> None:
    config = OmegaConf.structured(Config)
    for name, key in likely._OTHER_NAMES.items():
        group, _, setting = key.rpartition(".")
        assert setting in (OmegaConf.select(config, group) if group else config), key
        assert name not in config


@pytest.mark.parametrize(("name", "value"), [("learning_rate", "1e-4"), ("batch_size", "16"), ("num_epochs", "2")])
def test_a_setting_of_every_training_is_advised_for_each_stage_that_has_it(name: str, value: str) -> None:
    (line,) = refused("recipe=task", f"{name}={value}")
    given = line.rpartition("; set ")[2].split(" or ")
    assert [word.split(".")[1] for word in given] == ["finetune_teacher", "finetune"]
    config = load_config(["recipe=task", *given])
    for stage in ("finetune_teacher", "finetune"):
        found = OmegaConf.select(OmegaConf.structured(config.stages[stage]), likely.OF_STAGES[name])
        assert found == float(value)


def test_a_precision_as_a_flag_is_a_value_of_the_setting() -> None:
    (line,) = refused("fp16=true")
    assert line == "fp16: got true; must be a setting that exists; set precision=fp16"


def test_a_word_may_be_a_file_or_a_part_of_the_value_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-bert").mkdir()
    Path("tickets.csv").touch()
    (line,) = problems(["recipe=auto", "my-bert", "tickets.csv"])
    assert line == (
        "command line: got tickets.csv; must be KEY=VALUE; set teacher.name=my-bert tasks.train=tickets.csv, or, if it "
        "belongs to the value before it, type 'recipe=auto my-bert tickets.csv'"
    )
    (line,) = problems(["--multirun", "tickets.csv"])
    assert line.endswith("; must be KEY=VALUE; set tasks.train=tickets.csv")


@pytest.mark.parametrize("file", ["my tickets.csv", "a,b.csv", "it's.csv", "$(date).csv", "[1].csv", "ä=1.csv"])
def test_a_name_that_a_shell_or_hydra_would_change_is_quoted(file: str) -> None:
    (line,) = refused(*shlex.split(setting("data", file)))
    assert advised(line).tasks.train == file


def test_words_are_recipes_models_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my-bert").mkdir()
    Path("tickets.csv").touch()
    assert likely.words(["compress", "my-bert", "tickets.csv", "x" * 5000, "a\0b"]) == {
        "teacher.name": "my-bert",
        "tasks.train": "tickets.csv",
    }
    assert all(likely.words([name]) == {"recipe": name} for name in recipes())
