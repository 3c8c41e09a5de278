"""Saves checkpoints under some layouts, resumes each under others, and writes docs/checkpoints.md's table.

    python -m tools.reshards [--found FOLDER] > docs/checkpoints.md

What is run is ``tests/run/checkpoint/reshards.py``: two steps, a checkpoint, two more; each row goes on
from the checkpoint under another layout (or number of ranks) and is held against those two.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.run.checkpoint.reshards import ALL, Saved
from tests.run.checkpoint.resumes import run_sessions
from tests.run.layouts import Case

HEAD = """# Checkpoints under another layout

`meshfit train JOB --checkpoint-every N` saves, `--resume` goes on, under the same layout or any other.
Each rank writes its own shards (`torch.distributed.checkpoint`); a checkpoint is good once its manifest,
with the SHA-256 of every file, is written and the folder has its name. What comes back: parameters,
persistent buffers, the optimizer's state of every parameter, the data position. There is no random state:
dropout is off and data are a function of the step.

Written by `python -m tools.reshards`, on Gloo ranks of one machine, fp32. Errors are relative to the run
that was not interrupted: of the next two losses and gradient norms, and of the sum of squares of all
moments as loaded. `samples`: whether the next batches hold the very samples they should.

| model | saved on | resumed on | ranks | loss | gradient norm | moments | samples | load |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--found", type=Path, help="a session's folder, in place of running one")
    found = parser.parse_args().found
    if found is not None:
        print(page(found))
        return
    with tempfile.TemporaryDirectory() as name:
        print(page(run_sessions(Path(name), "all")))


def page(folder: Path) -> str:
    """Everything that the sessions left in ``folder``, as the page."""
    resumed = [
        row(folder, saved, case, ranks)
        for saved in ALL
        for ranks, cases in saved.loads.items()
        for case in cases
    ]
    head = [
        "",
        "| model | saved on | how | bytes | training stood still | good after |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([HEAD, *resumed, *head, *(save_row(folder, saved) for saved in ALL)])


def row(folder: Path, saved: Saved, case: Case, ranks: int) -> str:
    theirs = read(folder, saved.folder)
    ours = read(folder, f"{saved.folder} loaded on {case.name}")
    moments = worst([*ours["moments"].values()], [*theirs["moments"].values()])
    same = "same" if ours["samples"] == theirs["samples"] else "other"
    return (
        f"| {case.model} | `{saved.case.layout.label}` | `{case.layout.label}` | 4 -> {ranks} | "
        f"{worst(ours['losses'], theirs['losses']):.1e} | "
        f"{worst(ours['gradient_norms'], theirs['gradient_norms']):.1e} | {moments:.1e} | {same} | "
        f"{1e3 * ours['load_s']:.0f} ms |"
    )


def save_row(folder: Path, saved: Saved) -> str:
    found = read(folder, saved.folder)
    how = "in the background" if saved.asynchronous else "at once"
    return (
        f"| {saved.case.model} | `{saved.case.layout.label}` | {how} | {found['size_bytes']:,} | "
        f"{1e3 * found['blocked_s']:.0f} ms | {1e3 * found['written_s']:.0f} ms |"
    )


def worst(ours: list[float], theirs: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text())


if __name__ == "__main__":
    main()
