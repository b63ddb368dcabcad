"""The rules of `results.json`: the types of `distill.evaluation.results`, and what types cannot express."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from distill.config.backends import BACKENDS
from distill.evaluation.record import Record
from distill.evaluation.results import MEASURED, PREDICTED, Results


def validate(document: Any) -> list[str]:
    """Violations of the schema in JSON values as `place: message`; empty for valid results. Of values of a wrong type,
    it names the first."""
    wrong = misfit(document, Results)
    return [wrong] if wrong else list(_violations(msgspec.convert(document, Results)))


def misfit(document: Any, kind: Any, name: str = "results") -> str:
    """The first JSON value of a wrong type as `place: got VALUE; message`; an empty text if all fit the type `kind`.

    Args:
        name: the place of the document itself.
    """
    message, path = _error(document, kind)
    if not message:
        return ""
    place, value = _found(document, kind, path)
    shown = "" if isinstance(value, dict | list) else f"got {_shortened(json.dumps(value), 40)}; "
    return f"{place.removeprefix('.') or name}: {shown}{_shortened(message)}"


def _violations(results: Results) -> Iterator[str]:
    """Violations of rules that types cannot express."""
    for key in ("cpu", "threads", "torch"):
        if key not in results.environment:
            yield f"environment: got no {key}; must have one"
    if type(threads := results.environment.get("threads", 1)) is not int:
        yield f"environment.threads: got {threads}; must be a whole number"
    for number, model in enumerate(results.models):
        yield from () if model.failed else _missing(model, MEASURED, f"models[{number}]")
    for number, row in enumerate(results.pruned):
        predicted = {row.predicted_ms, row.predicted_speedup} != {UNSET}
        yield from _missing(row, PREDICTED, f"pruned[{number}]") if predicted else ()
    yield from _meaningless(results, "", "")


def _missing(row: Record, keys: tuple[str, ...], place: str) -> Iterator[str]:
    if missing := [key for key in keys if getattr(row, key) in ("", UNSET)]:
        yield f"{place}: got no {', '.join(missing)}; must have {', '.join(keys)}"


def _meaningless(value: Any, place: str, name: str) -> Iterator[str]:
    """Numbers that are not finite, intervals that are not [lower, upper], and backends that are not known now: code
    outside of the package may add some. `name`: of the field."""
    if isinstance(value, Record):
        for field, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            yield from _meaningless(getattr(value, field), f"{place}.{key}", field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _meaningless(item, f"{place}.{key}", name)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _meaningless(item, f"{place}[{index}]", name)
        if name.endswith("ci95") and value[0] > value[1]:
            yield f"{_place(place)}: got {list(value)}; must be [lower, upper]"
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{_place(place)}: got {value}; must be a finite number or null"
    elif name == "backend" and value and value not in BACKENDS:
        yield f"{_place(place)}: got {_shortened(value)}; must be one of {', '.join(BACKENDS)}"


def _found(document: Any, kind: Any, path: str) -> tuple[str, Any]:
    """The path of an error with the key in place of each `[...]`, because msgspec names no key of a mapping, and the
    value there."""
    document = inner = copy.deepcopy(document)
    place = ""
    for part in re.findall(r"\.[^.\[]+|\[\d+\]|\[\.\.\.\]", path):
        if part == "[...]":
            for key, value in dict(inner).items():
                inner.clear()
                inner[key] = value  # alone: if the error is still there, it is in this value
                if _error(document, kind)[1] == path:
                    break
            part = f".{key}"
        inner = inner[int(part[1:-1])] if part.startswith("[") else inner[part[1:]]
        place += part
    return place, inner


def _error(document: Any, kind: Any) -> tuple[str, str]:
    """Message and path of an error of msgspec; empty texts without one."""
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        return message, path.removesuffix("`")
    return "", ""


def _place(path: str) -> str:
    return path.removeprefix(".") or "results"


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
