"""Draws the imports between the rooms of distill, read from its source: `python docs/architecture.py [--check]`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX, GAP = 1000, 76, 28, 26
"""Pixels: room for a row of boxes, from one row to the next, height of a box, least distance of two boxes."""
LETTER = 8.2
"""Pixels of a letter of a name."""
SWEEPS = 24
"""Times that the order in the rows is improved."""

ROOMS = (
    *("errors", "runtime", "config", "models", "data", "losses", "training", "inference", "evaluation"),
    *("compression", "deploy", "report", "api", "labelling", "pipeline", "cli"),
)
"""The rooms, which are folders or files of distill/. A module imports only from its room and from rooms before it."""
COMMANDS = ("__main__", "predict", "label", "compare", "advise", "recipes", "look", "choose", "example")
"""Files beside the rooms: each makes one command of `cli/` callable as `python -m distill.NAME`."""

Graph = dict[str, set[str]]
"""Room -> rooms that it imports."""


def module_name(file: Path, root: Path = ROOT) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def resolve(name: str, modules: dict[str, Path]) -> str:
    """The longest leading part of a dotted name that is a module."""
    while name not in modules:
        name = name.rpartition(".")[0]
    return name


def imports(source: str, module: str, is_package: bool, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of distill that `source` imports anywhere, functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (resolve(n, modules) for n in names if n.split(".")[0] == "distill")


def parts() -> Graph:
    """The rooms of distill/, and what each imports."""
    modules = {module_name(file): file for file in sorted((ROOT / "distill").rglob("*.py"))}
    graph: Graph = {room: set() for room in ROOMS}
    for module, file in modules.items():
        if module != "distill" and (room := module.split(".")[1]) not in COMMANDS:
            found = imports(file.read_text(encoding="utf-8"), module, file.name == "__init__.py", modules)
            graph[room] |= {name.split(".")[1] for name in found if name != "distill"}
    return {room: imported - {room} for room, imported in graph.items()}


def reachable(graph: Graph, start: str) -> set[str]:
    """Every part that `start` imports, itself or by way of others."""
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            waiting += graph[part]
    return seen


def reduced(graph: Graph) -> Graph:
    """Without the imports that follow from others: a part that is also reached by way of another has no arrow."""
    behind = {part: reachable(graph, part) for part in graph}
    return {part: {p for p in near if not any(p in behind[other] for other in near)} for part, near in graph.items()}


def rows(graph: Graph) -> list[list[str]]:
    """Each part one row above the highest of those that it imports; the first row is at the bottom."""
    heights: dict[str, int] = {}

    def height(part: str) -> int:
        if part not in heights:
            heights[part] = 1 + max(map(height, graph[part]), default=-1)
        return heights[part]

    levels: list[list[str]] = [[] for _ in range(1 + max(map(height, graph)))]
    for part in sorted(graph):
        levels[heights[part]].append(part)
    return levels


def placed(graph: Graph, levels: list[list[str]]) -> dict[str, float]:
    """Part -> centre, from left to right: near the mean of its neighbours', with room for every name."""
    near = {part: sorted(graph[part] | {p for p in graph if part in graph[p]}) for part in graph}
    centres = {part: (n + 1) * WIDTH / (len(level) + 1) for level in levels for n, part in enumerate(level)}
    for _ in range(SWEEPS):
        for level in levels:
            wanted = {part: sum(centres[n] for n in near[part]) / len(near[part]) for part in level}
            level.sort(key=lambda part: (wanted[part], part))
            centres |= spread(level, wanted)
    return centres


def spread(level: list[str], wanted: dict[str, float]) -> dict[str, float]:
    """Centres in the order of `level`, near the wanted ones, with a gap between boxes and inside the picture."""
    edge, centres = -float("inf"), list[float]()
    for part in level:
        centres.append(max(wanted[part], edge + GAP + width(part) / 2))
        edge = centres[-1] + width(part) / 2
    shift = sum(wanted[part] - x for part, x in zip(level, centres, strict=True)) / len(level)
    least = GAP - (centres[0] - width(level[0]) / 2)
    return {part: x + min(max(shift, least), WIDTH - GAP - edge) for part, x in zip(level, centres, strict=True)}


def label(part: str) -> str:
    return f"{part}/" if (ROOT / "distill" / part).is_dir() else f"{part}.py"


def width(part: str) -> float:
    return len(label(part)) * LETTER + 16


def svg() -> str:
    graph = reduced(parts())
    levels = rows(graph)
    centres = placed(graph, levels)
    tops = {part: (len(levels) - 1 - n) * ROW + 16 for n, level in enumerate(levels) for part in level}
    least = min(centres[part] - width(part) / 2 for part in graph) - GAP
    most = max(centres[part] + width(part) / 2 for part in graph) + GAP
    view = f"{least:.0f} 0 {most - least:.0f} {len(levels) * ROW}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">',
        f'<rect x="{least:.0f}" width="100%" height="100%" fill="#ffffff"/>',
    ]
    for part in sorted(graph):
        for other in sorted(graph[part]):
            x, y, to_x, to_y = centres[part], tops[part] + BOX, centres[other], tops[other]
            middle = (y + to_y) / 2
            lines.append(
                f'<path d="M{x:.0f},{y} C{x:.0f},{middle:.0f} {to_x:.0f},{middle:.0f} {to_x:.0f},{to_y}" '
                'fill="none" stroke="#8a94a6" stroke-width="1.2"/>'
            )
    for part in sorted(graph):
        fill = "#dbe7fb" if label(part).endswith("/") else "#f4f4f0"
        left = centres[part] - width(part) / 2
        lines += [
            f'<rect x="{left:.0f}" y="{tops[part]}" width="{width(part):.0f}" height="{BOX}" rx="5" fill="{fill}" '
            'stroke="#3d4a5f"/>',
            f'<text x="{centres[part]:.0f}" y="{tops[part] + 19}" text-anchor="middle">{label(part)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        current = PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == svg()
        print("docs/architecture.svg is current" if current else "run python docs/architecture.py")
        return 0 if current else 1
    PICTURE.write_text(svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
