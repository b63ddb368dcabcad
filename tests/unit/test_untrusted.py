"""A model folder that names Python code of its own: nothing runs it, asks for leave to run it, or passes it on."""

from __future__ import annotations

import builtins
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distill import checkpoint, teacher
from distill.compress import quantize
from distill.context.fingerprints import Hashes
from distill.context.write import write_model
from distill.errors import DataError
from distill.evaluate import cost, runners
from distill.export import proof
from distill.export.onnx import export_onnx

TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))
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
        stored = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(stored | settings | (more if name == "config.json" else {})))


@pytest.fixture(autouse=True)
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "input", lambda *_: pytest.fail("it asks"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Head -> folder of a model of a known type; `unknown`: of a type that only its own code knows."""
    root = tmp_path_factory.mktemp("untrusted")
    made = {head: TINY["save"](root / head, "bert", head) for head in ("SequenceClassification", "MaskedLM")}
    for folder in made.values():
        poison(folder)
    made["unknown"] = TINY["save"](root / "unknown", "bert", "SequenceClassification")
    poison(made["unknown"], model_type="theirs")
    return made


LOADERS: dict[str, Callable[[Path, Path], Any]] = {
    "config": lambda folder, out: teacher.read_config(folder),
    "tokenizer": lambda folder, out: teacher.load_tokenizer(folder),
    "classifier": lambda folder, out: teacher.load_classifier(folder, 2),
    "language model": lambda folder, out: teacher.load_mlm(folder.with_name("MaskedLM")),
    "runner": lambda folder, out: runners.torch_runner("x", folder, scheme="fp32", device="cpu", threads=1),
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
    with pytest.raises(DataError) as refused:
        LOADERS[loader](folders["unknown"], tmp_path)
    (line,) = refused.value.messages
    assert line.startswith(f"{folders['unknown']}: got files that cannot be loaded (")
    assert "; must be a folder that transformers loads; " in line
    assert not (folders["unknown"] / "ran").exists()


def test_what_is_written_names_no_code(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["SequenceClassification"]
    model, words = teacher.load_classifier(folder, 2), teacher.load_tokenizer(folder)
    with write_model(tmp_path / "student", model, words, {}):
        pass
    written = {path.name: path.read_text() for path in (tmp_path / "student").glob("*.json")}
    assert {"config.json", "tokenizer_config.json"} <= written.keys()
    assert not [name for name, text in written.items() if "theirs" in text]
    assert not list((tmp_path / "student").glob("*.py"))
    assert (proof.plain_logits(tmp_path / "student", TEXTS) == proof.plain_logits(folder, TEXTS)).all()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_model_that_changed_has_another_fingerprint(name: str, tmp_path: Path) -> None:
    for file in ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json", "README.md"):
        checkpoint.write_text(tmp_path / "model" / file, "{}")
    hashes = Hashes(tmp_path, True)
    before = hashes.of_models([str(tmp_path / "model")])
    checkpoint.write_text(tmp_path / "model" / "README.md", "another card")
    assert hashes.of_models([str(tmp_path / "model")]) == before
    checkpoint.write_text(tmp_path / "model" / name, "[]")  # of the same size
    assert hashes.of_models([str(tmp_path / "model")]) != before
