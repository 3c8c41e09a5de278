"""Runs the mesh axes together, each set of them once, and writes docs/combinations.md.

    python -m tools.combinations > docs/combinations.md

Layouts, models and their training are those of tests/run (``combinations``).
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.run.combinations import (
    CUTTING_COMBINATIONS,
    DENSE,
    DENSE_COMBINATIONS,
    EXPERT_COMBINATIONS,
    EXPERTS,
    NUM_COMBINED_RANKS,
    NUM_CUTTING_RANKS,
    legal_cases,
)
from tests.run.layouts import JUDGED_STEPS, Case
from tests.run.parity import auxiliary_error, ranks_of, reference_of, relative_error, run_session

HEAD = f"""# Mesh axes together

`dp_replicate`, `dp_shard`, `cp`, `tp`, `pp` and `ep` on {NUM_COMBINED_RANKS} ranks. The runner's rules allow
{len(legal_cases(DENSE))} combinations of degrees with a dense model (`llama_deep`: eight layers, eight heads
over four key heads) and {len(legal_cases(EXPERTS))} with a mixture of whole experts (`mixtral_deep`: the same with
eight experts, two a token). Layouts that differ in degrees alone take the same code, so what is run is one
for each *set* of axes above 1: {len(DENSE_COMBINATIONS) + len(EXPERT_COMBINATIONS)} layouts, among them every pair of axes of either model.
The last {len(CUTTING_COMBINATIONS)} rows are of experts whose width is cut (`etp`, or all of `tp` without `ep`), on {NUM_CUTTING_RANKS} ranks: again
one layout for each set of axes. `mixtral_deep_auxiliary` has the routers' load-balancing loss as a second term,
wherever the rules allow it (no `pp`, no `cp`).

Written by `python -m tools.combinations`, on Gloo ranks of one machine, fp32, AdamW, {JUDGED_STEPS} steps, two
micro-batches wherever a rank has two sequences. Errors are relative to one process on the same weights and
samples: the worst of {JUDGED_STEPS} steps for both terms of the loss and for the gradient norm; for gradients
(L2, first step) the worst parameter outside of experts, and the worst among experts.

| model | layout | loss | auxiliary loss | gradient norm | gradients | of experts |
|---|---|---|---|---|---|---|"""
_OF_EXPERTS = ".experts."

SESSIONS = {
    "combinations": DENSE_COMBINATIONS,
    "combinations of experts": EXPERT_COMBINATIONS,
    "combinations of cut experts": CUTTING_COMBINATIONS,
}
"""Name of a session -> its cases."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--found", type=Path, nargs=len(SESSIONS), help="folders of all sessions, already run"
    )
    found = parser.parse_args().found
    if found is not None:
        print(page(found))
        return
    with tempfile.TemporaryDirectory() as folder:
        ran = [run_session(_made(Path(folder) / name), name) for name in SESSIONS]
        print(page(ran))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def page(found: Sequence[Path]) -> str:
    """Everything that the sessions left in their folders, as the page."""
    rows = [
        row(folder, case)
        for folder, cases in zip(found, SESSIONS.values(), strict=True)
        for case in cases
    ]
    return "\n".join([HEAD, *rows])


def row(session: Path, case: Case) -> str:
    ours, theirs = ranks_of(session, case)[0], reference_of(session, case)
    of_experts = {name for name in ours["errors"] if _OF_EXPERTS in name}
    figures = [
        relative_error(ours["losses"], theirs["losses"]),
        auxiliary_error(ours, theirs),
        relative_error(ours["gradient_norms"], theirs["gradient_norms"]),
        worst(ours["errors"], ours["errors"].keys() - of_experts),
        worst(ours["errors"], of_experts),
    ]
    shown = ("" if error is None else f"{error:.1e}" for error in figures)
    return f"| {case.model} | `{case.layout.label}` | {' | '.join(shown)} |"


def worst(errors: dict[str, float], of: set[str]) -> float | None:
    return max((errors[name] for name in of), default=None)


if __name__ == "__main__":
    main()
