"""The variants that an evaluation compares: a model of the run on one backend, in one scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distill.backends import BACKENDS
from distill.evaluate.engines import COMPILED
from distill.plan import Compared, Step
from distill.schemes import ONNX, SCHEMES

FLOAT32 = ("fp32", "fp32_medium")
"""Schemes that the teacher's fastest float32 variant is looked for among."""

Made = Callable[[Step | None], Sequence[str]]
"""Quantize step -> names, in `stages.quantize.schemes`, of what it made; nothing of None."""


@dataclass(frozen=True)
class Variant:
    """One model on one backend in one scheme. `scored`: it predicts the validation rows too, else it is only timed."""

    role: str
    backend: str
    scheme: str
    step: Step
    """The step that left its float checkpoint."""
    quantized: Step | None = None
    """The step that left its file, where that is another."""
    file: str | None = None
    """Its file or folder, in that of the task's model; None is the checkpoint itself."""
    key: str | None = None
    """Its name in `stages.quantize.schemes`, or that of the ONNX file it is made from."""
    scored: bool = True
    row_by_row: bool = False
    """Scored one row at a time: its logits depend on what else is in the batch."""
    member: int | None = None
    """Which teacher of an ensemble, counted from 0, where it is run without the others."""
    target: str = ""
    """Label of the target that it was made for, where a run has several."""

    @property
    def label(self) -> str:
        return " ".join(filter(None, [self.role, "" if self.member is None else str(self.member + 1), self.target]))

    @property
    def name(self) -> str:
        return f"{self.label} {self.backend} {self.scheme}"


def variants(
    teacher: Step,
    compared: Sequence[Compared],
    made: Made,
    *,
    members: int,
    float32: str,
    bf16: bool,
    cuda: bool,
) -> list[Variant]:
    """Everything that is compared. Of variants with the same arithmetic, only one is scored; all are timed.

    `members`: teachers of the ensemble; `float32`: scheme of torch's float32 that is scored; `bf16`, `cuda`: whether
    the machine has these.
    """
    runtimes = sorted({SCHEMES[name].backend for c in compared for name in made(c.quantized) if SCHEMES[name].onnx})
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
        *(variant for each in compared for variant in _of_target(each, made, float32)),
    ]
    absent = {"fp32_medium"} if float32 == "fp32" else set()
    absent |= set() if bf16 else {"bf16"}
    absent |= set() if cuda else {"fp16"}  # CPUs have no fast arithmetic for it
    return [variant for variant in every if variant.scheme not in absent]


def _of_target(each: Compared, made: Made, float32: str) -> Iterator[Variant]:
    """The student that was made for a target, its quantized variants, and the models it is compared with."""
    student, quantized, target = each.student, each.quantized, each.target
    for scheme in ("fp32", "fp32_medium", "bf16", "fp16"):
        yield Variant("student", "torch", scheme, student, scored=scheme != "fp32" or float32 == "fp32", target=target)
    floats = set[str]()
    for key in made(quantized):
        scheme_of = SCHEMES[key]
        if scheme_of.onnx and scheme_of.backend not in floats:
            floats.add(scheme_of.backend)
            yield Variant("student", scheme_of.backend, "fp32", student, quantized, ONNX, ONNX, target=target)
        variant = Variant(
            "student", scheme_of.backend, scheme_of.scheme, student, quantized, scheme_of.file, key,
            row_by_row=scheme_of.row_by_row, target=target,
        )  # fmt: skip
        yield variant
        if scheme_of.compiled:
            compiled = f"{scheme_of.scheme}{COMPILED}"
            yield Variant(
                "student", scheme_of.backend, compiled, student, quantized, scheme_of.file, key, False, target=target
            )
    for role, step in (("pruned", each.pruned), ("baseline", each.baseline)):
        if step is not None:
            yield Variant(role, "torch", float32, step, target=target)


def reference(float32: str) -> str:
    """Name of the variant that every other one is compared with."""
    return f"teacher torch {float32}"


def same_backend(variant: Variant) -> str:
    """The backend whose float32 teacher a variant's speed is compared with."""
    return BACKENDS[variant.backend].runtime
