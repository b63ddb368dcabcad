"""The variants that an evaluation compares: a model in one scheme on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from distill.config.backends import BACKENDS
from distill.config.plan import Compared, Step
from distill.config.schemes import BF16, COMPILED, ONNX, SCHEMES

Role = Literal["teacher", "member", "student", "pruned", "baseline", "self-trained"]
SchemesOf = Callable[[Step | None], Sequence[str]]
"""Quantize step -> the schemes it made, as named in `stages.quantize.schemes`; empty for None."""


@dataclass(frozen=True)
class Supported:
    """What a machine runs without quantization."""

    torch: tuple[str, ...]
    """Schemes of torch besides fp32."""
    compiled: tuple[str, ...]
    """Schemes of torch that are compiled too: of the teacher, over whose fastest form speedups are, and on a GPU of the
    students too. On a CPU nothing that is written for serving is compiled, and compiling each model takes long."""
    gpu: bool
    runtimes: tuple[str, ...]
    """Backends that run the float32 ONNX file."""
    in_bf16: tuple[str, ...]
    """Those of `runtimes` that also compute in bfloat16, on a processor that multiplies in it."""


def supported(*, bf16: bool, cuda: bool, compiled: bool, runtimes: Sequence[str]) -> Supported:
    """What is run on a machine. `bf16`: whether the device multiplies in bfloat16; `compiled`: whether models are
    compiled by torch too; `runtimes`: backends that run the float32 ONNX file here."""
    half = ("bf16",) if bf16 else ()
    torch = ("tf32", *half, "fp16") if cuda else half  # CPUs have no fast fp16
    return Supported(
        torch,
        ("fp32", *(half or torch[1:])) if compiled else (),
        cuda,
        tuple(runtimes),
        tuple(name for name in runtimes if bf16 and not cuda and BACKENDS[name].bf16),
    )


@dataclass(frozen=True)
class Variant:
    """One model in one scheme on one backend."""

    role: Role
    backend: str
    scheme: str
    step: Step
    """The step that wrote its float checkpoint."""
    quantized: Step | None = None
    """The quantize step that wrote its file; None for the checkpoint itself, and for files of the evaluate step."""
    made: str | None = None
    """Folder below the evaluate step's in which that step wrote its file; None if it wrote none."""
    file: str | None = None
    """File or folder below that of the task's model; None for the checkpoint itself."""
    key: str | None = None
    """Its name in `stages.quantize.schemes`, or the name of the ONNX file."""
    scored: bool = True
    """Whether it is scored on the reported rows; otherwise it is only timed."""
    row_by_row: bool = False
    """Whether it runs one row at a time, because its logits depend on the other rows of a batch."""
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
    supported: Supported,
    references: bool = True,
    quantized_teacher: Step | None = None,
) -> list[Variant]:
    """All variants to compare. Of variants with the same arithmetic, only one is scored; all are timed.

    The teacher, the students and their controls are in every scheme that the students are quantized to; the teacher
    and the students also in all that the machine supports. Where the teacher itself is the only student, it is
    quantized once, as the student.

    Args:
        members: number of teachers.
        references: whether the teacher and the controls are quantized.
        quantized_teacher: the quantize step of the teacher; None if the evaluate step itself quantizes it.
    """

    def of_references(quantized: Step | None) -> Sequence[str]:
        return schemes_of(quantized) if references else ()

    others = [each for each in compared if each.student != teacher]
    schemes = list(dict.fromkeys(name for each in others for name in of_references(each.quantized)))
    whole = Variant("teacher", "torch", "fp32", teacher)
    quantized = made = replace(whole, made=TEACHER_FILES)
    if quantized_teacher is not None and schemes:
        quantized = replace(whole, quantized=quantized_teacher)
    every = _with_onnx(schemes)
    return [
        *_floats(whole, supported),
        *_of_onnx(quantized if every else made, supported, every=every),
        *_in_schemes(quantized, schemes, supported),
        *(replace(whole, role="member", member=number) for number in range(members) if members > 1),
        *(
            variant
            for each in compared
            for variant in _of_target(each, schemes_of(each.quantized), of_references(each.quantized), supported)
        ),
    ]


def _floats(of: Variant, supported: Supported) -> Iterator[Variant]:
    """The variants that a model's checkpoint serves unchanged. `of`: the model in torch float32."""
    for scheme in ("fp32", *supported.torch):
        yield replace(of, scheme=scheme)
    for scheme in supported.compiled if supported.gpu or of.role == "teacher" else ():
        yield replace(of, scheme=f"{scheme}{COMPILED}", scored=False)


def _of_onnx(of: Variant, supported: Supported, *, every: bool) -> Iterator[Variant]:
    """A model's float32 ONNX file. `every`: whether it exists for every task, so that it can be scored."""
    names = {
        (backend, "tf32" if BACKENDS[backend].tf32 else "fp32"): every and of.role == "student"
        for backend in supported.runtimes
    }
    names |= {(backend, "bf16"): every for backend in supported.in_bf16}
    for (backend, scheme), scored in names.items():
        yield replace(of, backend=backend, scheme=scheme, file=ONNX, key=ONNX, scored=scored)


def _in_schemes(of: Variant, schemes: Sequence[str], supported: Supported) -> Iterator[Variant]:
    """A quantized model."""
    for key in schemes:
        scheme = SCHEMES[key]
        made = replace(of, backend=scheme.backend, file=scheme.file, key=key, row_by_row=scheme.row_by_row)
        yield replace(made, scheme=scheme.scheme)
        if scheme.compiled:
            yield replace(made, scheme=f"{scheme.scheme}{COMPILED}", scored=False)
        if scheme.backend in supported.in_bf16:
            yield replace(made, scheme=f"{scheme.scheme}{BF16}")


def _of_target(
    each: Compared, schemes: Sequence[str], of_controls: Sequence[str], supported: Supported
) -> Iterator[Variant]:
    """Variants of the student for a target, in `schemes`, and of the models it is compared with."""
    student = Variant("student", "torch", "fp32", each.student, target=each.target)
    quantized = replace(student, quantized=each.quantized)
    yield from _floats(student, supported)
    if _with_onnx(schemes):
        yield from _of_onnx(quantized, supported, every=True)
    else:
        yield from _of_onnx(replace(student, made=_folder(student)), supported, every=False)
    yield from _in_schemes(quantized, schemes, supported)
    if each.pruned is not None:
        yield replace(student, role="pruned", step=each.pruned)
    for role, step in each.controls.items():
        control = replace(student, role=role, step=step)
        yield control
        yield from _in_schemes(replace(control, made=_folder(control)), of_controls, supported)


def _with_onnx(schemes: Sequence[str]) -> bool:
    """Whether schemes are made from the float32 ONNX file, which then exists for every task."""
    return any(SCHEMES[key].onnx for key in schemes)


def _folder(of: Variant) -> str:
    return f"{of.role}/{of.target}" if of.target else of.role


TEACHER_FILES = "teacher"
"""Folder of the teacher's files below that of an evaluate step."""
REFERENCE = "teacher torch fp32"
"""Name of the variant that all others are compared with."""


def is_reference(variant: Variant, cuda: bool) -> bool:
    """Whether speedups are given over a variant: those of the teacher in float32 and, on a GPU, also in TF32 and
    16 bits."""
    plain = variant.scheme.removesuffix(COMPILED)
    return variant.role == "teacher" and (plain == "fp32" or (cuda and plain in ("tf32", "bf16", "fp16")))


def same_backend(variant: Variant) -> str:
    """The backend of the teacher that a variant is compared with."""
    return BACKENDS[variant.backend].runtime
