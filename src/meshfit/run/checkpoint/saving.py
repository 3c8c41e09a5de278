"""Saving: every rank its own shards, in the background if asked, and never over the last good one.

``torch.distributed.checkpoint.async_save`` ends when the shards are written. A checkpoint is good
only once their checksums are in the manifest and the folder has its name, so here all of that runs
in one thread of our own, over a process group of its own (training goes on in the others).
"""

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed._state_dict_utils import _offload_state_dict_to_cpu

from meshfit import __version__
from meshfit.record.checkpoint import (
    MANIFEST_NAME,
    UNFINISHED_PATTERN,
    Manifest,
    StoredFile,
    checkpoint_path,
    checkpoints,
    describe_file,
    unfinished_path,
)
from meshfit.record.files import sync_folder, write_json_atomically
from meshfit.record.schema import CheckpointReport
from meshfit.run.checkpoint.state import TrainingState
from meshfit.run.faults import fault_at

SLOWEST_BYTES_PER_S = 10e6
"""A rank whose share takes longer than at this rate counts as hung: no time-out fires before."""


class CheckpointWriter:
    """Saves a run's state into ``folder``, all ranks together.

    Args:
        identity: see ``record.checkpoint.Manifest``.
        layout: label of the run's layout.
        keep: how many of the last good ones stay.
        asynchronous: return once the state is copied, and write while training goes on.
        timeout_s: least time ranks wait for one another; a large state gets more.
    """

    def __init__(
        self,
        folder: Path,
        state: TrainingState,
        *,
        identity: Mapping[str, Any],
        layout: str,
        keep: int,
        asynchronous: bool,
        timeout_s: float,
    ) -> None:
        self._folder = folder
        self._state = state
        self._identity = dict(identity)
        self._layout = layout
        self._keep = keep
        self._executor = ThreadPoolExecutor(1, "checkpoint") if asynchronous else None
        self._pending: Future[None] | None = None
        self._reports: list[CheckpointReport] = []
        self._group = _own_group(timeout_s + _most(state.size_bytes()) / SLOWEST_BYTES_PER_S)

    def save(self, step: int) -> None:
        """The state after ``step`` steps. Waits first for an earlier save that is still written."""
        begin_s = time.perf_counter()
        self.wait()
        tensors = self._state.tensors()
        if self._executor is None:
            self._write(step, tensors, begin_s)
            return
        copied = _copies(tensors)
        blocked_s = time.perf_counter() - begin_s
        self._pending = self._executor.submit(self._write, step, copied, begin_s, blocked_s)

    def wait(self) -> None:
        """Until nothing is being written.

        Raises:
            Exception: whatever ended a save in the background.
        """
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> tuple[CheckpointReport, ...]:
        """Wait, and say what every save took."""
        self.wait()
        if self._executor is not None:
            self._executor.shutdown()
        return tuple(self._reports)

    def _write(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        begin_s: float,
        blocked_s: float | None = None,
    ) -> None:
        """``blocked_s``: for how long training stood still; None: until this returns."""
        unfinished = unfinished_path(self._folder, step)
        if _rank() == 0:
            for left in self._folder.glob(UNFINISHED_PATTERN):  # by a save that was interrupted
                shutil.rmtree(left)
            unfinished.mkdir(parents=True)
        self._barrier()
        dcp.save(
            dict(tensors),
            storage_writer=dcp.FileSystemWriter(unfinished),
            process_group=self._group,
            no_dist=self._group is None,
        )
        fault_at(_rank(), "save", step)
        files = self._gather(_files_of_rank(unfinished, _rank()))
        if _rank() == 0:
            self._finish(step, unfinished, files)
        self._barrier()
        written_s = time.perf_counter() - begin_s
        self._reports.append(
            CheckpointReport(
                step=step,
                blocked_s=written_s if blocked_s is None else blocked_s,
                written_s=written_s,
                size_bytes=sum(file.size_bytes for file in files.values()),
            )
        )

    def _finish(self, step: int, unfinished: Path, files: Mapping[str, StoredFile]) -> None:
        """Manifest, name, and away with what is older than is to be kept."""
        manifest = Manifest(
            meshfit=__version__,
            step=step,
            layout=self._layout,
            identity=self._identity,
            files=dict(files),
        )
        write_json_atomically(unfinished / MANIFEST_NAME, manifest)
        unfinished.rename(checkpoint_path(self._folder, step))
        sync_folder(self._folder)
        for old in checkpoints(self._folder)[: -self._keep]:
            shutil.rmtree(old)

    def _gather(self, mine: dict[str, StoredFile]) -> dict[str, StoredFile]:
        """The files of all ranks, on each."""
        if self._group is None:
            return mine
        parts: list[dict[str, StoredFile]] = [{}] * dist.get_world_size()
        dist.all_gather_object(parts, mine, group=self._group)
        return {name: file for part in parts for name, file in part.items()}

    def _barrier(self) -> None:
        if self._group is not None:
            dist.barrier(group=self._group)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state in host memory of its own: the next step changes the run's in place.

    PyTorch's offloading leaves a tensor that is on the CPU already where it is, uncopied.
    """
    on_host = {name: t.clone() for name, t in tensors.items() if t.device.type == "cpu"}
    others = {name: t for name, t in tensors.items() if name not in on_host}
    return on_host | (_offload_state_dict_to_cpu(others) if others else {})


def _files_of_rank(folder: Path, rank: int) -> dict[str, StoredFile]:
    """What this rank wrote; rank 0 also DCP's own metadata."""
    paths = list(folder.glob(f"__{rank}_*.distcp"))
    if rank == 0:
        paths.append(folder / ".metadata")
    return {path.name: describe_file(path) for path in paths}


def _own_group(timeout_s: float) -> dist.ProcessGroup | None:
    """A Gloo group of all ranks; None in a world of one."""
    if not dist.is_initialized():
        return None
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))


def _most(size_bytes: int) -> int:
    """The largest part of any rank."""
    if not dist.is_initialized():
        return size_bytes
    sizes = [0] * dist.get_world_size()
    dist.all_gather_object(sizes, size_bytes)
    return max(sizes)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
