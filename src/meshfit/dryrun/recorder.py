"""The tensor tracker, writing down each operation's place, FLOPs and message beside its memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from meshfit.cluster.topology import DeviceType
from meshfit.dryrun.allocator import SMALLEST_BLOCK_BYTES
from meshfit.dryrun.collectives import message_of
from meshfit.dryrun.flops import flops_of
from meshfit.dryrun.places import NOWHERE, Place, Places
from meshfit.dryrun.trace import Collective, Moment, Trace
from meshfit.measure.ledger import Ledger
from meshfit.measure.tensors import TensorTracker
from meshfit.run.model.transformer import Stage


class _PlacedLedger(Ledger):
    """A ledger that keeps the place of every moment."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._now = places
        self.places: list[Place] = []

    def mark(self, operation: str, phase: str) -> None:
        super().mark(operation, phase)
        self.places.append(self._now.now() if operation != "start" else NOWHERE)

    @property
    def num_moments(self) -> int:
        """Moments that have ended."""
        return len(self._moments)


class Recorder(TensorTracker):
    """Tracks one step of fake tensors and remembers all of it as a ``Trace``.

    On ``cuda`` sizes are counted in the blocks of its allocator; on ``cpu`` Gloo does the
    communication, which reduces a copy of what it scatters. ``axes`` are those of process groups, by
    name.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        optimizer: Optimizer,
        axes: Mapping[str, str],
        *,
        device_type: DeviceType,
    ) -> None:
        super().__init__(stages, optimizer)
        self._block_bytes = SMALLEST_BLOCK_BYTES if device_type == "cuda" else 1
        self._is_gloo = device_type == "cpu"
        self._places = Places(stages)
        self._placed = _PlacedLedger(self._places)
        self._ledger = self._placed
        self._axes = axes
        self._flops: dict[int, int] = {}
        self._collectives: list[Collective] = []

    def __enter__(self) -> "Recorder":
        self._places.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._places.__exit__(*error)

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func.namespace == "prim":  # asks a fake tensor for its device
            return
        kwargs = kwargs or {}
        moment = self._placed.num_moments
        flops = flops_of(func, args, kwargs)
        if flops:
            self._flops[moment] = flops
        super()._record(func, args, kwargs, result)
        self._note_message(moment, func, args, kwargs, result)
        if self._is_gloo and func is torch.ops.c10d._reduce_scatter_base_.default:
            self._copy_as_gloo(args[1].untyped_storage().nbytes(), moment)

    def _copy_as_gloo(self, size_bytes: int, moment: int) -> None:
        """The copy appears when its part is taken out, and goes when that is done."""
        phase = self._placed._moments[moment].phase
        copy = self._ledger.birth(size_bytes, "communication")
        self._ledger.mark("aten::split.Tensor", phase)
        self._ledger.mark("aten::copy_", phase)
        self._ledger.resize(copy, 0)

    def _held_bytes(self, storage: torch.UntypedStorage) -> int:
        return -(-int(storage.nbytes()) // self._block_bytes) * self._block_bytes

    def _note_message(self, moment: int, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        message = message_of(func, args, kwargs, result, self._axes)
        if message is None:
            return
        self._collectives.append(
            Collective(
                moment=moment,
                kind=message.kind,
                axis=message.axis,
                size_bytes=message.size_bytes,
                phase=self._placed._moments[moment].phase,
                module=self._placed.places[moment].module,
            )
        )

    def trace(self) -> Trace:
        """Everything that happened, after the step."""
        ledger = self._placed
        return Trace(
            moments=tuple(
                Moment(
                    operation=moment.operation,
                    phase=moment.phase,
                    module=place.module,
                    layer=place.layer,
                    stage=place.stage,
                    micro_batch=place.micro_batch,
                    flops=self._flops.get(index, 0),
                )
                for index, (moment, place) in enumerate(
                    zip(ledger._moments, ledger.places, strict=True)
                )
            ),
            change_moment=np.array(ledger._change_moment, dtype=np.int64),
            change_block=np.array(ledger._change_block, dtype=np.int64),
            change_bytes=np.array(ledger._change_bytes, dtype=np.int64),
            categories=np.array(ledger._categories, dtype=np.int64),
            collectives=tuple(self._collectives),
        )
