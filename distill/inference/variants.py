"""The variants that an evaluation compares: a model in one scheme on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distill.config.backends import BACKENDS
from distill.config.plan import Compared, Step
from distill.config.schemes import BF16, COMPILED, ONNX, SCHEMES

SchemesOf = Callable[[Step | None], Sequence[str]]
"""Quantize step -> the schemes it made, as named in `stages.quantize.schemes`; empty for None."""


@dataclass(frozen=True)
class Forms:
    """The floating-point forms in which a machine can run a model."""

    torch: tuple[str, ...]
    """Schemes of torch besides fp32."""
    compiled: tuple[str, ...]
    """Schemes of torch that are compiled too."""
    runtimes: tuple[str, ...]
    """Backends that run the float32 ONNX file."""
    in_bf16: tuple[str, ...]
    """Those of `runtimes` that also compute in bfloat16, on a processor that multiplies in it."""


def forms(*, bf16: bool, cuda: bool, compiled: bool, runtimes: Sequence[str]) -> Forms:
    """What is run on a machine. `bf16`: whether the device multiplies in bfloat16; `compiled`: whether models are
    compiled by torch too; `runtimes`: backends that run the float32 ONNX file here."""
    half = ("bf16",) if bf16 else ()
    torch = ("tf32", *half, "fp16") if cuda else half  # CPUs have no fast fp16
    return Forms(
        torch,
        ("fp32", *(half or torch[1:])) if compiled else (),
        tuple(runtimes),
        tuple(name for name in runtimes if bf16 and not cuda and BACKENDS[name].bf16),
    )


@dataclass(frozen=True)
class Variant:
    """One model in one scheme on one backend."""

    role: str
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
    forms: Forms,
    references: bool = True,
) -> list[Variant]:
    """All variants to compare. Of variants with the same arithmetic, only one is scored; all are timed.

    The teacher, the students and the baselines are in every scheme that the students are quantized to; the teacher and
    the students also in every form of the machine.

    Args:
        members: number of teachers.
        references: whether teacher and baselines are quantized.
    """

    def of_references(quantized: Step | None) -> Sequence[str]:
        return schemes_of(quantized) if references else ()

    schemes = list(dict.fromkeys(name for each in compared for name in of_references(each.quantized)))
    return [
        *_floats("teacher", teacher, forms),
        *_of_onnx("teacher", teacher, forms, every=_with_onnx(schemes), made="teacher"),
        *_in_schemes("teacher", teacher, schemes, forms, made="teacher"),
        *(Variant("member", "torch", "fp32", teacher, member=n) for n in range(members) if members > 1),
        *(
            variant
            for each in compared
            for variant in _of_target(each, schemes_of(each.quantized), of_references(each.quantized), forms)
        ),
    ]


def _floats(role: str, step: Step, forms: Forms, target: str = "") -> Iterator[Variant]:
    """A model's checkpoint as it is."""
    for scheme in ("fp32", *forms.torch):
        yield Variant(role, "torch", scheme, step, target=target)
    for scheme in forms.compiled:
        yield Variant(role, "torch", f"{scheme}{COMPILED}", step, scored=False, target=target)


def _of_onnx(
    role: str,
    step: Step,
    forms: Forms,
    *,
    every: bool,
    quantized: Step | None = None,
    made: str | None = None,
    target: str = "",
) -> Iterator[Variant]:
    """A model's float32 ONNX file. `every`: whether it exists for every task, so that it can be scored."""
    names = {(backend, "fp32"): every and role == "student" for backend in forms.runtimes}
    names |= {(backend, "bf16"): every for backend in forms.in_bf16}
    for (backend, scheme), scored in names.items():
        yield Variant(role, backend, scheme, step, quantized, made, ONNX, ONNX, scored=scored, target=target)


def _in_schemes(
    role: str,
    step: Step,
    schemes: Sequence[str],
    forms: Forms,
    *,
    quantized: Step | None = None,
    made: str | None = None,
    target: str = "",
) -> Iterator[Variant]:
    """A quantized model."""
    for key in schemes:
        scheme = SCHEMES[key]
        names = {scheme.scheme: True}
        names |= {f"{scheme.scheme}{COMPILED}": False} if scheme.compiled else {}
        names |= {f"{scheme.scheme}{BF16}": True} if scheme.backend in forms.in_bf16 else {}
        for name, scored in names.items():
            yield Variant(
                role, scheme.backend, name, step, quantized, made, scheme.file, key,
                scored=scored, row_by_row=scheme.row_by_row, target=target,
            )  # fmt: skip


def _of_target(each: Compared, schemes: Sequence[str], of_baseline: Sequence[str], forms: Forms) -> Iterator[Variant]:
    """Variants of the student for a target, in `schemes`, and of the models it is compared with."""
    student, quantized, target = each.student, each.quantized, each.target
    yield from _floats("student", student, forms, target)
    if _with_onnx(schemes):
        yield from _of_onnx("student", student, forms, every=True, quantized=quantized, target=target)
    else:
        yield from _of_onnx("student", student, forms, every=False, made=_folder("student", target), target=target)
    yield from _in_schemes("student", student, schemes, forms, quantized=quantized, target=target)
    if each.pruned is not None:
        yield Variant("pruned", "torch", "fp32", each.pruned, target=target)
    if each.baseline is not None:
        yield Variant("baseline", "torch", "fp32", each.baseline, target=target)
        made = _folder("baseline", target)
        yield from _in_schemes("baseline", each.baseline, of_baseline, forms, made=made, target=target)


def _with_onnx(schemes: Sequence[str]) -> bool:
    """Whether schemes are made from the float32 ONNX file, which then exists for every task."""
    return any(SCHEMES[key].onnx for key in schemes)


def _folder(role: str, target: str) -> str:
    return f"{role}/{target}" if target else role


REFERENCE = "teacher torch fp32"
"""Name of the variant that all others are compared with."""


def is_reference(variant: Variant, cuda: bool) -> bool:
    """Whether a variant is a form of the teacher over which speedups are given: those in float32 and, on a GPU, also
    those in TF32 and 16 bits."""
    plain = variant.scheme.removesuffix(COMPILED)
    return variant.role == "teacher" and (plain == "fp32" or (cuda and plain in ("tf32", "bf16", "fp16")))


def same_backend(variant: Variant) -> str:
    """The backend of the teacher that a variant is compared with."""
    return BACKENDS[variant.backend].runtime
