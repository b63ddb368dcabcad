"""The variants that an evaluation compares: a model in one scheme on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distill.backends import BACKENDS
from distill.evaluate.runners import COMPILED
from distill.plan import Compared, Step
from distill.schemes import ONNX, SCHEMES

FLOAT32 = ("fp32", "fp32_medium")
"""The schemes of float32 variants."""

SchemesOf = Callable[[Step | None], Sequence[str]]
"""Quantize step -> the schemes it made, as named in `stages.quantize.schemes`; empty for None."""


@dataclass(frozen=True)
class Variant:
    """One model in one scheme on one backend."""

    role: str
    backend: str
    scheme: str
    step: Step
    """The step that wrote its float checkpoint."""
    quantized: Step | None = None
    """The quantize step that wrote its file; None for the checkpoint itself."""
    file: str | None = None
    """File or folder below that of the task's model; None for the checkpoint itself."""
    key: str | None = None
    """Its name in `stages.quantize.schemes`, or the name of the ONNX file."""
    scored: bool = True
    """Whether it is scored on the validation rows; otherwise it is only timed."""
    row_by_row: bool = False
    """Whether it is scored with batch size 1, because its logits depend on the other rows of a batch."""
    member: int | None = None
    """Index, from 0, of a single teacher of an ensemble; None for any other variant."""
    target: str = ""
    """Label of its target, if the run has several."""

    @property
    def label(self) -> str:
        return " ".join(filter(None, [self.role, "" if self.member is None else str(self.member + 1), self.target]))

    @property
    def name(self) -> str:
        return f"{self.label} {self.backend} {self.scheme}"


def variants(
    teacher: Step,
    compared: Sequence[Compared],
    schemes_of: SchemesOf,
    *,
    members: int,
    float32: str,
    bf16: bool,
    cuda: bool,
) -> list[Variant]:
    """All variants to compare. Of variants with the same arithmetic, only one is scored; all are timed.

    `members`: number of teachers; `float32`: the float32 scheme that is scored on torch; `bf16`, `cuda`: whether the
    machine supports them.
    """
    runtimes = sorted(
        {SCHEMES[name].backend for c in compared for name in schemes_of(c.quantized) if SCHEMES[name].onnx}
    )
    others = [backend for backend in runtimes if backend != "onnxruntime"]
    every = [
        Variant("teacher", "torch", "fp32", teacher, scored=float32 == "fp32"),
        Variant("teacher", "torch", "fp32_medium", teacher),
        Variant("teacher", "torch", "bf16", teacher, scored=False),
        Variant("teacher", "torch", "fp16", teacher, scored=False),
        *(
            Variant("teacher", backend, "fp32", teacher, file=ONNX, scored=False)
            for backend in ["onnxruntime", *others]
        ),
        *(Variant("member", "torch", float32, teacher, member=n) for n in range(members) if members > 1),
        *(variant for each in compared for variant in _of_target(each, schemes_of, float32)),
    ]
    absent = {"fp32_medium"} if float32 == "fp32" else set()
    absent |= set() if bf16 else {"bf16"}
    absent |= set() if cuda else {"fp16"}  # CPUs have no fast fp16
    return [variant for variant in every if variant.scheme not in absent]


def _of_target(each: Compared, schemes_of: SchemesOf, float32: str) -> Iterator[Variant]:
    """Variants of the student for a target, and of the models it is compared with."""
    student, quantized, target = each.student, each.quantized, each.target
    for name in ("fp32", "fp32_medium", "bf16", "fp16"):
        yield Variant("student", "torch", name, student, scored=name != "fp32" or float32 == "fp32", target=target)
    floats = set[str]()
    for key in schemes_of(quantized):
        scheme = SCHEMES[key]
        if scheme.onnx and scheme.backend not in floats:
            floats.add(scheme.backend)
            yield Variant("student", scheme.backend, "fp32", student, quantized, ONNX, ONNX, target=target)
        yield Variant(
            "student", scheme.backend, scheme.scheme, student, quantized, scheme.file, key,
            row_by_row=scheme.row_by_row, target=target,
        )  # fmt: skip
        if scheme.compiled:
            compiled = f"{scheme.scheme}{COMPILED}"
            yield Variant(
                "student", scheme.backend, compiled, student, quantized, scheme.file, key, False, target=target
            )
    for role, step in (("pruned", each.pruned), ("baseline", each.baseline)):
        if step is not None:
            yield Variant(role, "torch", float32, step, target=target)


def reference(float32: str) -> str:
    """Name of the variant that all others are compared with."""
    return f"teacher torch {float32}"


def same_backend(variant: Variant) -> str:
    """The backend of the float32 teacher that a variant is compared with."""
    return BACKENDS[variant.backend].runtime
