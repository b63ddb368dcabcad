"""Which files of a folder are a model's weights: all of them inside of it, and no others."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from distill.errors import DataError
from distill.models.families.head import stored_head
from distill.models.families.weights import config_of, tensors_of, unread, weight_files
from distill.models.teacher import load_tokenizer
from distill.runtime.storage.atomic import CLAIM

INDEX = "model.safetensors.index.json"
A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def saved(path: Path, **tensors: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.full(2, value, np.float32) for name, value in tensors.items()}, path)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with two files of weights and their index."""
    folder = tmp_path / "model"
    saved(folder / A, x=1)
    saved(folder / B, y=2)
    index(folder, x=A, y=B)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    return folder


def index(folder: Path, **names: str) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        stored_head(folder)
    (message,) = caught.value.messages
    assert "\n" not in message
    return message


def test_the_files_of_an_index_are_the_weights(shards: Path) -> None:
    assert weight_files(shards) == [shards / A, shards / B]
    assert {name: tensor.file.name for name, tensor in tensors_of(shards).items()} == {"x": A, "y": B}
    assert stored_head(shards) is None


def test_a_stale_file_is_not_read(shards: Path) -> None:
    saved(shards / "model-00003-of-00003.safetensors", x=9, z=9)
    assert tensors_of(shards).keys() == {"x", "y"}
    assert unread(shards, weight_files(shards)) == ["model-00003-of-00003.safetensors"]


OUTSIDE = (
    "../private.safetensors",
    "sub/a.safetensors",
    "sub\\a.safetensors",
    "./../model/../private.safetensors",
    "a.bin",
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_names_files_beside_it_alone(name: str, shards: Path) -> None:
    for path in (
        shards.parent / "private.safetensors",
        shards / "sub" / "a.safetensors",
        shards / "sub\\a.safetensors",
    ):
        saved(path, x=3)
    saved(shards / "a.bin", x=3)
    index(shards, x=name, y=B)
    assert refusal(shards).startswith(f"{shards / INDEX}: got the file {name}; must be a *.safetensors beside it;")


def test_an_index_names_no_absolute_path(shards: Path) -> None:
    index(shards, x=str(saved(shards.parent / "private.safetensors", x=3)), y=B)
    assert "must be a *.safetensors beside it" in refusal(shards)


def test_a_missing_file_of_an_index_is_named(shards: Path) -> None:
    (shards / B).unlink()
    assert refusal(shards).startswith(f"{shards / INDEX}: got the file {B}, which is not there;")


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}', '{"weight_map": ["a"]}', "[" * 100_000])
def test_an_index_that_is_none_is_refused(content: str, shards: Path) -> None:
    (shards / INDEX).write_text(content)
    assert refusal(shards).startswith(f"{shards / INDEX}: got no list of files (")


def test_a_link_out_of_the_folder_is_refused(shards: Path) -> None:
    (shards / B).unlink()
    (shards / B).symlink_to(saved(shards.parent / "private.safetensors", y=3))
    message = refusal(shards)
    assert message.startswith(f"{shards / B}: got a link to {shards.parent / 'private.safetensors'}, outside of the")
    (shards / B).unlink()
    (shards / B).symlink_to(saved(shards / "inside.safetensors", y=3).name)
    assert tensors_of(shards).keys() == {"x", "y"}


@pytest.mark.parametrize("inner", [".", "0_Transformer"])
def test_links_within_a_model_of_the_cache_of_the_hub_are_followed(inner: str, shards: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--a--b"
    blob = saved(cache / "blobs" / "0123", y=3)
    folder = cache / "snapshots" / "4567" / inner
    folder.parent.mkdir(parents=True)
    shards.rename(folder)
    (folder / B).unlink()
    (folder / B).symlink_to(blob)
    assert tensors_of(folder).keys() == {"x", "y"}
    (folder / B).unlink()
    (folder / B).symlink_to(saved(tmp_path / "hub" / "models--a--private" / "blobs" / "0123", y=3))
    assert "outside of the model's folder" in refusal(folder)


def test_one_file_and_an_index_of_others_are_two_models(shards: Path) -> None:
    saved(shards / "model.safetensors", x=1, y=2)
    message = refusal(shards)
    assert message.startswith(f"{shards}: got model.safetensors and {INDEX}, which names other files;")
    assert message.endswith(f"e.g. rm {shards / INDEX} {shards / A} {shards / B}")
    index(shards, x="model.safetensors", y="model.safetensors")
    assert weight_files(shards) == [shards / "model.safetensors"]


def test_a_tensor_in_two_files_is_refused(shards: Path) -> None:
    saved(shards / B, x=5, y=2)
    assert f"got x in {A} and in {B}; must be in one file" in refusal(shards)


FORMATS = {
    "pytorch_model.bin": "pytorch_model.bin, which is pickled and could run code;",
    "tf_model.h5": "tf_model.h5 of TensorFlow; must contain the model's weights as safetensors; convert it with",
    "flax_model.msgpack": "flax_model.msgpack of Flax;",
    "model.onnx": "model.onnx, which has no weights that can be trained; must be a float model;",
    "weights.gguf": "got no *.safetensors that transformers reads",
}


@pytest.mark.parametrize("name", FORMATS)
def test_weights_in_another_format_are_refused_with_a_way_to_convert_them(name: str, shards: Path) -> None:
    for file in (*shards.glob("*.safetensors"), shards / INDEX):
        file.unlink()
    (shards / name).write_bytes(b"x")
    message = refusal(shards)
    assert FORMATS[name] in message


@pytest.mark.parametrize(
    "names", [["pytorch_model.bin"], ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]]
)
def test_the_command_converts_a_pickled_file_and_not_the_model(names: list[str], tmp_path: Path) -> None:
    """No tensor is lost, whatever the class of the config would read; what is no number of the model stays out."""
    import torch

    folder = tmp_path / "it's mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["OwnBert"]}))
    shared = torch.arange(3.0)
    tensors = {"mix.a": shared, "head.b": shared, "c": torch.ones(2, dtype=torch.float16)}
    for number, file in enumerate(names):
        torch.save(dict([*tensors.items()][number :: len(names)]), folder / file)
    if len(names) > 1:
        (folder / "pytorch_model.bin.index.json").write_text("{}")
    torch.save({"mix.a": shared.half()}, folder / "pytorch_model.fp16.bin")  # a variant, which is not the model
    name, option, program = shlex.split(refusal(folder).partition("convert it with ")[2])
    assert (name, option) == ("python", "-c")
    exec(program, {})
    found = tensors_of(folder)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()} == {
        "mix.a": ((3,), "F32"), "head.b": ((3,), "F32"), "c": ((2,), "F16"),
    }  # fmt: skip


def test_a_link_in_place_of_a_tokenizer_or_a_template_is_refused(shards: Path) -> None:
    (shards.parent / "secret").write_text("{}")
    (shards / "notes.log").symlink_to(shards.parent / "secret")
    assert config_of(shards)["model_type"] == "bert"
    for name in (
        "tokenizer_config.json",
        "vocab.txt",
        "chat_template.jinja",
        "additional_chat_templates/a.jinja",
        "1_Pooling/config.json",
    ):
        (shards / name).parent.mkdir(exist_ok=True)
        (shards / name).symlink_to(shards.parent / "secret")
        for load in (config_of, load_tokenizer):
            if load is load_tokenizer:
                (shards / "tokenizer.json").touch()
            with pytest.raises(DataError) as caught:
                load(shards)
            assert str(caught.value).startswith(f"{shards / name}: got a link to {shards.parent / 'secret'}, outside")
        (shards / name).unlink()
    (shards / "vocab.txt").symlink_to("vocab.txt")
    with pytest.raises(DataError, match=r"vocab\.txt: got a link that leads to itself"):
        config_of(shards)


@pytest.mark.parametrize("name", ["model_head.pkl", "config_setfit.json"])
def test_the_head_of_setfit_is_not_dropped(name: str, shards: Path) -> None:
    (shards / name).write_bytes(b"x")
    assert refusal(shards).startswith(f"{shards / name}: got a model of SetFit, whose head is pickled")


def test_tensors_are_those_of_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path / "model.safetensors", x=1)
    (tensor,) = tensors_of(tmp_path).values()
    assert (tensor.file, tensor.shape, tensor.dtype) == (file, load_file(file)["x"].shape, "F32")


def test_the_folder_of_a_run_is_no_model(shards: Path, tmp_path: Path) -> None:
    """Its config.json has the settings of the run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / CLAIM).touch()
    (run / "config.json").write_text("{}")
    assert refusal(run).endswith(f"{run}: got the folder of a run; must be that of a model; choose one in it")
    shutil.copytree(shards, run / "export" / "tickets")
    shutil.copytree(shards, run / "export" / "tickets" / "torchao")
    assert refusal(run).endswith(f"; choose {run}/export/tickets")
    assert stored_head(run / "export" / "tickets") is None
    shutil.rmtree(run / "export" / "tickets")
    for target in ("2x", "4x"):
        shutil.copytree(shards, run / "export" / target / "tickets")
    assert refusal(run).endswith(f"; choose {run}/export/2x/tickets or {run}/export/4x/tickets")


def test_weights_that_are_divided_among_gpus_are_no_model(shards: Path) -> None:
    """The large tensors have no values in the file; the small ones are whole."""
    save_file({"classifier.weight": np.zeros(0, np.float32), "classifier.bias": np.zeros(2, np.float32)}, shards / B)
    assert "got classifier.weight without values, as DeepSpeed's ZeRO stage 3 leaves it; must be" in refusal(shards)
