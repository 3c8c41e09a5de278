"""Seconds that moving things to the host and back takes: activations, and an optimizer that runs there."""

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.predict.memory.kept import offloaded_activations
from meshfit.predict.memory.megatron.offloaded import moved_in_micro_batch
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import InFlight, RankShape
from meshfit.predict.time.compute import stepped_bytes

FloatArray = NDArray[np.float64]

LINK_BYTES_PER_S = 20e9
"""Of a host link that the catalogue does not know, assumed: PCIe 4 x16 (31.5 GB/s) less a third for
packets and copies."""
HOST_MEMORY_BYTES_PER_S = 200e9
"""Memory bandwidth of a host, which its accelerators share, assumed: about half of two sockets with
eight channels of DDR4-3200 (410 GB/s), since a multi-threaded Adam both reads and writes."""


def activations_s(shape: RankShape, group: LayoutGroup, topology: Topology) -> FloatArray:
    """Of one micro-batch, out after forward and back before backward; 0 where none are offloaded."""
    if not group.columns.offloads_activations.any():
        return np.zeros(len(group))
    return 2 * _moved_in_micro_batch(shape, group) / _link(topology)


def _moved_in_micro_batch(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """Bytes that go to the host, by the memory model that says what stays."""
    if group.profile.memory_model == "megatron":
        return moved_in_micro_batch(MegatronRank(shape=shape, group=group))
    one = np.ones(len(group), dtype=np.int64)
    alone = InFlight(
        per_chunk=(one,) * len(shape.chunks),
        put_off=(0 * one,) * len(shape.chunks),
        accumulating=np.zeros(len(group), dtype=np.bool_),
    )
    return offloaded_activations(shape, group, alone)


def optimizer_on_host_s(
    parameters_stepped: FloatArray, group: LayoutGroup, topology: Topology
) -> FloatArray:
    """Gradients out, the update where the states lie, parameters back.

    The update passes over memory (``compute.stepped_bytes``) at the host's bandwidth, which the ranks
    of a host share.
    """
    precision = group.training.precision
    element = precision.compute_bytes
    moved = parameters_stepped * (precision.gradient_bytes + element) / _link(topology)
    share = HOST_MEMORY_BYTES_PER_S / topology.gpus_per_host
    return np.asarray(moved + parameters_stepped * stepped_bytes(group.training) / share)


def _link(topology: Topology) -> float:
    return topology.accelerator.host_link_bytes_per_s or LINK_BYTES_PER_S
