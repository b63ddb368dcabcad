"""Terms that compare all rows of a step with each other are refused where they would compare others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Batch, Term, Train
from distill.config.feature_kinds import BATCH_LOSSES, FEATURE_KINDS
from distill.data.task_types import TASK_TYPES
from distill.pipeline.validation.terms import TermFacts, terms
from distill.pipeline.validation.whole_steps import problems

LOSSES = {name.rpartition(".")[2]: kinds for name, kinds in BATCH_LOSSES.items()}


def term(loss: str, features: str, **settings: Any) -> Term:
    return Term(features=features, positions="all", loss={"_target_": f"distill.losses.{loss}"}, **settings)


def found(given: Term, data: str = "tasks", batch: Batch | None = None) -> list[str]:
    stage = Train(data=data, teacher="t", terms={"x": given}, batch=batch or Batch())
    return [*map(str, terms("stages.s", stage, TermFacts()))]


@pytest.mark.parametrize("features", FEATURE_KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_of_a_batch_has_features_whose_rows_it_can_compare(loss: str, features: str) -> None:
    lines = found(term(loss, features), "tasks" if FEATURE_KINDS[features].task_rows else "corpus")
    if FEATURE_KINDS[features] in LOSSES[loss]:
        assert lines == []
    else:
        names = " or ".join(kind.name for kind in LOSSES[loss])
        message = f"stages.s.terms.x.features: got {features}; must be {names} with the loss {loss}; drop the term with"
        assert len([line for line in lines if line.startswith(message)]) == 1


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("data", ["corpus", "tasks"])
def test_a_step_is_not_computed_in_parts(loss: str, data: str) -> None:
    given = term(loss, LOSSES[loss][0].name)
    message = (
        "stages.s.batch.device_tokens: got 64; must be left out with stages.s.terms.x, whose loss compares all rows"
    )
    (line,) = found(given, data, Batch(device_tokens=64))
    assert line.startswith(message)
    assert found(given, data) == []
    assert found(term("mse", "pooled"), data, Batch(device_tokens=64)) == []


def test_labels_are_not_the_outputs_of_a_batch() -> None:
    (line,) = found(term("intra_class", "logits", compare_with="labels"))
    assert line.startswith("stages.s.terms.x.compare_with: got labels; must be teacher with a loss that compares rows")


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", TASK_TYPES)
@pytest.mark.parametrize("loss", [*LOSSES, "mse"])
def test_rows_are_those_of_all_processes_or_the_term_is_refused(loss: str, kind: str, processes: int) -> None:
    features = LOSSES[loss][0].name if loss in LOSSES else "hidden"
    task: Any = SimpleNamespace(task=SimpleNamespace(kind=TASK_TYPES[kind]))
    stage = Train(terms={"x": term(loss, features), "none": term("angles", "pooled", weight=0.0)})
    step: Any = SimpleNamespace(stage="s", settings=stage, on_corpus=False)
    lines = [*map(str, problems({"mine": task}, [step], processes))]
    whole_texts = kind in ("classification", "regression", "multi_label", "reranking")
    wanted: list[str] = []
    if loss == "intra_class" and not (whole_texts or kind == "token_classification"):
        wanted = [f"be 0 for mine, a task of kind {kind}, whose rows have no classes in common; set stages.s.terms.x."]
    elif loss in LOSSES and processes == 2 and not (whole_texts or kind in ("embedding", "retrieval")):
        wanted = [f"be 0 for mine, a task of kind {kind}, with 2 processes, each of which compares its own rows of a "]
    starts = [f"stages.s.terms.x.weight: got 1; must {words}" for words in wanted]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


@pytest.mark.parametrize("processes", [1, 2])
def test_on_a_corpus_a_single_process_compares_rows(processes: int) -> None:
    step: Any = SimpleNamespace(stage="s", settings=Train(terms={"x": term("angles", "pooled")}), on_corpus=True)
    lines = [*map(str, problems({}, [step], processes))]
    message = "stages.s.terms.x.weight: got 1; must be 0 on a corpus with 2 processes, each of which compares the rows "
    assert len(lines) == processes - 1
    assert all(line.startswith(message) for line in lines)
