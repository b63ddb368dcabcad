"""The exported folder, reloaded in a process that imports transformers alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distill.deploy.export import proof, reload
from distill.deploy.export.huggingface import export_folder
from distill.deploy.export.proof import plain_logits, prove_reload
from distill.errors import DataError, UserError
from tests import tiny

Make = Callable[..., Path]
real_process = pytest.mark.usefixtures("real_process")


@pytest.fixture
def texts(sentences: list[str]) -> list[list[str]]:
    return [[sentences[0]], [sentences[1], sentences[2]], ["goats " * 300]]


def test_the_folder_contains_the_model_and_nothing_else(classifier: Make, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    export_folder(classifier(), source, "first")
    for name in ("optimizer.pt", "manifest.json", "pytorch_model.bin"):
        (source / name).write_text("not for the user")
    export_folder(source, out, "# A card\n")
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (out / "README.md").read_text() == "# A card\n"
    same = [
        (out / name).read_bytes() == (classifier() / name).read_bytes() for name in ("config.json", "model.safetensors")
    ]
    assert same == [True, True]


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_an_incomplete_source_is_refused_and_nothing_is_written(classifier: Make, tmp_path: Path, missing: str) -> None:
    source = tmp_path / "source"
    export_folder(classifier(), source, "")
    (source / missing).unlink()
    with pytest.raises(DataError, match=f"{source}: got no .*{missing[-6:]}"):
        export_folder(source, tmp_path / "out", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@real_process
def test_a_fresh_process_outputs_the_same_bits(classifier: Make, tmp_path: Path, texts: list[list[str]]) -> None:
    expected = plain_logits(classifier(), texts)
    assert expected.shape == (3, 2)
    assert np.ptp(expected, axis=0).min() > 0.1
    export_folder(classifier(), tmp_path / "out", "")
    other = tmp_path / "other"
    export_folder(classifier(), other, "")
    rows = {tmp_path / "out": (texts, expected), other: (texts[:1], expected[:1])}
    assert prove_reload(rows) == {tmp_path / "out": 0.0, other: 0.0}


def test_a_changed_model_is_refused(classifier: Make, tmp_path: Path, texts: list[list[str]]) -> None:
    expected = plain_logits(classifier(), texts)
    export_folder(classifier(), tmp_path / "out", "")
    with tiny.weights(tmp_path / "out") as weights:
        weights["classifier.bias"] += 0.01
    with pytest.raises(UserError, match=r"differ from the model's by 0\.01"):
        prove_reload({tmp_path / "out": (texts, expected)})


@pytest.mark.slow
def test_a_folder_that_does_not_load_is_refused_with_the_reason(
    classifier: Make, tmp_path: Path, texts: list[list[str]]
) -> None:
    export_folder(classifier(), tmp_path / "out", "")
    (tmp_path / "out" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(UserError, match="does not load in a fresh process without distill") as caught:
        prove_reload({tmp_path / "out": (texts, np.zeros((3, 2), np.float32))})
    assert len(caught.value.messages) == 1
    assert "safetensors" in str(caught.value).lower()


def test_the_script_of_the_fresh_process_imports_nothing_of_distill() -> None:
    tree = ast.parse(Path(reload.__file__).read_text())
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or "."] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    libraries = {"numpy", "torch", "transformers", "onnxruntime", "openvino", "safetensors.torch"}
    libraries |= {"sentence_transformers"}
    assert modules <= libraries | {"__future__"} | sys.stdlib_module_names | {"collections.abc"}
    assert libraries <= modules


def test_the_proof_does_not_use_the_matmul_precision_of_the_run(classifier: Make, texts: list[list[str]]) -> None:
    import torch

    seen = set()
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda *_: seen.add((torch.get_float32_matmul_precision(), torch.get_num_threads()))
    )
    torch.set_float32_matmul_precision("medium")
    try:
        plain_logits(classifier(), texts[:1])
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
        hook.remove()
    assert seen == {("highest", 1)}


@real_process
def test_a_fresh_process_imports_the_users_packages_and_no_files_beside_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages may be in PYTHONPATH; `onnx` beside the script is distill's own module of that name."""
    packages, beside = tmp_path / "packages", tmp_path / "beside"
    for folder, text in ((packages, "the user's"), (beside, "the script's")):
        folder.mkdir()
        (folder / "found_here.py").write_text(f"NAME = {text!r}")
    script = beside / "script.py"
    script.write_text("import found_here; print(found_here.NAME)")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setattr(reload, "__file__", str(script))
    assert proof.run_script("")[:2] == (0, "the user's\n")
