"""Embedding and retrieval: losses against plain loops and sentence-transformers, files, encoding and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import ndcg_score

from distill import config
from distill.data.collate import task_batch
from distill.data.columns import columns_of
from distill.data.encode import alternating, encode_texts
from distill.data.files import Table
from distill.data.labelled import labelled_rows
from distill.data.splits import targets_of
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.task_types import ABSENT, MISSING, TASK_TYPES
from distill.data.task_types.embedding import SCALE
from distill.data.task_types.retrieval import no_negatives, relevant_pairs
from distill.data.tasks import TaskData
from distill.errors import ConfigError, DataError
from distill.evaluation.metrics import METRICS
from distill.inference.predict import predict
from distill.losses import cosine, soft_targets, supervised
from distill.losses.objective import Objective, counts
from distill.losses.terms import Term
from distill.models.families.head import Head
from distill.models.families.record import VECTORS
from tests import tiny

EMBEDDING, RETRIEVAL = TASK_TYPES["embedding"], TASK_TYPES["retrieval"]
EMBEDDER = Head(16, (), None, VECTORS, ("query: ", "passage: "))
ROWS, WIDTH = 5, 4


@pytest.fixture
def outputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of student and teacher for 5 pairs of texts, not normalized."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(ROWS, 2 * WIDTH, generator=generator) for _ in range(2))
    return student.requires_grad_(), teacher


def cosine_of(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(torch.dot(first, second) / (first.norm() * second.norm()))


def test_similarities_are_cosines_with_every_other_text(outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, vectors = outputs
    texts = torch.cat([vectors[:, :WIDTH], vectors[:, WIDTH:]])
    expected = [[SCALE * cosine_of(texts[i], other) for other in texts] for i in range(ROWS)]
    for i in range(ROWS):
        expected[i][i] = ABSENT
    rows = EMBEDDING.rows(vectors)
    np.testing.assert_allclose(rows, expected, atol=1e-4)
    np.testing.assert_allclose(EMBEDDING.rows(vectors.numpy()), expected, atol=1e-4)
    assert RETRIEVAL.rows is EMBEDDING.rows
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_allclose(EMBEDDING.rows(vectors), expected, atol=1e-4)


def test_soft_targets_compare_distributions_over_the_other_texts(outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    student, teacher = outputs
    values = soft_targets(EMBEDDING.rows(student), EMBEDDING.rows(teacher), temperature=2.0)
    for i in range(ROWS):
        others = [j for j in range(2 * ROWS) if j != i]
        p, q = (torch.softmax(EMBEDDING.rows(v)[i, others] / 2, -1) for v in (teacher, student))
        assert values[i].item() == pytest.approx(4 * (p * (p / q).log()).sum().item(), rel=1e-4)
    assert soft_targets(EMBEDDING.rows(3 * teacher), EMBEDDING.rows(teacher), temperature=1.0).abs().max() < 1e-5
    (gradient,) = torch.autograd.grad(values.sum(), student)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0


class Fixed(torch.nn.Module):
    """A model of sentence-transformers that outputs given vectors."""

    def __init__(self, vectors: list[torch.Tensor]) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, features: Any) -> Any:
        return {"sentence_embedding": self.vectors[features["number"]]}


def elsewhere(loss: Any, vectors: torch.Tensor, labels: torch.Tensor | None, **settings: Any) -> float:
    halves = Fixed([vectors[:, :WIDTH], vectors[:, WIDTH:]])
    value: float = loss(halves, **settings)([{"number": 0}, {"number": 1}], labels).item()
    return value


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_losses_on_labels_are_those_of_sentence_transformers(outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss

    student, _ = outputs
    labels = torch.linspace(0, 1, ROWS)
    values = supervised(EMBEDDING.on_labels(student), labels)
    assert values.mean().item() == pytest.approx(elsewhere(CosineSimilarityLoss, student, labels), rel=1e-5)
    places = torch.from_numpy(RETRIEVAL.loss_targets(np.ones(ROWS, np.float32)))
    values = supervised(RETRIEVAL.on_labels(student), places)
    expected = elsewhere(MultipleNegativesRankingLoss, student, None, scale=SCALE)
    assert values.mean().item() == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(
        RETRIEVAL.on_labels(student.detach().numpy()), RETRIEVAL.on_labels(student).detach(), atol=1e-4
    )


def test_only_relevant_documents_are_targets() -> None:
    targets = np.array([1, 0, 3, np.nan, 0.5], np.float32)
    assert RETRIEVAL.loss_targets(targets).tolist() == [0, MISSING, 2, MISSING, 4]


def test_other_relevant_documents_and_copies_are_no_negatives() -> None:
    random = np.random.default_rng(0)
    queries, documents, targets = (random.integers(0, most, 12) for most in (4, 6, 2))
    answers = {(q, d) for q, d, target in zip(queries.tolist(), documents.tolist(), targets, strict=True) if target}
    relevant = relevant_pairs(queries, documents, np.where(targets, 1.0, np.nan))
    for rows in (np.arange(12), np.arange(5, 12)):  # of the others, a row in another batch may tell it
        flags = no_negatives(queries[rows], documents[rows], relevant)
        for i, row in enumerate(rows.tolist()):
            for j, other in enumerate(rows.tolist()):
                answer = (int(queries[row]), int(documents[other])) in answers
                assert flags[i, j] == (i != j and (answer or documents[row] == documents[other]))


def test_a_document_that_another_batch_has_with_the_query_is_no_negative() -> None:
    """Rows 0 and 1 are a batch; row 2 says that the document of row 1 answers the query of row 0."""
    queries, documents = np.array([0, 1, 0]), np.array([0, 1, 1])
    relevant = relevant_pairs(queries, documents, np.array([1.0, 1.0, 2.0]))
    assert no_negatives(queries[:2], documents[:2], relevant).tolist() == [[False, True], [False, False]]
    assert not no_negatives(queries[:2], documents[:2], np.zeros(0, np.int64)).any()


def test_vectors_are_compared_by_the_mean_cosine_of_both_texts(outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    both = [torch.nn.functional.normalize(v.reshape(-1, WIDTH)).reshape(ROWS, -1) for v in outputs]
    expected = [
        1 - (cosine_of(a[:WIDTH], b[:WIDTH]) + cosine_of(a[WIDTH:], b[WIDTH:])) / 2
        for a, b in zip(*(v.detach() for v in both), strict=True)
    ]
    np.testing.assert_allclose(cosine(*both).detach(), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_all_documents_are_ranked_for_each_query(seed: int) -> None:
    """One query has no relevant document, a pair stands twice, and some documents belong to several queries."""
    random = np.random.default_rng(seed)
    pairs = np.array([(q, d) for q in range(12) for d in random.choice(40, 1 + q, replace=False)])
    pairs = random.permutation(np.concatenate([pairs, pairs[5:6]]))
    labels = random.integers(0, 4, len(pairs)).astype(np.float32)
    labels[pairs[:, 0] == 3] = 0
    queries, documents = random.normal(size=(12, WIDTH)), random.normal(size=(40, WIDTH))
    truth = RETRIEVAL.truth(labels, [[f"query {q}" for q in pairs[:, 0]], [f"document {d}" for d in pairs[:, 1]]], ())
    vectors = np.concatenate([queries[pairs[:, 0]], documents[pairs[:, 1]]], axis=1)
    graded = RETRIEVAL.grade(RETRIEVAL.decode(vectors, (), 0.5), truth)
    shown = np.unique(pairs[:, 1])  # documents without a row are not in the file
    relevant = np.zeros((12, 40))
    np.maximum.at(relevant, (pairs[:, 0], pairs[:, 1]), labels)
    expected: dict[str, list[float]] = {"ndcg_at_10": [], "mrr_at_10": [], "recall_at_10": []}
    for query, gains in zip(queries, relevant[:, shown], strict=True):
        if not gains.any():
            continue
        cosines = [float(query @ d / np.linalg.norm(query) / np.linalg.norm(d)) for d in documents[shown]]
        expected["ndcg_at_10"].append(ndcg_score([gains], [cosines], k=10))
        order = np.argsort(-np.array(cosines))
        first = int(np.flatnonzero(gains[order] > 0)[0])
        expected["mrr_at_10"].append(1 / (first + 1) if first < 10 else 0.0)
        expected["recall_at_10"].append((gains[order[:10]] > 0).sum() / (gains > 0).sum())
    assert 8 <= len(expected["mrr_at_10"]) <= 11
    for name, values in expected.items():
        assert METRICS[name](graded, truth) == pytest.approx(np.mean(values), rel=1e-6), name


def test_queries_with_one_relevant_document_each_are_ranked_against_those_of_the_others() -> None:
    vectors = np.concatenate([np.eye(6)[[0, 1, 2, 3]], np.eye(6)[[0, 1, 2, 2]]], axis=1)
    texts = [["a", "b", "c", "d"], ["1", "2", "3", "4"]]
    graded = RETRIEVAL.grade(vectors, RETRIEVAL.truth(np.ones(4, np.float32), texts, ()))
    # The third query has the cosine 1 with two documents, and the last the cosine 0 with all four.
    np.testing.assert_allclose(graded[:, 1], [1, 1, (1 + 1 / 2) / 2, (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4])


def data_of(prompts: tuple[str, ...] = ()) -> tuple[TaskData, Dataset]:
    texts = tiny.SENTENCES
    task = Task("own", RETRIEVAL, ("query", "document"), (), RETRIEVAL.metrics, prompts=prompts)
    rows = Dataset.from_dict({"query": texts, "document": texts[::-1], "label": np.arange(8, dtype=np.float32)})
    return TaskData(task, rows, {"validation": rows}, {"validation": rows}), rows


@pytest.mark.parametrize("prompts", [(), ("the ", "a village ")])
def test_both_texts_are_encoded_separately_with_their_prompts(prompts: tuple[str, ...]) -> None:
    data, rows = data_of(prompts)
    tokenizer = tiny.tokenizer()
    encoded = data.encoded(rows, tokenizer, 24)
    assert (len(encoded), encoded.most) == (8, 2)
    before = prompts or ("", "")
    texts = [
        text
        for query, document in zip(rows["query"], rows["document"], strict=True)
        for text in (before[0] + query, before[1] + document)
    ]
    assert data.inputs(rows) == [[text] for text in texts]
    expected = tokenizer(texts, truncation=True, max_length=24)["input_ids"]
    for number, ids in enumerate(expected):
        assert encoded.ids[encoded.offsets[number] : encoded.offsets[number + 1]].tolist() == ids
    assert encoded.labels is not None
    assert encoded.labels.tolist() == list(range(8))
    batch, _ = task_batch(encoded, [3, 1], 1)
    assert batch["groups"].tolist() == [[0, 1], [2, 3]]
    assert [row.parts for row in data.asked(data.train)] == [(text,) for (text,) in data.inputs(data.train)]


def test_outputs_of_both_texts_stand_side_by_side() -> None:
    tokenizer, texts = tiny.tokenizer(), tiny.SENTENCES
    encoded = alternating(encode_texts([texts], tokenizer, 24), encode_texts([texts[::-1]], tokenizer, 24))

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        return batch["attention_mask"].sum(1, keepdims=True) * np.array([[1.0, -1.0]])

    lengths = [len(tokenizer(text)["input_ids"]) for text in texts]
    expected = [[a, -a, b, -b] for a, b in zip(lengths, lengths[::-1], strict=True)]
    np.testing.assert_array_equal(predict(run, encoded, pad_id=1, tokens=40), expected)


def test_terms_of_an_embedder_are_summed_over_pairs(tmp_path: Path) -> None:
    from distill.models.families.embedding import EncoderForVectors

    tiny.save(tmp_path, "bert", "", std=0.3)
    model = EncoderForVectors.from_pretrained(tmp_path)
    data, rows = data_of()
    encoded = data.encoded(rows, tiny.tokenizer(), 24)
    batch: dict[str, Any] = dict(task_batch(encoded, range(8), 1)[0])
    batch["labels"] = RETRIEVAL.loss_targets(np.array([1, 0, 1, 1, np.nan, 0, 1, 1], np.float32))
    batch["labelled"] = np.array([0, 2, 3, 6, 7])
    batch["teacher_logits"] = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    tensors = {name: torch.from_numpy(value) for name, value in batch.items()}
    terms = {
        "vectors": Term(1.0, "vectors", "teacher", "all", cosine),
        "soft": Term(1.0, "logits", "teacher", "all", lambda s, t: soft_targets(s, t, temperature=2.0)),
        "labels": Term(1.0, "logits", "labels", "all", supervised),
    }
    assert counts(terms, tensors).tolist() == [8, 8, 5]
    objective = Objective(model, terms, rows=RETRIEVAL.rows, label_rows=RETRIEVAL.label_rows)
    sums = objective(tensors)
    with torch.no_grad():
        vectors = model(tensors["input_ids"], tensors["attention_mask"]).logits
    both = vectors.reshape(8, 32)
    each = cosine(both.reshape(16, 16), tensors["teacher_logits"].reshape(16, 16))  # both texts count as much
    assert sums[0].item() == pytest.approx(each.sum().item() / 2, rel=1e-5)
    scores = SCALE * both[:, :16] @ both[:, 16:].T
    expected = -torch.log_softmax(scores, 1).diagonal()[[0, 2, 3, 6, 7]].sum()
    assert sums[2].item() == pytest.approx(expected.item(), rel=1e-4)
    tensors["no_negatives"] = torch.zeros(8, 8, dtype=torch.bool)
    tensors["no_negatives"][0, 1:] = True
    without = expected + torch.log_softmax(scores, 1)[0, 0]  # the first row has no negatives left
    assert objective(tensors)[2].item() == pytest.approx(without.item(), rel=1e-4)


def table(rows: list[dict[str, Any]]) -> Table:
    return Table(pa.Table.from_pylist(rows), ("pairs.jsonl",), (0,))


def pairs(count: int = 20, **columns: Any) -> Table:
    texts = tiny.SENTENCES
    base = [
        {"sentence1": f"{texts[n % 8]} {n}", "sentence2": texts[n % 7], "score": n % 5 + 0.5 * (n % 2)}
        for n in range(count)
    ]
    return table([row | columns for row in base])


def test_labels_are_scaled_from_the_range_of_the_training_rows() -> None:
    settings = config.Task(kind="embedding", text="sentence1", text_pair="sentence2", label="score")
    read = labelled_rows("own", settings, {"train": pairs(), "validation": pairs(10)}, None, "tasks")
    assert read.task.range == (0.0, 4.5)
    assert read.train is not None
    scaled = targets_of(read.train)
    assert (scaled.min(), scaled.max()) == (0.0, 1.0)
    raw = np.array([n % 5 + 0.5 * (n % 2) for n in range(10)])
    np.testing.assert_allclose(targets_of(read.reported["validation"]), raw / 4.5, atol=1e-6)
    read = labelled_rows("own", config.Task(**{**vars(settings), "range": [0, 5]}), {"train": pairs()}, None, "tasks")
    assert read.train is not None
    np.testing.assert_allclose(sorted(set(targets_of(read.train)))[-1], 0.9, atol=1e-6)


QUERIES = [{"query": f"what is {n // 4}", "document": f"text {n}", "relevance": n % 4 == 0} for n in range(40)]


def test_an_embedder_as_the_teacher_decides_the_kind() -> None:
    judged = table([row | {"relevance": int(row["relevance"])} for row in QUERIES])
    plain = config.Task()
    assert columns_of(plain, judged.rows, EMBEDDER, "tasks", "f").kind is RETRIEVAL
    assert columns_of(plain, judged.rows, None, "tasks", "f").kind is TASK_TYPES["reranking"]
    assert columns_of(plain, pairs().rows, EMBEDDER, "tasks", "f").kind is EMBEDDING
    assert columns_of(plain, pairs().rows, None, "tasks", "f").kind is TASK_TYPES["regression"]
    named = table([{"text": text, "label": n % 2} for n, text in enumerate(tiny.SENTENCES)])
    assert columns_of(plain, named.rows, EMBEDDER, "tasks", "f").kind is TASK_TYPES["classification"]
    read = labelled_rows("own", plain, {"train": judged}, EMBEDDER, "tasks")
    assert read.task.prompts == ("query: ", "passage: ")
    assert labelled_rows("own", plain, {"train": pairs()}, EMBEDDER, "tasks").task.prompts == ()
    own = config.Task(prompts=["a: ", "b: "])
    assert labelled_rows("own", own, {"train": judged}, EMBEDDER, "tasks").task.prompts == ("a: ", "b: ")


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ({"text": "sentence1"}, pairs(), "tasks.text: got sentence1; must be two columns for embedding; set tasks.te"),
        ({}, pairs(score="high"), "pairs.jsonl, row 1: got label 'high'; must be a finite number"),
        ({"range": [0, 3]}, pairs(), "pairs.jsonl, row 4: got label 3.5; must be a number from 0 to 3"),
        ({}, pairs(score=1.0), "pairs.jsonl: got the same label in all rows; must be two labels or more"),
        ({}, pairs(sentence2=None), "pairs.jsonl.*: got null in (column )?sentence2; must be text"),
        ({}, pairs(sentence2=" ", sentence1=""), "pairs.jsonl, row 1: got no text in sentence1 or sentence2"),
        ({}, pairs(sentence2=3), "pairs.jsonl: got int64 in column sentence2; must be text; convert it"),
        ({"metrics": ["accuracy"]}, pairs(), "tasks.metrics: got accuracy; must be of spearman, pearson for embed"),
        ({"threshold": 0.3}, pairs(), "tasks.threshold: got 0.3; must be left out for embedding"),
    ],
)
def test_files_that_are_refused(settings: dict[str, Any], rows: Table, message: str) -> None:
    named = {"text": "sentence1", "text_pair": "sentence2", "label": "score"} if "text" not in settings else {}
    task = config.Task(**{"kind": "embedding", "label": "score", **named, **settings})
    with pytest.raises((DataError, ConfigError), match=message):
        labelled_rows("own", task, {"train": rows}, None, "tasks")


def test_prompts_are_for_embedders_only() -> None:
    task = config.Task(kind="regression", text="sentence1", label="score", prompts=["a", "b"])
    with pytest.raises(ConfigError, match=r"tasks.prompts: got \['a', 'b'\]; must be left out for regression"):
        labelled_rows("own", task, {"train": pairs()}, None, "tasks")


ALONE = config.Task(kind="embedding")


@pytest.mark.parametrize("count", [24, 25])
def test_texts_without_labels_train_in_pairs(count: int) -> None:
    texts = [f"{tiny.SENTENCES[n % 8]} {n}" for n in range(count)]
    tables = {"train": table([{"text": text, "day": n} for n, text in enumerate(texts)]), "validation": pairs()}
    for settings, head in ((ALONE, None), (config.Task(), EMBEDDER)):
        read = labelled_rows("own", settings, tables, head, "tasks")
        assert read.train is not None
        assert read.task.kind is EMBEDDING
        assert read.task.columns == ("sentence1", "sentence2")
        rows = read.train.table
        assert [(a, b) for a, b in zip(*(rows[c].to_pylist() for c in read.task.columns), strict=True)] == [
            (texts[n], texts[n + 1]) for n in range(0, 24, 2)
        ]
        assert np.isnan(targets_of(read.train)).all()
        assert read.task.range == (0.0, 4.5)
        assert targets_of(read.reported["validation"]).max() == 1.0


def test_pairs_without_labels_are_distilled_alone_and_documents_are_relevant() -> None:
    both = pairs().rows.select(["sentence1", "sentence2"])
    tables = {"train": Table(both, ("t.csv",), (0,)), "validation": pairs(10)}
    read = labelled_rows("own", ALONE, tables, None, "tasks")
    assert read.train is not None
    assert np.isnan(targets_of(read.train)).all()
    answered = [{"query": f"which is {n}", "document": f"it is {n}"} for n in range(20)]
    judged = table([row | {"relevance": int(row["relevance"])} for row in QUERIES])
    read = labelled_rows("own", config.Task(), {"train": table(answered), "validation": judged}, EMBEDDER, "tasks")
    assert read.train is not None
    assert read.task.kind is RETRIEVAL
    assert targets_of(read.train).tolist() == [1.0] * len(read.train.rows)
    assert 16 <= len(read.train.rows) <= 20  # some queries may be those on which choices are made


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"train": table([{"text": "one"}] * 20)}, "tasks.label: got nothing|no label|must be"),
        (
            {"train": table([{"text": "a text"}] * 7), "validation": pairs()},
            "pairs.jsonl: got 0 labelled train rows; mu",
        ),
        (
            {
                "train": table([{"ask": "a", "text": "b"}] * 20),
                "validation": table([row | {"relevance": 1} for row in QUERIES]),
            },
            "pairs.jsonl: got columns ask, text; must have query, document, relevance, as",
        ),
        *(
            (
                {
                    "train": table([{"query": f"a {n}", "document": "b", name: n % 2} for n in range(20)]),
                    "validation": table([row | {"relevance": 1} for row in QUERIES]),
                },
                f"tasks.label: got relevance, which .*pairs.jsonl lacks, though it has {name}; must be a colu",
            )
            for name in ("label", "grade")
        ),
    ],
)
def test_texts_without_labels_that_are_refused(tables: dict[str, Table], message: str) -> None:
    settings = config.Task(kind="retrieval") if "query" in list(tables.values())[-1].rows.column_names else ALONE
    with pytest.raises((DataError, ConfigError), match=message):
        labelled_rows("own", settings, tables, None, "tasks")


def test_drawn_labels_are_cosines_with_noise(tmp_path: Path) -> None:
    from distill.compression.pruning.sensitivity import NOISE, Subject
    from distill.models import teacher

    folder = tiny.save(tmp_path, "bert", "", std=0.3)
    texts = [f"{tiny.SENTENCES[n % 8]}" for n in range(64)]
    rows = Dataset.from_dict({"a": texts, "b": texts[::-1], "label": np.full(64, np.nan, np.float32)})
    data = TaskData(Task("own", EMBEDDING, ("a", "b"), (), ()), rows, {}, {})
    model = load_for(data.task, folder)
    subject = Subject("own", model, teacher.load_tokenizer(folder), data, folder, 24, 0)
    parts = subject.sample(32)
    assert sum(len(part["labels"]) for part in parts) == 32
    from distill.models.hooks import outputs_of

    with torch.no_grad():
        cosines = torch.cat([EMBEDDING.on_labels(outputs_of(model, part))[:, 0] for part in parts])
    noise = torch.cat([part["labels"] for part in parts]) - cosines
    assert 0.5 * NOISE < noise.std() < 2 * NOISE
    assert torch.equal(parts[0]["labels"], subject.sample(32)[0]["labels"])


def test_documents_of_a_transfer_set_are_no_negatives() -> None:
    numbers, targets = np.arange(4), np.array([1, 0, np.nan, np.nan])
    relevant = relevant_pairs(numbers, numbers, targets)
    flags = no_negatives(numbers, numbers, relevant, np.array([False, False, False, True]))
    assert np.argwhere(flags).tolist() == [[0, 3], [1, 3], [2, 3]]
