"""What transfer sets are made from: the sentences of a corpus, and similar words."""

from __future__ import annotations

from typing import Any

import pytest

from distill.pipeline.train_steps.transfer import SENTENCE, _sentences, _words

CHINESE = "\u5feb\u9012\u5df2\u7ecf\u4e09\u5929\u4e86" * 5
HINDI = "\u0928\u093e\u0935 \u0906\u091c \u0926\u0947\u0930 \u0938\u0947 \u0906\u0908 " * 2


@pytest.mark.parametrize(
    ("sentence", "end", "between"),
    [
        ("the ferry left the harbour late", ".", " "),
        ("Where does the ferry go at noon", "?", "\n"),
        (CHINESE, "\u3002", ""),
        (CHINESE, "\uff01\uff01", ""),
        (f"\u201c{CHINESE}", "\u3002\u201d", ""),
        (HINDI.strip(), "\u0964", " "),
    ],
)
def test_sentences_end_in_all_scripts(sentence: str, end: str, between: str) -> None:
    sentences = [f"{number}{sentence}{end}" for number in range(20)]
    document = between.join(sentences)
    assert len(document) > SENTENCE[1]
    assert _sentences([document]) == sentences


def test_texts_without_a_word_have_no_similar_words() -> None:
    nothing: Any = None
    assert _words("", nothing, nothing, [("12-34",), ("5, 6",)]) == {}
