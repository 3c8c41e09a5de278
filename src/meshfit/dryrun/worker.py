"""One dry run in a process of its own: ``python -m meshfit.dryrun.worker < REQUEST > DOCUMENT``.

The process is the world: its process group, its patches of PyTorch and its caches end with it. A
person's mistake is a document with the key ``error``.
"""

import json
import logging
import sys
import warnings
from typing import Any

from meshfit.errors import InputError
from meshfit.record.dryrun import DryRunRequest, decode_request


def main() -> None:
    request = decode_request(sys.stdin.buffer.read())
    warnings.simplefilter("ignore")  # of PyTorch and transformers about models; stdout is ours
    logging.disable(logging.WARNING)
    try:
        document = _dry_run(request)
    except InputError as error:
        document = {"error": str(error)}
    json.dump(document, sys.stdout)


def _dry_run(request: DryRunRequest) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    from meshfit.dryrun.document import document_of  # noqa: PLC0415
    from meshfit.dryrun.shorten import Run  # noqa: PLC0415
    from meshfit.dryrun.step import step_of  # noqa: PLC0415

    torch.set_num_threads(1)
    run = Run(
        config=request.model_config,
        layout=request.layout,
        training=request.training,
        rank=request.rank,
    )
    return document_of(request, step_of(run, request.device_type, whole=request.whole))


if __name__ == "__main__":
    main()
