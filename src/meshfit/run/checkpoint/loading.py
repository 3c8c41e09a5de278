"""Loading: each rank reads the parts that its own layout needs, whatever layout wrote them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from meshfit.errors import InputError
from meshfit.record.checkpoint import check_files, check_identity, checkpoints, read_manifest
from meshfit.run.checkpoint.state import TrainingState


def latest(folder: Path) -> Path:
    """The last good checkpoint in ``folder``.

    Raises:
        InputError: there is none.
    """
    found = checkpoints(folder)
    if not found:
        raise InputError(f"there is no checkpoint to resume from in {folder}")
    return found[-1]


def load(checkpoint: Path, state: TrainingState, identity: Mapping[str, Any]) -> int:
    """Fill ``state`` from a checkpoint; the number of steps behind it. All ranks must call it.

    Every file is read once to hold it against its checksum, each rank a share of them.

    Raises:
        InputError: it is damaged, or of another run; on every rank, with the reason.
    """
    manifest = read_manifest(checkpoint)
    check_identity(checkpoint, manifest.identity, identity)
    _check_together(checkpoint, sorted(manifest.files))
    reader = dcp.FileSystemReader(checkpoint)
    tensors = state.prepare(reader.read_metadata())
    dcp.load(tensors, storage_reader=reader, no_dist=not dist.is_initialized())
    state.settle()
    return manifest.step


def _check_together(checkpoint: Path, names: Sequence[str]) -> None:
    """Each rank checks every world-size-th file; what one finds, all raise."""
    rank, world_size = 0, 1
    if dist.is_initialized():
        rank, world_size = dist.get_rank(), dist.get_world_size()
    problem = ""
    try:
        check_files(checkpoint, read_manifest(checkpoint), names[rank::world_size])
    except InputError as error:
        problem = str(error)
    problems = [problem]
    if dist.is_initialized():
        problems = [""] * world_size
        dist.all_gather_object(problems, problem)
    if first := next(filter(None, problems), ""):
        raise InputError(first)
