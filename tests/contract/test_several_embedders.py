"""Several embedders as one teacher: their vectors side by side, whose products are the mean of their cosines."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from rich.console import Console

from distill import config, report
from distill.config import Limit
from distill.config.plan import resolve
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.embedding import concatenated, cosines, similarities
from distill.data.tasks import TaskData
from distill.errors import ConfigError
from distill.models.families.embedding import EncoderForVectors
from distill.pipeline.context import Context
from distill.pipeline.context.fingerprints import of_inputs, of_tasks
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.learned_vectors import in_own_space, projection
from distill.pipeline.train_steps.teacher_logits import teacher_logits
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic, run_folder
from tests import scored, tiny
from tests.small import judged

VECTORS = runpy.run_path(str(Path(__file__).with_name("test_teacher_vectors.py")))
RANDOM = np.random.default_rng(0)
WEIGHTS = [3.0, 1.0]


def outputs(rows: int, *widths: int) -> list[np.ndarray]:
    return [RANDOM.normal(size=(rows, 2 * width)).astype(np.float32) * width for width in widths]


def by_hand(output: np.ndarray) -> np.ndarray:
    """[2 n, D] unit vectors of all first texts, then of all second ones."""
    both = np.concatenate(np.split(output.astype(np.float64), 2, axis=1))
    return np.asarray(both / np.linalg.norm(both, axis=1, keepdims=True))


@pytest.mark.parametrize("weights", [None, WEIGHTS, [1.0, 1e-9]])
def test_products_are_the_weighted_mean_of_the_cosines(weights: list[float] | None) -> None:
    each = outputs(7, 5, 12)
    share = np.array(weights or [1, 1]) / sum(weights or [1, 1])
    wanted = sum(part * by_hand(one) @ by_hand(one).T for part, one in zip(share, each, strict=True))
    made = concatenated(each, weights)
    assert (made.shape, made.dtype) == ((7, 34), np.float32)
    joint = np.concatenate(np.split(made.astype(np.float64), 2, axis=1))
    np.testing.assert_allclose(joint @ joint.T, wanted, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(joint, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(cosines(made), np.diag(wanted[:7, 7:]), atol=1e-6)
    alone = [similarities(one) for one in each]
    off = ~np.eye(7, 14, dtype=bool)
    mean = share[0] * alone[0] + share[1] * alone[1]
    np.testing.assert_allclose(similarities(made)[off], mean[off], atol=1e-4)


def test_one_teacher_is_itself() -> None:
    (only,) = outputs(3, 4)
    assert concatenated([only], [0.3]) is only


def test_the_map_keeps_products_as_well_as_any_of_its_rank() -> None:
    """The error of the best matrix of rank k is known: the eigenvalues that it leaves out."""
    vectors = by_hand(concatenated(outputs(60, 6, 10)))
    gram = vectors @ vectors.T
    for width in (3, 8, 16, 20):
        matrix = projection(vectors, RANDOM.normal(size=(len(vectors), width))).astype(np.float64)
        assert matrix.shape == (16, width)
        lost = np.sort(np.linalg.eigvalsh(gram))[::-1][min(width, 16) :]
        mapped = vectors @ matrix
        assert np.linalg.norm(mapped @ mapped.T - gram) == pytest.approx(np.linalg.norm(lost), abs=1e-4)


def test_of_all_rotations_the_closest_to_the_start_is_taken() -> None:
    from scipy.linalg import orthogonal_procrustes

    vectors = by_hand(concatenated(outputs(40, 4, 4)))
    start = RANDOM.normal(size=(80, 5))
    mapped = vectors @ projection(vectors, start).astype(np.float64)
    rotation, _ = orthogonal_procrustes(mapped, start)
    np.testing.assert_allclose(rotation, np.eye(5), atol=1e-5)
    turned, _ = np.linalg.qr(RANDOM.normal(size=(8, 8)))
    np.testing.assert_allclose(projection(vectors, vectors @ turned), turned, atol=1e-5)


def test_few_rows_give_one_map_however_they_are_rounded() -> None:
    """Directions that no training row has are not filled with whatever a machine returns."""
    vectors = by_hand(concatenated(outputs(5, 16, 8)))
    start, others = RANDOM.normal(size=(len(vectors), 20)), RANDOM.normal(size=(30, vectors.shape[1]))
    order = RANDOM.permutation(len(vectors))
    one, two = projection(vectors, start), projection(vectors[order], start[order])
    np.testing.assert_allclose(others @ one, others @ two, atol=1e-4)
    gram = vectors @ vectors.T
    np.testing.assert_allclose((vectors @ one) @ (vectors @ one).T, gram, atol=1e-5)
    assert np.linalg.matrix_rank(one, tol=1e-4) == len(vectors) < 20


def runtime(folder: Path) -> Runtime:
    machine = Machine(Accelerator(cpu=True), Console(quiet=True), "fp32", 1, 1, fast_float32=False)
    return Runtime(machine, folder, seed=0, limit=Limit(smoke=True), longest=24)


def test_the_students_targets_are_those_vectors_in_its_own_width(tmp_path: Path) -> None:
    tiny.save(tmp_path, "bert", "", std=0.3)
    model, words = EncoderForVectors.from_pretrained(tmp_path).train(), tiny.tokenizer()
    texts = tiny.SENTENCES
    rows = Dataset.from_dict({"a": texts + texts[:2], "b": [*texts[::-1], "x", "y"], "label": [0.5] * 10})
    data = TaskData(Task("t", TASK_TYPES["embedding"], ("a", "b"), (), ("spearman",)), rows, {}, {})
    learned = concatenated(outputs(10, 24, 8))
    mapped = in_own_space(model, learned, 8, data, words, runtime(tmp_path))
    assert mapped is not None
    assert model.training
    own = mapped(torch.from_numpy(learned)).numpy()
    assert own.shape == (10, 32)
    parts = by_hand(own)
    np.testing.assert_allclose(np.concatenate(np.split(own, 2, axis=1)), parts, atol=1e-5)
    # 16 vectors in 16 dimensions keep their products; only the rows of the task itself count.
    joint = by_hand(learned)
    kept = np.r_[0:8, 10:18]
    np.testing.assert_allclose((parts @ parts.T)[np.ix_(kept, kept)], (joint @ joint.T)[np.ix_(kept, kept)], atol=1e-4)
    assert in_own_space(model, outputs(10, 16)[0], 8, data, words, runtime(tmp_path)) is None
    assert in_own_space(model, None, 8, data, words, runtime(tmp_path)) is None


def pair(number: int) -> dict[str, Any]:
    first, second = tiny.SENTENCES[number % 8], tiny.SENTENCES[number // 8]
    return {"sentence1": f"{first} {number}", "sentence2": second, "score": len({*first.split()} & {*second.split()})}


def given(home: Path, form: Any) -> None:
    """Two embedders of other families, widths, poolings and prompts, and the rows of a task."""
    wide = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    one = VECTORS["saved"](home / "made1", how="mean", length=34, prompts={"query": "the ", "document": "a "})
    two = VECTORS["saved"](
        home / "made2", family="mpnet", how="cls", length=34, prompts={"query": "he ", "document": ""}, **wide
    )
    one.rename(home / "one")
    two.rename(home / "two")
    tiny.save(home / "student", "bert", "", std=0.2, length=34, **(wide | {"hidden_size": 24}))
    lines = (json.dumps(form(number)) + "\n" for number in range(64))
    (home / "texts.jsonl").write_text("".join(lines))


BOTH = ["teacher=ensemble", "teacher.names=[one,two]", "teacher.weights=[3,1]", "student.name=student"]
FEW = [
    "limit=smoke", "limit.steps=3", "limit.documents=60", "limit.repeats=1", "tasks.max_length=24", "output=out",
    "tasks.train=texts.jsonl", "stages.evaluate.shapes=[[1,16]]",
]  # fmt: skip


def sides(form: Any, folder: Path, rows: Any) -> np.ndarray:
    """[n, 2 D] what sentence-transformers makes of the texts, with the folder's prompts."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    names = ("query", "document") if form is judged else (None, None)
    columns = [*form(0)][:2]
    vectors = [
        model.encode(list(rows[column]), prompt_name=name, show_progress_bar=False)
        for column, name in zip(columns, names, strict=True)
    ]
    return np.concatenate(vectors, axis=1)


def context(*settings: str) -> Context:
    """A run of recipe=task in the current folder."""
    loaded = config.load_config(["recipe=task", *BOTH, *FEW, *settings])
    return Context(loaded, resolve(loaded), "task", "", runtime(Path()).machine, RunFolder(Path("out")))


@pytest.mark.parametrize("form", [pair, judged])
def test_each_teacher_reads_with_its_own_prompts_and_tokenizer(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is learned is what sentence-transformers makes of each teacher alone, by the definition."""
    given(tmp_path, form)
    monkeypatch.chdir(tmp_path)
    ctx = context()
    data = ctx.tasks["texts"]
    first, *others = data.task.member_prompts or [data.task.prompts]
    assert first == data.task.prompts == (("the ", "a ") if form is judged else ())
    assert others == ([("he ", "")] if form is judged else [])
    source = ctx.plan.steps[0].start
    labeller = SimpleNamespace(
        models=ctx.models(source), window=None, cross_fitted={}, check=lambda: None, soft_first=True
    )
    (tmp_path / "out").mkdir()
    run_folder.claim(tmp_path / "out")
    found = teacher_logits(labeller, data, ctx.runtime)  # type: ignore[arg-type]
    alone = [sides(form, tmp_path / name, data.train) for name in ("one", "two")]
    np.testing.assert_allclose(found, concatenated(alone, WEIGHTS), atol=1e-5)
    if form is judged:
        other = context('tasks.prompts=["the ","a "]').tasks
        assert other["texts"].task.member_prompts == ()
        assert of_tasks(other) != of_tasks(ctx.tasks)
        assert of_inputs(other["texts"]) != of_inputs(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "recipe", "learns", "width", "settings"),
    [
        (pair, "prune", "recover", 16, ["student.name=null", "student.layers=[0,2]", "target.speedup=null"]),
        (judged, "task", "finetune", 24, []),
    ],
)
def test_from_a_file_to_the_report_and_the_export(
    form: Any,
    recipe: str,
    learns: str,
    width: int,
    settings: list[str],
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Students that are cut from the first teacher, or given, keep their width, and so do baselines."""
    given(tmp_path, form)
    stages = ["finetune_teacher", *["prune"] * (recipe == "prune"), learns, f"{learns}_baseline", "evaluate", "export"]
    short = [f"pipeline=[{','.join(stages)}]", "stages.evaluate.quantized=null", "stages.export.quantized=null"]
    results = run(tmp_path, recipe, *BOTH, *FEW, *short, *settings, onnx=form is pair)
    assert report.validate(results) == []
    assert [model["failed"] for model in results["models"] if "failed" in model] == []
    out = tmp_path / "out"
    manifest = atomic.read_json(out / learns / "texts" / run_folder.MANIFEST)
    assert manifest["log"][-1]["terms"].keys() >= {"soft_targets", "vectors"}

    monkeypatch.chdir(tmp_path)
    ((split, rows),) = context().tasks["texts"].reported.items()
    best = next(m["scheme"] for m in results["models"] if m["name"] == "member 1")
    names = ("teacher", "member 1", "member 2", "student", "baseline")
    said = {name: scored.logits(out, "texts", f"{name} torch {best}", split) for name in names}
    together = concatenated([said["member 1"], said["member 2"]], WEIGHTS)
    np.testing.assert_allclose(said["teacher"], together, rtol=1e-4, atol=1e-5)
    for number, name in enumerate(("one", "two"), 1):  # scored in 16 bits where the processor has them
        np.testing.assert_allclose(by_hand(said[f"member {number}"]), by_hand(sides(form, Path(name), rows)), atol=0.03)
    widths = {name: rows.shape[1] // 2 for name, rows in said.items()}
    assert widths == {"teacher": 48, "member 1": 16, "member 2": 32, "student": width, "baseline": width}
    students = [model for model in results["models"] if model["role"] in ("student", "baseline")]
    assert not any(model.get("teachers_index") for model in students)
    notes = " ".join(results["notes"])
    assert "For two texts, the teacher's cosine is the weighted mean of the members'." in notes
    assert {model["role"] for model in results["models"] if model.get("vectors")} == {"member", "student", "baseline"}
    assert "Weights of the members on texts: 75%, 25%." in notes

    from sentence_transformers import SentenceTransformer

    exported = SentenceTransformer(str(out / "export" / "texts"), device="cpu")
    assert exported.get_embedding_dimension() == width
    assert exported.prompts["query"] == "the "


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["teacher.weights=learned"], r"teacher\.weights: got learned; must be numbers or null for embedding"),
        (
            ["tasks.soft_label=vector", "tasks.kind=embedding"],
            r"tasks\.soft_label: got vectors for texts; must be left out with several teachers",
        ),
    ],
)
def test_what_several_embedders_cannot_have(settings: list[str], line: str, run: Any, tmp_path: Path) -> None:
    given(tmp_path, lambda number: pair(number) | {"vector": [[1.0] * 16, [0.5] * 16]})
    with pytest.raises(ConfigError, match=line):
        run(tmp_path, "task", *BOTH, *FEW, *settings)
