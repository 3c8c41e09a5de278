"""Predicted against measured steps of placements, as a page."""

from collections.abc import Sequence

from meshfit.units import format_duration, format_percent

from .predicted import (
    CLEARLY_APART,
    NEAR,
    PredictedStep,
    pairs_apart,
    wrong_pairs,
)

_COLUMNS = ("layout", "axes, outermost first", "each axis within", "predicted", "measured", "error")


def placed_markdown(steps: Sequence[PredictedStep]) -> str:
    """A table, the fastest first, and what comes of it for the network-bound ones."""
    rows = [_cells(one) for one in sorted(steps, key=lambda one: one.measured_s)]
    lines = [_COLUMNS, ("---", "---", "---", "---:", "---:", "---:"), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    bound = [one for one in steps if one.is_network_bound]
    near = [one for one in bound if one.is_near]
    wrong = wrong_pairs(bound)
    said = [
        f"- {len(near)} of {len(bound)} network-bound layouts (half of the predicted step or more is "
        f"communication) are predicted within {format_percent(NEAR)} of what was measured.",
        f"- Of {pairs_apart(bound)} pairs of them that differ by more than "
        f"{format_percent(CLEARLY_APART - 1)}, {len(wrong)} are predicted in the wrong order"
        + "".join(f"; {_named(fast)} is faster than {_named(slow)}" for fast, slow in wrong)
        + ".",
        *_reversals(steps),
    ]
    return f"{table}\n\n" + "\n".join(said) + "\n"


def _cells(one: PredictedStep) -> tuple[str, ...]:
    return (
        f"`{one.label}`" + ("" if one.is_network_bound else " (not network-bound)"),
        " > ".join(one.rank_order),
        ", ".join(f"{axis}: {level}" for axis, level in one.levels.items()),
        format_duration(one.predicted_s),
        format_duration(one.measured_s),
        f"{100 * one.error:+.0f}%",
    )


def _reversals(steps: Sequence[PredictedStep]) -> list[str]:
    """Layouts that were placed in more ways than one: by how much, predicted and measured."""
    said = []
    for label in dict.fromkeys(one.label for one in steps):
        ways = sorted((one for one in steps if one.label == label), key=lambda one: one.predicted_s)
        said += [
            f"- `{label}`: {' > '.join(slow.rank_order)} is predicted "
            f"{slow.predicted_s / ways[0].predicted_s:.2f} times as slow as "
            f"{' > '.join(ways[0].rank_order)}, and measured "
            f"{slow.measured_s / ways[0].measured_s:.2f} times."
            for slow in ways[1:]
        ]
    return said


def _named(one: PredictedStep) -> str:
    return f"`{one.label}` ({' > '.join(one.rank_order)})"
