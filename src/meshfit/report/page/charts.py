"""The page's charts, each as inline SVG.

Matplotlib (docs/decisions/0002-charts.md) is imported when the first chart is drawn, never by
planning. A chart is drawn in placeholder colours that become CSS variables of the page, so that one
drawing serves light, dark and print; text stays text. The same values give the same bytes.
"""

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from meshfit.report.parts.words import CATEGORIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 9.0
_INK, _MUTED, _GRID, _PAPER = "#000001", "#000002", "#000003", "#000004"
_SERIES = tuple(f"#00010{index}" for index in range(8))
_VARIABLES: Mapping[str, str] = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _GRID: "var(--grid)",
    _PAPER: "var(--paper)",
    **{color: f"var(--series-{index})" for index, color in enumerate(_SERIES)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "meshfit",
    "font.size": 9.5,
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
}


Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A median with its 10th and 90th percentile, under a name."""

    name: str
    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MemoryPair:
    """Bytes by category of one candidate; either side may be missing."""

    name: str
    measured: Mapping[str, int | None] | None
    predicted: Mapping[str, int | None] | None


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """Loss of every step of one candidate."""

    name: str
    losses: Sequence[float]


def _styled(draw: Callable[Arguments, str]) -> Callable[Arguments, str]:
    """Draws in the page's style and leaves Matplotlib's own settings as they were."""

    @functools.wraps(draw)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
        import matplotlib as mpl  # noqa: PLC0415 - half a second that only a page should cost

        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return styled


@_styled
def throughput(rows: Sequence[Measured]) -> str:
    """One bar a candidate, with a whisker from the 10th to the 90th percentile."""
    figure, (axes,) = _figure(height=0.7 + 0.38 * len(rows))
    positions = range(len(rows))
    medians = [row.median for row in rows]
    below = [row.median - row.low for row in rows]
    above = [row.high - row.median for row in rows]
    axes.barh(
        positions, medians, height=0.6, color=_SERIES[0],
        xerr=[below, above], error_kw={"ecolor": _INK, "elinewidth": 1.2, "capsize": 3},
    )  # fmt: skip
    for position, row in zip(positions, rows, strict=True):
        axes.annotate(
            f" {row.median:,.0f}", (row.high, position), va="center", color=_INK,
            xytext=(4, 0), textcoords="offset points",
        )  # fmt: skip
    _name_rows(axes, [row.name for row in rows])
    axes.set_xlim(0, 1.12 * max((row.high for row in rows), default=1))
    axes.set_xlabel("useful tokens per second (bar: median; whisker: 10th to 90th percentile)")
    return _svg(figure, "throughput")


@_styled
def memory(pairs: Sequence[MemoryPair], *, capacity_bytes: int | None = None) -> str:
    """Two stacked bars a candidate, measured above predicted, in MiB by category.

    The capacity is drawn when it lies within three times the longest bar; further away it would
    only shrink the bars.
    """
    figure, (axes,) = _figure(height=1.15 + 0.55 * len(pairs))
    longest = 0.0
    for position, pair in enumerate(pairs):
        for offset, side, alpha in ((-0.2, pair.measured, 1.0), (0.2, pair.predicted, 0.5)):
            longest = max(longest, _stack(axes, position + offset, side or {}, alpha))
    _name_rows(axes, [pair.name for pair in pairs])
    _category_legend(axes, pairs)
    if capacity_bytes and capacity_bytes / 2**20 <= 3 * longest:
        axes.axvline(capacity_bytes / 2**20, color=_INK, linestyle="--", linewidth=1.2)
        axes.annotate(
            "capacity", (capacity_bytes / 2**20, -0.5), ha="right", va="top", color=_INK,
            xytext=(-4, -2), textcoords="offset points",
        )  # fmt: skip
    axes.set_xlim(left=0)
    axes.set_xlabel("MiB at the peak of the fullest rank (upper bar: measured; paler: predicted)")
    return _svg(figure, "memory")


@_styled
def rank_times(rows: Sequence[tuple[str, Sequence[Measured]]]) -> str:
    """One point a rank for each candidate, with its 10th to 90th percentile, in ms."""
    figure, (axes,) = _figure(height=0.7 + 0.5 * len(rows))
    for position, (_, times) in enumerate(rows):
        for index, time in enumerate(times):
            y = position + 0.6 * ((index + 0.5) / len(times) - 0.5)
            axes.plot(
                [1e3 * time.low, 1e3 * time.high], [y, y], color=_SERIES[0], linewidth=1.6,
                alpha=0.55, solid_capstyle="round",
            )  # fmt: skip
            axes.plot(1e3 * time.median, y, marker="o", markersize=4, color=_SERIES[0])
    _name_rows(axes, [name for name, _ in rows])
    axes.set_xlim(left=0)
    axes.set_xlabel("ms a step, one line a rank from the top (point: median; line: 10th to 90th)")
    return _svg(figure, "ranks")


@_styled
def losses(
    reference: LossCurve | None,
    curves: Sequence[LossCurve],
    *,
    judged_steps: int | None = None,
    tolerance: float | None = None,
) -> str:
    """Loss by step, and below it the relative distance to the reference on a log scale."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - see _styled

    panels = 2 if reference else 1
    height = max(
        2.2 * panels + 0.4, 0.2 * (len(curves) + panels)
    )  # the names stand one below another
    figure, axes = _figure(height=height, panels=panels)
    if reference:
        axes[0].plot(
            _steps(reference.losses), reference.losses, color=_GRID, linewidth=6,
            label=reference.name, solid_capstyle="round",
        )  # fmt: skip
        _distances(axes[1], reference, curves, judged_steps, tolerance)
    for index, curve in enumerate(curves):
        axes[0].plot(
            _steps(curve.losses), curve.losses, label=curve.name, linewidth=1.4,
            color=_SERIES[index % 8], linestyle=_line_style(index),
        )  # fmt: skip
    axes[0].set_ylabel("loss")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    legend = figure.legend(loc="outside right upper")
    for text in legend.get_texts():
        text.set_parse_math(False)
    axes[-1].set_xlabel("step")
    return _svg(figure, "losses")


def _distances(
    axes: "Axes",
    reference: LossCurve,
    curves: Sequence[LossCurve],
    judged_steps: int | None,
    tolerance: float | None,
) -> None:
    for index, curve in enumerate(curves):
        pairs = zip(curve.losses, reference.losses, strict=False)
        # Equal losses have no place on a log scale; they stand at one part in 1e9.
        distances = [max(abs(a - b) / max(abs(b), 1e-12), 1e-9) for a, b in pairs]
        axes.plot(
            _steps(distances), distances, marker=".", linewidth=1.0, color=_SERIES[index % 8],
            linestyle=_line_style(index),
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel("relative distance")
    if tolerance:
        axes.axhline(tolerance, color=_INK, linestyle="--", linewidth=1)
        axes.annotate(
            "tolerance", (1, tolerance), xycoords=("axes fraction", "data"), ha="right",
            va="bottom", color=_INK, fontsize=8.5,
        )  # fmt: skip
    if judged_steps:
        axes.axvspan(0.5, judged_steps + 0.5, color=_GRID, alpha=0.5, linewidth=0)
        axes.annotate(
            "judged", (0.5, 0.8), xycoords=("data", "axes fraction"), va="top", color=_MUTED,
            xytext=(4, 0), textcoords="offset points", fontsize=8.5,
        )  # fmt: skip


def _stack(axes: "Axes", position: float, side: Mapping[str, int | None], alpha: float) -> float:
    """The bar's length in MiB. Paper lies under it, so that no grid shines through a pale one."""
    widths = [(side.get(category) or 0) / 2**20 for category in CATEGORIES]
    axes.barh(position, sum(widths), height=0.36, color=_PAPER)
    left = 0.0
    for color, width in zip(_SERIES, widths, strict=True):
        axes.barh(position, width, left=left, height=0.36, color=color, alpha=alpha)
        left += width
    return left


def _category_legend(axes: "Axes", pairs: Sequence[MemoryPair]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - see _styled

    sides = [side for pair in pairs for side in (pair.measured, pair.predicted) if side]
    present = [
        Patch(color=color, label=words)
        for color, (category, words) in zip(_SERIES, CATEGORIES.items(), strict=True)
        if any(side.get(category) for side in sides)
    ]
    axes.legend(handles=present, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))


def _name_rows(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _steps(values: Sequence[float]) -> range:
    return range(1, len(values) + 1)


def _line_style(index: int) -> str:
    return ("-", "--", ":", "-.")[index % 4]


def _figure(*, height: float, panels: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - see _styled

    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    return figure, list(figure.subplots(panels, sharex=True, squeeze=False)[:, 0])


def _svg(figure: "Figure", name: str) -> str:
    """The figure as an ``<svg>`` element whose ids start with ``name``."""
    stream = io.StringIO()
    unstated = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", transparent=True, metadata=unstated)
    return _fit_for_page(stream.getvalue(), name)


def _fit_for_page(svg: str, name: str) -> str:
    """Only the element, its ids made unique, its colours and font left to the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(metadata|style)\b.*?</\1>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", svg)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, variable)
    return svg.strip()
