"""Breaks a rank of a small run in every way there is, and writes what came of it to docs/faults.md.

    python tools/faults.py [--only NAME] > docs/faults.md

Each fault strikes rank 1 of two at step 2, in a real launch of the worker (see ``run.faults``); the
table shows how the launch is judged, whom it names, and how long after the start it was over.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from meshfit.compare.blame import nonfinite_loss
from meshfit.compare.stragglers import rank_scores
from meshfit.launch.supervise import LaunchOutcome, launch
from meshfit.mesh.spec import make_layout
from meshfit.record.schema import RunRequest
from meshfit.run.faults import FAULT_VARIABLE
from meshfit.run.model.weights import write_initial_weights
from meshfit.workload.training import PRECISIONS, DataSpec, TrainingSpec

ROOT = Path(__file__).resolve().parents[1]

CONFIG = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
HANG_S, DEADLINE_S = 20.0, 300.0


@dataclass(frozen=True)
class FaultCase:
    """One way to break a rank, and the outcome that must come of it."""

    name: str
    fault: str
    outcome: str
    how: str


CASES = [
    FaultCase("raises", "raise:rank=1:step=2", "crash", "the earliest exception that is no consequence"),
    FaultCase("exits early", "exit:rank=1:step=2", "crash", "its exit code, without an exception"),
    FaultCase("is killed", "kill:rank=1:step=2", "crash", "its signal, and the kernel's count of kills"),
    FaultCase("hangs before a collective", "hang:rank=1:step=2", "hang",
              "the rank whose heartbeat or stack is not inside communication"),
    FaultCase("hangs inside a collective", "stall:rank=1:step=2", "hang",
              "the rank that does not answer a signal"),
    FaultCase("runs out of memory", "oom:rank=1:step=2", "out_of_memory", "the allocator's own words"),
    FaultCase("gets NaN", "nan:rank=1:step=2", "ok",
              "the earliest loss of a rank's own that is not finite; a sweep calls it parity_failed"),
    FaultCase("is 5x slower", "slow:rank=1:seconds=0.5", "ok",
              "its score: time without waiting, against the fastest rank"),
]  # fmt: skip


def run_case(case: FaultCase, folder: Path) -> LaunchOutcome:
    """The launch of a case; ``folder`` holds the weights."""
    request = RunRequest(
        plan_hash="",
        candidate=case.name,
        purpose="measure",
        model_config=CONFIG,
        weights=str(folder / "weights"),
        layout=make_layout({"dp_replicate": 2}),
        training=TrainingSpec(
            sequence_length=16,
            global_batch_size=4,
            precision=PRECISIONS["fp32"],
            data=DataSpec(),
        ),
        device_type="cpu",
        steps=5,
        warmup_steps=1,
        track_memory=False,
        profile_steps=1,
    )
    os.environ[FAULT_VARIABLE] = case.fault
    try:
        where = folder / case.name.replace(" ", "-")
        return launch(request, where, deadline_s=DEADLINE_S, hang_s=HANG_S)
    finally:
        del os.environ[FAULT_VARIABLE]


def named(ended: LaunchOutcome) -> tuple[str, str]:
    """Whom a launch names, and what it says of it."""
    failure = ended.failure or (nonfinite_loss(ended.result) if ended.result else None)
    if failure is not None:
        where = f"rank {failure.rank}, {failure.phase}, step {failure.step}"
        return where, " ".join(failure.message.split())
    assert ended.result is not None
    slow = [s for s in rank_scores(ended.result.ranks, warmup_steps=1) if s.is_straggler]
    return (
        ", ".join(f"rank {score.rank}" for score in slow),
        "; ".join(f"{score.relative:.2f} of the fastest rank's speed" for score in slow),
    )


def table(rows: list[tuple[FaultCase, LaunchOutcome]]) -> str:
    lines = [
        "| a rank ... | outcome | names | because of | over after | message |",
        "|---|---|---|---|---|---|",
    ]
    for case, ended in rows:
        who, message = named(ended)
        message = message.replace(f"{ROOT}/", "")
        shown = message if len(message) <= 160 else message[:157] + "..."
        lines.append(
            f"| {case.name} | {ended.outcome} | {who} | {case.how} | {ended.seconds:.0f} s | "
            f"{shown.replace('|', '/')} |"
        )
    return "\n".join(lines)


HEAD = f"""# Faults

What becomes of a launch when one of its ranks breaks. Written by `python tools/faults.py`, which runs
each of these for real: two ranks of a tiny Llama, rank 1 broken at step 2, silence counted as a hang
after {HANG_S:.0f} s, the whole under a deadline. A broken launch is a row of the sweep like any other,
and the sweep goes on with the next one. How to break a rank yourself: `MESHFIT_FAULT`, see
`src/meshfit/run/faults.py`.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="name of one fault")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_initial_weights(CONFIG, folder / "weights", 0)
        rows = []
        for case in CASES:
            if only in (None, case.name):
                rows.append((case, run_case(case, folder)))
                print(f"{case.name}: {rows[-1][1].outcome}", file=sys.stderr)
    print(HEAD + table(rows))
    broken = [case.name for case, ended in rows if ended.outcome != case.outcome]
    if broken:
        sys.exit(f"not the expected outcome: {', '.join(broken)}")


if __name__ == "__main__":
    main()
