"""Whatever users may add to distill is a part of what a result is known by."""

from __future__ import annotations

import pytest

from distill.compression.quantization.fake_quantization import ROUNDING
from distill.compression.quantization.quantize import FITS, MAKE
from distill.config.backends import BACKENDS
from distill.config.feature_kinds import FEATURE_KINDS
from distill.config.instantiate import PLACES
from distill.config.schemes import SCHEMES
from distill.config.stages import STAGES
from distill.data.formats import BINARY, TEXT
from distill.data.task_types import TASK_TYPES
from distill.evaluation.metrics import METRICS
from distill.inference.runners import RUNTIMES
from distill.models.families.head import HEADS
from distill.models.families.records import FAMILIES, STUDENTS
from distill.pipeline import stages
from distill.runtime import outside

REGISTRIES = (
    *(BACKENDS, BINARY, FAMILIES, FEATURE_KINDS, FITS, HEADS, MAKE, METRICS, PLACES, ROUNDING, RUNTIMES, SCHEMES),
    *(STAGES, stages.STAGES, STUDENTS, TASK_TYPES, TEXT),
)


def test_every_registry_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {outside.code()}
    for registry in REGISTRIES:
        with monkeypatch.context() as patch:
            patch.setitem(registry, "own", ("tests.outside.absolute",))  # type: ignore[arg-type]
            found.add(outside.code())
    assert len(found) == 1 + len(REGISTRIES)
    assert outside.code() == ""
