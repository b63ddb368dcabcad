"""Folders that others trained are read as transformers reads them, or refused: pairs of decoders, heads that read
padding, token types, classes of one's own, files of another model, and adapters."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import distill
from distill.data.encode import PAIR_SEPARATOR, encode_texts, separates
from distill.errors import ConfigError, DataError, UserError
from distill.models import teacher
from tests import tiny
from tests.forked import PYTHON

SENTENCES: list[str] = tiny.SENTENCES
PAIRS = list(zip(SENTENCES, SENTENCES[1:] + SENTENCES[:1], strict=True))


def saved(folder: Path, family: str = "bert", head: str = "SequenceClassification", **settings: Any) -> Path:
    return Path(tiny.save(folder, family, head, std=0.4, **{"num_labels": 3} | settings))


def expected(folder: Path, rows: list[Any], **how: Any) -> np.ndarray:
    """Logits of transformers for each row by itself."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        every = [
            model(**tokenizer(*([row] if isinstance(row, str) else row), return_tensors="pt", **how)).logits[0]
            for row in rows
        ]
    return torch.stack(every).numpy()


def decoder(folder: Path, **settings: Any) -> Path:
    """A classifier on Qwen's layers, with a tokenizer that puts nothing around texts."""
    saved(folder, "qwen3", **settings)
    tiny.change(folder / "tokenizer.json", post_processor=None)
    return folder


# ---- pairs of decoders


def test_pairs_of_a_given_decoder_are_as_the_tokenizer_makes_them(tmp_path: Path) -> None:
    """A line break between the texts would be a token that the model has not seen."""
    folder = decoder(tmp_path / "m")
    tokenizer = teacher.load_tokenizer(folder)
    assert not separates(tokenizer)
    ours = distill.load(folder).outputs(PAIRS)
    np.testing.assert_allclose(ours, expected(folder, PAIRS), atol=1e-4)


def test_pairs_of_a_decoder_that_is_trained_here_have_a_separator_that_is_kept(tmp_path: Path) -> None:
    tokenizer = teacher.load_tokenizer(decoder(tmp_path / "m"))
    plain = encode_texts([["two goats"], ["a storm"]], tokenizer, 32)
    tokenizer.init_kwargs[PAIR_SEPARATOR] = "\n"
    tokenizer.save_pretrained(tmp_path / "again")
    kept = teacher.load_tokenizer(tmp_path / "again")
    parted = encode_texts([["two goats"], ["a storm"]], kept, 32)
    assert parted.ids.tolist() == tokenizer("two goats", "\na storm")["input_ids"]
    assert plain.ids.tolist() == tokenizer("two goats", "a storm")["input_ids"]


def test_the_proof_of_an_export_reads_pairs_as_they_were_trained(tmp_path: Path) -> None:
    """Its process imports nothing of distill, and has the name of the setting by itself."""
    from distill.deploy.export import reload
    from distill.deploy.export.proof import plain_logits

    assert reload.SEPARATOR == PAIR_SEPARATOR
    folder = decoder(tmp_path / "m")
    without = expected(folder, PAIRS)
    tiny.change(folder / "tokenizer_config.json", **{PAIR_SEPARATOR: "roof "})
    wanted = expected(folder, [(first, f"roof {second}") for first, second in PAIRS])
    assert np.abs(wanted - without).max() > 1e-2
    np.testing.assert_allclose(distill.load(folder).outputs(PAIRS), wanted, atol=1e-4)
    np.testing.assert_allclose(plain_logits(folder, [list(pair) for pair in PAIRS]), wanted, atol=1e-4)


def test_a_decoder_that_would_read_another_token_by_its_tokenizers_padding_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "qwen3")
    end = teacher.load_tokenizer(folder)("a")["input_ids"][-1]
    tiny.change(folder / "config.json", pad_token_id=end)
    with pytest.raises(ConfigError, match=f"finds the last token of a text by token {end}; must be the same"):
        distill.load(folder)


# ---- heads and inputs


@pytest.mark.parametrize("settings", [{"summary_type": "first"}, {"summary_type": "mean"}, {"attn_type": "uni"}])
def test_xlnet_that_would_read_padding_is_refused(settings: dict[str, str], tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "xlnet")
    tiny.change(folder / "config.json", **settings)
    (name,) = settings
    with pytest.raises(DataError, match=rf"got {name} \w+; must be (last|bi)"):
        distill.load(folder)


def test_electra_that_chooses_by_another_token_than_the_first_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "electra", "MultipleChoice")
    tiny.change(folder / "config.json", summary_type="mean")
    with pytest.raises(DataError, match="got summary_type mean; must be first"):
        distill.load(folder)
    folder = saved(tmp_path / "other", "electra")
    tiny.change(folder / "config.json", summary_type="mean")  # which its classifier does not read
    np.testing.assert_allclose(distill.load(folder).outputs(SENTENCES), expected(folder, SENTENCES), atol=1e-4)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "camembert", "data2vec-text", "jina_embeddings_v3"])
@pytest.mark.parametrize("types", [1, 2])
def test_token_types_are_those_that_the_tokenizer_states(family: str, types: int, tmp_path: Path) -> None:
    """Korean and Chinese models of RoBERTa's type have a tokenizer of BERT's, and two token types."""
    folder = saved(tmp_path / "m", family, type_vocab_size=types)
    if types > 1:
        tiny.change(
            folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"]
        )
    np.testing.assert_allclose(distill.load(folder).outputs(PAIRS), expected(folder, PAIRS), atol=1e-4)


@pytest.mark.parametrize("layer", ["dense", "pre_classifier", "head.dense", "score", "logits_proj"])
def test_a_layer_of_a_class_of_ones_own_is_not_left_out(layer: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    with tiny.weights(folder) as weights:
        wide = weights["classifier.weight"].shape[1]
        weights |= {f"{layer}.weight": torch.ones(wide, wide), f"{layer}.bias": torch.ones(wide)}
    tiny.change(folder / "config.json", architectures=["BertForTicketSequenceClassification"])
    with pytest.raises(DataError, match=rf"got {layer}\.bias .*which the model has no place for"):
        distill.load(folder)


def test_heads_for_pretraining_beside_a_classifier_are_left_out(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    before = expected(folder, SENTENCES)
    with tiny.weights(folder) as weights:
        weights["cls.predictions.bias"] = torch.ones(4)
    with pytest.warns(UserWarning, match=r"tensors that are not used: cls\.predictions\.bias"):
        model = distill.load(folder)
    np.testing.assert_allclose(model.outputs(SENTENCES), before, atol=1e-4)


@pytest.mark.parametrize("stated", [{"max_seq_length": 6}, {"max_seq_length": 32, "do_lower_case": True}])
def test_files_of_an_embedder_do_not_change_a_classifier_that_was_saved_over_it(
    stated: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps(stated))
    texts = [*SENTENCES, *(text.upper() for text in SENTENCES)]
    np.testing.assert_allclose(distill.load(folder).outputs(texts), expected(folder, texts), atol=1e-4)


# ---- adapters


def adapted(folder: Path, config: Any, **settings: Any) -> Path:
    from peft import get_peft_model

    base = saved(folder / "base", **settings)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft asks transformers for names that it renames
        get_peft_model(model, config).save_pretrained(folder / "adapter")
    return folder / "adapter"


def test_an_adapter_that_cannot_be_merged_is_refused_so(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=4)
    with pytest.raises(DataError, match=r"an adapter of type PROMPT_TUNING cannot be merged .* train one with Lora"):
        distill.load(adapted(tmp_path, config))


@pytest.mark.slow
def test_an_adapter_without_a_task_is_merged_by_the_command_of_its_message(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        target_modules=["query"], modules_to_save=["classifier", "pooler"], init_lora_weights=False
    )
    folder = adapted(tmp_path, config)
    with pytest.raises(DataError, match="neither names of labels nor problem_type") as refused:
        distill.load(folder)
    command = str(refused.value).partition("merge it with ")[2]
    words = [PYTHON, *shlex.split(command)[1:]]
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert distill.load(f"{folder}-merged").outputs(SENTENCES).shape == (len(SENTENCES), 3)


# ---- files that lead elsewhere, or are too large


def test_a_module_in_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    base = saved(tmp_path / "base")
    model = SentenceTransformer(
        modules=[Transformer(str(base)), Pooling(32), Dense(32, 16, activation_function=torch.nn.Identity())],
        device="cpu",
    )
    model.save(str(tmp_path / "m"))
    listed = json.loads((tmp_path / "m" / "modules.json").read_text())
    for name in ("1_Pooling", "2_Dense"):
        place = tmp_path / f"of {name}"
        subprocess.run(["cp", "-r", str(tmp_path / "m"), str(place)], check=True)
        (place / name).rename(tmp_path / f"outside {name}")
        (place / "sub").symlink_to(tmp_path / f"outside {name}")
        changed = [{**each, "path": each["path"].replace(name, "sub")} for each in listed]
        (place / "modules.json").write_text(json.dumps(changed))
        with pytest.raises(DataError, match=r"sub: got a link to .*outside of the model's folder"):
            distill.load(place)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "adapter_config.json", "chat_template.jinja"])
def test_a_file_of_settings_that_would_fill_the_memory_is_refused(name: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    with (folder / name).open("ab") as file:
        file.truncate(3 << 30)  # with holes, which take no space
    with pytest.raises(DataError, match=rf"{name}: got 3,072 MiB; must be at most 256 MiB"):
        distill.load(folder)


# ---- the second look


def unigram(folder: Path, *texts: str) -> None:
    """A tokenizer as XLM-R's: a word that is rare with its space begins with a token of the space alone."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator([*SENTENCES, *texts], made)
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **names).save_pretrained(folder)


def test_a_word_begins_with_the_token_of_its_space(tmp_path: Path) -> None:
    """As `word_ids` and the script run_ner.py have it: the token that was trained."""
    folder = saved(tmp_path / "m", "xlm-roberta", "TokenClassification")
    unigram(folder, "東京 に 住む", "in 2023 ( of")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder, dtype=torch.float32).eval()
    ours, blanks = distill.load(folder), 0
    for words in (["in", "東京", "Anna", "(", "2023", "the"], ["Anna", "に", "a"], ["the", "small", "boat"]):
        given = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        first = [given.word_ids().index(number) for number in range(len(words))]
        blanks += sum(tokenizer.decode(given["input_ids"][0, place]).strip() == "" for place in first)
        with torch.no_grad():
            wanted = model(**given).logits[0, first].numpy()
        np.testing.assert_allclose(ours.outputs([words]), wanted, atol=1e-4)
    assert blanks > 2


@pytest.mark.parametrize("types", [1, 2])
def test_a_graph_has_no_input_that_its_tokenizer_does_not_make(types: int, tmp_path: Path) -> None:
    import onnxruntime

    from distill.deploy.export.onnx import export_onnx

    folder = saved(tmp_path / "m", "roberta", type_vocab_size=types)
    tiny.change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    export_onnx(folder, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = dict(tokenizer(SENTENCES, padding=True, return_tensors="np"))
    (logits,) = session.run(None, given)
    np.testing.assert_allclose(logits, expected(folder, SENTENCES), atol=1e-4)


def test_a_model_that_its_saved_folder_is_not_is_not_quantized(tmp_path: Path) -> None:
    class MyBert(transformers.BertForSequenceClassification):
        def forward(
            self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **_: Any
        ) -> Any:
            states = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
            logits = self.classifier(states.last_hidden_state.mean(1))
            return transformers.modeling_outputs.SequenceClassifierOutput(logits=logits)

    folder = saved(tmp_path / "m")
    stock = transformers.BertForSequenceClassification.from_pretrained(folder)
    stock.bert.pooler.activation = torch.nn.ReLU()
    stock.config.return_dict = False
    for model in (MyBert.from_pretrained(folder), stock):
        with pytest.raises(UserError, match=r"whose logits differ from those of the BertForSequenceClassification"):
            distill.quantize(model, "onnxruntime", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mark", [{"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}, None])
def test_an_older_cross_encoder_is_not_cut_by_an_embedder_whose_files_were_left(
    mark: dict[str, str] | None, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m", num_labels=1, length=45)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    own = {"sentence_transformers": mark} if mark else {"sbert_ce_default_activation_function": "torch.nn.Identity"}
    tiny.change(folder / "config.json", **own)
    found = [row["score"] for row in distill.load(folder).predict(PAIRS)]
    np.testing.assert_allclose(found, expected(folder, PAIRS)[:, 0], atol=1e-4)


@pytest.mark.parametrize(
    ("family", "head", "beside"),
    [
        ("bert", "QuestionAnswering", "classifier"),
        ("distilbert", "QuestionAnswering", "pre_classifier"),
        ("distilbert", "TokenClassification", "pre_classifier"),
        ("bert", "SequenceClassification", "qa_outputs"),
        ("roberta", "QuestionAnswering", "classifier.dense"),
    ],
)
def test_heads_for_other_tasks_beside_that_of_a_class_of_transformers(
    family: str, head: str, beside: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "m", family, head, num_labels=2)
    with tiny.weights(folder) as weights:
        weights |= {f"{beside}.weight": torch.ones(2, 8), f"{beside}.bias": torch.ones(2)}
    with pytest.warns(UserWarning, match=rf"tensors that are not used: {beside}"):
        distill.load(folder)


@pytest.mark.parametrize("classes", [["BertModel"], ["BertModel", "BertForTokenClassification"], None])
def test_a_head_in_the_folder_of_an_embedder_is_not_used(classes: list[str] | None, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    width = transformers.AutoConfig.from_pretrained(saved(tmp_path / "base")).hidden_size
    model = SentenceTransformer(modules=[Transformer(str(tmp_path / "base")), Pooling(width)], device="cpu")
    model.save(str(tmp_path / "m"))
    folder = tmp_path / "m"
    with tiny.weights(folder) as weights:
        weights |= {"classifier.weight": torch.ones(1, width), "classifier.bias": torch.ones(1)}
    tiny.change(folder / "config.json", architectures=classes)
    wanted = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
    with pytest.warns(UserWarning, match="tensors that are not used: classifier"):
        found = distill.load(folder)
    np.testing.assert_allclose([row["vector"] for row in found.predict(SENTENCES)], wanted, atol=1e-4)
