"""A model is what its files say, whole, or it is refused: with every loader, and with the right advice."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from distill.errors import ConfigError, DataError, UserError
from distill.inference.runners import load
from distill.models import families, teacher
from distill.models.families.head import stored_head
from tests import tiny

HEADS = ("SequenceClassification", "TokenClassification", "MultipleChoice", "QuestionAnswering", "MaskedLM", "")
BATCH = {"input_ids": torch.tensor([[0, 5, 6, 7, 8, 2]]), "attention_mask": torch.ones(1, 6, dtype=torch.int64)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`whole(family, head)`: folder of a random model, created once."""
    folders: dict[tuple[str, str], Path] = {}

    def create(name: str = "bert", head: str = "SequenceClassification") -> Path:
        if (name, head) not in folders:
            folder = tmp_path_factory.mktemp(f"{name}{head}")
            outputs = {"num_labels": 3} if head in HEADS[:2] else {}
            folders[name, head] = tiny.save(folder, name, head, std=0.3, **outputs)
        return folders[name, head]

    return create


def changed(folder: Path, to: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """A copy of a folder whose tensors are those that `change` returns."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: value.contiguous() for name, value in tensors.items()}, to / "model.safetensors", {"format": "pt"})
    return to


def outputs(folder: Path, head: str) -> torch.Tensor:
    """The outputs of a folder as the loaders of distill load it: a head or, without one, hidden states."""
    with torch.no_grad():
        if head in HEADS[:4]:
            run = load("m", folder, backend="torch", scheme="fp32", device="cpu", threads=1).run
            return torch.from_numpy(run({name: value.numpy() for name, value in BATCH.items()}))
        torch.manual_seed(0)
        model, has_head = teacher.load_mlm(folder)
        assert has_head or not head, "a stored head"
        hidden = families.encode(model, dict(BATCH))
        return families.mlm_logits(model, hidden) if head else hidden


LOADERS: dict[str, Callable[[Path], Any]] = {
    "teacher": lambda folder: teacher.load_classifier(folder, 3),
    "given": lambda folder: teacher.check_given(folder, "teacher.name"),
    "language model": teacher.load_mlm,
    "runner": lambda folder: load("m", folder, backend="torch", scheme="fp32", device="cpu", threads=1),
}


def refusals(folder: Path, *but: str) -> list[str]:
    """The message of every loader but some. Each must refuse the folder, in one line."""
    messages = []
    for name in LOADERS.keys() - {*but}:
        loader = LOADERS[name]
        with pytest.raises(UserError) as caught:
            loader(folder)
        (message,) = caught.value.messages
        assert "\n" not in message, name
        messages.append(message)
    return messages


def pasted(command: str, shell: bool = False) -> None:
    """Run a command `python -c PROGRAM` as a message prints it: in bash, or quicker in this process."""
    if shell:
        python = f'python() {{ {sys.executable} "$@"; }}; '
        subprocess.run(["bash", "-c", python + command], check=True)
        return
    name, option, program = shlex.split(command)
    assert (name, option) == ("python", "-c")
    exec(program, {})


RENAMED: dict[str, Callable[[str], str]] = {
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "DataParallel": lambda name: f"module.{name}",
    "a wrapper": lambda name: f"model.{name}",
    "two wrappers": lambda name: f"module._orig_mod.{name}",
    "an encoder of another name": lambda name: name.replace("bert.", "encoder.", 1),
    "compiled layers": lambda name: name.replace(".attention.", "._orig_mod.attention."),
}


@pytest.mark.parametrize("name", RENAMED)
def test_weights_of_wrapped_models_are_refused_with_the_command_that_renames_them(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    """The command works when it is pasted into a shell, also for a folder with an odd name."""
    folder = changed(whole(), tmp_path / "it's $HOME; a", lambda all: {RENAMED[name](n): v for n, v in all.items()})
    messages = refusals(folder)
    assert len({*messages}) == 1
    example = next(name for name in sorted(load_file(folder / "model.safetensors")) if "attention" in name)
    assert "got tensors under other names than the model's, such as " in messages[0]
    assert example.partition("attention")[0].partition(".")[0] in messages[0]
    pasted(messages[0].partition("rename them with ")[2], shell=name == "torch.compile")
    mended, given = (load_file(path / "model.safetensors") for path in (folder, whole()))
    assert mended.keys() == given.keys()
    assert all(torch.equal(mended[key], given[key]) for key in given)
    assert torch.equal(outputs(folder, HEADS[0]), outputs(whole(), HEADS[0]))


def test_the_command_renames_the_tensors_of_several_files(tmp_path: Path, tiny_model: Any) -> None:
    model = tiny_model("bert", "SequenceClassification")
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    for file in tmp_path.glob("model-*.safetensors"):
        save_file({f"module.{n}": v for n, v in load_file(file).items()}, file, {"format": "pt"})
    names = {f"module.{name}": file for name, file in index["weight_map"].items()}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index | {"weight_map": names}))
    with pytest.raises(DataError) as caught:
        stored_head(tmp_path)
    pasted(caught.value.messages[0].partition("rename them with ")[2])
    loaded = teacher.load_classifier(tmp_path, model.config.num_labels)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


def without(*parts: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda all: {name: value for name, value in all.items() if not any(part in name for part in parts)}


def added(**more: torch.Tensor) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda all: all | {name.replace("__", "."): value for name, value in more.items()}


def nan(all: dict[str, Any]) -> dict[str, Any]:
    name = "bert.encoder.layer.1.output.dense.weight"
    value = all[name].clone()
    value[0, 0] = float("nan")
    return all | {name: value}


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "lost layers": (
        without(".layer.1."), "got no bert.encoder.layer.1.attention.output.LayerNorm.bias (and 15 more); must",
    ),
    "a lost bias": (without("classifier.bias"), "got no classifier.bias; must have every tensor of Bert"),
    "a lost pooler": (without("pooler"), "got no bert.pooler.dense.bias (and 1 more); "),
    "more layers": (
        lambda all: all | {n.replace(".1.", ".3."): v.clone() for n, v in all.items() if ".layer.1." in n},
        "got bert.encoder.layer.3.attention.output.LayerNorm.bias (and 15 more), which the model has no place for",
    ),
    "another head": (added(classifier__out_proj__weight=torch.ones(3, 16)), "got classifier.out_proj.weight, which"),
    "a prefix of P-tuning": (
        added(prefix_encoder__embedding__weight=torch.ones(3, 16)), "got prefix_encoder.embedding.weight, which the",
    ),
    "two names of one tensor": (
        added(bert__embeddings__LayerNorm__gamma=torch.ones(16)), "are two names of one; must be one of them",
    ),
    "no numbers": (nan, "got bert.encoder.layer.1.output.dense.weight with values that are not finite"),
    "whole numbers": (
        lambda all: {name: v.to(torch.int8) if "query.weight" in name else v for name, v in all.items()},
        "query.weight of format I8, and no quantization_config; must be float weights",
    ),
    "8-bit floats": (
        lambda all: {name: v.to(torch.float8_e4m3fn) if "query.weight" in name else v for name, v in all.items()},
        "query.weight of format F8_E4M3, and no quantization_config; must be float weights",
    ),
    "another width": (
        lambda all: {name: v[:, :8] if "word_embeddings" in name else v for name, v in all.items()},
        "word_embeddings.weight of shape [",
    ),
    "unmerged LoRA": (
        lambda all: {n.replace("query.", "query.base_layer."): v for n, v in all.items()}
        | {"bert.encoder.layer.0.attention.self.query.lora_A.default.weight": torch.ones(2, 16)},
        "an adapter that is not merged, such as bert.encoder.layer.0.attention.self.query.base_layer.bias; must be",
    ),
}  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_not_its_model_is_refused_by_every_loader(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    change, expected = BROKEN[name]
    of_head = name in ("a lost bias", "a lost pooler", "another head")  # which a language model does not use
    folder = changed(whole(), tmp_path / "model", change)
    messages = refusals(folder, *(("language model",) if of_head else ()))
    assert any(expected in message for message in messages), messages


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without("word_embeddings"),
            r"got no bert\.embeddings\.word_embeddings\.weight; must have every tensor of Bert",
        ),
        (dict, r"got bert\.embeddings\.word_embeddings\.weight of shape \[\d+, 16\]; must be \[1000000000, 16\], as "),
    ],
)
def test_embeddings_of_a_size_that_is_only_stated_take_no_memory(
    change: Any, message: str, whole: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers fills what is missing, or has another shape, before it says so."""
    folder = changed(whole(), tmp_path / "model", change)
    tiny.change(folder / "config.json", vocab_size=10**9)
    refused = classmethod(lambda *_, **__: pytest.fail("it takes memory"))
    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", refused)
    with pytest.raises(DataError, match=message):
        teacher.load_classifier(folder, 3)


KEPT: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "positions": (
        HEADS[0], added(bert__embeddings__position_ids=torch.arange(32)[None]), "bert.embeddings.position_ids",
    ),
    "a pretraining head": (
        HEADS[0], added(cls__predictions__bias=torch.ones(9), cls__seq_relationship__weight=torch.ones(2, 16)),
        "cls.predictions.bias, cls.seq_relationship.weight",
    ),
    "a pooler": (HEADS[1], added(bert__pooler__dense__weight=torch.ones(16, 16)), "bert.pooler.dense.weight"),
    "old names": (
        HEADS[0], lambda all: {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v
                               for n, v in all.items()}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_known_leftovers_and_old_names_are_loaded_as_transformers_does(
    name: str, whole: Callable[..., Path], tmp_path: Path
) -> None:
    head, change, unused = KEPT[name]
    folder = changed(whole("bert", head), tmp_path / "model", change)
    notes = teacher.check_given(folder, "teacher.name")
    assert notes == ([f"{folder}: tensors that are not used: {unused}"] if unused else [])
    oracle = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder).eval()
    with torch.no_grad():
        torch.testing.assert_close(outputs(folder, head), oracle(**BATCH).logits, rtol=0, atol=1e-6)


def test_a_language_model_gets_a_new_head_and_pooler_but_no_new_encoder(
    whole: Callable[..., Path], tmp_path: Path
) -> None:
    folder = whole("bert", "MaskedLM")
    assert teacher.check_given(folder, "teacher.name") == [
        f"{folder}: tensors that are not used: cls.predictions.bias, cls.predictions.transform.LayerNorm.bias, "
        "cls.predictions.transform.LayerNorm.weight and 2 more"
    ]
    assert teacher.load_classifier(folder, 4).config.num_labels == 4
    broken = changed(folder, tmp_path / "broken", without("layer.0.intermediate.dense.bias"))
    with pytest.raises(DataError, match=r"got no bert\.encoder\.layer\.0\.intermediate\.dense\.bias; must"):
        teacher.load_classifier(broken, 4)
    headless = changed(folder, tmp_path / "headless", without("transform.dense.bias"))
    assert teacher.load_classifier(headless, 4).config.num_labels == 4, "a head that is not used"
    with pytest.raises(DataError, match=r"got no cls\.predictions\.transform\.dense\.bias"):
        teacher.load_mlm(headless)


NOTED: dict[str, tuple[dict[str, Any], str]] = {
    "a class of one's own": (
        {"architectures": ["BertForMultiLabelSequenceClassification"]},
        "config.json: BertForMultiLabelSequenceClassification is no class of transformers; it is used as a classifier "
        "of texts",
    ),
    "no class": ({"architectures": ...}, "config.json: no class in architectures; the model is used as a classifier"),
    "own code": (
        {"auto_map": {"AutoModel": "modeling.Own"}},
        "config.json: the folder's own code (modeling.Own) is not run; the class of transformers is used",
    ),
    "names in label2id alone": (
        {"label2id": {"a": 2, "b": 1, "c": 0}},
        "config.json: no names of the outputs in id2label; those in label2id are used",
    ),
    "labels under other numbers": (
        {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 2, "b": 1, "c": 0}},
        "config.json: label2id has other numbers for the names in id2label, which are used, as by transformers.",
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_what_is_concluded_is_said(name: str, whole: Callable[..., Path], tmp_path: Path) -> None:
    values, line = NOTED[name]
    folder = shutil.copytree(whole(), tmp_path / "model")
    tiny.change(folder / "config.json", **values)
    notes = teacher.check_given(folder, "teacher.name")
    assert any(line in note for note in notes), notes
    torch.testing.assert_close(outputs(folder, HEADS[0]), outputs(whole(), HEADS[0]), rtol=0, atol=0)


@pytest.mark.parametrize("numbers", [{"a": 0, "b": 1, "c": 2}, {"a": "0"}, {"LABEL_0": 0, "LABEL_1": 1}, None])
def test_labels_under_the_same_numbers_or_other_names_are_not_noted(
    numbers: Any, whole: Callable[..., Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(whole(), tmp_path / "model")
    tiny.change(folder / "config.json", id2label={"0": "a", "1": "b", "2": "c"}, label2id=numbers)
    assert list(teacher.notes(folder, ())) == []


def test_a_quantized_teacher_is_refused_with_the_folder_above_it(whole: Callable[..., Path], tmp_path: Path) -> None:
    above = shutil.copytree(whole(), tmp_path / "export a")
    folder = shutil.copytree(whole(), above / "bitsandbytes")
    tiny.change(folder / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(ConfigError) as caught:
        teacher.check_given(folder, "teacher.name")
    (message,) = caught.value.messages
    assert message.startswith(f"teacher.name: got {folder}, a quantized model (bitsandbytes); must have float weights;")
    assert message.endswith(f"; set 'teacher.name=\"{above}\"'")


def damage(tensors: dict[str, Any], rng: random.Random) -> tuple[str, dict[str, Any]]:
    """The tensors after one of four random changes, and its name."""
    how, name = rng.choice(("remove", "rename", "add", "reshape")), rng.choice(sorted(tensors))
    others = {key: value for key, value in tensors.items() if key != name}
    value = tensors[name]
    if how == "remove":
        return f"remove {name}", others
    if how == "add":
        places = [name.replace(".0.", ".9."), f"{name}_scale", f"{name.rpartition('.')[0]}.more", "extra.weight"]
        place = rng.choice([place for place in places if place not in tensors])
        return f"add {place}", tensors | {place: value.clone()}
    if how == "rename":
        parts = name.split(".")
        number = rng.randrange(len(parts))
        place = ".".join([*parts[:number], f"{parts[number]}x", *parts[number + 1 :]])
        return f"rename {name} to {place}", others | {place: value}
    shapes = [torch.cat([value, value]), value[None], value.flatten()[:1], value.reshape(*value.shape[::-1])]
    shape = rng.choice([shape for shape in shapes if shape.shape != value.shape])
    return f"reshape {name} to {list(shape.shape)}", others | {name: shape}


def cases(number: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """Random families with heads that they have."""
    rng = random.Random(seed)
    names = [*families.STUDENTS, "bart", "t5", "xlnet", "qwen2"]
    while number:
        name, head = rng.choice(names), rng.choice(HEADS)
        record = families.FAMILIES[name]
        has = f"For{head}" not in record.without and (head != "MaskedLM" or record.mlm_head)
        if not has or (record.layer is None and head in ("MaskedLM", "")):
            continue
        if head == "TokenClassification" and name in ("bart", "xlnet"):
            continue
        number -= 1
        yield name, head, number


def expected(folder: Path, head: str) -> torch.Tensor:
    """The outputs of a folder as transformers loads it."""
    model = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel").from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(**BATCH)
    return found.logits if head else found.last_hidden_state


def check_damaged(whole: Callable[..., Path], tmp_path: Path, number: int, seed: int) -> None:
    """Each damaged folder is refused, or has the outputs of the whole one."""
    rng, refused, known = random.Random(seed), 0, dict[Path, torch.Tensor]()
    for name, head, case in cases(number, seed):
        folder, what = whole(name, head), ""
        if folder not in known:
            known[folder] = outputs(folder, head)
            if head in (*HEADS[:2], "MaskedLM", ""):
                torch.testing.assert_close(known[folder], expected(folder, head), rtol=1e-5, atol=1e-5)

        def change(all: dict[str, Any]) -> dict[str, Any]:
            nonlocal what
            what, result = damage(all, rng)
            return result

        broken = changed(folder, tmp_path / str(case), change)
        try:
            found = outputs(broken, head)
        except UserError:
            refused += 1
            continue
        assert torch.equal(found, known[folder]), f"{name} {head or 'encoder'}: {what}"
    assert refused > number / 2


@pytest.mark.slow
def test_every_random_change_is_refused_or_changes_nothing(whole: Callable[..., Path], tmp_path: Path) -> None:
    check_damaged(whole, tmp_path, 300, seed=int(os.environ.get("WHOLE_SEED", "2")))
