"""Folders of peft: an adapter that is not merged is refused, and the command of the message merges it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import save_file

from distill.deploy import serve
from distill.errors import DataError
from distill.models.families.head import stored_head
from tests import tiny
from tests.forked import PYTHON

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft
TEXT = "the small boat crossed the harbour"


def adapted(folder: Path, base: Path, modules: Sequence[str] = ("query", "value")) -> Any:
    """A trained LoRA model of three classes on a base, as peft saves it in `folder`."""
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    settings = peft.LoraConfig(task_type="SEQ_CLS", target_modules=[*modules], r=2)
    torch.manual_seed(1)
    wrapped = peft.get_peft_model(model, settings).eval()
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.5)
    wrapped.save_pretrained(folder)
    return wrapped


def refusal(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        stored_head(folder)
    with pytest.raises(DataError) as again:
        serve.load(folder)
    assert caught.value.messages == again.value.messages
    (message,) = caught.value.messages
    return message


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["base", "adapter"])
def test_an_adapter_is_refused_with_the_command_that_merges_it(tokenizer: str, tmp_path: Path) -> None:
    base, folder = tiny.save(tmp_path / "base", "bert", "", std=0.3), tmp_path / "my adapter"
    wrapped = adapted(folder, base)
    if tokenizer == "adapter":
        for file in base.glob("tokenizer*"):
            shutil.copy(file, folder)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'adapter_config.json'}: got an adapter of peft, trained on {base};")
    command = message.partition("; merge it with ")[2]
    if tokenizer == "adapter":  # of a cross-encoder, which states there what makes its scores
        settings = '{"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"}'
        (folder / "config_sentence_transformers.json").write_text(settings)
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text("{}")
        command = refusal(folder).partition("; merge it with ")[2]
    if tokenizer == "base":  # through a shell, as a user types it
        subprocess.run(["bash", "-c", f'python() {{ {PYTHON} "$@"; }}; {command}'], check=True)
    else:
        exec(shlex.split(command)[2], {})
    merged = tmp_path / "my adapter-merged"
    beside = [merged / name for name in ("config_sentence_transformers.json", "1_Pooling/config.json")]
    assert [path.exists() for path in beside] == [tokenizer == "adapter"] * 2
    beside[0].unlink(missing_ok=True)  # the rest is that of a classifier
    head = stored_head(merged)
    assert head is not None
    assert head.outputs == 3
    model = serve.load(merged)
    words = model.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        expected = wrapped(**words).logits.softmax(-1)[0].tolist()
    (found,) = model.predict([TEXT])
    assert list(found["scores"].values()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("name", "part"), [("bert", "bert.pooler"), ("deberta-v2", "pooler")])
def test_an_adapter_whose_pooler_is_lost_gets_no_command(name: str, part: str, tmp_path: Path) -> None:
    """peft saves the classifier beside the matrices. A pooler that the base does not have was random, and is lost."""
    base = tiny.save(tmp_path / "base", name, "MaskedLM", std=0.3)
    folder = tmp_path / "adapter"
    adapted(folder, base, ["query", "value"] if name == "bert" else ["query_proj"])
    message = refusal(folder)
    assert f"neither the adapter nor its base has {part}, which was random when it was trained" in message
    assert "python" not in message


def test_an_adapter_beside_its_base_is_not_ignored(tmp_path: Path) -> None:
    base = tiny.save(tmp_path / "base", "bert", "SequenceClassification", std=0.3, num_labels=3)
    adapted(base, base)
    message = refusal(base)
    assert "got an adapter of peft beside weights, trained on" in message
    assert "or remove this file if the weights contain it already" in message


def test_a_model_saved_without_merging_is_refused(tmp_path: Path) -> None:
    base = tiny.save(tmp_path / "base", "bert", "SequenceClassification", std=0.3, num_labels=3)
    wrapped = adapted(tmp_path / "adapter", base)
    folder = shutil.copytree(base, tmp_path / "saved")
    from safetensors.torch import save_file

    tensors = {n.removeprefix("base_model.model."): v.contiguous() for n, v in wrapped.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    message = refusal(folder)
    assert "got tensors of an adapter that is not merged, such as " in message
    assert message.endswith("model.merge_and_unload().save_pretrained(FOLDER)")


def test_an_adapter_without_a_known_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": None}))
    assert "got an adapter of peft, trained on None" in refusal(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"architecture": "pfeiffer", "hidden_size": 16}))
    assert "got an adapter of another library than peft; must be one model" in refusal(tmp_path)


@pytest.mark.parametrize(
    "odd", [{"auto_mapping": "x"}, {"auto_mapping": ["x"]}, {"base_model_name_or_path": "b" * 300}, {"task_type": []}]
)
def test_an_adapter_of_any_content_is_one_line(odd: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"peft_type": "LORA", "task_type": "SEQ_CLS", **odd}))
    assert refusal(tmp_path).startswith(f"{file}: got ")
    save_file({"weight": torch.zeros(2)}, tmp_path / "adapter_model.safetensors")
    assert refusal(tmp_path).startswith(f"{file}: got ")


def test_an_adapter_whose_base_is_gone_is_refused_with_what_to_set(tmp_path: Path) -> None:
    stated = {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": str(tmp_path / "gone")}
    (tmp_path / "adapter_config.json").write_text(json.dumps(stated))
    message = refusal(tmp_path)
    assert f"trained on {tmp_path / 'gone'};" in message
    assert "this base is not there: set base_model_name_or_path in this file to its folder" in message
    assert "python" not in message


def test_a_pooler_in_pickled_weights_is_not_said_to_be_lost(tmp_path: Path) -> None:
    base, folder = tiny.save(tmp_path / "base", "bert", "", std=0.3), tmp_path / "adapter"
    adapted(folder, base)
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    message = refusal(folder)
    assert "; its base must have bert.pooler, which cannot be seen in pickled weights; merge it with python" in message
