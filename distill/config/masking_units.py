"""Records of what is masked together in masked-language modelling."""

from __future__ import annotations

from dataclasses import dataclass

_SPAN = [0.8**words for words in range(10)]


@dataclass(frozen=True)
class MaskingUnit:
    """A value of the setting `masking.unit`."""

    name: str
    lengths: tuple[float, ...] = ()
    """Probabilities of runs of 1, 2, ... whole words. Empty where tokens are drawn one by one."""
    together: bool = False
    """Whether all tokens of a run become the mask token, or all become random tokens, or all stay. Otherwise this is
    decided for each token."""


TOKEN = MaskingUnit("token")
MASKING_UNITS: dict[str, MaskingUnit] = {
    unit.name: unit
    for unit in (
        TOKEN,
        # Whole-word masking of the BERT that was released in May 2019 (google-research/bert).
        MaskingUnit("word", (1.0,)),
        # ALBERT (Lan et al. 2020, arXiv 1909.11942, section 4.1): p(n) proportional to 1/n, at most 3 words.
        MaskingUnit("ngram", (6 / 11, 3 / 11, 2 / 11)),
        # SpanBERT (Joshi et al. 2020, arXiv 1907.10529, section 3.1): geometric with p = 0.2, at most 10 words.
        MaskingUnit("span", tuple(share / sum(_SPAN) for share in _SPAN), together=True),
    )
}
"""Values of the setting `masking.unit`."""
