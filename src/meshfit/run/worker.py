"""One rank of one launch: ``torchrun ... -m meshfit.run.worker REQUEST.json OUTDIR``.

Rank 0 writes ``OUTDIR/result.json`` as its last act; every rank writes heartbeats, and torchrun's
error file when it fails. What is heavy is imported only after the first heartbeat.
"""

import gc
import os
import sys
from pathlib import Path

from meshfit.record.heartbeat import HeartbeatWriter
from meshfit.run.lifeline import hold_lifeline


def main(argv: list[str]) -> None:
    """Run the request of a file; ``argv`` holds its path and the folder for what comes of it."""
    hold_lifeline()
    request_path, folder = Path(argv[0]), Path(argv[1])
    heartbeat = HeartbeatWriter(folder, int(os.environ.get("RANK", "0")))
    heartbeat.beat("import")
    gc.disable()  # a sixth of the import time is the collector looking at new modules
    from torch.distributed.elastic.multiprocessing.errors import record  # noqa: PLC0415

    record(_run)(request_path, folder, heartbeat)


def _run(request_path: Path, folder: Path, heartbeat: HeartbeatWriter) -> None:
    from meshfit.record.files import read_document  # noqa: PLC0415
    from meshfit.record.schema import RunRequest  # noqa: PLC0415
    from meshfit.run.model.transformer import import_model_class  # noqa: PLC0415
    from meshfit.run.session import Session  # noqa: PLC0415

    request = read_document(RunRequest, request_path)
    import_model_class(request.model_config)
    gc.freeze()  # what was imported stays; the collector need not look at it in every step
    gc.enable()
    Session(request, folder, heartbeat).run()
    heartbeat.close()


if __name__ == "__main__":
    main(sys.argv[1:])
