"""A scene as a tree for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from meshfit.report.draw.ranks import Axis
from meshfit.report.draw.scene import Box, Scene

PALETTE = ("blue", "green", "magenta", "cyan", "yellow", "red", "bright_blue", "bright_green")


def scene_tree(scene: Scene) -> RenderableType:
    """Boxes as branches, accelerators on one line where no layout colours them; axes and notes after."""
    tree = Tree(Text(scene.title, style="bold"))
    _add(tree, scene.root, scene.axes)
    lines = [_axis_line(axis) for axis in scene.axes]
    lines += [Text(f"note: {note}", style="yellow") for note in scene.notes]
    return Group(tree, *lines)


def _add(tree: Tree, box: Box, axes: tuple[Axis, ...]) -> None:
    branch = tree.add(_line(box, axes)) if _has_line(box) else tree
    plain = [child for child in box.children if child.kind in ("gpu", "nic") and not child.colours]
    for child in box.children:
        if child not in plain:
            _add(branch, child, axes)
    if plain:
        branch.add(Text(", ".join(leaf.title for leaf in plain)))


def _has_line(box: Box) -> bool:
    return bool(box.title or box.joins)


def _line(box: Box, axes: tuple[Axis, ...]) -> Text:
    text = Text(box.title, style="dim" if box.kind == "more" else "")
    if box.joins:
        text.append(": " if box.title else "")
        text.append(box.joins)
    if box.traffic:
        text.append(f"  [{box.traffic}]", style="cyan")
    for axis, group in zip(axes, box.colours, strict=False):
        text.append(f"  {axis.name}:{group}", style=PALETTE[group % len(PALETTE)])
    return text


def _axis_line(axis: Axis) -> Text:
    sent = ""
    if axis.bytes_per_step is not None:
        sent = f", each rank sends {axis.bytes_per_step / 1e9:.3g} GB a step"
    groups = len(set(axis.group_of))
    return Text(f"{axis.name}: {groups} groups of {axis.degree} inside {axis.level}{sent}")
