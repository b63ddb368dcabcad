"""The options of a labelling."""

from __future__ import annotations

from dataclasses import dataclass

from distill.errors import ConfigError

_COUNTS = ("threads", "max_length", "tokens", "rows", "tries", "lease")


@dataclass(frozen=True)
class Options:
    """What a labelling may choose besides its teacher, its files and its folder. None stands for the default.

    Raises:
        ConfigError: for a number below 1, and for choices that are a text.
    """

    text: str | None = None
    """Column of the texts; that of the teacher's task, or a likely one."""
    text_pair: str | None = None
    """Column of the second text of each pair, or of the context of each question."""
    choices: tuple[str, ...] = ()
    """Of multiple choice: a column of lists, or one for each choice."""
    label: str | None = None
    """Column of given labels, which is copied; the first one with a usual name."""
    separator: str | None = None
    """Between the values of a CSV."""
    soft_label: str = "soft"
    """New column of the soft labels."""
    backend: str | None = None
    """torch, onnxruntime, ...; that of the fastest artifact in float."""
    scheme: str | None = None
    """fp32, bf16, ...; on a GPU bf16 or fp16, whichever it is fast in, else fp32."""
    device: str = "cpu"
    """Of torch: cpu, cuda or cuda:1."""
    threads: int | None = None
    """Of the CPU; all cores."""
    max_length: int | None = None
    """Tokens of a text; as in training."""
    tokens: int = 16384
    """Most tokens of a batch."""
    rows: int = 10_000
    """Most rows of a unit."""
    tries: int | None = None
    """Processes that try a unit before it is given up; 3, or as the folder was begun."""
    lease: int = 60
    """Seconds until a unit is taken over from a process that stands still."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"label.{name}: got {value}; must be 1 or more; correct it")
        if isinstance(self.choices, str):
            raise ConfigError(
                f"label.choices: got {self.choices!r}; must be a tuple of names of columns; write ({self.choices!r},)"
            )
