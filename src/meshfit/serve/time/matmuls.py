"""The matmuls of one pipeline stage as columns, so that many steps are timed at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.memory.shards import LayerShards, Shard
from meshfit.workload.blocks.feed_forward import MoeSpec
from meshfit.workload.quantization import MXFP4, NVFP4, WeightFormat

FloatArray = NDArray[np.float64]

ComputeType = Literal["bf16", "fp8", "fp8_block", "fp4"]
"""What products are made in; a table of measured rates each, where there is one."""


@dataclass(frozen=True, kw_only=True)
class Matmul:
    """Equal matmuls of one stage: ``count`` of ``[m, inputs] x [inputs, outputs]``.

    ``weight_bytes`` is of one of them, scales included; ``experts``: of a routed expert, of which the
    rank holds so many.
    """

    outputs: int
    inputs: int
    weight_bytes: int
    count: int
    computed_in: ComputeType
    experts: int = 0


@dataclass(frozen=True, kw_only=True)
class Matmuls:
    """Columns of several ``Matmul`` that are computed in one type."""

    matmuls: tuple[Matmul, ...]

    @cached_property
    def outputs(self) -> FloatArray:
        return self._column("outputs")

    @cached_property
    def inputs(self) -> FloatArray:
        return self._column("inputs")

    @cached_property
    def weight_bytes(self) -> FloatArray:
        return self._column("weight_bytes")

    @cached_property
    def count(self) -> FloatArray:
        return self._column("count")

    @cached_property
    def experts(self) -> FloatArray:
        return self._column("experts")

    def _column(self, name: str) -> FloatArray:
        """One value a row, to broadcast against steps."""
        return np.array([[float(getattr(one, name))] for one in self.matmuls])


def computed_in(stored_as: WeightFormat | None, peaks: Iterable[str]) -> ComputeType:
    """What an accelerator with these peak rates multiplies such weights in.

    8-bit floats and NVFP4 where it has them; MXFP4 with 8-bit activations where it has 4-bit
    floats (Blackwell). Everything else is widened to 16 bits in registers.
    """
    if stored_as is None:
        return "bf16"
    if stored_as.bits == 8 and stored_as.name.startswith("fp8") and "fp8" in peaks:
        return "fp8_block" if (stored_as.rows or 1) > 1 else "fp8"
    if stored_as == NVFP4 and "fp4" in peaks:
        return "fp4"
    if stored_as == MXFP4 and "fp4" in peaks:
        return "fp8"
    return "bf16"


def layer_matmuls(groups: Sequence[LayerShards], peaks: Iterable[str]) -> tuple[Matmul, ...]:
    """Of all layers of a stage; routers and maps of one input together are one matmul."""
    return tuple(one for group in groups for one in _of_layer(group, tuple(peaks)))


def head_matmuls(head: Sequence[Shard]) -> tuple[Matmul, ...]:
    """Of the output head."""
    return tuple(_joined([shard], 1, ()) for shard in head if shard.tensor.role == "linear")


def _of_layer(group: LayerShards, peaks: tuple[str, ...]) -> Iterator[Matmul]:
    together: dict[tuple[object, ...], list[Shard]] = {}
    for shard in group.shards:
        if shard.tensor.role in ("linear", "router"):
            key = (shard.reads, shard.inputs, shard.stored_as, shard.is_expert)
            together.setdefault(key, []).append(shard)
    for shards in together.values():
        yield _joined(shards, group.count, peaks)


def _joined(shards: Sequence[Shard], count: int, peaks: tuple[str, ...]) -> Matmul:
    first = shards[0]
    copies = first.copies if first.is_expert else 1
    return Matmul(
        outputs=sum(shard.outputs for shard in shards),
        inputs=first.inputs,
        weight_bytes=sum(shard.weight_bytes for shard in shards) // copies,
        count=count if first.is_expert else count * first.copies,
        computed_in=computed_in(first.stored_as, peaks),
        experts=first.copies if first.is_expert else 0,
    )


def experts_of(groups: Sequence[LayerShards]) -> MoeSpec | None:
    """The mixture of experts of a stage's layers; None in a dense model."""
    return next((moe for group in groups if (moe := group.layer.moe) is not None), None)
