"""The head that tells from a text of two segments whether they were changed, in BERT's and ALBERT's form."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from distill.models import families
from distill.models.teacher.files import stored


class SegmentHead(nn.Module):
    """Logits of unchanged and of changed pairs, from the last hidden state of the first token.

    The pooler and the classifier of next sentence prediction (Devlin et al. 2019, arXiv 1810.04805, section 3.1), which
    ALBERT has for sentence order prediction too. Deviation: no dropout before the classifier, of which ALBERT has 0.1.
    """

    def __init__(self, width: int, std: float) -> None:
        super().__init__()
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        for linear in (self.pooler, self.classifier):
            nn.init.normal_(linear.weight, std=std)
            nn.init.zeros_(linear.bias)

    def forward(self, first: Tensor) -> Tensor:
        """Logits [P, 2] of hidden states [P, H]."""
        logits: Tensor = self.classifier(self.pooler(first).tanh())
        return logits


def segment_head(model: Any, folders: Iterable[str | Path]) -> SegmentHead:
    """A head for a model, on its device, that starts from what these folders have of the family's own head in the size
    of the model; later folders win. The rest is random, from torch's default generator."""
    head = SegmentHead(families.width(model), getattr(model.config, "initializer_range", 0.02)).float()
    own = {name: key for key, name in _names(model).items()}
    prefix = f"{families.family_of(model).encoder}."
    own |= {name.removeprefix(prefix): key for name, key in own.items()}
    with torch.no_grad():
        for folder in folders:
            found = [(head.get_parameter(own[name]), value) for name, value in stored(folder, own)]
            if all(parameter.shape == value.shape for parameter, value in found):
                for parameter, value in found:
                    parameter.copy_(value)
    return head.to(model.device)


def tensors(head: SegmentHead, model: Any) -> dict[str, Tensor]:
    """The weights of a head under the names that they have in the family's class for pretraining; none in a family
    without such a head."""
    return {name: head.get_parameter(key).detach() for key, name in _names(model).items()}


def _names(model: Any) -> dict[str, str]:
    """Parameter of `SegmentHead` -> its name in the family's class for pretraining."""
    paths = families.family_of(model).segment_head
    if paths is None:
        return {}
    both = zip(("pooler", "classifier"), paths, strict=True)
    return {f"{own}.{kind}": f"{path}.{kind}" for own, path in both for kind in ("weight", "bias")}
