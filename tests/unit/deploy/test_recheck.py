"""Stored rows find an artifact that outputs something else on this processor, and only such an artifact."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from distill.compression.quantization.quantize import onnxruntime_dynamic
from distill.data.task_types import TASK_TYPES
from distill.deploy import serve
from distill.deploy.export import recheck
from distill.deploy.export.record import Entry, Record, write
from distill.errors import DataError
from distill.runtime.versions import cpu_flags

Make = Callable[..., Path]
HERE, NAME = " ".join(cpu_flags()), "onnxruntime int8"


@pytest.fixture(scope="module")
def exported(classifier: Make, export_once: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder with an int8 artifact and the stored rows, proved on this processor."""
    folder = Path(shutil.copytree(classifier(), tmp_path_factory.mktemp("exported") / "model"))
    export_once(folder, folder / "model.onnx")
    onnxruntime_dynamic(folder / "model.onnx", folder / "model_int8.onnx", [], [])
    proved(folder, HERE)
    model = serve.load(folder, scheme="int8")
    rows = recheck.rows(90, model.tokenizer.all_special_ids, None, 40)
    recheck.write(folder, recheck.Check(rows, {NAME: recheck.outputs(model.run, rows)}))
    return folder


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def proved(folder: Path, flags: str | None) -> None:
    entries = (Entry("torch", "fp32", "."), Entry("onnxruntime", "int8", "model_int8.onnx"))
    labels = ("boat", "baker")
    write(folder, Record("t", TASK_TYPES["classification"], labels, ("body",), 40, entries, proved_on=flags))


def overflow(file: Path) -> None:
    """Damage the weights as a processor does that cuts large products off: the largest tenth of them are halved."""
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.int8 and values.ndim == 2:
            large = np.abs(values.astype(int)) > np.quantile(np.abs(values.astype(int)), 0.9)
            tensor.CopyFrom(numpy_helper.from_array(np.where(large, values // 2, values), tensor.name))
    onnx.save(model, file)


def test_another_processor_with_the_same_outputs_is_silent(copy: Path) -> None:
    proved(copy, "avx2 something_else")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        serve.load(copy, scheme="int8")


def test_another_processor_with_other_outputs_is_named(copy: Path) -> None:
    overflow(copy / "model_int8.onnx")
    proved(copy, "avx2 something_else")
    with pytest.warns(UserWarning, match="onnxruntime int8 differs on this processor by up to .* something_else"):
        serve.load(copy, scheme="int8")


@pytest.mark.parametrize("flags", [HERE, None])
def test_the_same_processor_and_an_unknown_one_are_not_checked(copy: Path, flags: str | None) -> None:
    overflow(copy / "model_int8.onnx")
    proved(copy, flags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        serve.load(copy, scheme="int8")


def test_float_artifacts_are_not_checked(copy: Path) -> None:
    (copy / recheck.FILE).write_text("{")
    proved(copy, "avx2")
    assert serve.load(copy, scheme="fp32").scheme == "fp32"
    with pytest.raises(DataError, match=r"check\.json: got .*; must be the file of the export; copy the folder again"):
        serve.load(copy, scheme="int8")


def test_a_strangers_file_reaches_neither_the_terminal_nor_the_runtime(copy: Path) -> None:
    overflow(copy / "model_int8.onnx")
    proved(copy, "avx2 \x1b]0;owned\x07")
    with pytest.warns(UserWarning, match="differs on this processor") as caught:
        serve.load(copy, scheme="int8")
    assert "\x1b" not in str(caught[0].message)
    (copy / recheck.FILE).write_text(json.dumps({"rows": [[999_999_999]], "outputs": {NAME: [0.0]}}))
    with pytest.raises(DataError, match=r"check\.json: got files that cannot be loaded"):
        serve.load(copy, scheme="int8")


@pytest.mark.parametrize("place", ["openvino/openvino_model.bin", "openvino/deep/part.bin"])
def test_a_pipe_in_an_artifact_is_refused(place: str, copy: Path) -> None:
    (copy / place).parent.mkdir(parents=True)
    (copy / "openvino" / "openvino_model.xml").touch()
    os.mkfifo(copy / place)
    entries = (Entry("openvino", "int8", "openvino"),)
    write(copy, Record("t", TASK_TYPES["classification"], ("boat", "baker"), ("body",), 40, entries))
    with pytest.raises(DataError, match="got a device or a pipe; must be a file"):
        serve.load(copy)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"rows": [[-1]], "outputs": {}},
        {"rows": [[1], [1, 2]], "outputs": {}},
        {"rows": [[1]] * 17, "outputs": {}},
        {"rows": [[1] * 25], "outputs": {}},
        [],
    ],
)
def test_a_damaged_file_is_refused(content: object, tmp_path: Path) -> None:
    (tmp_path / recheck.FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"copy the folder again"):
        recheck.read(tmp_path)


def test_rows_are_read_as_they_were_written_and_have_no_special_tokens(tmp_path: Path) -> None:
    rows = recheck.rows(50, [7, 8], 9, longest=10)
    assert rows.shape == (recheck.ROWS, 10)
    assert (rows[:, -1] == 9).all()
    assert not np.isin(rows[:, :-1], [7, 8]).any()
    recheck.write(tmp_path, recheck.Check(rows, {"a b": np.array([1.5, 2], np.float32)}))
    found = recheck.read(tmp_path)
    assert found is not None
    assert (found.rows == rows).all()
    assert found.outputs["a b"].tolist() == [1.5, 2]
    assert recheck.read(tmp_path / "absent") is None


def test_differences_are_in_standard_deviations() -> None:
    expected = np.array([-2.0, 2.0, -2.0, 2.0])
    assert recheck.difference(expected, np.array([-2.0, 2.0, -2.0, 2.5])) == pytest.approx(0.25)
    assert recheck.difference(expected, expected[:2]) == np.inf
    assert recheck.difference(expected, expected * np.nan) == np.inf
    assert recheck.difference(np.ones(3), np.array([1.0, 1.0, 1.5])) == 0.5


@pytest.mark.parametrize(("scheme", "expected"), [("int8", True), ("nf4", True), ("int8_bf16", True), ("bf16", False)])
def test_what_is_quantized_is_checked(scheme: str, expected: bool) -> None:
    assert recheck.is_checked(scheme) is expected
