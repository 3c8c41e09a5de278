"""Tier 3: the program of one rank of one layout, run on fake tensors in a process of its own."""

import json
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any

from meshfit.errors import InputError, NotInstalledError, RunError
from meshfit.funnel.check.checking import require_legal
from meshfit.job.spec import Job
from meshfit.mesh.groups import coordinates, ranks_by_place
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.record.dryrun import DryRunRequest, encode_request

TIMEOUT_S = 1800


def dry_run_document(
    job: Job, layout: LayoutSpec, *, rank: int = 0, whole: bool = False
) -> dict[str, Any]:
    """What ``dryrun --json`` prints: memory, collectives and FLOPs of one optimizer step of ``rank``.

    Raises:
        InputError: the layout is not legal, the runner cannot run it, or there is no such rank.
        NotInstalledError: torch or transformers is not installed.
        RunError: the process died or took too long.
    """
    require_legal(job, layout)
    if not 0 <= rank < layout.world_size:
        raise InputError(
            f"rank {rank} is none of the {layout.world_size} ranks of layout {layout.label}; "
            f"use 0 to {layout.world_size - 1}"
        )
    place = coordinates(layout, rank, job.profile.rank_order)
    request = DryRunRequest(
        model_config=dict(job.model.config),
        layout=layout,
        training=job.training,
        rank=int(ranks_by_place(layout)[tuple(place[axis] for axis in AXES)]),
        device_type=job.topology.accelerator.device_type,
        capacity_bytes=job.topology.accelerator.memory_bytes,
        whole=whole,
    )
    started = time.perf_counter()
    found = _in_own_process(request)
    return {
        "schema_version": 1,
        "job": job.name,
        "layout": layout.as_full_json(),
        "label": layout.label,
        "world_size": layout.world_size,
        "rank": rank,
        "coordinates": place,
        "device_type": request.device_type,
        "capacity": request.capacity_bytes,
        "seconds": time.perf_counter() - started,
        **found,
    }


def _in_own_process(request: DryRunRequest) -> dict[str, Any]:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise NotInstalledError(
            f"a dry run builds the model, but {' and '.join(missing)} cannot be imported;"
            " pip install 'meshfit[run]'"
        )
    try:
        process = subprocess.run(
            [sys.executable, "-m", "meshfit.dryrun.worker"],
            input=encode_request(request),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"the dry run took more than {TIMEOUT_S} s") from None
    if process.returncode != 0:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise RunError(
            f"the dry run failed with exit code {process.returncode}: {(lines or ['no message'])[-1]}"
        )
    document: dict[str, Any] = json.loads(process.stdout)
    if "error" in document:
        raise InputError(document["error"])
    return document
