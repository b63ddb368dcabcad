"""A model folder that names Python code of its own: nothing runs it, asks for leave to run it, or passes it on."""

from __future__ import annotations

import builtins
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli.look.seen import see
from distill.compression.quantization import quantize
from distill.deploy.export import proof
from distill.deploy.export.onnx import export_onnx
from distill.errors import ConfigError
from distill.inference import cost, runners
from distill.models import teacher
from distill.models.write import write_model
from tests import tiny

PACKAGE = Path(distill.__file__).parent
TEXTS = [["the small boat"], ["a sudden storm"]]
CODE = "from pathlib import Path\n\nPath(__file__).with_name('ran').touch()\nraise SystemExit('it ran')\n"


def poison(folder: Path, **more: Any) -> None:
    """Let a model folder name a class of a module in it for whatever can be loaded."""
    (folder / "theirs.py").write_text(CODE)
    models = ("AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoModelForSequenceClassification")
    named = {
        "config.json": {
            "auto_map": dict.fromkeys(models, "theirs.Model"),
            "custom_pipelines": {"x": {"impl": "theirs.P"}},
        },
        "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["theirs.Words", "theirs.Words"]}},
    }
    for name, settings in named.items():
        tiny.change(folder / name, **settings | (more if name == "config.json" else {}))


@pytest.fixture(autouse=True)
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "input", lambda *_: pytest.fail("it asks"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Head -> folder of a model of a known type; `unknown`: of a type that only its own code knows."""
    root = tmp_path_factory.mktemp("untrusted")
    made = {head: tiny.save(root / head, "bert", head) for head in ("SequenceClassification", "MaskedLM")}
    for folder in made.values():
        poison(folder)
    made["unknown"] = tiny.save(root / "unknown", "bert", "SequenceClassification")
    poison(made["unknown"], model_type="theirs")
    return made


LOADERS: dict[str, Callable[[Path, Path], Any]] = {
    "config": lambda folder, out: teacher.read_config(folder),
    "tokenizer": lambda folder, out: teacher.load_tokenizer(folder),
    "classifier": lambda folder, out: teacher.load_classifier(folder, 2),
    "language model": lambda folder, out: teacher.load_mlm(folder.with_name("MaskedLM")),
    "runner": lambda folder, out: runners.torch_runner("x", folder, scheme="fp32", device="cpu", threads=1),
    "look": lambda folder, out: see(folder, "FOLDER", TEXTS[0], 64, lambda line: None),
    "parameters": lambda folder, out: cost.parameters(folder),
    "modules": lambda folder, out: quantize.without_weights(folder),
    "here": lambda folder, out: proof.plain_logits(folder, TEXTS),
    "fresh process": lambda folder, out: proof.prove_reload({folder: (TEXTS, proof.plain_logits(folder, TEXTS))}),
    "onnx": lambda folder, out: export_onnx(folder, out / "model.onnx"),
}
"""What loads a model folder."""


@pytest.mark.parametrize(
    "loader", [pytest.param(name, marks=pytest.mark.slow if name == "onnx" else ()) for name in LOADERS]
)
def test_code_of_a_model_folder_is_not_run(loader: str, folders: dict[str, Path], tmp_path: Path) -> None:
    LOADERS[loader](folders["SequenceClassification"], tmp_path)
    assert not [folder for folder in folders.values() if (folder / "ran").exists()]


@pytest.mark.parametrize("loader", ["config", "classifier"])
def test_a_model_that_needs_its_code_is_refused(loader: str, folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        LOADERS[loader](folders["unknown"], tmp_path)
    (line,) = refused.value.messages
    wanted = f"got {folders['unknown']}, a model of type theirs, for which transformers has no class"
    assert line.startswith(f"teacher.name: {wanted}")
    assert "which is never run; must be of one of the types " in line
    assert not (folders["unknown"] / "ran").exists()


def test_a_chat_template_is_not_rendered(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["SequenceClassification"], folder)
    (folder / "chat_template.jinja").write_text("{{ 1 // 0 }}")
    tiny.change(folder / "tokenizer_config.json", chat_template="{{ 1 // 0 }}")
    with pytest.warns(UserWarning, match="the folder's own code"):
        assert len(distill.load(folder).predict(["the small boat"])) == 1
    used = [
        file for file in PACKAGE.rglob("*.py") if re.search(r"[._]chat_template\b", file.read_text(encoding="utf-8"))
    ]
    assert used == []


def _onnx(folder: Path, weights: str = "", operator: str = "Add", domain: str = "") -> Path:
    """An ONNX file that adds four weights, which are in the file `weights`, or in it itself."""
    onnx = pytest.importorskip("onnx")
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    if weights:
        tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=weights)
    node = helper.make_node(operator, ["x", "w"], ["y"], domain=domain)
    values = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y")]
    domains = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], [tensor]), opset_imports=domains)
    model.ir_version = 9
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def _runner(path: Path) -> runners.Runner:
    return runners.onnx_runner("x", path, scheme="fp32", threads=1)


def test_an_onnx_file_reads_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    for file in (tmp_path / "secret.bin", tmp_path / "model" / "own.bin"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "secret.bin")
    for weights in ("", "own.bin"):
        _runner(_onnx(tmp_path / "model", weights))
    for weights in ("../secret.bin", str(tmp_path / "secret.bin"), "link.bin"):
        with pytest.raises(Exception, match="External data path validation failed"):
            _runner(_onnx(tmp_path / "model", weights))


def test_an_onnx_file_brings_no_operators(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="theirs"):
        _runner(_onnx(tmp_path / "model", operator="Run", domain="theirs"))


def test_what_is_written_names_no_code(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["SequenceClassification"]
    model, words = teacher.load_classifier(folder, 2), teacher.load_tokenizer(folder)
    with write_model(tmp_path / "student", model, words):
        pass
    written = {path.name: path.read_text() for path in (tmp_path / "student").glob("*.json")}
    assert {"config.json", "tokenizer_config.json"} <= written.keys()
    assert not [name for name, text in written.items() if "theirs" in text]
    assert not list((tmp_path / "student").glob("*.py"))
    assert (proof.plain_logits(tmp_path / "student", TEXTS) == proof.plain_logits(folder, TEXTS)).all()
