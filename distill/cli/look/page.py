"""The page of `distill look`: one file that loads nothing."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from distill.cli.look.seen import Floats, Seen, similarity
from distill.evaluation.cka import LEAST
from distill.report.html import TEMPLATES, rendered
from distill.report.model_rows import counted
from distill.report.web import policy

COLOUR = (74, 144, 217)
"""Of the pictures, which have it on light and dark ground alike."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def page(seen: Sequence[Seen]) -> str:
    """The page on a model, or on a teacher and its student."""
    roles = ("Teacher", "Student") if len(seen) > 1 else ("Model",)
    script, *styles = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("look.js", "page.css", "look.css"))
    cells, common = similarity(seen[0], seen[-1])
    names = [["embeddings", *map(str, range(len(one.attention)))] for one in seen]
    return rendered(
        "look.html",
        title=" and ".join(one.folder for one in seen),
        models=[_model(role, one) for role, one in zip(roles, seen, strict=True)],
        notes=[note for role, one in zip(roles, seen, strict=True) for note in _notes(role, one)],
        same=len(seen) == 1,
        columns=names[0],
        rows=list(zip(names[-1], cells, strict=True)) if common >= LEAST else [],
        common=counted(common, "token"),
        least=LEAST,
        style=Markup("".join(styles)),
        script=Markup(script),
        policy=policy([script]),
    )


def _notes(role: str, seen: Seen) -> list[str]:
    if seen.whole <= len(seen.tokens):
        return []
    return [
        f"{role}: the text has {seen.whole:,} tokens, special tokens included. It was cut to {len(seen.tokens):,}, and "
        "the model did not read the others. The option --tokens changes this number, up to the maximum of the model."
    ]


def _model(role: str, seen: Seen) -> dict[str, Any]:
    """What the template shows of a model."""
    layers, (heads, length, _) = len(seen.attention), seen.attention[0].shape
    facts = f"{seen.folder}: {seen.family}, {counted(layers, 'layer')} of {counted(heads, 'head')}"
    chances: list[float | None] = [None] * length if seen.replaced is None else seen.replaced.tolist()
    tokens = list(zip(seen.tokens, chances, strict=True))
    found = [
        f"{token.text} ({chance:.2f})" for token, chance in tokens if chance is not None and token.end and chance > 0.5
    ]
    return {
        "role": role,
        "facts": f"{facts}, {seen.hidden[-1].shape[1]:,} wide. {counted(length, 'token')}.",
        "tokens": tokens,
        "discriminates": seen.replaced is not None,
        "replaced": ", ".join(found) or "none",
        "maps": [[_picture(head) for head in layer] for layer in seen.attention],
    }


def _picture(weights: Floats) -> str:
    """Attention weights [L, L] as the address of a PNG with a pixel for each, whose opacity is the root of the
    weight."""
    opacity = np.rint(255 * np.sqrt(weights.clip(0, 1))).astype(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in opacity)
    side = len(opacity)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(COLOUR) * 256),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    content = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(SIGNATURE + content).decode()}"
