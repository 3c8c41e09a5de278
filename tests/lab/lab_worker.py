"""A rank that says where it is, times one transfer to the last rank, or fails. Not a test."""

import os
import sys
import time
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
from meshfit.run.placement import host_names, require_placement  # noqa: E402

TRANSFERRED_BYTES = 4 * 2**20


@record
def main() -> None:
    request, folder = read_document(RunRequest, Path(sys.argv[1])), Path(sys.argv[2])
    rank = int(os.environ["RANK"])
    heartbeat = HeartbeatWriter(folder, rank)
    heartbeat.beat("init")
    dist.init_process_group("gloo")
    require_placement(request.hosts)
    heartbeat.beat("train")
    if request.candidate == "fails" and rank == request.layout.world_size - 1:
        raise ValueError("broken on the last host")
    seconds = [_transfer(rank, request.layout.world_size - 1) for _ in range(3)]
    hosts = host_names()
    if rank == 0:
        write_json_atomically(folder / RESULT_NAME, _result(hosts, min(seconds)))
    dist.destroy_process_group()
    heartbeat.close()


def _transfer(rank: int, last: int) -> float:
    """Seconds that rank 0 waits until the last rank has its bytes."""
    data, answer = torch.zeros(TRANSFERRED_BYTES, dtype=torch.uint8), torch.zeros(1)
    dist.barrier()
    started = time.perf_counter()
    if rank == 0:
        dist.send(data, last)
        dist.recv(answer, last)
    elif rank == last:
        dist.recv(data, 0)
        dist.send(answer, 0)
    return time.perf_counter() - started


def _result(hosts: list[str], seconds: float) -> RunResult:
    reports = tuple(
        RankReport(rank=rank, host=host, step_s=(), input_wait_s=(), memory=MemoryBreakdown())
        for rank, host in enumerate(hosts)
    )
    return RunResult(
        losses=(),
        gradient_norms=(),
        useful_tokens_per_step=1,
        ranks=reports,
        environment={"transfer_s": seconds},
    )


if __name__ == "__main__":
    main()
