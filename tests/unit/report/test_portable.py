"""A model card contains no local folders."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from distill.evaluation.similarity import Similarity
from distill.report import embedder_card, model_card, plain_card, validate
from distill.report.portable import portable_command, portable_text
from tests.decoded import decoded

PATHS = [
    ("tasks.path=/home/alice/secret/glue", "tasks.path=glue"),
    ("tasks.path=../secret/glue/", "tasks.path=glue"),
    ("tasks.path=./secret/glue", "tasks.path=glue"),
    ("tasks.path=secret/glue", "tasks.path=glue"),
    ("tasks.path=~/secret/glue", "tasks.path=glue"),
    ("tasks.path=~alice", "tasks.path=~"),
    ("tasks.path='/home/alice, secret/glue'", "tasks.path='glue'"),
    ('tasks.path="/home/alice/secret [1]/glue"', 'tasks.path="glue"'),
    (r"corpus.path=C:\Users\alice\secret\texts", "corpus.path=C:texts"),
    ("corpus.path=${oc.env:HOME}/secret/texts", "corpus.path=texts"),
    ("teacher.names=[/home/alice/a,~/secret/b,google/bert]", "teacher.names=[a,b,google/bert]"),
    ("teacher.name=secret/models/bert", "teacher.name=bert"),
    ("+student.tokenizer=/home/alice/secret/words", "+student.tokenizer=words"),
    ("+extra={here: /home/alice/secret/a, there: [../secret/b]}", "+extra={here: a, there: [b]}"),
    ("hydra.searchpath=[file:///home/alice/secret/conf]", "hydra.searchpath=[file:conf]"),
    ("output=/home/alice/secret/run", "output=run"),
    ("--config-dir=/home/alice/secret/conf", "--config-dir=conf"),
    ("/home/alice/secret/conf", "conf"),
    ("-cd/home/alice/secret/conf", "conf"),
]
NAMES = [
    "recipe=paper/distilbert",
    "teacher.name=google/bert",
    "student.name=prajjwal1/bert-tiny",
    "push=me/student-${seed}",
    "corpus.name=[wikimedia/wikipedia/20231101.en]",
    "target.speedup=[1.5,2]",
    "stages.evaluate.shapes=[[8,128]]",
    "~stages.pretrain.terms.soft_targets",
    "+term@stages.pretrain.terms.more=mse",
    "python",
    "-m",
]


@pytest.mark.parametrize(("word", "shown"), PATHS)
def test_a_path_is_shortened_to_its_last_part(word: str, shown: str) -> None:
    assert shlex.split(portable_command(shlex.join(["distill", word, "seed=1"]))) == ["distill", shown, "seed=1"]


@pytest.mark.parametrize("word", NAMES)
def test_other_values_are_unchanged(word: str) -> None:
    assert shlex.split(portable_command(shlex.join([word]))) == [word]


def test_a_command_that_a_shell_cannot_parse_is_shown() -> None:
    assert portable_command("distill tasks.path=/home/alice/it's") == "distill 'tasks.path=it'\"'\"'s'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no file /home/alice/secret/model.onnx, mend it", "no file model.onnx, mend it"),
        ("[Errno 2] 'C:\\Users\\alice\\x.bin': ~alice/secret/y", "[Errno 2] 'x.bin': y"),
        (
            "f1/accuracy of 8 / 128 at https://huggingface.co/a/b.",
            "f1/accuracy of 8 / 128 at https://huggingface.co/a/b.",
        ),
    ],
)
def test_a_path_in_a_sentence(text: str, shown: str) -> None:
    assert portable_text(text) == shown


def test_cards_contain_no_folder_of_the_command(results: dict[str, Any]) -> None:
    results["command"] = shlex.join(["python", "-m", "distill", "recipe=distilbert", *(word for word, _ in PATHS)])
    results["models"][5]["failed"] = "cannot load /home/alice/secret/model.onnx"
    assert validate(results) == []
    measured = Similarity(cosine=0.9, texts=10, spearman={"stsb": [80.0, 79.0]})
    cards = [
        model_card(decoded(results), None, "cola"),
        plain_card(decoded(results), "finetune", "cola"),
        embedder_card(decoded(results), "pretrain", measured),
    ]
    for card in cards:
        assert "alice" not in card
        assert "secret" not in card
        assert "tasks.path=glue" in card
        assert yaml.safe_load(card.split("---\n")[1])["library_name"]
    assert "failed: cannot load model.onnx" in cards[0]
