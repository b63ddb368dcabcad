"""Model folders that state something unusual: what they output is what transformers makes of them, or they are
refused."""

from __future__ import annotations

import json
import os
import shutil
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast, pipeline

import distill
from distill.data.task import task_of_model
from distill.deploy import serve
from distill.deploy.export.record import Entry, located, of_task, read, write
from distill.deploy.export.sample import hashed
from distill.errors import ConfigError, DataError, UserError
from distill.models import teacher
from distill.models.families.head import stored_head
from distill.models.families.record import TEXTS
from distill.models.families.sentence import check_no_prompt
from distill.models.token_types import typed
from distill.models.write import write_model
from distill.pipeline.context.fingerprints import model_files
from distill.runtime.storage.atomic import CLAIM
from tests import tiny

SENTENCES: list[str] = tiny.SENTENCES
LABELS = ("boat", "baker", "storm")


def saved(folder: Path, family: str = "bert", **settings: Any) -> Path:
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: n for n, name in enumerate(LABELS)}}
    return Path(tiny.save(folder, family, "SequenceClassification", std=0.4, num_labels=3, **names | settings))


def scores(folder: Path, texts: list[str]) -> list[dict[str, float]]:
    """Of each text, by transformers alone."""
    answer = pipeline("text-classification", str(folder), top_k=None)
    answers = [answer([text])[0] for text in texts]
    return [{each["label"]: each["score"] for each in answer} for answer in answers]


def check_scores(folder: Path, texts: list[str]) -> None:
    found, expected = serve.load(folder, say=lambda line: None).predict(texts), scores(folder, texts)
    for own, other in zip(found, expected, strict=True):
        assert own["scores"] == pytest.approx(other, abs=1e-4)
        assert own["label"] == max(other, key=lambda name: other[name])


# ---- names of the outputs


@pytest.mark.parametrize("numbers", [(2, 1, 0), (1, 2, 3)])
def test_default_names_in_another_order_are_names(numbers: tuple[int, ...], tmp_path: Path) -> None:
    names = [f"LABEL_{number}" for number in numbers]
    folder = saved(tmp_path / "m", id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})
    head = stored_head(folder)
    assert head is not None
    assert head.labels == tuple(names)
    check_scores(folder, SENTENCES)


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ({"storm": 0, "boat": 2, "baker": 1}, ("storm", "baker", "boat")),
        ({"storm": "0", "boat": "2", "baker": "1"}, ("storm", "baker", "boat")),
        ({"storm": 0, "boat": 1}, ()),
        ({"storm": 0, "boat": 1, "baker": 1}, ()),
        ({"LABEL_0": 2, "LABEL_1": 1, "LABEL_2": 0}, ()),  # transformers obeys id2label
    ],
)
def test_names_in_label2id_alone(numbers: dict[str, Any], found: tuple[str, ...], tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    tiny.change(folder / "config.json", id2label={str(n): f"LABEL_{n}" for n in range(3)}, label2id=numbers)
    head = stored_head(folder)
    assert head is not None
    assert head.labels == found
    defaults = tuple(f"LABEL_{number}" for number in range(3))
    assert task_of_model("rows", teacher.read_config(folder), TEXTS).labels == (found or defaults)


def test_one_name_for_two_outputs_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    tiny.change(folder / "config.json", id2label={"0": "pos", "1": "pos", "2": "neg"})
    with pytest.raises(DataError, match="got the name 'pos' for several outputs in id2label"):
        serve.load(folder)


def test_the_names_of_labels_count_where_their_number_is_another(tmp_path: Path) -> None:
    """As in version 4 of transformers. In version 5 the number resets the names."""
    folder = saved(tmp_path / "m")
    expected = serve.load(folder).outputs(SENTENCES)
    tiny.change(folder / "config.json", num_labels=2)
    found = serve.load(folder)
    assert found.labels == LABELS  # type: ignore[union-attr]
    np.testing.assert_array_equal(found.outputs(SENTENCES), expected)


# ---- tokenizers


def test_a_decoder_finds_the_last_token_by_the_token_with_which_texts_are_padded(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "qwen3", seed=2)
    tiny.change(folder / "config.json", pad_token_id=0)
    assert AutoTokenizer.from_pretrained(folder).pad_token_id != 0
    check_scores(folder, SENTENCES)


@pytest.mark.parametrize("names", [["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]])
def test_token_types_are_given_where_the_tokenizer_outputs_them(names: list[str], tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    tiny.change(folder / "tokenizer_config.json", model_input_names=names)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    given = tokenizer(SENTENCES[:4], SENTENCES[4:], padding=True, return_tensors="pt")
    assert ("token_type_ids" in given) == ("token_type_ids" in names)
    with torch.no_grad():
        expected = model(**given).logits.numpy()
    pairs = list(zip(SENTENCES[:4], SENTENCES[4:], strict=True))
    np.testing.assert_allclose(serve.load(folder).outputs(pairs), expected, atol=1e-5)
    own = teacher.load_tokenizer(folder)
    with write_model(tmp_path / "written", teacher.load_classifier(folder, 3), own):
        pass
    assert ("token_type_ids" in AutoTokenizer.from_pretrained(tmp_path / "written").model_input_names) == (
        "token_type_ids" in names
    )
    np.testing.assert_allclose(serve.load(tmp_path / "written").outputs(pairs), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "AlbertTokenizer", "XLNetTokenizer", "HerbertTokenizer"])
def test_token_types_of_a_class_that_had_them_before_are_kept(name: str) -> None:
    """In transformers 5 these output none unless their files say so; in 4, in which models were trained, they did."""
    class_ = getattr(transformers, name)
    stated = types.SimpleNamespace(model_input_names=["input_ids"], init_kwargs={"model_input_names": ["input_ids"]})
    unstated = type(name, (), {"model_input_names": class_.model_input_names, "init_kwargs": {}})()
    assert not typed(stated)
    assert typed(unstated)


def test_a_token_beyond_the_embeddings_is_refused_before_a_text_has_it(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    content = json.loads((folder / "tokenizer.json").read_text())
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].get)
    content["model"]["vocab"][last] = 500
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="got a tokenizer of 501 tokens and a model of"):
        serve.load(folder)


def test_a_tokenizer_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "deberta-v2")
    (folder / "tokenizer.json").unlink()
    (folder / "spm.model").write_bytes(b"no pieces")
    with pytest.raises(DataError, match=r"got spm.model and no tokenizer.json, into which transformers converts it"):
        serve.load(folder)


@pytest.mark.parametrize(("family", "name"), [("bert", "vocab.json"), ("roberta", "vocab.txt")])
def test_a_vocabulary_in_a_file_that_the_class_does_not_read_is_refused(family: str, name: str, tmp_path: Path) -> None:
    """transformers 5 builds a tokenizer that knows no word: every text of as many words is the same one."""
    folder = saved(tmp_path / "m", family)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    (folder / name).write_text('{"the": 0}' if name.endswith("json") else "the\n")
    ids = AutoTokenizer.from_pretrained(folder)(["the boat", "a storm"])["input_ids"]
    assert ids[0] == ids[1]
    with pytest.raises(DataError, match=rf"got {name}, of which a \w+Tokenizer reads no token of text; must contain"):
        teacher.load_tokenizer(folder)


def test_a_tokenizer_whose_words_are_all_added_is_read(tmp_path: Path) -> None:
    """As of k-mers, or codes of logs."""
    words = Tokenizer(WordLevel({"[UNK]": 0, "[PAD]": 1}, unk_token="[UNK]"))  # type: ignore[call-arg]
    words.pre_tokenizer = Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
    made.add_tokens(["boat", "storm"])
    folder = saved(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    made.save_pretrained(folder)
    assert teacher.load_tokenizer(folder)("boat storm boat")["input_ids"] == [2, 3, 2]


def test_chat_templates_are_left_behind(tmp_path: Path) -> None:
    """Their names become names of files."""
    folder = saved(tmp_path / "m")
    templates = [{"name": "default", "template": "x"}, {"name": "../../out", "template": "y"}]
    tiny.change(folder / "tokenizer_config.json", chat_template=templates)
    with write_model(tmp_path / "written", teacher.load_classifier(folder, 3), teacher.load_tokenizer(folder)):
        pass
    assert not list((tmp_path / "written").glob("*template*"))
    assert {path.name for path in tmp_path.iterdir()} == {"m", "written"}


# ---- models


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_text_with_the_characters_of_the_end_token_is_answered_beside_others(family: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", family)
    end = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens(
        AutoModelForSequenceClassification.from_pretrained(folder).config.eos_token_id
    )
    texts = [SENTENCES[0], f"the {end} boat", SENTENCES[1], f"{end} the {end}"]
    model = serve.load(folder, say=lambda line: None)
    alone = np.concatenate([model.outputs([text]) for text in texts])
    np.testing.assert_allclose(model.outputs(texts), alone, atol=1e-5)
    check_scores(folder, texts[:2])


def test_a_model_that_returns_tuples_is_read_as_any_other(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    expected = serve.load(folder).outputs(SENTENCES)
    tiny.change(folder / "config.json", return_dict=False)
    np.testing.assert_array_equal(serve.load(folder).outputs(SENTENCES), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_labels": 2_000_000}, "got num_labels 2,000,000; must be at most 50,000"),
        ({"num_hidden_layers": 4_000}, "got num_hidden_layers 4,000; must be at most 500"),
        *(
            ({name: 400_000}, f"got {name} 400,000; must be at most 500")
            for name in ("n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "num_hidden_groups")
        ),
        ({"configuration_files": ["config.4.0.0.json"]}, "got configuration_files .*; must have no such setting"),
        ({"attribute_map": {"num_labels": "x"}, "x": 9}, "got attribute_map .*; must have no such setting"),
        ({"transformers_weights": "other.safetensors"}, "got transformers_weights .*; must have no such setting"),
        ({"attn_implementation": "kernels-community/flash-attn2"}, "must be eager or sdpa"),
        ({"_attn_implementation": "flash_attention_2"}, "must be eager or sdpa"),
    ],
)
def test_settings_that_transformers_obeys_before_it_reads_weights(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m")
    tiny.change(folder / "config.json", **settings)
    began = time.monotonic()
    with pytest.raises(DataError, match=message):
        serve.load(folder)
    with pytest.raises(DataError, match=message):
        teacher.read_config(folder)
    assert time.monotonic() - began < 5


def test_a_model_whose_config_asks_for_all_layers_is_the_same_model(
    tmp_path: Path,
) -> None:
    """It can be saved, which transformers refuses with a fused kernel."""
    plain, folder = saved(tmp_path / "plain"), saved(tmp_path / "m")
    tiny.change(folder / "config.json", output_attentions=True, output_hidden_states=True)
    model = teacher.load_classifier(folder, 3)
    model.save_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(serve.load(folder).outputs(SENTENCES), serve.load(plain).outputs(SENTENCES))
    student_config = teacher.read_config(folder)
    assert not (student_config.output_attentions)
    assert not (student_config.output_hidden_states)


def test_a_setting_that_hides_a_method_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    tiny.change(folder / "config.json", save_pretrained=0)
    with pytest.raises(DataError, match="got save_pretrained, which is a method and no setting; remove it"):
        teacher.read_config(folder)


@pytest.mark.parametrize("file", ["onnx/model.onnx", "model.onnx", "openvino_model.xml"])
def test_a_folder_with_a_graph_alone_is_refused_by_its_name(file: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).touch()
    with pytest.raises(DataError, match=f"but {file}, which has no weights that can be trained; must be a float model"):
        teacher.load_classifier(folder, 3)


def test_a_regression_of_several_numbers_is_no_classification() -> None:
    model = tiny.model("bert", "SequenceClassification", num_labels=3, problem_type="regression")
    message = "problem_type: got regression with 3 outputs; must be one"
    with pytest.raises(ConfigError, match=message):
        task_of_model("rows", model.config, TEXTS)
    with pytest.raises(ConfigError, match=message):
        distill.DistillationLoss(model, model, [distill.terms.SoftTargets()])


# ---- exported folders


@pytest.fixture
def exported(tmp_path: Path, classifier: Any, export_once: Any) -> Path:
    """A folder with an ONNX artifact."""
    folder = Path(shutil.copytree(classifier("bert"), tmp_path / "exported"))
    (folder / "onnx").mkdir()
    export_once(folder, folder / "onnx/model.onnx")
    config = teacher.read_config(folder)
    entries = (Entry("torch", "fp32", ".", 4.0), Entry("onnxruntime", "fp32", "onnx/model.onnx", 1.0))
    write(folder, of_task(task_of_model("rows", config, TEXTS, ("text",)), 32, entries))
    return folder


def test_weights_that_were_changed_after_the_export_are_not_those_of_its_artifacts(exported: Path) -> None:
    before = serve.load(exported).outputs(SENTENCES)
    with tiny.weights(exported) as weights:
        weights["classifier.bias"] += torch.tensor([9.0, 0.0])
    with pytest.raises(DataError, match="that were changed after the export, from others than which its artifact"):
        serve.load(exported)
    np.testing.assert_allclose(
        serve.load(exported, backend="torch").outputs(SENTENCES), before + np.array([9, 0]), atol=1e-4
    )


def test_quantized_weights_in_a_folder_of_their_own_are_not_of_weights_that_were_changed(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder := saved(tmp_path / "m"))
    made = distill.quantize(folder, "bitsandbytes", out=tmp_path / "q", tokenizer=tokenizer)
    serve.load(made.folder)
    with tiny.weights(made.folder) as weights:
        weights["classifier.bias"] += 9
    with pytest.raises(DataError, match="from others than which its artifact bitsandbytes int8 was made"):
        serve.load(made.folder)


def test_a_temperature_is_of_the_weights_for_which_it_was_chosen(exported: Path) -> None:
    stated = read(exported)
    assert stated is not None
    write(exported, replace(stated, artifacts=(Entry("torch", "fp32", ".", temperature=3.0),)))
    assert serve.load(exported).temperature == 3.0  # type: ignore[union-attr]
    with tiny.weights(exported) as weights:
        weights["classifier.bias"] += 1
    with pytest.warns(UserWarning, match="weights were changed after the export, so that the temperature and the thre"):
        changed = serve.load(exported)
    found, expected = changed.predict(SENTENCES), scores(exported, SENTENCES)  # type: ignore[union-attr]
    assert [row["scores"] for row in found] == [pytest.approx(each, abs=1e-4) for each in expected]


def test_labels_that_were_changed_in_one_place_are_refused(exported: Path) -> None:
    serve.load(exported)  # of a model without names
    names = {str(number): name for number, name in enumerate("xy")}
    tiny.change(exported / "config.json", id2label=names)
    with pytest.raises(DataError, match="got the labels x, y, and LABEL_0, LABEL_1 in"):
        serve.load(exported)
    tiny.change(exported / "distill.json", labels=["x", "y"])
    serve.load(exported)


def test_a_pipe_in_place_of_the_weights_is_not_waited_for(exported: Path) -> None:
    (exported / "model.safetensors").unlink()
    os.mkfifo(exported / "model.safetensors")
    assert hashed(exported) is None
    assert serve.load(exported).backend == "onnxruntime"


@pytest.mark.parametrize(
    "name", ["modules.json", "model.safetensors.index.json", "added_tokens.json", "1_Pooling/config.json"]
)
def test_a_pipe_among_the_settings_of_a_model_is_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "model", "bert", "SequenceClassification")
    (folder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)
    assert folder / name not in model_files(folder)
    with pytest.raises(DataError, match="got a device or a pipe; must be a file"):
        stored_head(folder)


@pytest.mark.parametrize("below", ["export/rows", "export/4x/rows"])
def test_a_run_folder_stands_for_its_export(below: str, exported: Path, tmp_path: Path) -> None:
    """Its own config.json has the settings of the run."""
    run = tmp_path / "run"
    shutil.copytree(exported, run / below)
    (run / CLAIM).touch()
    (run / "config.json").write_text("{}")
    assert located(run) == run / below
    shutil.rmtree(run / "export")
    with pytest.raises(ConfigError, match="a run folder without an export"):
        located(run)


def test_a_text_in_place_of_a_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a local folder"):
        located("my card was swallowed " * 20)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_an_artifact_is_a_file_in_the_folder(kind: str, exported: Path, tmp_path: Path) -> None:
    file = exported / "onnx/model.onnx"
    if kind == "link":
        file.rename(tmp_path / "outside.onnx")
        file.symlink_to(tmp_path / "outside.onnx")
    else:
        file.unlink()
        os.mkfifo(file)
    with pytest.raises(DataError, match=r"outside of the model's folder|got no such file|got a device or a pipe"):
        serve.load(exported)


def test_rows_of_weights_that_were_changed_are_seen_wherever_they_stand(exported: Path) -> None:
    serve.load(exported)
    with tiny.weights(exported) as weights:
        weights[next(name for name in weights if name.endswith("word_embeddings.weight"))][-1, -1] += 1
    with pytest.raises(DataError, match="that were changed after the export"):
        serve.load(exported)


@pytest.mark.parametrize("odd", [{"default_prompt_name": ["a"]}, {"prompts": ["a"]}, {}], ids=str)
def test_prompts_of_any_content_in_a_cross_encoder_are_one_line(odd: dict[str, Any], tmp_path: Path) -> None:
    stated = {"model_type": "CrossEncoder", "default_prompt_name": "a", "prompts": {"a": "b"}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(stated | odd))
    with pytest.raises(DataError, match="; must be "):
        check_no_prompt(tmp_path)
