"""Loads a model as transformers does, and refuses a folder whose files are not exactly the whole model.

transformers initializes at random what a file does not have, and leaves out what the model does not have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from distill.errors import DataError
from distill.models import families
from distill.models.families.head import (
    HEADS,
    OF_TASKS,
    ONE_OF_SEVERAL,
    architecture_of,
    class_names,
    names_of_class,
    stored_head,
)
from distill.models.families.names import check_names, one_name, without_outer
from distill.models.families.record import TEXTS, TOKENS, VECTORS
from distill.models.families.settings import quantizer_of
from distill.models.families.weights import FLOATS, Tensor, config_of, tensors_of
from distill.models.readable import readable
from distill.models.teacher.files import quiet

BUFFERS = re.compile(r"(^|\.)(embeddings\.(position_ids|token_type_ids)|rotary_emb\.inv_freq)$")
"""Tensors that older versions of transformers stored although they follow from the config."""
PRETRAINED = re.compile(
    r"(\w+\.)?pooler\.|cls\.(predictions\.|seq_relationship\.|weight$)|head\.(linear1|linear2|decoder)\.|lm_head\.|"
    r"vocab_(transform|layer_norm|projector)\.|"
    r"generator_(predictions|lm_head)\.|discriminator_predictions\.|lm_predictions\.|mask_predictions\.|predictions\.|"
    r"sop_classifier\.|lm_loss\.|final_logits_bias$|decoder\.(weight|bias)$"
)
"""Tensors of an encoder's pooler and of heads for pretraining, which a model may have besides its own."""
STOCK = re.compile(rf"{PRETRAINED.pattern}|qa_outputs\.|classifier\.|pre_classifier\.|dense\.")
"""The same, and heads for other tasks that a class of transformers itself would not use."""
UNUSED = re.compile(
    rf"(.*\.)?pooler\.|{PRETRAINED.pattern}|(head\.)?dense\.|head\.norm\.|classifier\.|"
    r"pre_classifier\.|score\.|logits_proj\.|sequence_summary\.|classification_head\.|qa_outputs\."
)
"""The same, and tensors of heads for other tasks, for a model whose own head is new. Beside a head they would be layers
of it, of a class that computes something else."""


def load_whole(auto: Any, path: str | Path, *, claimed: bool, **settings: Any) -> tuple[Any, set[str], set[str]]:
    """A model in eval mode, loaded by `auto.from_pretrained` from the safetensors of a folder.

    Args:
        auto: a class of transformers such as AutoModelForMaskedLM, or `EncoderForVectors`.
        claimed: whether the folder must have the head of the class. Otherwise a head or a pooler may be missing as a
            whole, and is then new.
        settings: further arguments of `from_pretrained`.

    Returns:
        The model, the names of its new tensors, and the names of the folder's tensors that it does not use.

    Raises:
        DataError: for a folder that lacks other tensors, or has tensors that no part of a model uses, that have other
            shapes, or whose values are not numbers.
    """
    config = config_of(path)
    settings = {**_outputs_of(path, config, claimed), **settings}
    stored = without_outer(path, config, tensors_of(path))
    check_names(path, config, stored)
    with readable(path), quiet():
        _check_embedding(auto, path, config, stored, settings)
        try:
            model, info = auto.from_pretrained(
                str(path),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **_of_new_problem(config, settings),
            )
        except RuntimeError as error:
            raise _misshapen(auto, path, stored, settings, error) from error
    model.config.return_dict = True  # tuples have no names
    without_more_outputs(model.config)
    missing, unused = set(info["missing_keys"]), set(info["unexpected_keys"])
    # transformers loads the encoder alone of an embedder.
    part = model.encoder if architecture_of(names_of_class(model)) == VECTORS else model
    shape = families.family_of(model).bert_like
    if shape is not None and shape.mlm_bias in missing:
        with torch.no_grad():  # transformers leaves data2vec's as the memory was
            model.get_parameter(shape.mlm_bias).zero_()
    wrong = sorted(missing) if claimed else _not_new(part, missing)
    known = all(hasattr(transformers, str(name)) for name in config.get("architectures") or ())
    beside = UNUSED if not claimed or part is not model else STOCK if known else PRETRAINED
    strange = {name for name in unused if not _is_leftover(part, name, beside)}
    if wrong or strange:
        raise _incomplete(path, part, wrong, sorted(strange))
    if families.family_of(model).outer:
        vars(part).pop("_weight_conversions", None)  # by which it would be saved with the prefix, before its head too
    _check_names(path, model, stored)
    if quantizer_of(config) is None and "quantization_config" not in settings:
        _check_formats(stored, unused)
        _check_numbers(path, model)
    return model, missing, {*unused, *(name for name in stored if BUFFERS.search(name))}


def _outputs_of(path: str | Path, config: Mapping[str, Any], claimed: bool) -> dict[str, int]:
    """The number of outputs where transformers 5 would not take it from the config: beside `num_labels`, which would
    reset the names, and without both, where it would take two."""
    names = config.get("id2label")
    if isinstance(names, Mapping) and names:
        return {"num_labels": len(names)} if "num_labels" in config else {}
    if not claimed or "num_labels" in config or quantizer_of(config) is not None:  # whose weights may have other names
        return {}
    if architecture_of(class_names(config)) not in (TEXTS, TOKENS):
        return {}
    head = stored_head(path)
    return {} if head is None or head.architecture == VECTORS else {"num_labels": head.outputs}


def _of_new_problem(config: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of `from_pretrained` for a head of one output. transformers would refuse the number before it takes the
    problem, where a config keeps that of another head."""
    other = settings.get("problem_type") not in (None, ONE_OF_SEVERAL) and not config.get("id2label")
    if settings.get("num_labels") != 1 or config.get("problem_type") != ONE_OF_SEVERAL or not other:
        return settings
    named = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    return {key: value for key, value in settings.items() if key != "num_labels"} | named


def _check_embedding(
    auto: Any, path: str | Path, config: Mapping[str, Any], stored: Mapping[str, Tensor], settings: Mapping[str, Any]
) -> None:
    """Raise DataError for weights without the embeddings of all tokens.

    transformers would first take memory for them, of any size that a config states.
    """
    rows, record = config.get("vocab_size"), families.FAMILIES.get(str(config.get("model_type")))
    if record is None or not isinstance(rows, int) or quantizer_of(config) is not None:
        return
    if any(tensor.shape[:1] == (rows,) for tensor in stored.values()):
        return  # or an output embedding that shares its values, under whatever name
    if any(name.endswith((f"{record.embeddings}.weight", "shared.weight")) for name in stored):
        raise _misshapen(auto, path, stored, settings, RuntimeError(f"no embeddings of {rows} tokens"))
    model = _on_meta(auto, path, settings)
    weight = model.get_input_embeddings().weight
    raise _incomplete(path, model, [name for name, value in model.named_parameters() if value is weight], [])


def without_more_outputs(config: Any) -> None:
    """Switch off the outputs of all layers, which a config may ask for. A model that outputs attention cannot be saved
    with a fused kernel, and an ONNX file would have further outputs."""
    config.output_attentions = config.output_hidden_states = False


def without_memories(config: Any) -> None:
    """Switch off the keys, values and hidden states that decoders and XLNet output for texts that go on."""
    for name in ("use_cache", "use_mems_eval"):
        if getattr(config, name, False):
            setattr(config, name, False)


def _incomplete(path: str | Path, model: Any, missing: Sequence[str], strange: Sequence[str]) -> DataError:
    """The error for a folder without some of its model's tensors, or with tensors that no part of it uses."""
    without, besides = _first(missing, "no "), _first(strange, "")
    besides = f"{besides}, which the model has no place for" if besides else ""
    return DataError(
        f"{path}: got {' and '.join(filter(None, (without, besides)))}; must have every tensor of "
        f"{type(model).__name__} in the size of config.json, and no other; save the whole model again with "
        "save_pretrained"
    )


def _first(names: Sequence[str], before: str) -> str:
    """The first of some names and the number of the others; empty without names."""
    return f"{before}{names[0]}{f' (and {len(names) - 1} more)' if len(names) > 1 else ''}" if names else ""


def _with_weights(model: Any, missing: Collection[str]) -> set[str]:
    """The tensors that a folder must contain. Tied tensors, which share the values of another tensor, are left out."""
    tied = set(getattr(model, "all_tied_weights_keys", None) or {}) - set(missing)
    return {*model.state_dict()} - tied


def _not_new(model: Any, missing: Collection[str]) -> list[str]:
    """The missing tensors that do not belong to a head or pooler that is missing as a whole."""
    parts: dict[str, set[str]] = {}
    for name in _with_weights(model, missing):
        parts.setdefault(_part(model, name), set()).add(name)
    return sorted(
        name for part, names in parts.items() for name in names & {*missing} if not part or names - {*missing}
    )


def _part(model: Any, name: str) -> str:
    """The head or pooler to which a tensor belongs, which is new only as a whole; empty for the encoder."""
    record, base = families.family_of(model), _base(model)
    pooler = record.pooler or f"{record.encoder}.pooler"
    if name.startswith(f"{pooler}.") or (name.startswith("pooler.") and not base):
        return pooler
    if name.startswith(base):
        return ""
    heads = HEADS[architecture_of(names_of_class(model)) or TEXTS]
    last = next((last for last in heads if name in (f"{last}.weight", f"{last}.bias")), None)
    return last or name.partition(".")[0]


def _base(model: Any) -> str:
    """The prefix of the tensors of a model's encoder, and of its decoder if it has one; empty for a model without a
    head."""
    names = (families.family_of(model).encoder.partition(".")[0], str(getattr(model, "base_model_prefix", "")))
    return next((f"{name}." for name in names if name and hasattr(model, name)), "")


def _is_leftover(model: Any, name: str, leftovers: re.Pattern[str]) -> bool:
    """Whether a tensor that the model does not use is one of `leftovers`, or follows from the config."""
    if BUFFERS.search(name):
        return True
    found = leftovers.match(name)
    if name == "cls.weight" and not families.family_of(model).outer:
        return False  # a head of another kind: only UltraBERT's language-model head is published under this name
    return found is not None and not _has(model, found[0].rstrip("."))


def _has(model: Any, path: str) -> bool:
    """Whether a model has a module. A tensor below it then does not belong to another head."""
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def _check_names(path: str | Path, model: Any, stored: Iterable[str]) -> None:
    """Raise DataError for two tensors that transformers takes for one."""
    prefix, seen = f"{families.family_of(model).encoder}.", dict[str, str]()
    for name in stored:
        if (other := seen.setdefault(one_name(name, prefix), name)) != name:
            raise DataError(
                f"{path}: got the tensors {other} and {name}, which are two names of one; must be one of them; save "
                "the model again with save_pretrained"
            )


def _check_formats(stored: Mapping[str, Tensor], unused: Collection[str]) -> None:
    for name, tensor in stored.items():
        if tensor.dtype not in FLOATS and name not in unused and not BUFFERS.search(name):
            raise DataError(
                f"{tensor.file}: got {name} of format {tensor.dtype}, and no quantization_config; must be float "
                "weights, because others need scales; save the float model with save_pretrained"
            )


def _check_numbers(path: str | Path, model: Any) -> None:
    for name, value in model.named_parameters():
        plain = type(value.data) is torch.Tensor and value.device.type != "meta" and value.dtype == torch.float32
        if plain and not bool(torch.isfinite(value).all()):
            raise not_finite(path, name)


def not_finite(path: str | Path, name: str) -> DataError:
    return DataError(
        f"{path}: got {name} with values that are not finite (NaN or infinite); must be numbers; use an earlier "
        "checkpoint of the training that wrote it"
    )


def _on_meta(auto: Any, path: str | Path, settings: Mapping[str, Any]) -> Any:
    """The model of a folder's config, without storage."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(path), trust_remote_code=False, local_files_only=True)
    for key in ("num_labels", "problem_type"):
        if settings.get(key) is not None:
            setattr(config, key, settings[key])
    with torch.device("meta"):
        return auto.from_config(config, trust_remote_code=False)


def _misshapen(
    auto: Any, path: str | Path, stored: Mapping[str, Tensor], settings: Mapping[str, Any], error: RuntimeError
) -> DataError:
    """The error for weights of other shapes than the config's model has."""
    model = _on_meta(auto, path, settings)
    prefix = f"{families.family_of(model).encoder}."
    expected = {one_name(name, prefix): tuple(value.shape) for name, value in model.state_dict().items()}
    wrong = [
        (name, tensor.shape, expected[one_name(name, prefix)])
        for name, tensor in stored.items()
        if expected.get(one_name(name, prefix), tensor.shape) != tensor.shape
    ]
    if not wrong:
        return DataError(
            f"{path}: got weights that cannot be loaded ({error}); must be those of config.json; use others"
        )
    name, got, needed = wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    heads = tuple(f"{last}." for each in OF_TASKS for last in HEADS[each])
    if all(other.startswith(heads) for other, *_ in wrong):
        return DataError(
            f"{path}: got {name} of shape {list(got)}; must be {list(needed)}, for the number of classes of the task "
            "or of id2label in config.json; use a model of that number of classes, or the one it was fine-tuned from"
        )
    return DataError(
        f"{path}: got {name} of shape {list(got)}{more}; must be {list(needed)}, as config.json states; use the "
        "config.json that was saved with the weights"
    )
