"""Which variants of which models are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distill.config import load_config
from distill.config.plan import compared, resolve
from distill.inference.variants import REFERENCE, Supported, Variant, is_reference, supported, variants

CPU = Supported(
    torch=("bf16",), compiled=("fp32", "bf16"), gpu=False, runtimes=("onnxruntime", "openvino"), in_bf16=("openvino",)
)
SCHEMES = ("onnxruntime", "openvino", "torchao")


def of(
    schemes: tuple[str, ...], machine: Supported = CPU, references: bool = True, recipe: str = "distilbert"
) -> list[Variant]:
    steps = resolve(load_config([f"recipe={recipe}"])).steps
    step = next(step for step in steps if step.kind == "evaluate")
    return variants(
        step.teacher, compared(step), lambda _: schemes, members=1, supported=machine, references=references
    )  # fmt: skip


def schemes_of(found: list[Variant], role: str) -> set[tuple[str, str]]:
    return {(variant.backend, variant.scheme) for variant in found if variant.role == role}


def test_teacher_and_baseline_are_in_every_scheme_of_the_student() -> None:
    quantized = {
        ("onnxruntime", "int8"), ("openvino", "int8"), ("openvino", "int8_bf16"), ("torchao", "int8"),
        ("torchao", "int8_compiled"),
    }  # fmt: skip
    floats = {("torch", scheme) for scheme in ("fp32", "bf16", "fp32_compiled", "bf16_compiled")}
    floats |= {("onnxruntime", "fp32"), ("openvino", "fp32"), ("openvino", "bf16")}
    found = of(SCHEMES)
    assert schemes_of(found, "teacher") == quantized | floats
    compiled = {("torch", "fp32_compiled"), ("torch", "bf16_compiled")}  # on a CPU no artifact of a student is
    assert schemes_of(found, "student") == (quantized | floats) - compiled
    assert schemes_of(of(SCHEMES, replace(CPU, gpu=True)), "student") == quantized | floats
    assert schemes_of(found, "baseline") == quantized | {("torch", "fp32")}
    assert len({variant.name for variant in found}) == len(found)
    assert REFERENCE in {variant.name for variant in found}


def test_floats_do_not_depend_on_what_the_student_uses() -> None:
    floats = schemes_of(of(()), "teacher")
    assert ("openvino", "fp32") in floats
    assert floats == schemes_of(of((), replace(CPU, gpu=True)), "student")
    assert floats < schemes_of(of(("bitsandbytes",)), "teacher")
    assert schemes_of(of(SCHEMES, references=False), "teacher") == floats
    assert schemes_of(of(SCHEMES, references=False), "student") == schemes_of(of(SCHEMES), "student")


def test_a_teacher_that_is_the_student_is_quantized_once() -> None:
    found = of(SCHEMES, recipe="quantize")
    floats = schemes_of(of((), recipe="quantize"), "teacher")
    assert schemes_of(found, "teacher") == floats
    assert schemes_of(found, "student") == schemes_of(of(SCHEMES), "student")
    assert {variant.role for variant in found} == {"teacher", "student"}


def test_only_one_of_the_same_arithmetic_is_scored_unless_the_student_has_it_for_every_task() -> None:
    scored = {(v.role, v.backend, v.scheme) for v in of(SCHEMES) if v.scored}
    assert ("teacher", "torch", "fp32") in scored
    assert ("teacher", "torch", "bf16") in scored
    assert ("teacher", "openvino", "int8_bf16") in scored
    assert ("student", "onnxruntime", "fp32") in scored
    assert ("teacher", "onnxruntime", "fp32") not in scored
    assert not [name for name in scored if name[2].endswith("_compiled")]
    # without a quantize stage that writes it, the ONNX file exists for the timed task alone
    assert {v.backend for v in of(("bitsandbytes",)) if v.scored and v.role == "student"} == {"torch", "bitsandbytes"}


def test_files_are_those_of_the_quantize_step_or_of_the_evaluate_step() -> None:
    for variant in of(SCHEMES):
        of_student = variant.role == "student"
        assert (variant.quantized is not None) == (of_student and variant.file is not None)
        assert variant.made == (variant.role if variant.file is not None and not of_student else None)
    assert {v.made for v in of(("torchao",)) if v.role == "student" and v.backend == "onnxruntime"} == {"student"}


def test_what_depends_on_its_batch_runs_row_by_row() -> None:
    alone = {(v.role, v.backend, v.scheme) for v in of((*SCHEMES, "onnxruntime_static")) if v.row_by_row}
    assert alone == {(role, "onnxruntime", "int8") for role in ("teacher", "student", "baseline")}


@pytest.mark.parametrize(
    ("bf16", "cuda", "torch", "compiled"),
    [
        (False, False, (), ("fp32",)),
        (True, False, ("bf16",), ("fp32", "bf16")),
        (True, True, ("tf32", "bf16", "fp16"), ("fp32", "bf16")),
        (False, True, ("tf32", "fp16"), ("fp32", "fp16")),
    ],
)
def test_what_a_machine_supports(bf16: bool, cuda: bool, torch: tuple[str, ...], compiled: tuple[str, ...]) -> None:
    found = supported(bf16=bf16, cuda=cuda, compiled=True, runtimes=["onnxruntime", "openvino"])
    assert (found.torch, found.compiled, found.gpu) == (torch, compiled, cuda)
    assert found.runtimes == ("onnxruntime", "openvino")
    assert found.in_bf16 == (("openvino",) if bf16 and not cuda else ())
    plain = supported(bf16=bf16, cuda=cuda, compiled=False, runtimes=["onnxruntime"])
    assert (plain.compiled, plain.runtimes, plain.in_bf16) == ((), ("onnxruntime",), ())


def test_references_are_float32_and_on_a_gpu_any_float() -> None:
    teacher = [variant for variant in of(SCHEMES) if variant.role == "teacher"]
    on_cpu = {(v.backend, v.scheme) for v in teacher if is_reference(v, cuda=False)}
    assert on_cpu == {("torch", "fp32"), ("torch", "fp32_compiled"), ("onnxruntime", "fp32"), ("openvino", "fp32")}
    on_gpu = {(v.backend, v.scheme) for v in teacher if is_reference(v, cuda=True)}
    assert on_gpu == on_cpu | {("torch", "bf16"), ("torch", "bf16_compiled"), ("openvino", "bf16")}
    assert not any(is_reference(v, cuda=True) for v in of(SCHEMES) if v.role != "teacher")


def test_a_backend_that_multiplies_in_tf32_is_said_to() -> None:
    gpu = supported(bf16=True, cuda=True, compiled=False, runtimes=["onnxruntime_cuda", "onnxruntime_tensorrt"])
    found = {(v.backend, v.scheme) for v in of(("onnxruntime",), gpu) if v.backend.startswith("onnxruntime_")}
    assert found == {("onnxruntime_cuda", "fp32"), ("onnxruntime_tensorrt", "tf32")}
