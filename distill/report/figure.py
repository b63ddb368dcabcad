"""The picture: retained % against measured speedup over the teacher's fastest float32 variant.

The same points give the same bytes: the files have no date and no random ids.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from distill.report import headline
from distill.report.schema import Results
from distill.report.timed import at, middle_shape

INK = "#24292f"
"""Colour of text and axes; a page may replace it by its own text colour."""
_COLOURS = ("#1f77d0", "#d1622b", "#2e9e6b", "#8d5bd0", "#b8860b", "#c2417c", "#3a9fb0", "#7a7f87")
_MARKERS = {"teacher": "*", "student": "o", "baseline": "X", "member": "P", "pruned": "v"}
_NAMES = {
    "teacher": "teacher",
    "student": "student",
    "baseline": "same student, no teacher",
    "member": "member of the ensemble",
    "pruned": "pruned, not recovered",
}
_LINES = {"baseline": ":", "pruned": "--"}
REFERENCE = "the teacher's fastest float32 variant"
_STYLE: Any = {
    "svg.hashsalt": "distill",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name does not begin a formula
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{key: INK for key in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")},
}
_PLACES = [
    (9, 7),
    (9, -15),
    (-9, 7),
    (-9, -15),
    (9, 21),
    (9, -29),
    (-9, 21),
    (-9, -29),
    (9, 35),
    (-9, 35),
    (9, -43),
    (-9, -43),
    (60, 21),
]


@dataclass(frozen=True)
class Point:
    """One model: speedup and retained %, each with its 95% interval or None."""

    label: str
    role: str
    speedup: float
    retained: float
    speedup_interval: tuple[float, float] | None = None
    retained_interval: tuple[float, float] | None = None
    series: int = 0
    """Points of one series have the same colour."""
    shape: str | None = None
    """The batch x length at which the speedup was measured."""
    curve: str | None = None
    """Points with the same curve and role are joined by a line."""


def points(results: Results) -> list[Point]:
    """Models with a speedup and a retained %, except float32 variants of the teacher: it is drawn at (1, 100)."""
    shown, curves = [], dict[tuple[str, str], list[tuple[int, str]]]()
    for model in results["models"]:
        x, y = headline.speedup(model), headline.retained(model)
        reference = model["role"] == "teacher" and headline.float32(model)
        if x is None or y is None or reference or "failed" in model:
            continue
        intervals = [headline.interval(model, key) for key in ("speedup", "retained")]
        across, along = [(ends[0], ends[1]) if ends else None for ends in intervals]
        series = list(_NAMES).index(model["role"])
        name = f"{model['name']}, " if model["role"] == "member" else ""
        label = name + headline.variant(model) + (" (CPU)" if headline.where(results, model) else "")
        shown.append(Point(label, model["role"], x, y, across, along, series, middle_shape(results)))
        if model["target"]:
            curves.setdefault((model["role"], label), []).append((len(shown) - 1, model["target"]))
    for number, ((role, label), ends) in enumerate(curves.items()):
        for index, target in ends:
            # Only the first curve has labels, because the others run beside it.
            named = target if number == 0 else ""
            shown[index] = replace(shown[index], label=named, series=number, curve=f"{_NAMES[role]}, {label}")
    return shown


def draw(shown: Sequence[Point], smoke: bool = False, over: str = REFERENCE) -> Figure:
    """Axes, the teacher at (1, 100), the points with their intervals, and labels that do not overlap.

    `over` names the model that speedups are relative to.
    """
    figure = Figure(figsize=(8.4, 5.0), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    teacher = Point("teacher, fp32", "teacher", 1.0, 100.0)
    everything = [teacher, *shown]
    axes.axhline(100, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
    for point in everything:
        _mark(axes, point, INK if point is teacher else _COLOURS[point.series % len(_COLOURS)])
    roles = {p.role: None for p in everything if p.curve is None}
    for name in dict.fromkeys(point.curve for point in shown if point.curve is not None):
        curve = [point for point in shown if point.curve == name]
        colour = _COLOURS[curve[0].series % len(_COLOURS)]
        several = dict.fromkeys(point.role for point in curve)
        for role in several:
            joined = sorted((p.speedup, p.retained) for p in curve if p.role == role)
            axes.plot(*zip(*joined, strict=True), _LINES.get(role, "-"), color=colour, linewidth=1.1, alpha=0.55)
        axes.plot([], [], "-" if len(several) > 1 else _MARKERS[curve[0].role], color=colour, markersize=8, label=name)
        roles |= several if len(several) > 1 else {}
    for role in roles:
        axes.plot([], [], _MARKERS[role], color=INK, markersize=8, label=_NAMES[role])
    _limits(axes, everything)
    axes.set_xlabel(f"speedup over {over}{at(p.shape for p in shown)} (higher is faster)")
    axes.set_ylabel("retained % of the teacher's macro score")
    axes.grid(alpha=0.18, color=INK, linewidth=0.6)
    columns = len(_NAMES) if all(point.curve is None for point in shown) else 2
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False, borderaxespad=0.2, fontsize=9)
    if smoke:
        axes.text(0.5, 0.5, "SMOKE RUN\nnumbers mean nothing", transform=axes.transAxes, fontsize=26,
                  color="#c62828", alpha=0.35, ha="center", va="center", rotation=18)  # fmt: skip
    _label(canvas, axes, everything)
    return figure


def _mark(axes: Axes, point: Point, colour: str) -> None:
    def reach(value: float, ends: tuple[float, float] | None) -> list[list[float]] | None:
        # a median may be slightly outside its bootstrap interval
        return [[max(value - ends[0], 0.0)], [max(ends[1] - value, 0.0)]] if ends else None

    axes.errorbar(
        point.speedup,
        point.retained,
        xerr=reach(point.speedup, point.speedup_interval),
        yerr=reach(point.retained, point.retained_interval),
        fmt=_MARKERS[point.role],
        markersize=13 if point.role == "teacher" else 8.5,
        color=colour,
        ecolor=colour,
        elinewidth=1.3,
        capsize=2.5,
    )


def _limits(axes: Axes, everything: Sequence[Point]) -> None:
    """Room for labels on all sides; the speed axis starts at zero, so that distances are proportional to speed."""
    right = max(max(p.speedup, *(p.speedup_interval or (0, 0))) for p in everything)
    ends = [value for p in everything for value in (p.retained, *(p.retained_interval or ()))]
    margin = max(0.15 * (max(ends) - min(ends)), 0.8)
    axes.set_xlim(0, right * 1.16 + 0.35)
    axes.set_ylim(min(ends) - margin, max(ends) + margin)


def _label(canvas: FigureCanvasAgg, axes: Axes, everything: Sequence[Point]) -> None:
    """Put each label at the first of `_PLACES` where it hides no marker, no interval and no other label."""
    canvas.figure.draw_without_rendering()
    canvas.figure.set_layout_engine("none")
    renderer = canvas.get_renderer()
    taken = [box for point in everything for box in _covered(axes, point)]
    inside = axes.get_window_extent(renderer)
    for point in (point for point in everything if point.label):
        best: tuple[float, tuple[int, int], Bbox] | None = None
        for rank, (dx, dy) in enumerate(_PLACES):
            note = _note(axes, point, dx, dy)
            note.update_positions(renderer)
            box = Text.get_window_extent(note, renderer)  # without its line, which begins at the marker
            note.remove()
            out = box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1
            cost = rank + 100 * sum(box.overlaps(other) for other in taken) + 300 * out
            if best is None or cost < best[0]:
                best = (cost, (dx, dy), box)
        assert best is not None
        _note(axes, point, *best[1])
        taken.append(best[2])


def _covered(axes: Axes, point: Point) -> list[Bbox]:
    """Boxes in pixels around a point's marker and its two intervals."""
    x, y = point.speedup, point.retained
    across, along = point.speedup_interval or (x, x), point.retained_interval or (y, y)
    lines = [((x, y), (x, y), 10), ((across[0], y), (across[1], y), 3), ((x, along[0]), (x, along[1]), 3)]
    boxes = [(axes.transData.transform([start, end]), room) for start, end, room in lines]
    return [Bbox([low - room, high + room]) for (low, high), room in boxes]


def _note(axes: Axes, point: Point, dx: int, dy: int) -> Annotation:
    return axes.annotate(
        point.label,
        (point.speedup, point.retained),
        xytext=(dx, dy),
        textcoords="offset points",
        ha="left" if dx > 0 else "right",
        fontsize=10,
        arrowprops={"arrowstyle": "-", "color": INK, "alpha": 0.35, "linewidth": 0.6} if abs(dy) > 20 else None,
    )


def svg(shown: Sequence[Point], smoke: bool = False) -> str:
    """The picture as SVG on a transparent background."""
    file = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        no_metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        draw(shown, smoke).savefig(file, format="svg", transparent=True, metadata=no_metadata)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def png(shown: Sequence[Point], smoke: bool = False, over: str = REFERENCE) -> bytes:
    """The picture as PNG on white."""
    file = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        draw(shown, smoke, over).savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return file.getvalue()
