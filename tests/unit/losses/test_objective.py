"""The terms of a batch against float64 formulas on the models' full outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from distill import losses
from distill.compression.pruning.gates import gates_for
from distill.compression.pruning.goal import Goal
from distill.compression.pruning.masks import Masks, merge
from distill.compression.pruning.search import Shape
from distill.compression.pruning.target import shape_of
from distill.data.collate import pairs
from distill.errors import ConfigError
from distill.losses import objective as objective
from distill.losses.feature_rows import relations
from distill.losses.objective import Objective, counts
from distill.losses.terms import Term
from distill.models import families
from distill.models.hooks import capture
from tests.tiny import SHAPES

TEMPERATURE = 2.0
SOFT = partial(losses.soft_targets, temperature=TEMPERATURE)


def terms(positions: str = "masked") -> dict[str, Term]:
    return {
        "soft_targets": Term(5.0, "logits", "teacher", positions, SOFT),
        "mlm": Term(2.0, "logits", "labels", "masked", losses.mlm),
        "cosine": Term(1.0, "hidden", "teacher", "all", losses.cosine),
        "mse": Term(0.5, "hidden", "teacher", "masked", losses.mse),
    }


WEIGHTS = torch.tensor([term.weight for term in terms().values()], dtype=torch.float64)


@pytest.fixture
def batch(tiny_batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rows of 7 and 4 tokens, three of which are masked."""
    masked = torch.tensor([1, 5, 9])
    real = tiny_batch["attention_mask"].flatten().nonzero().squeeze(1)
    return tiny_batch | {"masked": masked, "real": real, "labels": torch.tensor([11, 7, 30])}


@pytest.fixture
def pair(tiny_model) -> Callable[..., tuple[Any, Any]]:
    def make(name: str, head: str = "MaskedLM") -> tuple[Any, Any]:
        student, teacher = tiny_model(name, head, layers=2, seed=0), tiny_model(name, head, layers=3, seed=1)
        return student.double(), teacher.double()

    return make


def expected(student: Any, teacher: Any, batch: dict[str, Tensor], positions: str = "masked") -> Tensor:
    """Sums [4] of the terms above: all logits and hidden states first, then the positions."""

    def whole(model: Any) -> tuple[Tensor, Tensor]:
        out = model(**families.inputs(model, batch), output_hidden_states=True)
        return out.logits.flatten(0, 1), out.hidden_states[-1].flatten(0, 1)

    (z, h), (t, g) = whole(student), (value.detach() for value in whole(teacher))
    at, real = batch["masked"], batch["real"]
    soft = at if positions == "masked" else real
    log_p, log_q = (F.log_softmax(logits[soft] / TEMPERATURE, -1) for logits in (t, z))
    cosine = (h[real] * g[real]).sum(-1) / (h[real].norm(dim=-1) * g[real].norm(dim=-1))
    return torch.stack(
        [
            TEMPERATURE**2 * F.kl_div(log_q, log_p, log_target=True, reduction="sum"),
            -F.log_softmax(z[at], -1).gather(1, batch["labels"][:, None]).sum(),
            (1 - cosine).sum(),
            (h[at] - g[at]).square().mean(-1).sum(),
        ]
    )


def gradients(model: Any, sums: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (WEIGHTS * sums.double()).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(got: dict[str, Tensor], reference: dict[str, Tensor]) -> None:
    assert got.keys() == reference.keys()
    for name, value in reference.items():
        torch.testing.assert_close(got[name], value, rtol=1e-9, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("name", SHAPES)
def test_masked_only_equals_gathering_from_the_full_logits(name: str, pair, batch) -> None:
    student, teacher = pair(name)
    reference = expected(student, teacher, batch)
    sums = Objective(student, terms(), [teacher])(batch)
    torch.testing.assert_close(sums.double(), reference, rtol=1e-6, atol=0)
    close(gradients(student, sums), gradients(student, reference))


@pytest.mark.parametrize("chunk", [4, 1024])
def test_all_positions_in_chunks_equal_all_at_once(chunk: int, pair, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)  # 11 positions: chunks of 4, 4 and 3
    student, teacher = pair("bert")
    reference = expected(student, teacher, batch, "all")
    held = []

    def noting(z: Tensor, t: Tensor) -> Tensor:
        held.append(len(z))
        return SOFT(z, t)

    chosen = terms("all")
    chosen["soft_targets"] = replace(chosen["soft_targets"], loss=noting)
    sums = Objective(student, chosen, [teacher])(batch)
    assert held == ([4, 4, 3] if chunk == 4 else [11])
    torch.testing.assert_close(sums.double(), reference, rtol=1e-6, atol=0)
    close(gradients(student, sums), gradients(student, reference))
    assert not torch.allclose(reference, expected(student, teacher, batch))


def test_chunks_do_not_read_the_state_of_random_numbers(pair, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU refuses that while a CUDA graph is recorded, and no step of the training would be replayed."""

    def refused() -> Tensor:
        raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture")

    student, teacher = pair("bert")
    built = Objective(student, terms("all"), [teacher])
    monkeypatch.setattr(torch, "get_rng_state", refused)
    (WEIGHTS * built(batch).double()).sum().backward()
    assert student.cls.predictions.transform.dense.weight.grad is not None


@pytest.mark.quick(7)
@pytest.mark.parametrize("positions", ["masked", "all"])
@pytest.mark.parametrize("name", SHAPES)
def test_padding_changes_nothing(name: str, positions: str, pair, batch) -> None:
    student, teacher = pair(name)
    module = Objective(student, terms(positions), [teacher])
    sums = module(batch)
    before = gradients(student, sums)
    padding = batch["attention_mask"] == 0
    ids, types = batch["input_ids"].masked_fill(padding, 17), batch["token_type_ids"].masked_fill(padding, 1)
    # RoBERTa counts positions by the ids that are not its padding id, behind the tokens either way.
    garbage = module(batch | {"input_ids": ids, "token_type_ids": types})
    torch.testing.assert_close(garbage, sums, rtol=1e-6, atol=0)
    close(gradients(student, garbage), before)


def test_no_gradient_reaches_the_teacher(pair, batch) -> None:
    """Even if a loss does not detach the teacher's tensor."""

    def forgetful(ours: Tensor, theirs: Tensor) -> Tensor:
        return (ours - theirs).square().mean(-1)

    student, teacher = pair("bert")
    every_term = {
        f"{features} {positions}": Term(1.0, features, "teacher", positions, forgetful)
        for features in ("logits", "hidden")
        for positions in ("masked", "all")
    }
    module = Objective(student, every_term, [teacher]).train()
    module(batch).sum().backward()
    assert all(p.requires_grad and p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())
    assert not teacher.training
    assert student.training
    ours = {id(p) for p in module.parameters()}
    assert ours == {id(p) for p in student.parameters()}
    assert not any("teacher" in key for key in module.state_dict())


def test_no_teacher_is_needed_for_labels(pair, batch) -> None:
    student, teacher = pair("bert")
    alone = Objective(student, {"mlm": terms()["mlm"]})(batch)
    torch.testing.assert_close(alone[0], Objective(student, terms(), [teacher])(batch)[1])


@pytest.mark.parametrize("num_labels", [3, 1])
def test_task_terms_equal_the_models_own_loss(num_labels: int, tiny_model, tiny_batch) -> None:
    student = tiny_model("bert", "SequenceClassification", num_labels=num_labels).double()
    labels = torch.tensor([0, 2]) if num_labels > 1 else torch.tensor([0.5, 4.0], dtype=torch.float64)
    teacher = torch.tensor([[0.3, 2.0, -1.0], [0.5, 0.1, 0.2]], dtype=torch.float64)[:, :num_labels]
    both = {
        "soft_targets": Term(1.0, "logits", "teacher", "masked", SOFT),
        "supervised": Term(1.0, "logits", "labels", "masked", losses.supervised),
    }
    sums = Objective(student, both)(tiny_batch | {"labels": labels, "teacher_logits": teacher})
    out = student(**tiny_batch | {"labels": labels})
    if num_labels == 1:
        soft = (out.logits - teacher).square().sum()
    else:
        log_q, p = F.log_softmax(out.logits / TEMPERATURE, -1), F.softmax(teacher / TEMPERATURE, -1)
        soft = TEMPERATURE**2 * F.kl_div(log_q, p, reduction="sum")
    torch.testing.assert_close(sums.double(), torch.stack([soft, out.loss * 2]), rtol=1e-6, atol=0)


def test_counts(batch) -> None:
    assert counts(terms(), batch).tolist() == [3, 3, 11, 3]
    assert counts(terms("all"), batch).tolist() == [11, 3, 11, 3]
    task = {"labels": torch.zeros(5), "attention_mask": torch.ones(5, 2)}
    assert counts({"supervised": terms()["mlm"]}, task).tolist() == [5]


def test_hidden_states_of_another_width_are_compared_through_a_trained_map(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert", hidden_size=8), tiny_model("bert", seed=1)
    module = Objective(student, terms(), [teacher])
    assert {name: tuple(p.shape) for name, p in module.projections.named_parameters()} == {
        "cosine.weight": (16, 8),
        "mse.weight": (16, 8),
    }
    module(batch).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in module.projections.parameters())
    with torch.no_grad():
        h, g = (families.encode(model, batch).flatten(0, 1)[batch["masked"]] for model in (student, teacher))
        reference = (h @ module.projections["mse"].weight.T - g).square().mean(-1).sum()
    torch.testing.assert_close(module(batch)[3], reference)
    assert len(Objective(tiny_model("bert"), terms(), [teacher]).projections) == 0


def single(features: str, loss: Any, **settings: Any) -> dict[str, Term]:
    return {features: Term(1.0, features, "teacher", "all", loss, **settings)}


def wider(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same texts with two more columns of padding, and another token at all padding."""
    rows, length = batch["input_ids"].shape
    more = {"input_ids": 9, "attention_mask": 0, "token_type_ids": 0}
    padded = {k: torch.cat([batch[k], torch.full((rows, 2), v)], 1) for k, v in more.items()}
    padded["input_ids"] = torch.where(padded["attention_mask"].bool(), padded["input_ids"], 9)
    flat = {k: batch[k] // length * (length + 2) + batch[k] % length for k in ("masked", "real")}
    return batch | padded | flat


@pytest.mark.parametrize(
    ("features", "kinds"),
    [
        ("relations", ("queries", "keys", "values")),
        *(("query_relations", ["queries"]), ("key_relations", ["keys"]), ("value_relations", ["values"])),
    ],
)
def test_relations_are_those_of_the_paper(features: str, kinds: Sequence[str], tiny_model, batch: Any) -> None:
    """KL between softmax(A A^T / sqrt(d)) of both models, computed text by text. The student is narrower."""
    student, teacher = tiny_model("bert", hidden_size=8).double(), tiny_model("bert", layers=4, seed=1).double()
    module = Objective(student, single(features, partial(losses.soft_targets, temperature=1.0), heads=4), [teacher])
    reference = 0.0
    captured = [capture(m, batch, {kind: [n] for kind in kinds}) for m, n in ((student, 2), (teacher, 3))]
    for kind in kinds:
        for text, mask in enumerate(batch["attention_mask"].bool()):
            sides = []
            for features, number, width in ((captured[0], 2, 8), (captured[1], 3, 16)):
                flat = getattr(features, kind)[number][text].transpose(0, 1).reshape(-1, width)[mask]
                split = flat.reshape(len(flat), 4, width // 4).transpose(0, 1)
                sides.append((split @ split.transpose(1, 2) / (width // 4) ** 0.5).log_softmax(-1))
            ours, theirs = sides
            reference = reference + F.kl_div(ours, theirs, log_target=True, reduction="none").sum() / 4
    torch.testing.assert_close(module(batch)[0].double(), reference, rtol=1e-5, atol=1e-6)
    assert len(module.projections) == 0
    assert counts(module.terms, batch).tolist() == [11]


def test_scores_are_compared_in_every_layer_without_padding(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert", layers=2).double(), tiny_model("bert", layers=4, seed=1).double()
    module = Objective(student, single("scores", losses.mse, layers="uniform"), [teacher])
    ours = capture(student, batch, {"scores": [0, 1]}).scores
    theirs = capture(teacher, batch, {"scores": [1, 3]}).scores
    reference = 0.0
    for layer in (0, 1):
        for text, mask in enumerate(batch["attention_mask"].bool()):
            both = (ours[layer][text] - theirs[2 * layer + 1][text])[:, mask][:, :, mask]
            reference = reference + both.square().mean(-1).mean(0).sum()
    torch.testing.assert_close(module(batch)[0].double(), reference, rtol=1e-5, atol=1e-6)


def test_relation_heads_do_not_weigh_attention_scores(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert"), tiny_model("bert", seed=1)
    plain, split = (Objective(student, single("scores", losses.mse, heads=n), [teacher]) for n in (None, 8))
    assert torch.equal(plain(batch), split(batch))


def test_softmax_of_scores_excludes_padding(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert").double(), tiny_model("bert", seed=1).double()
    module = Objective(student, single("scores", SOFT), [teacher])
    z, t = (capture(model, batch, {"scores": [2]}).scores[2] / TEMPERATURE for model in (student, teacher))
    reference = 0.0
    for text, mask in enumerate(batch["attention_mask"].bool()):
        log_q, log_p = (x[text][:, mask][:, :, mask].log_softmax(-1) for x in (z, t))
        reference = (
            reference + TEMPERATURE**2 * F.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1).mean(0).sum()
        )
    torch.testing.assert_close(module(batch)[0].double(), reference, rtol=1e-5, atol=1e-6)


def test_relations_of_bf16_projections_are_float32_products() -> None:
    projected = torch.randn(2, 2, 5, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    mask = torch.ones(2, 5, dtype=torch.long)
    reference = relations(projected.double(), mask, 4)
    with torch.autocast("cpu", torch.bfloat16):
        actual = relations(projected, mask, 4)
    torch.testing.assert_close(actual.double(), reference, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("features", ["logits", "hidden", "scores"])
def test_a_teacher_without_bf16_support_runs_in_float32_with_a_bf16_student(
    features: str, tiny_model, batch: Any
) -> None:
    student, teacher, seen = tiny_model("bert"), tiny_model("deberta", seed=1), list[Tensor]()

    def noting(mine: Tensor, theirs: Tensor) -> Tensor:
        seen.append(theirs)
        return losses.mse(mine, theirs)

    module = Objective(student, single(features, noting), [teacher])
    module(batch)
    with torch.autocast("cpu", torch.bfloat16):
        module(batch)
    plain, beside = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert all(torch.equal(*both) for both in zip(plain, beside, strict=True))


def test_first_tokens_and_embeddings_are_compared_with_those_of_the_named_layers(tiny_model, batch: Any) -> None:
    """Against the hidden states that transformers returns. Of unit vectors, the squared error is twice the cosine's."""
    student, teacher = tiny_model("bert", layers=2).double(), tiny_model("bert", layers=4, seed=1).double()
    every = {
        "first": Term(1.0, "first", "teacher", "all", losses.cosine, [[0, 1], [1, 2]]),
        "embeddings": Term(1.0, "hidden", "teacher", "all", losses.mse, [[-1, -1]]),
    }
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    ours, theirs = (model(**inputs, output_hidden_states=True).hidden_states for model in (student, teacher))
    pairs = [(ours[mine + 1][:, 0], theirs[other + 1][:, 0]) for mine, other in ((0, 1), (1, 2))]
    first = sum((F.normalize(mine) - F.normalize(other)).square().sum() / 2 for mine, other in pairs)
    real = batch["attention_mask"].bool()
    embeddings = (ours[0] - theirs[0])[real].square().mean(-1).sum()
    module = Objective(student, every, [teacher])
    torch.testing.assert_close(module(batch), torch.stack([first, embeddings]).float(), rtol=1e-5, atol=1e-6)
    assert counts(module.terms, batch).tolist() == [2, int(real.sum())]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooled_vectors_are_compared(pooling: str, tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert"), tiny_model("bert", seed=1)
    module = Objective(student, single("pooled", losses.mse), [teacher], pooling)
    reference = 0.0
    for ids, mask, types in zip(*(batch[k] for k in ("input_ids", "attention_mask", "token_type_ids")), strict=True):
        length = int(mask.sum())
        alone = {"input_ids": ids[None, :length], "token_type_ids": types[None, :length]}
        sides = [families.encode(model, alone)[0] for model in (student, teacher)]
        h, g = (({"mean": x.mean(0), "cls": x[0], "max": x.amax(0)})[pooling] for x in sides)
        reference = reference + (h - g).square().mean()
    torch.testing.assert_close(module(batch)[0], reference, rtol=1e-4, atol=1e-5)
    assert counts(module.terms, batch).tolist() == [2]


@pytest.mark.parametrize(
    ("features", "loss"),
    [
        *(("relations", SOFT), ("value_relations", SOFT), ("scores", losses.mse), ("scores", SOFT)),
        *(("pooled", losses.mse), ("hidden", losses.mse), ("first", losses.cosine)),
    ],
)
@pytest.mark.parametrize("name", ["bert", "deberta-v2", "modernbert"])
def test_padding_changes_no_term_on_layers(name: str, features: str, loss: Any, tiny_model, batch: Any) -> None:
    student, teacher = tiny_model(name, layers=2), tiny_model(name, seed=1)
    module = Objective(student, single(features, loss), [teacher])
    torch.testing.assert_close(module(wider(batch)), module(batch), rtol=1e-4, atol=1e-4)


def test_terms_are_zero_for_equal_models(tiny_model, batch: Any) -> None:
    model, same = tiny_model("modernbert"), tiny_model("modernbert")
    every = {
        "relations": Term(1, "relations", "teacher", "all", partial(losses.soft_targets, temperature=1.0)),
        "scores": Term(1, "scores", "teacher", "all", losses.mse, "uniform"),
        "hidden": Term(1, "hidden", "teacher", "all", losses.mse, "uniform"),
        "pooled": Term(1, "pooled", "teacher", "all", losses.cosine),
    }
    torch.testing.assert_close(Objective(model, every, [same])(batch), torch.zeros(4), rtol=0, atol=1e-5)


def test_pairs_of_layers_at_the_same_relative_depth() -> None:
    term = single("hidden", losses.mse, layers="uniform")["hidden"]
    assert term.pairs(6, 12) == [(i, 2 * i + 1) for i in range(6)]
    assert term.pairs(4, 6) == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert single("hidden", losses.mse)["hidden"].pairs(3, 12) == [(2, 11)]
    assert single("relations", losses.mse, teacher_layer=20)["relations"].pairs(6, 24) == [(5, 20)]


def test_layers_are_compared_with_those_they_were_copied_from(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert", layers=2), tiny_model("bert", layers=4, seed=1)
    by_kept = Objective(student, single("hidden", losses.mse, layers="uniform"), [teacher], kept=[0, 2])(batch)
    by_pairs = Objective(student, single("hidden", losses.mse, layers=[[0, 0], [1, 2]]), [teacher])(batch)
    by_depth = Objective(student, single("hidden", losses.mse, layers="uniform"), [teacher])(batch)
    h, g = (capture(model, batch, {"hidden": range(4)[: families.depth(model)]}).hidden for model in (student, teacher))
    real = batch["attention_mask"].bool()
    reference = sum((h[m][real] - g[n][real]).square().mean(-1).sum() for m, n in ((0, 0), (1, 2)))
    torch.testing.assert_close(by_kept[0], reference)
    assert torch.equal(by_kept, by_pairs)
    assert not torch.allclose(by_kept, by_depth)
    last = single("hidden", losses.mse)
    assert torch.equal(
        Objective(student, last, [teacher], kept=[0, 2])(batch), Objective(student, last, [teacher])(batch)
    )


def test_projections_begin_with_the_channels_that_were_kept(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert", hidden_size=8, num_attention_heads=1), tiny_model("bert", seed=1)
    channels = [0, 2, 3, 5, 8, 9, 10, 15]
    objective = Objective(student, single("hidden", losses.mse), [teacher], channels=channels)
    states = torch.randn(3, 8)
    projected = objective.projections["hidden"](states)
    assert torch.equal(projected[:, channels], states)
    assert not projected[:, [n for n in range(projected.shape[1]) if n not in channels]].any()
    objective(batch)[0].backward()
    assert objective.projections["hidden"].weight.grad is not None


def test_models_that_a_term_cannot_compare_are_refused(tiny_model) -> None:
    student, teacher = tiny_model("bert", hidden_size=8, num_attention_heads=1), tiny_model("bert")
    for features, settings, message in (
        (
            "relations",
            {"heads": 3},
            "terms.relations.heads: got 3; must divide the widths of student and teacher, 8 and",
        ),
        ("relations", {"teacher_layer": 3}, "terms.relations.teacher_layer: got 3; must be < 3, the teacher's layers"),
        ("hidden", {"layers": [[0, 1], [1, 3]]}, r"terms.hidden.layers: got \[\[0, 1\], \[1, 3\]\]; must be pairs of "),
        (
            "hidden",
            {"layers": [[3, 0]]},
            r"hidden.layers: got \[\[3, 0\]\]; must be pairs of a student's layer < 3 and",
        ),
        (
            "scores",
            {},
            "terms.scores.features: got scores; must be relations where student and teacher have 1 and 2 heads",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            Objective(student, single(features, losses.mse, **settings), [teacher])


def test_aligned_tokens_of_two_tokenizers_are_compared(tiny_model, batch: Any) -> None:
    student, teacher = tiny_model("bert"), tiny_model("bert", seed=1)
    own = {"input_ids": torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(2))}
    own["attention_mask"] = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    own["token_type_ids"] = torch.zeros_like(own["input_ids"])
    places = {"aligned": torch.tensor([1, 4, 8, 9]), "teacher_aligned": torch.tensor([2, 5, 10, 13])}
    both = batch | {f"teacher_{key}": value for key, value in own.items()} | places
    every = single("hidden", losses.mse) | {"mlm": Term(1.0, "logits", "labels", "masked", losses.mlm)}
    module = Objective(student, every, [teacher])
    with torch.no_grad():
        h, g = families.encode(student, batch).flatten(0, 1), families.encode(teacher, own).flatten(0, 1)
        reference = (h[places["aligned"]] - g[places["teacher_aligned"]]).square().mean(-1).sum()
    torch.testing.assert_close(module(both)[0], reference)
    torch.testing.assert_close(module(both)[1], module(batch)[1])
    assert counts(module.terms, both).tolist() == [4, 3]


def test_probabilities_of_several_teachers_are_averaged(tiny_model, batch) -> None:
    """Against a mean of softmaxes in float64, with two different pairs of weights."""
    student = tiny_model("bert", layers=1)
    teachers = [tiny_model("bert", layers=2, seed=1), tiny_model("bert", layers=3, seed=2)]
    soft = {"soft": Term(1.0, "logits", "teacher", "masked", partial(losses.soft_targets, temperature=1.0))}
    sums = [Objective(student, soft, teachers, weights=weights)(batch).item() for weights in ((3.0, 1.0), (1.0, 3.0))]
    inputs = families.inputs(student, batch)
    z, t, u = (model(**inputs).logits.flatten(0, 1)[batch["masked"]].double() for model in (student, *teachers))
    for value, share in zip(sums, (0.75, 0.25), strict=True):
        p = share * t.softmax(-1) + (1 - share) * u.softmax(-1)
        reference = F.kl_div(z.log_softmax(-1), p.log(), log_target=True, reduction="sum")
        assert value == pytest.approx(reference.item(), rel=1e-4)
    assert sums[0] != pytest.approx(sums[1], rel=1e-2)


@pytest.mark.parametrize("name", ["bert", "modernbert", "albert"])
def test_hidden_states_on_a_task_are_compared_in_every_layer_without_padding(name: str, pair, tiny_batch) -> None:
    student, teacher = pair(name, "SequenceClassification")
    real = tiny_batch["attention_mask"].flatten().nonzero().squeeze(1)
    batch = tiny_batch | {"real": real, "labels": torch.tensor([1, 0])}
    bound = {
        "soft_targets": Term(1.0, "logits", "teacher", "masked", SOFT),
        "hidden": Term(1.0, "hidden", "teacher", "all", losses.mse, "uniform"),
        "supervised": Term(1.0, "logits", "labels", "masked", losses.supervised),
    }
    module = Objective(student, bound, [teacher])
    out, theirs = (m(**families.inputs(m, tiny_batch), output_hidden_states=True) for m in (student, teacher))
    pairs = [(out.hidden_states[1], theirs.hidden_states[2]), (out.hidden_states[2], theirs.hidden_states[3])]
    hidden = sum(((h - g) ** 2).mean(-1)[tiny_batch["attention_mask"].bool()].sum() for h, g in pairs)
    soft = F.kl_div(
        (out.logits / TEMPERATURE).log_softmax(-1), (theirs.logits / TEMPERATURE).softmax(-1), reduction="sum"
    )
    labels = F.cross_entropy(out.logits, batch["labels"], reduction="sum")
    expected = torch.stack([soft * TEMPERATURE**2, hidden, labels]).detach()
    torch.testing.assert_close(module(batch).double().detach(), expected, rtol=1e-5, atol=1e-6)
    assert counts(bound, batch).tolist() == [2, len(real), 2]


@pytest.mark.parametrize("kind", ["l0", "movement"])
def test_gates_mask_the_student_and_add_a_term(kind: str, tiny_model, tiny_batch) -> None:
    student, batch = tiny_model("bert", "SequenceClassification"), tiny_batch | {"labels": torch.tensor([1, 0])}
    bound = {"supervised": Term(1.0, "logits", "labels", "masked", losses.supervised)}
    shape = shape_of(student.config)
    gates = gates_for(kind, student, Goal([Shape(shape.layers, shape.hidden, shape.ffn // 2)]))
    assert gates is not None
    gates.eval()
    module = Objective(student, bound, gates=gates)
    assert list(module.terms) == ["supervised", "gates"]
    assert counts(module.terms, batch).tolist() == [2, 1]
    with torch.no_grad():
        for parameter in gates.parameters():
            parameter.add_(torch.linspace(-6, 6, parameter.numel()).reshape(parameter.shape))
    module.progress = 1.0
    sums = module(batch)
    assert sums[1] == gates.penalty(1.0)
    masks, plain = gates.masks(1.0), Objective(student, bound)
    assert float(sums[0].detach()) != pytest.approx(float(plain(batch)[0].detach()), rel=1e-6)
    sums.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in gates.parameters())
    merge(student, Masks(masks.heads, masks.ffn))
    torch.testing.assert_close(plain(batch)[0], sums[0])


def test_margins_are_compared_between_all_documents_of_a_query(tiny_batch: Any, tiny_model: Any) -> None:
    """Hofstaetter et al. 2020, equation 3, summed over all pairs of documents in a plain loop."""
    student = tiny_model("bert", "SequenceClassification", num_labels=1).double()
    batch = {name: values.repeat(3, 1) for name, values in tiny_batch.items() if values.ndim == 2}
    batch["input_ids"] = (batch["input_ids"] * torch.arange(1, 7)[:, None]) % 60
    groups, teacher = [3, 0, 3, 3, 0, 1], torch.randn(6, 1, dtype=torch.float64)
    batch |= {
        "labels": torch.full((6,), torch.nan),
        "teacher_logits": teacher,
        "pairs": torch.from_numpy(pairs(np.array(groups))),
    }
    module = Objective(student, single("margins", losses.mse))
    out = student(**families.inputs(student, batch)).logits
    reference = out.new_zeros(())
    for i in range(6):
        for j in range(i + 1, 6):
            if groups[i] == groups[j]:
                reference = reference + ((out[i, 0] - out[j, 0]) - (teacher[i, 0] - teacher[j, 0])) ** 2
    assert counts(module.terms, batch).tolist() == [4]
    torch.testing.assert_close(module(batch)[0].double(), reference, rtol=1e-6, atol=0)
    shifted = module(batch | {"teacher_logits": teacher + 5})
    torch.testing.assert_close(shifted[0].double(), reference, rtol=1e-6, atol=0)


def test_a_batch_without_two_documents_of_a_query_has_no_margins(tiny_batch: Any, tiny_model: Any) -> None:
    student = tiny_model("bert", "SequenceClassification", num_labels=1)
    none = torch.from_numpy(pairs(np.array([0, 1])))
    batch = tiny_batch | {"labels": torch.zeros(2), "teacher_logits": torch.ones(2, 1), "pairs": none}
    module = Objective(student, single("margins", losses.mse))
    total = module(batch)
    total.sum().backward()
    assert counts(module.terms, batch).tolist() == total.tolist() == [0]
    assert all(not p.grad.any() for p in student.parameters() if p.grad is not None)
