"""One rank of a probe; rank 0 writes ``FOLDER/result.json`` as its last act."""

import os
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

from meshfit.lifeline import end_with_parent
from meshfit.record.files import RESULT_NAME, read_document, write_json_atomically
from meshfit.record.probe import ProbeRequest
from meshfit.record.variables import AGENT_PID_VARIABLE

PATIENCE = timedelta(minutes=5)


def main(argv: list[str]) -> None:
    """Measure what the request file asks for; ``argv`` holds its path and the folder."""
    end_with_parent(int(os.environ.get(AGENT_PID_VARIABLE) or os.getppid()))
    from torch.distributed.elastic.multiprocessing.errors import record  # noqa: PLC0415

    record(_measure)(read_document(ProbeRequest, Path(argv[0])), Path(argv[1]))


def _measure(request: ProbeRequest, folder: Path) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    from meshfit.measure.probe.session import probe  # noqa: PLC0415

    warnings.simplefilter("ignore", FutureWarning)  # collectives are renamed in torch 2.13
    torch.set_num_threads(1)
    device = torch.device(request.device_type)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    found = probe(request, device, datetime.now(UTC).isoformat(timespec="seconds"))
    if dist.get_rank() == 0:
        write_json_atomically(folder / RESULT_NAME, found)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
