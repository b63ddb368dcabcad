"""Folders that other libraries wrote, and commands that turn them into folders of transformers. Without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from distill.errors import DataError
from distill.models.families.records import FAMILIES
from distill.models.readable import check_size, readable
from distill.runtime import quoting
from distill.runtime.storage import run_folder

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Files of peft."""
PEFT_CLASSES = {
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
}
"""`task_type` of an adapter -> the class of peft that loads it with its base."""
LABELLED = ("SEQ_CLS", "TOKEN_CLS")
UNMERGEABLE = ("PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "ADAPTION_PROMPT", "CPT")
"""`peft_type` of adapters that change no weights of their base."""

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
OTHER_FRAMEWORKS = {"tf_model.h5": "TensorFlow", "tf_model.h5.index.json": "TensorFlow", "flax_model.msgpack": "Flax"}
_BESIDE = ("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "[0-9]*_*")
"""Files and folders of sentence-transformers beside a model: how it makes a vector, and with which prompts."""
_GRAPHS = ("*.onnx", "*/*.onnx", "*.xml", "*/*.xml")
"""Files of ONNX and of OpenVINO."""
HEADS = ("model_head.pkl", "model_head.joblib", "config_setfit.json")
"""Files of SetFit, whose models have a head that is pickled, which can run code when it is loaded."""


def check_adapter(folder: Path) -> None:
    """Raise DataError for a folder with an adapter, alone or beside its base, because the model's weights are in
    both."""
    if (file := folder / ADAPTER).is_file():
        with readable(file, "a file of peft; merge the adapter into its base, or remove this file"):
            _refuse(folder, file)


def _refuse(folder: Path, file: Path) -> NoReturn:
    """Raise the error about the adapter whose settings are in a file of any content."""
    settings = _json(file)
    base = settings.get("base_model_name_or_path")
    beside = (
        " beside weights" if any((folder / name).is_file() for name in ("model.safetensors", "config.json")) else ""
    )
    kept = ", or remove this file if the weights contain it already" if beside else ""
    got = f"{file}: got an adapter of peft{beside}, trained on {base}; must be one model, which an adapter alone is not"
    if "peft_type" not in settings:
        raise DataError(
            f"{file}: got an adapter{beside} of another library than peft; must be one model, which an adapter alone "
            "is not; merge it into its base with that library, or train the whole model"
        )
    if str(settings["peft_type"]) in UNMERGEABLE:
        raise DataError(
            f"{got}; an adapter of type {settings['peft_type']} cannot be merged into its base; train one with "
            "LoraConfig, or the whole model"
        )
    if isinstance(base, str) and run_folder.is_path(base) and not Path(base).exists():
        raise DataError(
            f"{got}{kept}; this base is not there: set base_model_name_or_path in this file to its folder, or to its "
            "name on the hub, and try again"
        )
    lost, known = _lost(folder, settings, base) or ("", False)
    if known:
        raise DataError(
            f"{got}; neither the adapter nor its base has {lost}, which was random when it was trained, so that it "
            f"cannot be merged; train it again with modules_to_save=['{lost.rpartition('.')[2]}', 'classifier']"
        )
    names = ""
    if settings.get("task_type") in LABELLED or _outputs(folder) is not None:
        names = (
            "; an adapter has neither names of labels nor problem_type, so add id2label={0: 'NAME', 1: 'NAME'} behind "
            "num_labels, and problem_type='multi_label_classification' if a text may have several labels"
        )
    unseen = f"; its base must have {lost}, which cannot be seen in pickled weights" if lost else ""
    raise DataError(f"{got}{kept}{names}{unseen}; merge it with {python(_merging(folder, settings, base))}")


def _lost(folder: Path, settings: dict[str, Any], base: Any) -> tuple[str, bool] | None:
    """(the pooler of a classifier that is neither in an adapter nor in its base, a local folder; whether this is known,
    as it is not of pickled weights, which are not opened). None if none is missing."""
    source = Path(str(base))
    record = FAMILIES.get(str(_json(source / "config.json").get("model_type")))
    if settings.get("task_type") != "SEQ_CLS" or record is None or record.layer is None:
        return None
    lost = "pre_classifier" if record.name == "distilbert" else record.pooler
    own, files = folder / ADAPTER_WEIGHTS, [*source.glob("*.safetensors")]
    last = None if lost is None else lost.rpartition(".")[2]
    if lost is None or any(f".{last}." in f".{name}" for name in _names([own, *files])):
        return None
    return lost, own.is_file() and bool(files)


def _names(files: Iterable[Path]) -> Iterator[str]:
    """Names of the tensors of files. A damaged file is skipped."""
    from safetensors import SafetensorError, safe_open

    for file in files:
        with suppress(SafetensorError, OSError), safe_open(file, framework="np") as tensors:
            yield from tensors.keys()


def _merging(folder: Path, settings: dict[str, Any], base: Any) -> str:
    """The program that merges an adapter into its base."""
    task = str(settings.get("task_type"))
    mapped = str((settings.get("auto_mapping") or {}).get("base_model_class", ""))
    ends = (each for each in PEFT_CLASSES.values() if mapped.endswith(each.removeprefix("AutoPeftModel")))
    name = PEFT_CLASSES.get(task) or next(ends, "AutoPeftModel")
    source, target = str(folder), f"{str(folder).rstrip('/')}-merged"
    outputs = _outputs(folder)
    labels = "" if outputs is None else f", num_labels={outputs}"
    own = any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt", "tokenizer_config.json"))
    tokenizer = source if own or not base else str(base)
    lasting = [path.name for pattern in _BESIDE for path in sorted(folder.glob(pattern))]
    beside = (
        f"; import shutil; from pathlib import Path as P; [shutil.copytree(p, P({target!r}, p.name)) if p.is_dir() "
        f"else shutil.copy(p, {target!r}) for p in map(P({source!r}).joinpath, {lasting!r})]"
    )
    return (
        f"from peft import {name} as M; from transformers import AutoTokenizer as T; "
        f"M.from_pretrained({source!r}{labels}).merge_and_unload().save_pretrained({target!r}); "
        f"T.from_pretrained({tokenizer!r}).save_pretrained({target!r})"
        f"{beside if lasting else ''}"
    )


def _outputs(folder: Path) -> int | None:
    """Number of outputs of the head that was trained with an adapter; None without such a head."""
    from safetensors import SafetensorError, safe_open

    heads = ("classifier", "score", "out_proj", "logits_proj")
    with suppress(SafetensorError, OSError), safe_open(folder / ADAPTER_WEIGHTS, framework="np") as tensors:
        for name in tensors.keys():
            parts = [part for part in name.split(".") if part not in ("modules_to_save", "default")]
            if parts[-1] == "weight" and parts[-2] in heads:
                return int(tensors.get_slice(name).get_shape()[0])
    return None


def check_pickled_head(folder: Path) -> None:
    """Raise DataError for a model of SetFit, whose head is pickled."""
    found = [name for name in HEADS if (folder / name).is_file()]
    if found:
        raise DataError(
            f"{folder / found[0]}: got a model of SetFit, whose head is pickled and could run code; must have a head "
            "in safetensors, or none; train a classifier on the same rows with recipe=task, or remove "
            f"{' and '.join(found)} from a copy of the folder to use the embedder without its head"
        )


def check_formats(folder: Path, has_weights: bool) -> None:
    """Raise DataError for a pickled head, and for weights in another format than safetensors."""
    check_pickled_head(folder)
    if has_weights:
        return
    if any((folder / name).is_file() for name in PICKLED):
        # The file is converted, not the model: a class that lacks some of its tensors would lose them, or invent
        # others.
        files = PICKLED[0] if (folder / PICKLED[0]).is_file() else "pytorch_model-*.bin"
        program = (
            f"import torch; from pathlib import Path as P; from safetensors.torch import save_file as s; "
            f"d, t = P({str(folder)!r}), {{}}; "
            f"[t.update(torch.load(f, 'cpu', weights_only=True)) for f in sorted(d.glob({files!r}))]; "
            "s({k: v.clone().contiguous() for k, v in t.items()}, d / 'model.safetensors', {'format': 'pt'})"
        )
        raise DataError(
            f"{folder}: got no *.safetensors, but {PICKLED[0]}, which is pickled and could run code; must contain the "
            f"model's weights as safetensors; if you trust who made it, convert it with {python(program)}"
        )
    if graphs := [path for pattern in _GRAPHS for path in sorted(folder.glob(pattern))]:
        raise DataError(
            f"{folder}: got no *.safetensors, but {graphs[0].relative_to(folder)}, which has no weights that can be "
            "trained; must be a float model; give the folder that this file was made from"
        )
    for name, library in OTHER_FRAMEWORKS.items():
        if (folder / name).is_file():
            raise DataError(
                f"{folder}: got no *.safetensors, but {name} of {library}; must contain the model's weights as "
                f"safetensors; convert it with transformers 4, from_pretrained(FOLDER, from_"
                f"{'tf' if library == 'TensorFlow' else 'flax'}=True) and save_pretrained"
            )


def _json(file: Path) -> dict[str, Any]:
    if file.is_file():
        check_size(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def python(program: str) -> str:
    """The command that runs a program of one line."""
    return f"python -c {quoting.path(program)}"
