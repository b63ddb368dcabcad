"""The tokenizer of an exported folder, read by the library tokenizers alone: transformers takes a second to import.

It has the part of the interface of transformers' tokenizers that the functions of `distill.data` use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.deploy.export.record import Tokens
from distill.models.families.sentence import MODULES, READING
from distill.models.families.weights import check_links
from distill.models.readable import readable
from distill.runtime.storage import checksums

FILE = "tokenizer.json"
READ = ("config.json", FILE, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", MODULES, *READING)
"""Files of which transformers and sentence-transformers make a tokenizer, and a model's padding and length."""

_VALUES: dict[str, Callable[[Any], Any]] = {
    "input_ids": lambda encoding: encoding.ids,
    "token_type_ids": lambda encoding: encoding.type_ids,
    "special_tokens_mask": lambda encoding: encoding.special_tokens_mask,
    "offset_mapping": lambda encoding: encoding.offsets,
}
"""Key of an `Encodings` -> the values of one sequence."""


@dataclass(frozen=True)
class Encodings:
    """The sequences that a tokenizer made of texts."""

    every: Sequence[Any]
    """An encoding of the library tokenizers for each sequence."""
    owners: Sequence[int]
    """Number of the text that each sequence is of."""
    single: bool = False
    """Whether one text was given, and no list of texts: a key then has the values of the only sequence."""

    def __getitem__(self, key: str) -> Any:
        if key == "overflow_to_sample_mapping":
            return self.owners
        values = list(map(_VALUES[key], self.every))
        return values[0] if self.single else values

    def word_ids(self, number: int) -> list[int | None]:
        """For each token of a sequence, the number of the tokenizer's own word; None for a special one."""
        found: list[int | None] = self.every[number].word_ids
        return found

    def sequence_ids(self, number: int) -> list[int | None]:
        """For each token of a sequence, whether it is of the first text, 0, of the second, 1, or special, None."""
        found: list[int | None] = self.every[number].sequence_ids
        return found


@dataclass(eq=False)
class Tokenizer:
    """A tokenizer that encodes texts as the tokenizer of transformers does of which an export proved it."""

    backend_tokenizer: Any
    """The tokenizer of the library tokenizers."""
    pad_token_id: int
    padding_side: str
    truncation_side: str
    model_input_names: Sequence[str]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Number of special tokens around a text, or around and between the texts of a pair."""
        number: int = self.backend_tokenizer.num_special_tokens_to_add(pair)
        return number

    def __call__(
        self,
        texts: str | Sequence[str],
        seconds: str | Sequence[str] | None = None,
        *,
        truncation: bool | str = False,
        max_length: int | None = None,
        stride: int = 0,
        add_special_tokens: bool = True,
        return_overflowing_tokens: bool = False,
        **outputs: bool,
    ) -> Encodings:
        """The sequences of texts, or of pairs with the second texts.

        Args:
            truncation: True to cut the longest text of a pair first, or `only_second`.
            max_length: number of tokens, special ones included, to which sequences are cut.
            stride: number of tokens that consecutive parts of a text share.
            return_overflowing_tokens: whether what is cut off follows as further sequences.
            outputs: without `return_offsets_mapping`, no places in texts are made. The like of it changes nothing:
                every other output is made when it is read.
        """
        backend = self.backend_tokenizer
        if truncation:
            strategy = "longest_first" if truncation is True else truncation
            backend.enable_truncation(max_length, stride=stride, strategy=strategy, direction=self.truncation_side)
        else:
            backend.no_truncation()
        single = isinstance(texts, str)
        if isinstance(texts, str):
            rows: Sequence[Any] = [(texts, seconds)] if seconds else [texts]
        else:
            rows = list(texts) if seconds is None else list(zip(texts, seconds, strict=True))
        encode = backend.encode_batch if outputs.get("return_offsets_mapping") else backend.encode_batch_fast
        parts = encode(rows, add_special_tokens=add_special_tokens)
        if not return_overflowing_tokens:
            return Encodings(parts, range(len(parts)), single)
        every = [(number, each) for number, part in enumerate(parts) for each in (part, *part.overflowing)]
        return Encodings([each for _, each in every], [number for number, _ in every])


def read(folder: Path, stated: Tokens) -> Tokenizer:
    """The tokenizer of a folder, without the truncation and padding that its file may switch on.

    Raises:
        DataError: for a file that cannot be read, and for a link out of the folder.
    """
    import tokenizers

    check_links(folder)
    with readable(folder, f"an exported folder with {FILE}; copy the folder again"):
        backend = tokenizers.Tokenizer.from_file(str(folder / FILE))
    backend.no_truncation()
    backend.no_padding()
    pads, cuts = ("left" if left else "right" for left in (stated.pads_left, stated.cuts_left))
    names = ["input_ids", "token_type_ids"] if stated.types else ["input_ids"]
    return Tokenizer(backend, stated.pad_id, pads, cuts, names)


def content(folder: Path) -> str:
    """Hash of the files of a folder on which the tokens of a text depend, and the model's padding and length."""
    found = [file for file in (folder / name for name in READ) if file.is_file()]
    return checksums.fingerprint([[file.name, checksums.sha256(file)] for file in found])


def own(folder: Path) -> str:
    """Hash of the tokenizer's own file."""
    return checksums.sha256(folder / FILE)
