"""Families whose published files have other names than the parameters of transformers' models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from distill.compression.quantization.quantize import MAKE, always_float, by_parameters
from distill.config.schemes import SCHEMES
from distill.errors import DataError
from distill.models import families, student, teacher
from distill.models.families.head import stored_head
from distill.models.teacher.headless import without_head
from distill.models.write import write_model
from tests import tiny

TRANSLATED = {"nomic_bert": "attn.Wqkv.", "gte": "attention.qkv_proj.", "jina_embeddings_v3": "mixer.Wqkv."}
"""Family -> a part of the published names alone."""
PUBLISHED = TRANSLATED | {"ultrabert": "ultrabert.layers."}
"""With the family whose names transformers changes one by one."""
HEADS = ("MaskedLM", "SequenceClassification", "TokenClassification")


def test_every_family_with_other_names_is_tested() -> None:
    records = families.FAMILIES.values()
    assert {*TRANSLATED} == {record.name for record in records if record.translated}
    assert {*PUBLISHED} == {record.name for record in records if record.translated or record.outer}


def plain(folder: Path, head: str) -> Any:
    model, told = getattr(transformers, f"AutoModelFor{head}").from_pretrained(folder, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def under_another(folder: Path, prefix: str) -> None:
    """Put a prefix before the names of the encoder's tensors, as `Alibaba-NLP/new-impl` wrote them."""
    file, encoder = folder / "model.safetensors", "gte."
    named = {
        f"{prefix}{name.removeprefix(encoder)}" if name.startswith(encoder) else name: value
        for name, value in load_file(file).items()
    }
    save_file(named, file, {"format": "pt"})


@pytest.mark.quick(4)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_folders_have_the_published_names(name: str, head: str, tiny_model, tiny_batch, tmp_path: Path) -> None:
    made = student.from_teacher(tiny_model(name, head), [0, 2], init="teacher_layers", seed=0).eval()
    with write_model(tmp_path / "first", made, tiny.tokenizer()):
        pass
    again, _ = teacher.load_mlm(tmp_path / "first") if head == "MaskedLM" else (plain(tmp_path / "first", head), True)
    with write_model(tmp_path / "second", again, tiny.tokenizer()):
        pass
    given = families.inputs(made, tiny_batch)
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert any(PUBLISHED[name] in key for key in load_file(folder / "model.safetensors"))
        torch.testing.assert_close(plain(folder, head)(**given).logits, made(**given).logits, rtol=0, atol=0)


def test_files_with_a_prefix_are_read_and_written_without(tiny_model, tiny_batch, tmp_path: Path) -> None:
    model = tiny_model("gte", "SequenceClassification", num_labels=3)
    given = families.inputs(model, tiny_batch)
    model.save_pretrained(tmp_path / "given")
    under_another(tmp_path / "given", "new.")
    names = {*load_file(tmp_path / "given" / "model.safetensors")}
    assert {"new.embeddings.word_embeddings.weight", "new.pooler.dense.weight", "classifier.weight"} < names
    assert stored_head(tmp_path / "given").outputs == 3
    loaded = teacher.load_classifier(tmp_path / "given", 3)
    torch.testing.assert_close(loaded(**given).logits, model(**given).logits, rtol=0, atol=0)

    with write_model(tmp_path / "written", loaded, tiny.tokenizer()):
        pass
    assert not any(key.startswith("new.") for key in load_file(tmp_path / "written" / "model.safetensors"))
    read = plain(tmp_path / "written", "SequenceClassification")
    torch.testing.assert_close(read(**given).logits, model(**given).logits, rtol=0, atol=0)

    tiny_model("gte", seed=2).save_pretrained(tmp_path / "language_model")
    donated = teacher.load_classifier(tmp_path / "language_model", 3, tmp_path / "given")
    assert torch.equal(donated.gte.pooler.dense.weight, model.gte.pooler.dense.weight)


def test_a_head_under_the_prefix_is_found(tiny_model, tmp_path: Path) -> None:
    """transformers writes it so where it has read an encoder under the prefix."""
    tiny_model("gte", "SequenceClassification", num_labels=3).save_pretrained(tmp_path / "given")
    under_another(tmp_path / "given", "new.")
    plain(tmp_path / "given", "SequenceClassification").save_pretrained(tmp_path / "again")
    assert "new.classifier.weight" in load_file(tmp_path / "again" / "model.safetensors")
    assert stored_head(tmp_path / "again").outputs == 3
    headless = without_head(str(tmp_path / "again"), tmp_path / "headless", "content")
    assert stored_head(headless) is None


def test_two_names_of_one_tensor_are_refused(tiny_model, tmp_path: Path) -> None:
    tiny_model("gte", "SequenceClassification").save_pretrained(tmp_path)
    with tiny.weights(tmp_path) as weights:
        weights |= {"new.classifier.bias": weights["classifier.bias"] + 1}
    with pytest.raises(DataError, match=r"got the tensors classifier\.bias and new\.classifier\.bias, which are two"):
        stored_head(tmp_path)


def test_the_class_that_a_message_names_is_one_of_transformers(tiny_model, tmp_path: Path) -> None:
    for name in families.STUDENTS:
        model = tiny_model(name, "SequenceClassification")
        model.save_pretrained(tmp_path / name)
        tiny.change(tmp_path / name / "config.json", architectures=["AnyModel"])
        with pytest.raises(DataError) as raised:
            stored_head(tmp_path / name)
        named = str(raised.value).partition("e.g. ")[2].partition(",")[0]
        assert named.lower() == type(model).__name__.lower()


@pytest.mark.parametrize("name", TRANSLATED)
def test_only_published_names_are_copied_to_be_quantized(name: str, tiny_model, tiny_batch, tmp_path: Path) -> None:
    model = tiny_model(name, "SequenceClassification")
    auto, record = transformers.AutoModelForSequenceClassification, families.FAMILIES[name]
    for published in (True, False):
        folder = tmp_path / f"model-{published}"
        model.save_pretrained(folder, save_original_format=published)
        with by_parameters(folder, record, auto, tmp_path) as source:
            assert source.parent == tmp_path
            assert (source != folder) == published
            assert {*load_file(source / "model.safetensors")} <= {*model.state_dict()}
            given = families.inputs(model, tiny_batch)
            same = plain(source, "SequenceClassification")(**given).logits
            torch.testing.assert_close(same, model(**given).logits, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model-False", "model-True"]


def ultrabert_as_published(model: Any, folder: Path, bases: list[float]) -> None:
    """Save an UltraBERT of three layers with the names and settings of `dmis-lab/UltraBERT-150M`."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("layer_types") == ["sliding_attention", "sliding_attention", "full_attention"]
    del config["rope_parameters"]
    windows = [config.pop("sliding_window")] * 2 + [0]
    (folder / "config.json").write_text(json.dumps(config | {"attention_windows": windows, "rope_theta": bases}))


def test_ultrabert_is_read_as_published(tiny_model, tiny_batch, tmp_path: Path) -> None:
    """Windows and rotary bases for each layer, the prefix `ultrabert.`, and the decoder of its head as `cls`."""
    bases = {"sliding_attention": 7.0, "full_attention": 300.0}
    rotary = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    model = tiny_model("ultrabert", "MaskedLM", rope_parameters=rotary, sliding_window=2)
    ultrabert_as_published(model, tmp_path / "given", [7.0, 7.0, 300.0])
    names = {*load_file(tmp_path / "given" / "model.safetensors")}
    assert {"cls.weight", "head.linear1.weight", "ultrabert.embed_tokens.weight", "ultrabert.norm.weight"} < names
    assert not any(name.startswith(("model.", "head.decoder.")) for name in names)
    assert stored_head(tmp_path / "given") is None

    given = families.inputs(model, tiny_batch)
    loaded, has_head = teacher.load_mlm(tmp_path / "given")
    assert has_head
    torch.testing.assert_close(loaded(**given).logits, model(**given).logits, rtol=0, atol=0)
    other = tiny_model("ultrabert", "MaskedLM", sliding_window=2)
    assert not torch.equal(other(**given).logits, model(**given).logits), "the bases count"

    classifier = teacher.load_classifier(tmp_path / "given", 3)
    hidden = families.encode(model, given)
    torch.testing.assert_close(families.encode(classifier, given), hidden, rtol=0, atol=0)
    ultrabert_as_published(classifier, tmp_path / "classifier", [7.0, 7.0, 300.0])
    head = stored_head(tmp_path / "classifier")
    assert head is not None
    assert head.outputs == 3
    again = teacher.load_classifier(tmp_path / "classifier", 3)
    torch.testing.assert_close(again(**given).logits, classifier(**given).logits, rtol=0, atol=0)

    made = student.from_teacher(loaded, [0, 2], init="teacher_layers", seed=0).eval()
    with write_model(tmp_path / "student", made, tiny.tokenizer()):
        pass
    config = json.loads((tmp_path / "student" / "config.json").read_text())
    assert config["layer_types"] == ["sliding_attention", "full_attention"]
    read = plain(tmp_path / "student", "MaskedLM")
    torch.testing.assert_close(read(**given).logits, made(**given).logits, rtol=0, atol=0)


def test_its_name_of_a_head_is_of_no_other_family(tiny_model, tmp_path: Path) -> None:
    """A head of a user's own that has no bias may be called so too."""
    tiny_model("bert", "SequenceClassification").save_pretrained(tmp_path)
    with tiny.weights(tmp_path) as weights:
        weights |= {"cls.weight": torch.ones(2, 16)}
    with pytest.raises(DataError, match=r"got cls\.weight, which the model has no place for"):
        teacher.load_classifier(tmp_path, 3)


@pytest.mark.quick(4)
@pytest.mark.parametrize("scheme", ["bitsandbytes", "bitsandbytes_nf4", "torchao"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_names_are_quantized_as_the_parameters_are(
    name: str, scheme: str, tiny_model, tiny_batch, tmp_path: Path
) -> None:
    for package in SCHEMES[scheme].packages:
        pytest.importorskip(package)
    sizes = {"hidden_size": 64, "intermediate_size": 64}
    model = tiny_model(name, "SequenceClassification", layers=2, **sizes)
    given, found = families.inputs(model, tiny_batch), []
    for published in (True, False):
        model.save_pretrained(tmp_path / f"given-{published}", save_original_format=published)
        names = load_file(tmp_path / f"given-{published}" / "model.safetensors")
        assert any(PUBLISHED[name] in key for key in names) is published
        made = tmp_path / f"made-{published}"
        MAKE[scheme](tmp_path / f"given-{published}", made, always_float(model), [])
        found.append(plain(made, "SequenceClassification")(**given).logits)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    assert not torch.equal(found[0], model(**given).logits)
    atol = 0.8 if scheme == "bitsandbytes_nf4" else 0.1
    torch.testing.assert_close(found[0], model(**given).logits, rtol=0, atol=atol)


def test_old_names_of_sizes_follow_the_new_ones(tiny_model, tmp_path: Path) -> None:
    """A config that states the sizes of NomicBERT under its first names too."""
    model = tiny_model("nomic_bert", "SequenceClassification", n_layer=3, n_embd=16, n_head=2, n_inner=24)
    sizes = {"hidden_size": 8, "intermediate_size": 12}
    made = student.from_teacher(model, [0, 2], init="random", seed=0, sizes=sizes)
    assert (made.config.n_layer, made.config.n_embd, made.config.n_head, made.config.n_inner) == (2, 8, 1, 12)
    made.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["n_layer"] == 2
    assert teacher.read_config(tmp_path).num_hidden_layers == 2
    # transformers does not store a size that is its default.
    deep = student.from_teacher(
        tiny_model("nomic_bert", layers=24, n_layer=24), range(0, 24, 2), init="teacher_layers", seed=0
    )
    deep.save_pretrained(tmp_path)
    assert teacher.read_config(tmp_path).num_hidden_layers == 12
