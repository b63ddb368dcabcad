"""Sentence embedders: an encoder, a pooling, optionally a linear layer, and the division by the length.

The modules and the files are the same as in sentence-transformers, which loads what `save_pretrained` writes.
transformers has no class for such a model.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_outputs import SequenceClassifierOutput

from distill.errors import ConfigError
from distill.models.families import vectors as files
from distill.models.families.records import family_of
from distill.models.families.vectors import Vectors

DENSE = "dense"
"""Name of the linear layer."""

_SKIPPED = ("llm_int8_skip_modules", "modules_to_not_convert")
"""Settings of quantizers that name modules to leave in float."""
_SET = ("num_labels", "problem_type", "legacy", "trust_remote_code")
"""Arguments that only classifiers take, and one that is always false."""


def pooled(hidden: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector per text [B, H] of hidden states [B, L, H], as the Pooling of sentence-transformers 6 computes it.

    mask: 1 at tokens, 0 at padding [B, L], which may stand on either side.
        A text without a token gets zeros; in sentence-transformers too, but for max.
    how: the first token's vector (cls), the last token's (lasttoken), the maximum (max), the mean, the sum over the
        root of the number of tokens (mean_sqrt_len_tokens), or the mean with the weights 1, 2, ... from the first token
        to the last (weightedmean: Muennighoff 2022, arXiv 2202.08904).
    """
    if hidden.dtype == torch.float16:  # which cannot hold the sum of a long text
        return pooled(hidden.float(), mask, how).half()
    if how == "cls":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.argmax(1)]  # len() is not exported
    real, order = mask[:, :, None].bool(), mask.cumsum(1)
    if how == "lasttoken":
        return (hidden * (real & (order == order[:, -1:])[:, :, None])).sum(1)
    if how == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(1).masked_fill(~real.any(1), 0.0)
    if how == "weightedmean":
        weights = (order * mask).float()
        return (hidden * (weights / weights.sum(1, keepdim=True).clamp(min=1))[:, :, None].to(hidden.dtype)).sum(1)
    count = real.sum(1).clamp(min=1)
    return (hidden * real).sum(1) / (count**0.5 if how == "mean_sqrt_len_tokens" else count)


class EncoderForVectors(nn.Module):
    """A model whose logits [B, D] are the vectors of texts. It has the methods of a transformers model that distill
    calls.

    The encoder is the module that the family's record names, so that the parts of the model are found as in a
    classifier. Its config has the settings of the other modules.
    """

    def __init__(self, config: Any, encoder: Any = None) -> None:
        super().__init__()
        self.config = config
        self.vectors = files.of_config(config)
        files.into_config(config, self.vectors)
        if family_of(config).layer is None and getattr(config, "use_cache", False):
            config.use_cache = False  # keys and values that are not used
        self.base_model_prefix = family_of(config).encoder
        setattr(
            self,
            self.base_model_prefix,
            _class(config)(config, **encoder_arguments(config)) if encoder is None else encoder,
        )
        if self.vectors.width is not None:
            setattr(self, DENSE, nn.Linear(config.hidden_size, self.vectors.width, bias=self.vectors.bias))

    @property
    def encoder(self) -> Any:
        """The encoder, without its pooler."""
        return getattr(self, self.base_model_prefix)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.encoder.device
        return device

    @property
    def width(self) -> int:
        """Number of components D of a vector."""
        return int(self.vectors.width or self.config.hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """The vectors [B, D], as `logits`, of texts [B, L]."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        result = pooled(hidden, mask, self.vectors.pooling)
        if self.vectors.width is not None:
            result = getattr(self, DENSE)(result)
            result = result.tanh() if self.vectors.tanh else result
        return SequenceClassifierOutput(logits=F.normalize(result, dim=-1) if self.vectors.normalized else result)

    def get_input_embeddings(self) -> Any:
        return self.encoder.get_input_embeddings()

    def set_attn_implementation(self, implementation: str) -> None:
        self.encoder.set_attn_implementation(implementation)

    def tie_weights(self) -> None:
        """An encoder without a language-model head has no shared weights."""

    def to_width(self, width: int, weight: Tensor | None = None) -> None:
        """Add a linear layer without bias to `width` components, unless vectors have that width already.

        Args:
            weight: [width, H]. By default its columns are orthonormal and random, so that cosines do not change where
                `width` is larger than H.

        Raises:
            ConfigError: if the model has a linear layer to another width.
        """
        if self.width == width and weight is None:
            return
        if self.vectors.width is not None:
            raise ConfigError(
                f"student.name: got an embedder of {self.width} dimensions; must have those of the teacher, {width}, "
                "or no Dense after its pooling; choose another"
            )
        linear = nn.Linear(int(self.config.hidden_size), width, bias=False)
        with torch.no_grad():
            nn.init.orthogonal_(linear.weight) if weight is None else linear.weight.copy_(weight)
        setattr(self, DENSE, linear.to(self.device))
        self.vectors = replace(self.vectors, width=width, bias=False, tanh=False)
        files.into_config(self.config, self.vectors)

    def to_unit_length(self) -> None:
        """Divide vectors by their length, so that dot products with them are cosines."""
        self.vectors = replace(self.vectors, normalized=True)
        files.into_config(self.config, self.vectors)

    def save_pretrained(self, folder: str | Path, **settings: Any) -> None:
        """Write the encoder, which plain transformers loads too, and the other modules."""
        self.encoder.save_pretrained(folder, **settings)
        files.write(Path(folder), self.vectors, int(self.config.hidden_size), encoder_arguments(self.config))
        if self.vectors.width is not None:
            weights = {
                f"linear.{name}": value.contiguous() for name, value in getattr(self, DENSE).state_dict().items()
            }
            save_file(weights, Path(folder) / files.DENSE_FOLDER / "model.safetensors", {"format": "pt"})

    @classmethod
    def from_config(cls, config: Any, trust_remote_code: bool = False, **settings: Any) -> EncoderForVectors:
        """A model with random weights. `settings`: of `AutoModel.from_config`."""
        encoder = AutoModel.from_config(config, trust_remote_code=False, **encoder_arguments(config), **settings)
        return cls(encoder.config, encoder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, output_loading_info: bool = False, **settings: Any) -> Any:
        """The embedder of a folder of sentence-transformers; of any other model, its encoder with mean pooling.

        Args:
            output_loading_info: whether to return also the loading info of transformers.
            settings: of `AutoModel.from_pretrained`. Settings of heads are not used.
        """
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        stored = files.read(folder)
        # Only `modules.json` counts: a classifier that was made from an embedder still has the embedder's setting.
        files.into_config(config, stored or Vectors())
        given = {name: value for name, value in settings.items() if name not in _SET}
        if (quantizer := given.get("quantization_config")) is not None:
            given["quantization_config"] = _of_encoder(quantizer, family_of(config).encoder)
        encoder, info = AutoModel.from_pretrained(
            str(folder),
            config=config,
            output_loading_info=True,
            trust_remote_code=False,
            **given,
            **encoder_arguments(config),
        )
        model = cls(encoder.config, encoder)
        if stored is not None and stored.width is not None:
            dense = getattr(model, DENSE)
            dense.load_state_dict(_linear(files.dense_files(folder)))
            dense.to(encoder.device, settings.get("dtype"))
        model.eval()
        return (model, info) if output_loading_info else model


def _linear(paths: Sequence[Path]) -> dict[str, Tensor]:
    """`weight` [D, H] and `bias` [D] of linear layers, which follow each other, as one."""
    first, *others = (load_file(path, device="cpu") for path in paths)
    result = {name.removeprefix("linear."): value for name, value in first.items()}
    for weights in others:
        matrix = weights["linear.weight"].double()
        result = {name: matrix @ value.double() for name, value in result.items()}
        if "linear.bias" in weights:
            result["bias"] = weights["linear.bias"].double() + result.get("bias", 0)
    # The product of two matrices in half precision has more digits than these.
    return {name: value.float() for name, value in result.items()}


def keeping_width(model: Any) -> Any:
    """A copy of an embedder with an identity as its linear layer, which keeps the width of vectors when hidden channels
    are pruned.

    Any other model, and an embedder with a linear layer, is returned unchanged.
    """
    if not isinstance(model, EncoderForVectors) or model.vectors.width is not None:
        return model
    result = copy.deepcopy(model)
    result.to_width(model.width, torch.eye(model.width))
    return result.train(model.training)


def width_of(folder: str | Path) -> int:
    """Number of components of the vectors of an embedder, or of the mean-pooled vectors of any other model."""
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    return int(dense_width(folder) or config.hidden_size)


def dense_width(folder: str | Path) -> int | None:
    """Number of outputs of the linear layer of an embedder; None without one, and for any other model."""
    return (files.read(folder) or Vectors()).width


def has_unit_length(folder: str | Path) -> bool:
    """Whether vectors are divided by their length: those of an embedder, or the mean-pooled ones of any other model."""
    return (files.read(folder) or Vectors()).normalized


def _class(config: Any) -> Any:
    return AutoModel._model_mapping[type(config)]


def encoder_arguments(config: Any) -> dict[str, bool]:
    """The argument by which a family's encoder has no pooler, which vectors do not need.

    Without it, transformers would add a random one each time it loads an encoder that was saved without a pooler.
    """
    return {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(_class(config)).parameters else {}


def _of_encoder(quantizer: Any, prefix: str) -> Any:
    """The settings of a quantizer, with the names that modules have in the encoder alone.

    Without a name, transformers would leave the last module, which has all layers, in float.
    """
    result = copy.copy(quantizer)
    for key in _SKIPPED:
        if hasattr(result, key):
            names = [name.removeprefix(f"{prefix}.") for name in getattr(result, key) or []]
            setattr(result, key, [name for name in names if name != DENSE] or ["pooler"])
    return result
