"""The losses between embedders, in the form of a loss of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distill.config.feature_kinds import LOGITS, VECTORS
from distill.data.task_types.embedding import EMBEDDING, similarity_rows
from distill.errors import ConfigError
from distill.losses.terms import Loss, Term, named

_WIDTHS = ("get_embedding_dimension", "get_sentence_embedding_dimension")
"""Method of an embedder that returns the number of components of its vectors, and its name before version 6."""


class EmbeddingLoss(nn.Module):
    """A weighted sum of terms between an embedder and its teacher, for `SentenceTransformerTrainer`.

        loss = distill.EmbeddingLoss(student, teacher, [distill.terms.Vectors(), distill.terms.SoftTargets()])
        SentenceTransformerTrainer(student, train_dataset=texts, loss=loss).train()

    `terms.Vectors` compares the vectors of a row's texts, side by side, so that the student can search an index of its
    teacher's vectors. `terms.SoftTargets` compares how similar the other texts of the batch are to each first text: the
    softmax of 20 x the cosine (Fang et al. 2021, arXiv 2101.04731, equation 4). As in a recipe, its weight is divided
    by that factor.

    Args:
        student: a SentenceTransformer.
        teacher: another one with the same tokenizer. It is put into eval mode, gets no gradient and is no submodule.
        terms: `terms.Vectors`, `terms.SoftTargets` and `terms.Logits`, or plain functions of the logits.

    Raises:
        ConfigError: for other models, for other terms, and for embedders of other widths than each other where vectors
            are compared.
    """

    def __init__(self, student: Any, teacher: Any, terms: Mapping[str, Term | Loss] | Sequence[Term | Loss]) -> None:
        super().__init__()
        for name, model in (("student", student), ("teacher", teacher)):
            if not any(hasattr(model, each) for each in _WIDTHS):
                raise ConfigError(
                    f"{name}: got a {type(model).__name__}; must be a SentenceTransformer; load it with "
                    "sentence_transformers.SentenceTransformer"
                )
        self.terms = named(terms)
        self.model = student  # by this name a trainer finds it, to put the model of all processes into its place
        wrong = [n for n, t in self.terms.items() if t.kind not in (LOGITS, VECTORS) or t.compare_with != "teacher"]
        if wrong:
            raise ConfigError(
                f"terms: got {wrong[0]}; must be Vectors, SoftTargets or Logits between embedders; choose one"
            )
        if (token := _other_token(student, teacher)) is not None:
            raise ConfigError(
                f"teacher: got a tokenizer in which {token!r} has another number than in the student's; must be the "
                "same tokenizer; choose another teacher, or use python -m distill"
            )
        widths = [next(getattr(m, each) for each in _WIDTHS if hasattr(m, each))() for m in (student, teacher)]
        if widths[0] != widths[1] and any(term.kind is VECTORS for term in self.terms.values()):
            raise ConfigError(
                f"terms: got Vectors for vectors of {widths[0]} and {widths[1]} numbers; must be equally many; leave "
                "it out, or add a Dense module to the student"
            )
        ours, theirs = (getattr(model, "max_seq_length", None) for model in (student, teacher))
        if ours is not None and theirs is not None and ours > theirs:
            raise ConfigError(
                f"student: got a max_seq_length of {ours}; must be at most {theirs}, as of the teacher, which gives "
                f"longer texts other vectors; set student.max_seq_length = {theirs}"
            )
        # A tuple, so that the teacher is no submodule.
        self._teacher = (teacher.eval(),)

    @property
    def student(self) -> Any:
        return self.model

    def forward(self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss [] of a batch.

        Args:
            sentence_features: for each text column, the inputs `input_ids` [B, L] and so on.
            labels: not used.
        """
        columns = [dict(features) for features in sentence_features]
        ours = [self.model(dict(column))["sentence_embedding"] for column in columns]
        (teacher,) = self._teacher
        if teacher.training:
            teacher.eval()
        with torch.no_grad():
            teacher.to(ours[0].device)
            theirs = [teacher(dict(column))["sentence_embedding"] for column in columns]
        total = ours[0].new_zeros((), dtype=torch.float32)
        for term in self.terms.values():
            if term.kind is VECTORS:
                side = 1 if term.of_batch else 0  # rows are compared with each other, or each text counts as much
                total = total + term.weight * term.loss(torch.cat(ours, dim=side), torch.cat(theirs, dim=side)).mean()
            else:
                values = term.loss(similarity_rows(ours), similarity_rows(theirs)).mean()
                total = total + term.weight * EMBEDDING.teacher_weight * values
        return total


def _other_token(student: Any, teacher: Any) -> str | None:
    """A token that has another number in the teacher's tokenizer; None without one, or where they are unknown."""
    tokenizers = (getattr(model, "tokenizer", None) for model in (student, teacher))
    ours, theirs = (dict[str, int](getattr(each, "get_vocab", dict)()) for each in tokenizers)
    return next((token for token, number in ours.items() if theirs.get(token, number) != number), None)
