"""How similar the vectors of an embedder are to its teacher's."""

from __future__ import annotations

from distill.runtime.storage.structs import Stored


class Similarity(Stored, frozen=True, kw_only=True):
    """How similar an embedder is to its teacher."""

    texts: int
    cosine: float | None
    """Mean cosine between the embeddings of the texts; None if their widths differ."""
    spearman: dict[str, list[float]]
    """Similarity task -> correlation of cosines with labels of the teacher and of the student, in percent."""
