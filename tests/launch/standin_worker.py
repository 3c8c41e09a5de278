"""A worker small enough to see what the launcher makes of its ends. Not a test.

Two Gloo ranks sum a number a few times. ``MESHFIT_FAULT`` breaks it; ``candidate`` picks what a
fault cannot do.
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from meshfit.run.lifeline import hold_lifeline

hold_lifeline()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402

from meshfit.breakdown import MemoryBreakdown  # noqa: E402
from meshfit.record.files import (  # noqa: E402
    RESULT_NAME,
    read_document,
    write_json_atomically,
)
from meshfit.record.heartbeat import HeartbeatWriter  # noqa: E402
from meshfit.record.schema import RankReport, RunRequest, RunResult  # noqa: E402
from meshfit.run.faults import fault_at  # noqa: E402


@record
def main() -> None:
    request, folder = read_document(RunRequest, Path(sys.argv[1])), Path(sys.argv[2])
    rank = int(os.environ["RANK"])
    heartbeat = HeartbeatWriter(folder, rank)
    heartbeat.beat("init")
    torch.set_num_threads(request.threads_per_rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=request.collective_timeout_s))
    losses = []
    for step in range(1, request.steps + 1):
        heartbeat.beat("train", step)
        if request.candidate == "leaves early" and rank == 1:
            return
        if request.candidate == "has children" and step == 1:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        fault_at(rank, "train", step)
        loss = torch.tensor(float(rank + step))
        heartbeat.beat("train", step, waiting=True)
        dist.all_reduce(loss)
        losses.append(loss.item())
    heartbeat.beat("end", request.steps)
    if rank == 0:
        write_json_atomically(folder / RESULT_NAME, _result(losses))
    dist.destroy_process_group()
    heartbeat.close()


def _result(losses: list[float]) -> RunResult:
    report = RankReport(rank=0, host="here", step_s=(), input_wait_s=(), memory=MemoryBreakdown())
    return RunResult(
        losses=tuple(losses),
        gradient_norms=(),
        useful_tokens_per_step=1,
        ranks=(report,),
        environment={"OMP_NUM_THREADS": os.environ["OMP_NUM_THREADS"]},
    )


if __name__ == "__main__":
    main()
