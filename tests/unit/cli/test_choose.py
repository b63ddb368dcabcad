"""`distill choose`: its table against transformers, its choice against a search of the whole table, its messages."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distill.cli.choose import command
from distill.cli.choose.answer import BEHIND, Ask, Option, answered, scheme_of
from distill.cli.choose.measure import Stopwatch, applied, mib_of
from distill.cli.choose.table import Checkpoint, config_of, table
from distill.config import load_config
from distill.data.task_types import TASK_TYPES
from distill.models import families
from distill.models.student.shape import setting
from tests import tiny

ROOT = Path(__file__).resolve().parents[3]
PAGE = runpy.run_path(str(ROOT / "docs" / "choosing.py"))
EVERY = table()
NAMES = list(EVERY.checkpoints)


class Invented(Stopwatch):
    """Times that follow from multiplications, without a model."""

    def __init__(self, over_after: int = 1000) -> None:
        self.left = over_after
        self.timed: list[str] = []

    def over(self, checkpoint: Checkpoint) -> bool:
        return len(self.timed) >= self.left

    def at_least(self, checkpoint: Checkpoint) -> float:
        return applied(checkpoint) / 40

    def __call__(self, checkpoint: Checkpoint) -> Mapping[str, float]:
        self.timed.append(checkpoint.name)
        return milliseconds(checkpoint)


def milliseconds(checkpoint: Checkpoint) -> dict[str, float]:
    # Not in the order of multiplications: names differ.
    took = applied(checkpoint) / 8 * (1 + len(checkpoint.name) % 3 / 4)
    return {"torch fp32": took} | ({"onnxruntime int8": took / 3} if checkpoint.record.onnx else {})


def test_every_value_has_its_source_and_every_score_is_explained() -> None:
    for each in EVERY.checkpoints.values():
        assert each.scores.keys() <= EVERY.metrics.keys(), each.name
        for cell in (each.published, *each.scores.values()):
            assert (cell and cell.keys() <= EVERY.sources.keys()) or cell is each.published, each.name
        assert {"en"} <= {*EVERY.languages(each)}, each.name
    used = {
        source
        for each in EVERY.checkpoints.values()
        for cell in (each.published, *each.scores.values())
        for source in cell
    }
    assert all(source["url"].startswith("https://") for source in EVERY.sources.values())
    assert used == EVERY.sources.keys()


def test_of_two_metrics_one_encoder_that_has_both_makes_one_scale() -> None:
    answer = answered(EVERY, Ask(TASK_TYPES["classification"], ("de",), 64), Invented())
    first = answer.best[0]
    # XLM-R base has 74.5 on XNLI and 76.2 on its development rows, on which mDeBERTa has 79.8.
    assert (first.checkpoint.name, first.scale, first.score) == ("microsoft/mdeberta-v3-base", "xnli", 78.1)
    said = "\n".join(command.lines(answer, Ask(TASK_TYPES["classification"], ("de",), 64), EVERY))
    assert "79.8 (README of microsoft/DeBERTa); compared as XNLI 78.1" in said
    low = replace(EVERY.checkpoints[first.checkpoint.name], scores={"xnli_dev": {"deberta": 60.0}})
    assert EVERY.ranked(low, ["xnli", "xnli_dev"]) == ("xnli_dev", "xnli", 58.3)
    assert EVERY.ranked(low, ["mnli", "wikiann"]) is None
    assert EVERY.ranked(EVERY.checkpoints[NAMES[0]], ["mnli", "mnli_test"]) == ("mnli_test", "mnli_test", 70.2)


def test_embedders_of_other_languages_are_not_ranked_by_english_texts() -> None:
    ask = Ask(TASK_TYPES["embedding"], ("de",), 64)
    answer = answered(EVERY, ask, Invented())
    assert answer.best[0].checkpoint.embeds
    assert {option.metric for option in answer.best} == {None}
    said = "\n".join(command.lines(answer, ask, EVERY))
    assert "None of those that pass has a score." in said
    assert "Its score is the highest" not in said


def test_an_embedder_reads_as_many_tokens_as_it_is_published_to_read() -> None:
    answer = answered(EVERY, Ask(TASK_TYPES["embedding"], ("en",), 384), Invented())
    (cut,) = (names for why, names in answer.left_out.items() if why == "reads fewer than 384 tokens")
    assert {name.partition("/")[2] for name in cut} == {
        *("all-MiniLM-L6-v2", "all-MiniLM-L12-v2", "paraphrase-multilingual-MiniLM-L12-v2")
    }


def test_that_number_of_tokens_is_no_limit_where_texts_have_no_vectors() -> None:
    answer = answered(EVERY, Ask(TASK_TYPES["classification"], ("en",), 384), Invented())
    assert "reads fewer than 384 tokens" not in answer.left_out
    name = "sentence-transformers/all-MiniLM-L12-v2"
    assert (EVERY.checkpoints[name].context, EVERY.checkpoints[name].longest) == (128, 512)


def test_norwegian_has_one_code() -> None:
    assert command._language("no") == command._language("nb") == "nb"
    for name in ("FacebookAI/xlm-roberta-base", "google-bert/bert-base-multilingual-cased"):
        assert "nb" in EVERY.languages(EVERY.checkpoints[name])
    assert not any("no" in codes for codes in EVERY.language_sets.values())


def test_each_kind_of_task_is_ranked_by_scores_of_the_table() -> None:
    for kind in TASK_TYPES.values():
        for languages in (["en"], ["de"], ["de", "en"]):
            metrics = EVERY.metrics_of(kind.name, kind.architecture, languages)
            scored = [each for each in EVERY.checkpoints.values() if {*metrics} & each.scores.keys()]
            assert scored or (kind.separate and languages != ["en"]), kind.name
    assert EVERY.metrics_of("retrieval", "ForVectors", ["en"]) == ["mteb"]
    assert EVERY.metrics_of("token_classification", "ForTokenClassification", ["de"]) == ["wikiann"]


@pytest.mark.slow
def test_sizes_are_those_that_transformers_counts() -> None:
    for each in EVERY.checkpoints.values():
        assert PAGE["counted"](each) == pytest.approx(each.parameters, rel=0.01), each.name


def test_sizes_are_those_that_authors_state() -> None:
    stated = [(each, value) for each in EVERY.checkpoints.values() for value in each.published.values()]
    assert len(stated) > 20
    for each, value in stated:
        if each.name == "FacebookAI/xlm-roberta-base":
            continue  # its README states 250, and its files have 278
        assert each.parameters[2] == pytest.approx(value, rel=0.06), each.name


@pytest.mark.parametrize("name", NAMES)
def test_configs_have_the_sizes_and_the_context_of_the_table(name: str) -> None:
    each = EVERY.checkpoints[name]
    config = config_of(each)
    assert config.model_type == each.type
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == each.shape[:3]
    inner = config.d_inner if each.type == "xlnet" else setting(config, "intermediate_size")
    assert (inner, config.vocab_size) == (each.shape[3], each.vocabulary)
    assert families.trained_length(config) == replace(each, reads=None).context >= each.context
    shallow = config_of(each, 2)
    assert shallow.num_hidden_layers == 2
    assert len(getattr(shallow, "layer_types", None) or [0, 0]) == 2


@pytest.mark.parametrize("kind", TASK_TYPES)
@pytest.mark.parametrize(
    ("ms", "mib"), [(None, None), (3.0, None), (None, 60.0), (2.0, 40.0), (6.0, 200.0), (0.01, 1.0)]
)
@pytest.mark.parametrize("languages", [("en",), ("de",), ("de", "sw")])
def test_the_choice_is_that_of_a_search_of_the_whole_table(
    kind: str, ms: float | None, mib: float | None, languages: tuple[str, ...]
) -> None:
    ask = Ask(TASK_TYPES[kind], languages, 64, ms, mib)
    answer = answered(EVERY, ask, Invented())
    metrics = EVERY.metrics_of(kind, ask.kind.architecture, languages)

    def passes(each: Checkpoint) -> bool:
        fit = {*languages} <= {*EVERY.languages(each)} and ask.kind.architecture not in each.record.without
        sizes = mib_of(each)
        return fit and any(
            took <= (ms or took) and sizes[scheme_of(form)] <= (mib or sizes[scheme_of(form)])
            for form, took in milliseconds(each).items()
        )

    passing = [each for each in EVERY.checkpoints.values() if passes(each)]
    assert answer.passed == bool(passing)
    assert {option.checkpoint.name for option in answer.best if answer.passed} <= {each.name for each in passing}
    assert len(answer.best) == (min(3, len(passing)) if passing else 3)
    named = [name for names in answer.left_out.values() for name in names]
    assert sorted([*named, *(option.checkpoint.name for option in answer.best)]) == sorted(NAMES)
    scores = {each.name: found for each in passing if (found := EVERY.ranked(each, metrics))}
    if not scores:
        return
    scale = min((found[1] for found in scores.values()), key=metrics.index)
    values = {name: found[2] for name, found in scores.items() if found[1] == scale}
    tied = [name for name, value in values.items() if value >= max(values.values()) - EVERY.spread(scale) - 1e-9]

    def fastest(name: str) -> float:
        each = EVERY.checkpoints[name]
        times, sizes = milliseconds(each), mib_of(each)
        return min(took for form, took in times.items() if sizes[scheme_of(form)] <= (mib or float("inf")))

    first, *others = answer.best
    assert fastest(first.checkpoint.name) == min(map(fastest, tied))
    assert first.checkpoint.name in tied
    assert first.score == values[first.checkpoint.name]
    shown = [option.score for option in others if option.scale == scale]
    assert shown == sorted((value for name, value in values.items() if name != first.checkpoint.name), reverse=True)[:2]


def test_what_cannot_pass_is_not_timed_and_timing_ends() -> None:
    times = Invented()
    answered(EVERY, Ask(TASK_TYPES["classification"], ("en",), 64, 2.0, None), times)
    assert times.timed
    assert all(applied(EVERY.checkpoints[name]) / 40 <= 2.0 for name in times.timed)
    short = Invented(over_after=1)
    answer = answered(EVERY, Ask(TASK_TYPES["classification"], ("en",), 64), short)
    assert len(short.timed) == 1
    assert any("time for measuring was over" in why for why in answer.left_out)


def test_none_is_said_not_to_pass_that_was_not_timed() -> None:
    ask = Ask(TASK_TYPES["classification"], ("en",), 64, 10.0, None)
    for over_after in range(1, 30):
        answer = answered(EVERY, ask, Invented(over_after))
        said = " ".join(command.lines(answer, ask, EVERY))
        untimed = any("time for measuring was over" in why for why in answer.left_out)
        assert ("which may pass, time was over" in said) == (untimed and not answer.passed)
        assert not (untimed and "No encoder of the table passes" in said)
        if over_after == 1:
            assert untimed
            assert not answer.passed, "the limit is to be too low for the first that is timed"


def test_of_scores_that_two_sources_do_not_tell_apart_the_fastest_is_first() -> None:
    close = EVERY.spread("mnli")
    assert close == pytest.approx(1.0), "XLNet-large has 89.8 and 90.8"
    answer = answered(EVERY, Ask(TASK_TYPES["classification"], ("en",), 64), Invented())
    first, *others = answer.best
    assert max(option.score for option in others) - first.score <= close
    assert min(first.ms.values()) <= min(min(option.ms.values()) for option in others if option.metric == first.metric)
    behind = answer.left_out[BEHIND]
    assert "albert/albert-xxlarge-v2" not in behind, "not tied, so not timed"
    assert len(behind) > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "nerr"], "--task: got nerr; must be one of ner, qa, classification"),
        (["--task", "ner", "--ms", "0"], "--ms: got 0; must be a number above 0"),
        (["--task", "ner", "--mib", "-1"], "--mib: "),
        (["--task", "ner", "--languages", "german"], "--languages: got german; must be codes of languages"),
        (["--task", "ner", "--length", "0"], "--length: got 0; must be a whole number from 1"),
        ([], "the following arguments are required: --task"),
    ],
)
def test_a_wrong_option_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert message in shown.err


def test_an_answer_has_limits_sources_and_what_was_left_out() -> None:
    ask = Ask(TASK_TYPES["token_classification"], ("de",), 32, 5.0, 300.0)
    answer = answered(EVERY, ask, Invented())
    text = "\n".join(command.lines(answer, ask, EVERY))
    assert text.startswith("token_classification in de, texts of 32 tokens, one at a time, at most 5 ms and 300 MiB:")
    assert "WikiANN, F1 of entities" in text
    assert "arXiv 2509.06888" in text
    assert "not trained on de: google/bert_uncased_L-2_H-128_A-2" in text
    assert text.count("\n1. ") == text.count("\n3. ") == 1


def test_when_none_passes_the_command_makes_a_student_of_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.gpus, "visible", list)
    ask = Ask(TASK_TYPES["token_classification"], ("de",), 32, 5.0, 50.0)
    answer = answered(EVERY, ask, Invented())
    assert not answer.passed
    assert len(answer.best) == 3
    excess = [option.excess(option.form(ask), ask) for option in answer.best]
    assert excess == sorted(excess)
    assert excess[0] > 1
    text = "\n".join(command.lines(answer, ask, EVERY))
    name = answer.best[0].checkpoint.name
    given = [f"teacher.name={name}", "tasks.train=FILE", "target.speedup=null", "target.latency_ms=5.0"]
    command_line = " ".join(["recipe=prune", *given, "target.size_mib=200.0"])
    assert f"  python -m distill {command_line}\n" in text
    target = load_config(command_line.split()).target
    assert (target.speedup, target.latency_ms, target.size_mib) == (None, 5.0, 200.0)
    assert "In int8 the student has a quarter of it, 50 MiB." in text
    assert "recipe=vocabulary" in text, "its embeddings alone are larger"


@pytest.mark.parametrize(("length", "said"), [(32, ""), (128, ""), (256, " tasks.max_length=256")])
def test_the_command_cuts_texts_no_shorter_than_those_that_were_timed(
    length: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.gpus, "visible", list)
    ask = Ask(TASK_TYPES["classification"], ("en",), length)
    answer = answered(EVERY, ask, Invented())
    given = f"teacher.name={answer.best[0].checkpoint.name} tasks.train=FILE{said}"
    text = "\n".join(command.lines(answer, ask, EVERY))
    assert f"  python -m distill recipe=prune {given}\n" in text
    assert ("max_length" in text) == bool(said)
    assert load_config([]).tasks.max_length == command.LENGTH


@pytest.mark.parametrize("gpu", [True, False])
def test_times_are_said_to_be_of_the_cpu_and_the_command_keeps_to_it(
    gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.gpus, "visible", lambda: ["0"] * gpu)
    for ms in (None, 0.01):
        ask = Ask(TASK_TYPES["classification"], ("en",), 64, ms)
        text = "\n".join(command.lines(answered(EVERY, ask, Invented()), ask, EVERY))
        assert "Times are measured on the CPU of this machine" in text
        (line,) = (line for line in text.splitlines() if "recipe=prune" in line)
        assert (" tasks.train=FILE device=cpu" in line) == gpu
        assert ("Leave it out for a GPU." in text) == gpu


def test_what_students_keep_is_what_the_page_of_results_says(tmp_path: Path) -> None:
    assert list(command.kept("a/b", tmp_path / "README.md")) == []
    own = list(command.kept("sentence-transformers/all-MiniLM-L6-v2", command.RESULTS))
    assert own[0].startswith("  docs/results/frontier: of cola, mrpc")
    assert len(own) == 3
    (base,) = command.kept("sentence-transformers/all-mpnet-base-v2", command.RESULTS)
    assert base.startswith("  docs/results/base/cola-16x: of cola; targets 16x: kept ")
    assert "No committed run" in next(command.kept("microsoft/mpnet-base", command.RESULTS))
    other = list(command.kept("microsoft/deberta-v3-base", command.RESULTS))
    assert other[0] == "No committed run has this teacher. Students of all-MiniLM-L6-v2:"
    assert other[1:] == own[:1]
    (tmp_path / "README.md").write_text("# Results\n")
    assert list(command.kept("a/b", tmp_path / "README.md")) == []
    numbers = command.RESULTS.read_text()
    assert own[0].split("kept ")[1].split("%")[0] in numbers


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert PAGE["main"](["--check"]) == 0, capsys.readouterr().out


def test_an_encoder_without_an_onnx_file_is_timed_in_torch_alone() -> None:
    tiny = replace(EVERY.checkpoints["xlnet/xlnet-base-cased"], shape=(4, 32, 2, 64))
    watch = Stopwatch(8, 60.0)
    found = watch(tiny)
    assert list(found) == ["torch fp32"]
    assert found["torch fp32"] > 0
    deeper = watch(replace(tiny, shape=(40, 32, 2, 64)))
    assert deeper["torch fp32"] >= found["torch fp32"], "from the same two models"
    assert not watch.over(tiny)
    late = Stopwatch(8, 0.0)
    assert not late.over(tiny), "the first is always timed"
    late(tiny)
    assert late.over(replace(tiny, shape=(4, 64, 2, 64)))
    assert not late.over(replace(tiny, shape=(40, 32, 2, 64))), "its width was timed"
    assert watch.at_least(tiny) > 0


@pytest.mark.slow
def test_int8_is_timed_and_as_large_as_the_file(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    from distill.deploy.export import untrained

    wide = replace(EVERY.checkpoints[NAMES[0]], shape=(2, 128, 2, 512), vocabulary=4000)
    wide = replace(wide, parameters=PAGE["counted"](wide))
    assert list(Stopwatch(8, 60.0)(wide)) == ["torch fp32", "onnxruntime fp32", "onnxruntime int8"]
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config_of(wide), trust_remote_code=False).eval()
    file = untrained._Files(model, tmp_path).of("onnxruntime")
    assert file.stat().st_size / 2**20 == pytest.approx(mib_of(wide)["int8"], rel=0.2)


def test_options_are_ordered_by_what_they_exceed() -> None:
    each = EVERY.checkpoints["google-bert/bert-base-uncased"]
    option = Option(
        each, "mnli", "mnli", 84.5, {"fp32": 400.0, "int8": 100.0}, {"torch fp32": 4.0, "onnxruntime int8": 8.0}
    )
    kind = TASK_TYPES["classification"]
    assert option.form(Ask(kind, ("en",), 8)) == "torch fp32", "the fastest without limits"
    assert option.form(Ask(kind, ("en",), 8, None, 200.0)) == "onnxruntime int8", "the only one small enough"
    assert not option.passes(Ask(kind, ("en",), 8, 5.0, 200.0)), "no form is both fast and small enough"


def test_where_the_table_has_none_for_a_task_that_alone_is_said() -> None:
    ask = Ask(TASK_TYPES["classification"], ("en",), 100_000)
    text = "\n".join(command.lines(answered(EVERY, ask, Invented(0)), ask, EVERY))
    assert "No encoder of the table is for this.\n" in text
    assert f"{len(NAMES)} reads fewer than 100000 tokens" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["bert", *(pytest.param(n, marks=pytest.mark.slow) for n in ("distilbert", "modernbert", "deberta-v2", "mpnet"))],
)
def test_files_of_few_layers_output_the_hidden_states_of_the_encoder(family: str, tmp_path: Path) -> None:
    import onnxruntime
    import torch
    from transformers import AutoModel

    from distill.deploy.export.onnx import export_depths

    torch.manual_seed(0)
    model = AutoModel.from_config(tiny.config(family, num_hidden_layers=2)).eval()
    batch = {"input_ids": torch.tensor([[5, 7, 9, 6]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    with torch.no_grad():
        states = model(**batch, output_hidden_states=True).hidden_states
    for depth, file in export_depths(model, (0, 1), tmp_path).items():
        session = onnxruntime.InferenceSession(file)
        given = {each.name: np.zeros((1, 4), np.int64) for each in session.get_inputs()}
        found = session.run(None, given | {n: v.numpy() for n, v in batch.items() if n in given})[0]
        np.testing.assert_allclose(found, states[depth].numpy(), atol=1e-4)
