"""The picture: retained % against measured speedup over the reference, a variant of the teacher.

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

from distill.config.backends import BACKENDS
from distill.config.baselines import BASELINE
from distill.config.plan import CONTROLS
from distill.errors import visible
from distill.evaluation.results import Results
from distill.report import kept, model_rows
from distill.report.itself import without_student
from distill.report.timed import at, reported_input

INK = "#24292f"
"""Colour of text and axes; a page may replace it by its own text colour."""
COLOURS = ("#0072b2", "#d55e00", "#007f5f", "#b04e8a", "#8a6d00", "#c2417c", "#3a9fb0", "#7a7f87")
ON_DARK = ("#56b4e9", "#f0803c", "#2bc79a", "#e08fc0", "#e6c229", "#e583ae", "#7fc4d1", "#b4b9bf")
"""The palette, on light and on dark ground. `Backend.colour` is a place in it."""
_ITSELF, _OTHER = "itself", "other"
"""Roles of the points in the student's place, in a run without a student, and of a baseline with a start of its own."""
_MARKERS = {
    "teacher": "*",
    "student": "o",
    "baseline": "X",
    _OTHER: "X",
    "self-trained": "D",
    "member": "P",
    "pruned": "v",
    _ITSELF: "o",
}
_NAMES = {
    "teacher": "teacher",
    "student": "student",
    "baseline": "same student, no teacher",
    _OTHER: "another student, no teacher",
    "self-trained": "same student, self-trained",
    "member": "member of the ensemble",
    "pruned": "pruned, not recovered",
    _ITSELF: "teacher in other forms",
}
_LINES = {"baseline": ":", _OTHER: ":", "self-trained": "-.", "pruned": "--"}
_PALE = 0.3
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
    *((dx, dy) for dy in (60, -60, 80, -80, 105, -105) for dx in (9, -9, 60, -60)),
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
    group: str = ""
    """Name of its colour in the legend."""
    shape: str | None = None
    """The batch x length at which the speedup was measured."""
    line: str | None = None
    """Points with the same line and role are joined."""
    front: bool = True
    """Points behind the others are pale, without label and intervals."""


def points(results: Results) -> list[Point]:
    """Models with a speedup and a retained %, except the teacher in float32: it is drawn at (1, 100).

    A label has the student's target, if the run has several, and its variant.
    """
    shown = []
    for model in results.models:
        x, y = model_rows.speedup(model), model_rows.retained(model)
        reference = model.role == "teacher" and model_rows.float32(model)
        if x is None or y is None or reference or model.failed:
            continue
        intervals = [model_rows.interval(model, key) for key in ("speedup", "retained")]
        across, along = [(ends[0], ends[1]) if ends else None for ends in intervals]
        name = model.name if model.role == "member" else model.target
        label = (f"{name}, " if name else "") + model_rows.variant(model)
        label += " (CPU)" if model_rows.where(results, model) else ""
        group = model.backend
        role = _OTHER if model.role == BASELINE and results.own_baseline is True else model.role
        shown.append(Point(label, role, x, y, across, along, group, reported_input(results)))
    placed = in_front(shown)
    if not without_student(results):
        return placed
    return [replace(point, role=_ITSELF) if point.role == "student" else point for point in placed]


def in_front(shown: Sequence[Point]) -> list[Point]:
    """The points, of which some are in front: students that no other beats, joined by a line, the same variants trained
    without a teacher and only pruned, members of an ensemble, and the fastest variant of the teacher."""
    best = unbeaten(shown)
    labels = {point.label for point in best}
    fastest = max((point.speedup for point in shown if point.role == "teacher"), default=0.0)
    alone = not any(point.role == "student" and point.label in labels for point in shown if point not in best)

    def placed(point: Point) -> Point:
        if point.role == "student":
            return replace(point, front=point in best, line="students" if point in best and alone else None)
        if point.role == "teacher":
            return replace(point, front=point.speedup == fastest, label=f"teacher, {point.label}")
        front = point.label in labels or not any(other.label in labels for other in shown if other.role == point.role)
        return replace(point, front=front, label=point.label if point.role == "member" else "")

    return [placed(point) for point in shown]


def unbeaten(shown: Sequence[Point]) -> list[Point]:
    """The students than which no other is at least as good and as fast, and better in one of the two."""
    students = [point for point in shown if point.role == "student"]
    return [point for point in students if not any(_beats(other, point) for other in students)]


def _beats(point: Point, other: Point) -> bool:
    gains = (point.speedup - other.speedup, point.retained - other.retained)
    return min(gains) >= 0 and max(gains) > 0


def _colour(point: Point, groups: Sequence[str]) -> str:
    """Of the point's backend, or by the order of the groups."""
    backend = BACKENDS.get(point.group)
    place = groups.index(point.group) if backend is None or backend.colour is None else backend.colour
    return COLOURS[place % len(COLOURS)]


@dataclass(frozen=True)
class Second:
    """A second axis of speedups: over another model, which is itself `speedup` times as fast as the first."""

    over: str
    speedup: float


def second(results: Results) -> Second | None:
    """Speedups over the teacher's fastest variant that keeps its score; None if that is the reference."""
    found = next((over for model in results.models if (over := kept.kept(model)) is not None), None)
    if found is None:
        return None
    same = [m for m in results.models if (m.role, m.scheme, m.backend) == ("teacher", found.scheme, found.backend)]
    speed = model_rows.speedup(same[0]) if same else None
    return Second(kept.kept_name(results), speed) if speed else None


def draw(
    shown: Sequence[Point], smoke: bool = False, over: str = model_rows.REFERENCE, below: Second | None = None
) -> Figure:
    """Axes, the teacher at (1, 100), the points with their intervals, and labels that do not overlap.

    `over` names the model that speedups are relative to.
    """
    figure = Figure(figsize=(8.4, 5.0), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    teacher = Point("teacher", "teacher", 1.0, 100.0)
    groups = list(dict.fromkeys(point.group for point in shown))
    axes.axhline(100, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
    for point in sorted([teacher, *shown], key=lambda point: point.front):
        _mark(axes, point, INK if point is teacher else _colour(point, groups))
    for name, role in dict.fromkeys((point.line, point.role) for point in shown if point.line):
        joined = sorted((p for p in shown if (p.line, p.role) == (name, role)), key=lambda p: (p.speedup, p.retained))
        colour = _colour(joined[0], groups) if len({point.group for point in joined}) == 1 else INK
        places = [(point.speedup, point.retained) for point in joined]
        axes.plot(*zip(*places, strict=True), _LINES.get(role, "-"), color=colour, linewidth=1.1, alpha=0.55)
    for group in groups if groups != [""] else ():
        first = next(point for point in shown if point.group == group)
        axes.plot([], [], "-", color=_colour(first, groups), linewidth=4, label=visible(group))
    for role in dict.fromkeys(point.role for point in (teacher, *shown)):
        fill = "none" if role in (*CONTROLS, _OTHER) else INK
        axes.plot([], [], _MARKERS[role], color=INK, markerfacecolor=fill, markersize=8, label=_NAMES[role])
    if not all(point.front for point in shown):
        axes.plot([], [], "o", color=INK, markersize=6, alpha=_PALE, label="other variants")
    _limits(axes, [teacher, *shown])
    axes.set_xlabel(f"speedup over {visible(over)}{at(p.shape for p in shown)} (higher is faster)")
    if below is not None:
        times = below.speedup
        scale = axes.secondary_xaxis(-0.17, functions=(_scaled(1 / times), _scaled(times)))
        scale.set_xlabel(f"speedup over {visible(below.over)}")
    axes.set_ylabel("retained % of the teacher's macro score")
    axes.grid(alpha=0.18, color=INK, linewidth=0.6)
    columns = 2 if max(map(len, groups), default=0) > 25 else 4
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, frameon=False, borderaxespad=0.2, fontsize=9)
    if smoke:
        axes.text(0.5, 0.5, "SMOKE RUN\nnumbers mean nothing", transform=axes.transAxes, fontsize=26,
                  color="#c62828", alpha=0.35, ha="center", va="center", rotation=18)  # fmt: skip
    _label(canvas, axes, [teacher, *shown])
    return figure


def _scaled(factor: float) -> Any:
    return lambda speedups: speedups * factor


def _mark(axes: Axes, point: Point, colour: str) -> None:
    def reach(value: float, ends: tuple[float, float] | None) -> list[list[float]] | None:
        # a median of single texts may be slightly outside its interval
        return [[max(value - ends[0], 0.0)], [max(ends[1] - value, 0.0)]] if ends else None

    axes.errorbar(
        point.speedup,
        point.retained,
        xerr=reach(point.speedup, point.speedup_interval) if point.front else None,
        yerr=reach(point.retained, point.retained_interval) if point.front else None,
        fmt=_MARKERS[point.role],
        markersize=(13 if point.role == "teacher" else 8.5) if point.front else 6,
        markerfacecolor="none" if point.role in (*CONTROLS, _OTHER) else colour,
        color=colour,
        ecolor=colour,
        elinewidth=1.3,
        capsize=2.5,
        alpha=None if point.front else _PALE,
    )


def _limits(axes: Axes, everything: Sequence[Point]) -> None:
    """Room for labels on all sides; the speed axis starts at zero, so that distances are proportional to speed."""
    right = max(max(p.speedup, *(p.speedup_interval or (0, 0))) for p in everything)
    ends = [value for p in everything for value in (p.retained, *((p.retained_interval or ()) if p.front else ()))]
    margin = max(0.15 * (max(ends) - min(ends)), 0.8)
    axes.set_xlim(0, right * 1.16 + 0.35)
    axes.set_ylim(min(ends) - margin, max(ends) + margin)


def _label(canvas: FigureCanvasAgg, axes: Axes, everything: Sequence[Point]) -> None:
    """Put each label at the first of `_PLACES` where it hides no marker, no interval and no other label.

    A label for which there is no such place is left out: two that overlap are both unreadable.
    """
    canvas.figure.draw_without_rendering()
    canvas.figure.set_layout_engine("none")
    renderer = canvas.get_renderer()
    taken = [box for point in everything for box in _covered(axes, point)]
    inside = axes.get_window_extent(renderer)
    for point in (point for point in everything if point.label and point.front):
        for dx, dy in _PLACES:
            note = _note(axes, point, dx, dy)
            note.update_positions(renderer)
            box = Text.get_window_extent(note, renderer)  # without its line, which begins at the marker
            is_inside = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
            if is_inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def _covered(axes: Axes, point: Point) -> list[Bbox]:
    """Boxes in pixels around a point's marker and its two intervals."""
    x, y = point.speedup, point.retained
    across, along = (ends if point.front else None for ends in (point.speedup_interval, point.retained_interval))
    lines = [((x, y), (x, y), 10 if point.front else 5)]
    lines += [((across[0], y), (across[1], y), 3)] if across else []
    lines += [((x, along[0]), (x, along[1]), 3)] if along else []
    boxes = [(axes.transData.transform([start, end]), room) for start, end, room in lines]
    return [Bbox([low - room, high + room]) for (low, high), room in boxes]


def _note(axes: Axes, point: Point, dx: int, dy: int) -> Annotation:
    return axes.annotate(
        visible(point.label),
        (point.speedup, point.retained),
        xytext=(dx, dy),
        textcoords="offset points",
        ha="left" if dx > 0 else "right",
        fontsize=10,
        arrowprops={"arrowstyle": "-", "color": INK, "alpha": 0.35, "linewidth": 0.6} if abs(dy) > 20 else None,
    )


def svg(
    shown: Sequence[Point], smoke: bool = False, over: str = model_rows.REFERENCE, below: Second | None = None
) -> str:
    """The picture as SVG on a transparent background."""
    with matplotlib.rc_context(_STYLE):
        return _svg(draw(shown, smoke, over, below))


def png(
    shown: Sequence[Point], smoke: bool = False, over: str = model_rows.REFERENCE, below: Second | None = None
) -> bytes:
    """The picture as PNG on white."""
    with matplotlib.rc_context(_STYLE):
        return _png(draw(shown, smoke, over, below))


def both(
    shown: Sequence[Point], smoke: bool = False, over: str = model_rows.REFERENCE, below: Second | None = None
) -> tuple[str, bytes]:
    """What `svg` and `png` return. It is drawn once, because placing the labels takes longest."""
    with matplotlib.rc_context(_STYLE):
        drawn = draw(shown, smoke, over, below)
        return _svg(drawn), _png(drawn)


def _svg(drawn: Figure) -> str:
    file, no_metadata = io.StringIO(), {"Date": None, "Creator": None, "Format": None, "Type": None}
    drawn.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _png(drawn: Figure) -> bytes:
    file = io.BytesIO()
    drawn.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return file.getvalue()
