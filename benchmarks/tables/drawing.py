"""Small SVG drawings, legible alone, on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

COLOURS = {
    "back": ("#ffffff", "#12161d"),
    "ink": ("#1d2433", "#e8ebf0"),
    "soft": ("#5b6577", "#a7b0be"),
    "rule": ("#cfd5df", "#3a4352"),
    "plain": ("#f1f3f7", "#1f2630"),
    "first": ("#1f5fbf", "#6ea8ff"),
    "second": ("#b4500a", "#f3a05c"),
    "tint": ("#dce8fb", "#24466f"),
    "warm": ("#fbe6d4", "#4a2d12"),
}
"""Name -> colour on a light and on a dark page."""
FONTS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
SIZE, LINE = 14, 18
"""Pixels of a letter's height, and from one line of a text to the next."""


@dataclass
class Drawing:
    """Shapes, in pixels from the upper left corner. `alt` says in words what the drawing shows."""

    width: int
    height: int
    alt: str
    shapes: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, lines: str, colour: str = "ink", *, anchor: str = "start", bold: bool = False
    ) -> None:
        """Lines of text, the first with its baseline at `y`."""
        weight = ' font-weight="600"' if bold else ""
        for number, line in enumerate(lines.split("\n")):
            at = f'x="{x:.0f}" y="{y + number * LINE:.0f}" text-anchor="{anchor}"'
            self.shapes.append(f'<text {at} class="{colour}"{weight}>{escape(line)}</text>')

    def box(
        self, x: float, y: float, width: float, height: float, colour: str = "plain", *, dashed: bool = False
    ) -> None:
        """A rectangle with an edge."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
        self.shapes.append(f'<rect {size} rx="6" class="{colour} edge"{dash}/>')

    def label(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: str,
        colour: str = "plain",
        *,
        dashed: bool = False,
    ) -> None:
        """A box with lines of text in its middle, the first in bold."""
        self.box(x, y, width, height, colour, dashed=dashed)
        first, _, rest = lines.partition("\n")
        top = y + height / 2 - LINE * rest.count("\n") / 2 - (LINE / 2 if rest else 0) + SIZE / 3
        self.text(x + width / 2, top, first, anchor="middle", bold=True)
        if rest:
            self.text(x + width / 2, top + LINE, rest, "soft", anchor="middle")

    def line(self, points: Sequence[tuple[float, float]], colour: str = "soft", *, arrow: bool = False) -> None:
        """A line through points, with an arrow at its end."""
        path = " ".join(f"{'M' if n == 0 else 'L'}{x:.0f},{y:.0f}" for n, (x, y) in enumerate(points))
        end = ' marker-end="url(#end)"' if arrow else ""
        self.shapes.append(f'<path d="{path}" class="stroke-{colour}"{end}/>')

    def dot(self, x: float, y: float, radius: float, colour: str, *, hollow: bool = False) -> None:
        """A round mark."""
        kind = f"stroke-{colour} hollow" if hollow else colour
        self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>')

    def svg(self) -> str:
        """The file's text."""
        dark = "@media (prefers-color-scheme: dark) {" + _rules(1) + "}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
                f'aria-label="{escape(self.alt, {chr(34): "&quot;"})}" '
                f'font-family="{FONTS}" font-size="{SIZE}">',
                f"<title>{escape(self.alt)}</title>",
                f"<style>path {{stroke-width: 1.6}} .hollow {{stroke-width: 2}}{_rules(0)} {dark}</style>",
                '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                'orient="auto"><path d="M0,0 L8,4 L0,8 z" class="soft" style="stroke: none"/></marker></defs>',
                f'<rect width="{self.width}" height="{self.height}" rx="8" class="back"/>',
                *self.shapes,
                "</svg>\n",
            ]
        )


def _rules(which: int) -> str:
    fills = [f".{name}, path.{name} {{fill: {both[which]}}}" for name, both in COLOURS.items()]
    strokes = [f".stroke-{name} {{stroke: {both[which]}; fill: none}}" for name, both in COLOURS.items()]
    edge = f".edge {{stroke: {COLOURS['rule'][which]}; stroke-width: 1.2}}"
    hollow = f".hollow {{fill: {COLOURS['back'][which]}}}"
    return " " + " ".join([*fills, *strokes, edge, hollow])
