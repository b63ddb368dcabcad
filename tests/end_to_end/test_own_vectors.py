"""Whole runs of embedders, from a file of pairs, or of queries and documents, to folders that others load."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli.compare.comparison import compare
from distill.deploy.export.reload import vectors as elsewhere
from distill.errors import ConfigError, DataError, UserError
from distill.models.families.embedding import EncoderForVectors
from distill.runtime.storage import atomic, run_folder
from tests import tiny
from tests.small import judged

COUNT = 64
SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "output=out",
    "target.speedup=1.01", "target.shape=[1,16]", "stages.quantize.max_drop=100", "stages.evaluate.shapes=[[1,16]]",
    "target.scheme=fp32",
)  # fmt: skip
RUN = "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]"


def pair(number: int) -> dict[str, Any]:
    first, second = tiny.SENTENCES[number % 8], tiny.SENTENCES[number // 8]
    shared = len({*first.split()} & {*second.split()})
    return {"sentence1": f"{first} {number}", "sentence2": second, "score": None if number == 3 else shared}


def embedder(folder: Path, prompts: bool = False) -> Path:
    """A tiny embedder in the layout of sentence-transformers."""
    tiny.save(folder, "bert", "", std=0.2, hidden_size=32, intermediate_size=64, num_hidden_layers=2, length=34)
    EncoderForVectors.from_pretrained(folder).save_pretrained(folder)
    if prompts:
        atomic.write_json(
            folder / "config_sentence_transformers.json", {"prompts": {"query": "the ", "document": "a "}}
        )
    return folder


def write(file: Path, form: Any, count: int = COUNT) -> Path:
    file.write_text("".join(json.dumps(form(number)) + "\n" for number in range(count)))
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("form", "backend"), [(pair, "onnxruntime"), (judged, "bitsandbytes")])
def test_a_file_becomes_an_exported_embedder(form: Any, backend: str, run: Any, predicted: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", form), embedder(tmp_path / "given", prompts=form is judged)
    settings = [f"stages.quantize.schemes=[{backend}]", "stages.prune.dimensions=[layers]", RUN]
    settings += ["teacher=hub", f"teacher.name={given}"]
    settings += [f"tasks.train={file}", "stages.evaluate.baseline=null"]
    results = run(tmp_path, "prune", *SMALL, *settings, onnx=form is pair)
    kind = "embedding" if form is pair else "retrieval"
    assert any(note.endswith(f": {kind}") for note in results["notes"])
    folder = tmp_path / "out" / "export" / "texts"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertModel"]
    metrics = {"spearman", "pearson"} if form is pair else {"ndcg_at_10", "mrr_at_10", "recall_at_10"}
    scores = {(m["role"], m["scheme"]): m["scores"]["texts"] for m in results["models"] if m["scores"].get("texts")}
    assert {("teacher", "fp32"), ("student", "fp32"), ("student", "int8")} <= {
        (role, scheme.replace("_medium", "")) for role, scheme in scores
    }
    assert all(score.keys() == metrics for score in scores.values())
    manifest = atomic.read_json(tmp_path / "out" / "recover" / "texts" / run_folder.MANIFEST)
    assert manifest["log"][-1]["terms"].keys() == {"soft_targets", "vectors"}
    teacher_manifest = atomic.read_json(tmp_path / "out" / "finetune_teacher" / "texts" / run_folder.MANIFEST)
    assert teacher_manifest["steps"] == 0
    texts = tiny.SENTENCES
    given_vectors = np.array(elsewhere(str(given), [[text] for text in texts], False))
    copied = np.array(elsewhere(str(tmp_path / "out" / "finetune_teacher" / "texts"), [[t] for t in texts], False))
    np.testing.assert_allclose(copied, given_vectors, atol=1e-6)
    expected = np.array(elsewhere(str(folder), [[text] for text in texts], False))
    assert expected.shape == (8, 32)
    model = distill.load(folder, backend="torch", scheme="fp32")  # not the fastest, which may be bf16
    np.testing.assert_allclose([row["vector"] for row in model.predict(texts)], expected, atol=1e-5)
    int8 = distill.load(folder, backend=backend, scheme="int8").outputs(texts)
    assert (int8 * expected).sum(1).min() > 0.9
    stored = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert stored["prompts"] == ({} if form is pair else {"query": "the ", "document": "a "})
    usage = (folder / "README.md").read_text().split("## Usage\n")[1].split("\n## ")[0]
    code = "".join(re.findall(r"^```\w*\n(.*?)^```$", usage, re.DOTALL | re.MULTILINE))
    found: dict[str, Any] = {}
    exec(code.replace("FOLDER_OF_THIS_FILE", str(folder)), found)
    shapes = {name: found[name].shape for name in ("embeddings", "queries", "documents") if name in found}
    assert shapes == ({"embeddings": (2, 32)} if form is pair else {"queries": (1, 32), "documents": (2, 32)})
    compared = compare(given, folder, str(file))
    assert compared["kind"] == kind
    assert compared["scores"].keys() == metrics
    with pytest.raises(UserError, match="texts, number 1: got "):
        model.predict([("one text", "another")])
    lines = predicted(folder, file)
    column = "sentence1" if form is pair else "query"
    assert [line[column] for line in lines] == [form(number)[column] for number in range(COUNT)]
    assert {len(line["vector"]) for line in lines} == {32}


@pytest.mark.slow
def test_a_narrower_student_outputs_vectors_as_wide_as_its_teachers(run: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", pair), embedder(tmp_path / "given")
    pipeline = "pipeline=[finetune_teacher,finetune,finetune_baseline,evaluate,export]"
    settings = ["teacher=hub", f"teacher.name={given}", f"tasks.train={file}", "stages.evaluate.quantized=null"]
    settings += ["stages.export.quantized=null", "stages.evaluate.shapes=[[1,16]]"]
    small = tiny.save(tmp_path / "small", "bert", "", std=0.2, length=34)
    results = run(tmp_path, "task", *SMALL[:5], *settings, pipeline, f"student.name={small}", onnx=False)
    folder = tmp_path / "out" / "export" / "texts"
    described = atomic.read_json(folder / "2_Dense" / "config.json")
    assert (described["in_features"], described["out_features"]) == (16, 32)
    assert np.array(elsewhere(str(folder), [["a text"]], False)).shape == (1, 32)
    assert {m["role"] for m in results["models"]} == {"teacher", "student", "baseline"}


@pytest.mark.slow
def test_texts_without_labels_prune_and_train_an_embedder(run: Any, tmp_path: Path) -> None:
    given, held = embedder(tmp_path / "given"), write(tmp_path / "held.jsonl", pair)
    texts = write(tmp_path / "texts.jsonl", lambda number: {"text": f"{tiny.SENTENCES[number % 8]} {number}"}, 96)
    settings = ["teacher=hub", f"teacher.name={given}", f"tasks.train={texts}", f"tasks.validation={held}"]
    rest = ["stages.evaluate.quantized=null", "stages.export.quantized=null", "stages.evaluate.baseline=null"]
    rest += ["pipeline=[finetune_teacher,prune,recover,evaluate,export]"]
    results = run(tmp_path, "prune", *SMALL, *settings, *rest, onnx=False)
    assert {row["split"]: row["rows"] for row in results["coverage"]} == {"train": 48, "validation": 24}
    assert (tmp_path / "out" / "export" / "texts" / "modules.json").is_file()
    baseline = "pipeline=[finetune_teacher,prune,recover,recover_baseline]"
    with pytest.raises(ConfigError, match=r"stages.recover_baseline.teacher: got null, and training rows of texts wi"):
        run(tmp_path, "prune", *SMALL[:4], "output=other", *SMALL[5:], *settings, baseline)


STATED = "config_sentence_transformers.json"


@pytest.mark.slow
@pytest.mark.parametrize("form", [pair, judged])
def test_a_student_reads_texts_as_its_teacher_does(form: Any, run: Any, tmp_path: Path) -> None:
    """Lower case, which the tokenizer's own files do not state, prompts, and a length of its own."""
    from sentence_transformers import SentenceTransformer

    given = cased(tmp_path / "given")
    file, kept = write(tmp_path / "texts.jsonl", form), atomic.read_json(given / STATED)
    settings = [
        "pipeline=[finetune_teacher,prune,recover,export]",
        "target.speedup=null",
        "student.num_hidden_layers=2",
    ]
    settings += ["stages.export.quantized=null", "stages.export.evaluated=null", "teacher=hub", f"teacher.name={given}"]
    run(tmp_path, "prune", "limit=smoke", "tasks.max_length=32", "output=out", *settings, f"tasks.train={file}")
    folder = tmp_path / "out" / "export" / "texts"
    stated = atomic.read_json(folder / "sentence_bert_config.json")
    assert (stated["max_seq_length"], stated["do_lower_case"]) == (32, True)
    if form is judged:  # it was trained with the prompts of queries and documents, and with no other
        kept |= {"prompts": {**kept["prompts"], "document": ""}, "default_prompt_name": None}
    assert atomic.read_json(folder / STATED) == kept
    texts = [*tiny.SENTENCES[:3], tiny.SENTENCES[0].upper(), " ".join(tiny.SENTENCES)]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    made = [row["vector"] for row in distill.load(folder).predict(texts)]
    np.testing.assert_allclose(made, expected, atol=1e-5)
    np.testing.assert_array_equal(made[0], made[3])


def cased(folder: Path) -> Path:
    """A tiny embedder of 40 tokens whose texts are lower-cased before a tokenizer that distinguishes cases."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import RobertaTokenizer

    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    tokenizer = RobertaTokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[])
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "length": 60}
    tiny.model("roberta", "", std=0.3, vocab_size=len(tokenizer), **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    EncoderForVectors.from_pretrained(folder).save_pretrained(folder)
    atomic.write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": True})
    stored = {"prompts": {"query": "q: ", "other": "o: "}, "default_prompt_name": "other", "similarity_fn_name": "dot"}
    atomic.write_json(folder / STATED, stored)
    return folder


def test_what_a_run_would_read_otherwise_is_refused(run: Any, tmp_path: Path) -> None:
    given, file = cased(tmp_path / "given"), write(tmp_path / "texts.jsonl", pair)
    settings = ["limit=smoke", "output=out", "teacher=hub", f"teacher.name={given}", "target.speedup=null"]
    settings += ["pipeline=[finetune_teacher]"]
    longer = [*settings, f"tasks.train={file}", "tasks.max_length=41"]
    with pytest.raises(ConfigError, match=r"tasks.max_length: got 41; must be <= 40, .*; set tasks.max_length=40$"):
        run(tmp_path, "prune", *longer)
    topics = write(tmp_path / "topics.jsonl", lambda number: {"text": f"text {number}", "label": "ab"[number % 2]})
    with pytest.raises(ConfigError, match=r"whose sentence_bert_config.json has do_lower_case true; must be false"):
        run(tmp_path, "prune", *settings, f"tasks.train={topics}", "tasks.max_length=32")
    tiny.change(given / STATED, similarity_fn_name="manhattan")
    with pytest.raises(DataError, match="got similarity_fn_name manhattan; must be cosine, because students"):
        run(tmp_path, "prune", *settings, f"tasks.train={file}", "tasks.max_length=32")


@pytest.mark.slow
def test_a_regression_of_a_cross_encoder_whose_scores_are_no_outputs_is_refused(run: Any, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "length": 34, "num_labels": 1}
    tiny.save(tmp_path / "made", "bert", "SequenceClassification", **sizes)
    CrossEncoder(str(tmp_path / "made"), device="cpu").save_pretrained(str(tmp_path / "given"))
    settings = ["limit=smoke", "output=out", "teacher=hub", f"teacher.name={tmp_path / 'given'}", "tasks.max_length=32"]
    settings += ["target.speedup=null", "pipeline=[finetune_teacher]"]
    file = write(tmp_path / "texts.jsonl", pair)
    with pytest.raises(
        ConfigError, match=r"a cross-encoder whose scores are the Sigmoid of its .* set teacher.head=new$"
    ):
        run(tmp_path, "prune", *settings, f"tasks.train={file}")
    run(tmp_path, "prune", *settings, f"tasks.train={file}", "teacher.head=new", "limit.steps=1")


def test_what_embedders_do_not_support_is_refused(run: Any, tmp_path: Path) -> None:
    file, given = write(tmp_path / "texts.jsonl", judged), embedder(tmp_path / "given")
    key, pipeline = "stages.recover.terms.margins.weight", "pipeline=[finetune_teacher,prune,recover]"
    settings = ["teacher=hub", f"teacher.name={given}", f"tasks.train={file}", pipeline, f"{key}=0.5"]
    with pytest.raises(ConfigError, match=rf"{key}: got 0.5; must be 0 for texts, a task of kind retrieval"):
        run(tmp_path, "prune", *SMALL, *settings)
