"""A scene as one self-contained SVG: nested boxes, a bar for what joins them, strips for axes.

Written by hand rather than by Matplotlib: rectangles and text are all it needs, and a drawing of a
cluster stays a few kilobytes that a diff can show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from meshfit.report.draw.scene import Box, Scene

_CELL_WIDTH, _CELL_HEIGHT = 64, 34
_NIC_WIDTH = 74
_GAP, _PAD = 8, 10
_LINE = 16
_MOST_WIDTH = 1100
_CHARACTER = 6.2
"""Width of a character at 11 px, on the wide side."""

_FILL = {
    "level": "#f6f7f9", "host": "#ffffff", "numa": "#eef3fa", "switch": "#f7f1e3",
    "gpu": "#dcecd9", "nic": "#f3dede", "storage": "#e9e4f2", "more": "none",
}  # fmt: skip
_GROUPS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
)  # fmt: skip


@dataclass(frozen=True)
class _Placed:
    """A box with its size, and its children with theirs and their places inside."""

    box: Box
    width: float
    height: float
    children: tuple[tuple[float, float, "_Placed"], ...] = ()


def scene_svg(scene: Scene) -> str:
    """The document. Equal scenes give equal bytes."""
    root = _place(scene.root)
    footer = [*_axis_lines(scene), *(f"note: {note}" for note in scene.notes)]
    longest = max((len(line) for line in (scene.title, *footer)), default=0)
    width = max(root.width, min(_MOST_WIDTH, longest * _CHARACTER)) + 2 * _PAD
    height = root.height + 2 * _PAD + 24 + _LINE * len(footer)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        _text(_PAD, 20, scene.title, size=14, weight="bold"),
    ]
    _draw(parts, root, _PAD, 30, scene)
    y = 30 + root.height + _LINE
    for index, line in enumerate(footer):
        if index < len(scene.axes):
            parts += [
                f'<rect x="{_PAD + 9 * i}" y="{y - 8:.0f}" width="8" height="8" fill="{colour}"/>'
                for i, colour in enumerate(_GROUPS[: len(set(scene.axes[index].group_of))])
            ]
        parts.append(_text(_PAD + (80 if index < len(scene.axes) else 0), y, line))
        y += _LINE
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis_lines(scene: Scene) -> list[str]:
    lines = []
    for index, axis in enumerate(scene.axes):
        sent = ""
        if axis.bytes_per_step is not None:
            sent = f", each rank sends {axis.bytes_per_step / 1e9:.3g} GB a step"
        groups = len(set(axis.group_of))
        lines.append(
            f"{axis.name} (strip {index + 1}): {groups} groups of {axis.degree} inside {axis.level}{sent}"
        )
    return lines


def _place(box: Box) -> _Placed:
    if box.kind in ("gpu", "nic"):
        width = _CELL_WIDTH if box.kind == "gpu" else _NIC_WIDTH
        return _Placed(box, max(width, len(box.title) * _CHARACTER + 8), _CELL_HEIGHT)
    if box.kind in ("more", "storage"):
        return _Placed(box, len(box.title) * _CHARACTER + 2 * _PAD, _CELL_HEIGHT)
    children = [_place(child) for child in box.children]
    top = _PAD + _LINE * len(_heading(box)) + (6 if box.rails else 0)
    placed: list[tuple[float, float, _Placed]] = []
    x, y, row_height, widest = float(_PAD), float(top), 0.0, 0.0
    for child in children:
        if x > _PAD and x + child.width > _limit(children):
            x, y, row_height = float(_PAD), y + row_height + _GAP, 0.0
        placed.append((x, y, child))
        x += child.width + _GAP
        row_height = max(row_height, child.height)
        widest = max(widest, x - _GAP)
    heading = max((len(line) for line in _heading(box)), default=0) * _CHARACTER + _PAD
    return _Placed(
        box, max(widest, heading) + _PAD, (y + row_height if children else y) + _PAD, tuple(placed)
    )


def _limit(children: Sequence[_Placed]) -> float:
    """Where a row of children ends: eight accelerators to a row, else the page."""
    if all(child.box.kind in ("gpu", "nic") for child in children):
        return 8 * (_CELL_WIDTH + _GAP) + _PAD + 1
    return _MOST_WIDTH


def _heading(box: Box) -> list[str]:
    lines = [box.title] if box.title else []
    if box.joins:
        lines += box.joins.split("  |  ")
    if box.traffic:
        lines.append(f"reached by {box.traffic}")
    return lines


def _draw(parts: list[str], placed: _Placed, x: float, y: float, scene: Scene) -> None:
    box = placed.box
    dash = ' stroke-dasharray="3 3"' if box.kind == "more" else ""
    parts.append(
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{placed.width:.0f}" height="{placed.height:.0f}" '
        f'rx="4" fill="{_FILL[box.kind]}" stroke="#8a94a3"{dash}/>'
    )
    if box.kind in ("gpu", "nic", "more", "storage"):
        parts.append(_text(x + 5, y + 14, box.title))
        _strips(parts, box, x, y, placed.width)
        return
    for index, line in enumerate(_heading(box)):
        weight = "bold" if index == 0 and box.title else "normal"
        parts.append(_text(x + _PAD, y + _PAD + _LINE * index + 7, line, weight=weight))
    if box.rails:
        bottom = y + _PAD + _LINE * len(_heading(box))
        step = (placed.width - 2 * _PAD) / box.rails
        parts += [
            f'<rect x="{x + _PAD + i * step:.1f}" y="{bottom:.0f}" width="{step - 2:.1f}" height="3" '
            f'fill="{_GROUPS[i % len(_GROUPS)]}"/>'
            for i in range(box.rails)
        ]
    for dx, dy, child in placed.children:
        _draw(parts, child, x + dx, y + dy, scene)


def _strips(parts: list[str], box: Box, x: float, y: float, width: float) -> None:
    """One strip an axis, in the colour of the rank's group."""
    if not box.colours:
        return
    step = (width - 8) / len(box.colours)
    parts += [
        f'<rect x="{x + 4 + i * step:.1f}" y="{y + 20:.0f}" width="{step - 1:.1f}" height="9" '
        f'fill="{_GROUPS[group % len(_GROUPS)]}"/>'
        for i, group in enumerate(box.colours)
    ]


def _text(x: float, y: float, text: str, *, size: int = 11, weight: str = "normal") -> str:
    style = (
        "" if (size, weight) == (11, "normal") else f' font-size="{size}" font-weight="{weight}"'
    )
    return f'<text x="{x:.0f}" y="{y:.0f}"{style} fill="#1c2530">{escape(text)}</text>'
