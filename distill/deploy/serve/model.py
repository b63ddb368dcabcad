"""A loaded model: it checks texts, computes outputs in batches, and turns them into predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from distill.data.asked import encode
from distill.data.task_types import TaskType
from distill.data.task_types.detecting import detectable, reached
from distill.data.task_types.layout import Parts
from distill.data.windows import Windows
from distill.errors import ConfigError, DataError
from distill.inference.predict import predict, whole_vectors
from distill.inference.runners import Run
from distill.models.families.record import CHOICES, TOKENS
from distill.models.readable import encodable

_UNCUT = 2**31 - 1
"""Number of tokens that no text has."""

Texts = Sequence[str] | Sequence[tuple[str, str]] | Sequence[Sequence[str]] | Sequence[tuple[Any, ...]]
"""Texts, pairs of texts (for question answering a question and its context), for token classification also lists of the
words of each text, or for multiple choice texts with a list of choices."""
_MEND_CHOICES = "pass a list such as [('a question', ['a choice', 'another'])]"
_MENDS = {1: "pass a list such as ['a text', 'another']", 2: "pass a list such as [('a text', 'its pair')]"}
_MEND = "pass a list such as ['a text'] or [('a text', 'its pair')]"


@dataclass(frozen=True)
class Model:
    """A model in one scheme on one backend, from `distill.load`."""

    folder: Path
    kind: TaskType
    labels: tuple[str, ...]
    """Names of the outputs; empty for a number."""
    backend: str
    scheme: str
    max_length: int
    """Number of tokens to which a text, or a pair of texts, is truncated; for token classification and question
    answering, of the windows in which longer ones are read."""
    threshold: float
    """Probability above which a label of multi-label classification is predicted."""
    columns: tuple[str, ...]
    """The text columns of the task's files; empty if they are unknown."""
    tokenizer: Any = field(repr=False)
    run: Run = field(repr=False)
    """Batch -> outputs."""
    row_by_row: bool
    """Whether texts are run one at a time, because activations share one scale for the batch, so that the outputs of a
    text would depend on the other texts."""
    temperature: float = 1.0
    """Temperature, chosen on development rows, by which logits are divided before they are made probabilities."""
    prompt: str = ""
    """The prompt that an embedder puts before every text."""
    activation: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)
    """The function from the output of a cross-encoder to its score; None for the output itself."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Label -> probability, before temperature scaling, that at most 1% of the development rows without it reach;
    empty where none was chosen."""
    windows: Windows | None = field(default=None, repr=False)
    """The windows in which an embedder reads longer texts; None where they are truncated."""
    encoding: Lock = field(default_factory=Lock, repr=False, compare=False)
    """Held while texts are encoded: a tokenizer has one setting of truncation, for all threads of a service."""

    def outputs(self, texts: Texts, batch_size: int = 32) -> np.ndarray:
        """Outputs float32 [n, outputs] of n texts or pairs, in their order. A batch has texts of similar length.

        For token classification, n counts the words of all texts, and a word without a token has zeros. For
        multiple choice, the outputs are the logits of the choices, with -10,000 for choices that a question lacks. For
        question answering, they are first character and end of the best span, its score, the score of no answer, and
        the span's probability.

        Raises:
            DataError: for texts of another form, and for outputs that are not finite.
        """
        return self._outputs(self._rows(texts), batch_size)

    def _rows(self, texts: Texts) -> list[Parts]:
        """The parts of each row. Raises DataError for texts of another form."""
        layout = self.kind.layout
        checked = _CHECKED.get(layout.architecture, texts_in)(_listed(texts), layout.asked or len(self.columns))
        return [layout.divide(row) for row in checked]

    def _outputs(self, rows: list[Parts], batch_size: int) -> np.ndarray:
        if not hasattr(batch_size, "__index__") or batch_size < 1:
            raise ConfigError(f"batch_size: got {batch_size!r}; must be a number of texts, 1 or more; correct it")
        layout = self.kind.layout
        if not rows:
            return np.zeros((0, len(self.labels) or layout.width or 1), np.float32)
        longest = self.max_length if self.windows is None else _UNCUT
        with self.encoding, encodable(self.folder):
            encoded = encode(layout.architecture, rows, self.tokenizer, longest)
        _check(encoded.whole_lengths > 0, "no text", "a text with at least one token")
        left, size = self.tokenizer.padding_side == "left", 1 if self.row_by_row else batch_size
        pad_id = self.tokenizer.pad_token_id
        if self.windows is None:
            outputs = predict(self.run, encoded, pad_id=pad_id, left=left, rows=size)
        else:
            outputs = whole_vectors(self.run, encoded, self.windows, pad_id=pad_id, left=left, rows=size)
        if not np.isfinite(outputs).all():
            raise DataError(
                f"{self.folder}: got outputs of {self.backend} {self.scheme} that are not finite; must be numbers; "
                "choose another scheme"
            )
        return outputs

    def predict(
        self, texts: Texts, batch_size: int = 32, detect: str | Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """The prediction for each text or pair, in their order, as JSON values.

        `{"label": "billing", "score": 0.97, "scores": {"billing": 0.97, ...}}` for a classification, `{"labels":
        ["billing"], "scores": {...}}` for several labels, `{"score": 3.2}` for a number, and `{"spans": [{"text":
        "Oslo", "label": "LOC", "start": 7, "end": 11, "score": 0.97}]}` for token classification, where a list of words
        stands for the text that has a space between them. An embedder takes single texts, and returns `{"vector": [0.1,
        -0.2, ...]}` for each. For multiple choice, a text is `(question, [choices])` or `(text, question, [choices])`,
        and the prediction is `{"choice": "Oslo", "number": 1, "score": 0.97, "scores": [0.02, 0.97, 0.01]}`, numbered
        from 0. For question answering, a pair is `(question, context)`, and the prediction is `{"answer": "Oslo",
        "start": 7, "end": 11, "score": 0.97, "no_answer": 0.01}`, with an empty answer without a place if the context
        has no answer. `score` is the probability of the best span, and `no_answer` the probability of no answer against
        it.

        Scores of labels are scaled by the export's temperature, where it has one; which label is output does not depend
        on it. The default prompt of an embedder is put before its texts. The number of a cross-encoder is its
        activation of the output, as in sentence-transformers.

        A label in `detect` is predicted for the texts that reach its threshold in `thresholds`, whatever its score: one
        of two classes, or any of several labels. These thresholds are probabilities before temperature scaling, which
        cannot be compared with the scores.

        Raises:
            ConfigError: for a label in `detect` without a threshold, and for both of two classes.
            DataError: for texts of another form, and for outputs that are not finite.
        """
        detected = self._detected(detect)
        if self.prompt:
            texts = [self.prompt + text for (text,) in texts_in(_listed(texts), 1)]
        rows = self._rows(texts)
        own = self._outputs(rows, batch_size)
        outputs, threshold = scaled(own, self.threshold, self.temperature)
        if self.activation is not None:
            outputs = self.activation(outputs)
        answers = self.kind.answer(outputs, self.labels, threshold, rows)
        if not detected or self.kind.detecting is None:
            return answers
        odds, decided = self.kind.detecting.odds(own, self.labels), self.kind.detecting.decided
        found = {label: reached(odds[label], self.thresholds[label]).tolist() for label in detected}
        return [decided(answer, {label: found[label][row] for label in detected}) for row, answer in enumerate(answers)]

    def _detected(self, detect: str | Sequence[str] | None) -> list[str]:
        """The labels to detect. Raises ConfigError for others than the model can detect."""
        labels = labels_in(detect)
        if not labels:
            return labels
        got = f"detect: got {', '.join(labels)}; must be"
        if not detectable(self.kind.detecting, self.labels):
            raise ConfigError(
                f"{got} left out, as only one of two classes, or labels of multi_label, are detected; leave it out"
            )
        if not self.thresholds:
            raise ConfigError(
                f"{got} left out, as this artifact has no thresholds; leave it out, or export it by a run with "
                "development rows"
            )
        if unknown := [label for label in labels if label not in self.thresholds]:
            raise ConfigError(
                f"detect: got {', '.join(unknown)}; must be of {', '.join(self.thresholds)}; a run chooses a threshold "
                "for a label with development rows without it: choose another label, or run it again with such rows"
            )
        if len(labels) > 1 and not (self.kind.detecting and self.kind.detecting.several):
            raise ConfigError(f"{got} one of two classes; choose one of them")
        return labels


def labels_in(detect: str | Sequence[str] | None) -> list[str]:
    """The labels that `detect` names, each once."""
    return [detect] if isinstance(detect, str) else list(dict.fromkeys(detect or ()))


def scaled(outputs: np.ndarray, threshold: float, temperature: float) -> tuple[np.ndarray, float]:
    """Logits [n, C] divided by a temperature, and the threshold of a probability with which the same labels are output.

    Unchanged for a temperature of 1.
    """
    if temperature == 1:
        return outputs, threshold
    return outputs / temperature, float(1 / (1 + np.exp(-np.log(threshold / (1 - threshold)) / temperature)))


def _listed(texts: Any) -> Any:
    """What may be iterated once as a list. Raises DataError for what is iterated otherwise than row by row in order."""
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        return texts  # refused by what each kind takes
    if isinstance(texts, Mapping | Set) or hasattr(texts, "columns"):
        raise DataError(
            f"texts: got a {type(texts).__name__}; must be a list of texts; pass those of one column, such as "
            "df['text'].tolist()"
        )
    return list(texts)


def _words_in(texts: Texts, wanted: int) -> Texts:
    """Texts, or lists of the words of each. Raises DataError for anything else."""
    listed = not isinstance(texts, str | bytes) and hasattr(texts, "__iter__")
    texts_in([" ".join(text) if _is_words(text) else text for text in texts] if listed else texts, wanted)
    return texts


def _is_words(text: object) -> bool:
    return isinstance(text, list | tuple) and all(isinstance(word, str) for word in text)


def _choices_in(texts: Texts, wanted: int) -> Texts:
    """One text or two, and a list of at least two choices, of each row. Raises DataError for anything else."""
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        raise DataError(f"texts: got a {type(texts).__name__}; must be a list of texts with choices; {_MEND_CHOICES}")
    for number, row in enumerate(texts, 1):
        parts = row if isinstance(row, tuple | list) else ()
        right = len(parts) in (2, 3) and all(isinstance(text, str) for text in parts[:-1]) and _is_words(parts[-1])
        if not right or len(parts[-1]) < 2:
            raise DataError(
                f"texts, number {number}: got {repr(row)[:80]}; must be texts with two choices or more; {_MEND_CHOICES}"
            )
        _check([all(map(_unicode, (*parts[:-1], *parts[-1])))], "a lone surrogate", "Unicode text")
    return texts


def texts_in(texts: Texts, wanted: int = 0) -> list[tuple[str, ...]]:
    """The texts of each row, one or two.

    Args:
        wanted: 1 for texts, 2 for pairs, 0 for either.

    Raises:
        DataError: for anything else.
    """
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        raise DataError(f"texts: got a {type(texts).__name__}; must be a list of texts or of pairs of texts; {_MEND}")
    rows = [(text,) if isinstance(text, str) else text for text in texts]
    width = wanted or (len(rows[0]) if rows and isinstance(rows[0], tuple | list) else 1)
    form = "texts" if width == 1 else "pairs of texts"
    for number, row in enumerate(rows, 1):
        if not (isinstance(row, tuple | list) and len(row) == width in (1, 2) and all(isinstance(t, str) for t in row)):
            shown = repr(row[0] if isinstance(row, tuple) and len(row) == 1 else row)[:80]
            mend = _MENDS.get(wanted, _MEND)
            raise DataError(f"texts, number {number}: got {shown}; must be {form}, as the others; {mend}")
    _check([all(map(_unicode, row)) for row in rows], "a lone surrogate", "Unicode text, decoded from its own encoding")
    return list(map(tuple, rows))


_CHECKED: dict[str, Callable[[Texts, int], Sequence[Any]]] = {TOKENS: _words_in, CHOICES: _choices_in}
"""Architecture -> (what a user passes, number of texts of a row) -> the same, checked, where rows contain lists."""


def _check(right: Sequence[bool] | np.ndarray, problem: str, rule: str) -> None:
    wrong = np.flatnonzero(~np.asarray(right, np.bool_))
    if len(wrong):
        raise DataError(f"texts, number {wrong[0] + 1}: got {problem}; must be {rule}; correct it, or leave it out")


def _unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
