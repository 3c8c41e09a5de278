"""Tables of scores in Markdown, as pages of docs/ have them between their marks."""

from collections.abc import Sequence

from meshfit.report.scores.sections import Section


def sections_markdown(sections: Sequence[Section]) -> str:
    """Tables in Markdown, each under a heading of the third level."""
    return "\n".join(map(_markdown, sections))


def _markdown(section: Section) -> str:
    lines = [
        f"### {section.title}",
        "",
        _line(section.columns),
        _line(["---"] + ["---:"] * (len(section.columns) - 1)),
        *map(_line, section.rows),
        "",
    ]
    return "\n".join([*lines, section.note, ""] if section.note else lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
