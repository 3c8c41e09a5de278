"""Dry runs of one rank of every compared layout: ``python -m tests.dryrun.fake_session RANK``.

Prints one document: case -> peak by category, operation, phase, bytes at the step's
start, and FLOPs. A
process is one rank: PyTorch's caches know its process groups by name.
"""

import json
import sys

import torch

from meshfit.dryrun.program import trace_of_step
from meshfit.dryrun.trace import Trace
from tests.dryrun.layouts import COMPARED, ranks_compared
from tests.run.layouts import CONFIGS


def flops_of_model(trace: Trace) -> int:
    """Without those of recomputation."""
    return sum(moment.flops for moment in trace.moments if moment.phase != "recompute")


def main() -> None:
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    found = {}
    for case in COMPARED:
        if rank not in ranks_compared(case):
            continue
        trace = trace_of_step(CONFIGS[case.model], case.layout, case.training, rank)
        peak, moment = trace.peak()
        found[case.name] = {
            "peak": peak.as_json(),
            "operation": moment.operation,
            "phase": moment.phase,
            "start": int(trace.totals()[0]),
            "flops": flops_of_model(trace),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
