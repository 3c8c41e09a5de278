"""Where the ranks of every axis lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.costs.collectives import Alike, AxisGroup, CollectiveCosts
from meshfit.predict.shape.columns import strides
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.pick import alike

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class StateAxes:
    """The ranks that share states.

    Attributes:
        shards: over which they are divided.
        replicas: that hold equal shards.
        everyone: both together, over which DDP sums gradients.
    """

    shards: AxisGroup
    replicas: AxisGroup
    everyone: AxisGroup


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The ranks of every axis: ``dense`` share all states but those of experts with groups of their
    own, ``experts`` share these; ``ends`` are the first and the last pipeline rank. Context-parallel
    ranks trade heads (``cp_heads``), exchange keys (``cp_keys``), or both."""

    tp: AxisGroup
    cp_heads: AxisGroup
    cp_keys: AxisGroup
    pp: AxisGroup
    ends: AxisGroup
    ep: AxisGroup
    etp: AxisGroup
    dense: StateAxes
    experts: StateAxes

    def sharing(self, axis: str) -> StateAxes:
        """Those of ``messages.Sharing``."""
        return self.experts if axis == "edp" else self.dense


def place_axes(group: LayoutGroup, costs: CollectiveCosts) -> Axes:
    """Place the ranks of every axis on the topology in the engine's rank order.

    Expert-parallel ranks are neighbours inside the axes that they are taken from: whole experts, then
    the ranks that share one inside them, and ranks that hold the same ones outside.
    """
    columns, c = group.columns, group.candidates
    apart = strides(c, group.profile)
    blocks = _Placer(costs, _alike(group, _OF_BLOCKS))
    states = _Placer(costs, _alike(group, _OF_STATES))
    inner, dense = _inner_stride(apart, group), _dense(group, states, apart)
    has_groups = bool(columns.splits_experts.any())
    return Axes(
        tp=blocks.place(columns.tp, apart["tp"]),
        cp_heads=blocks.place(columns.head_ranks, apart["cp"]),
        cp_keys=blocks.place(columns.key_ranks, apart["cp"] * columns.head_ranks),
        pp=blocks.place(columns.pp, apart["pp"]),
        ends=states.place(np.minimum(columns.pp, 2), apart["pp"] * np.maximum(columns.pp - 1, 1)),
        ep=blocks.place(c.ep, inner * c.etp),
        etp=blocks.place(np.where(columns.splits_experts, c.etp, 1), inner),
        dense=dense,
        experts=_experts(group, states, apart, inner * c.etp * c.ep) if has_groups else dense,
    )


_OF_BLOCKS = ("micro_batch_size", "tp", "sp", "cp", "cp_method", "cp_inner", "ep", "etp", "pp")
"""With the product of the data-parallel degrees: what decides who sends how much of activations."""
_OF_STATES = ("dp_replicate", "dp_shard", "tp", "cp", "ep", "etp", "pp", "zero_stage", "offload_to")
"""The same of parameters and gradients."""


def _alike(group: LayoutGroup, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """One layout of every kind, and the kind of each."""
    c = group.candidates
    return alike([c.dp_replicate * c.dp_shard, *(getattr(c, name) for name in columns)])


@dataclass(frozen=True)
class _Placer:
    """Places ranks once for layouts that are alike."""

    costs: CollectiveCosts
    kinds: tuple[IntArray, IntArray]

    def place(self, degree: IntArray, stride: IntArray) -> AxisGroup:
        first, which = self.kinds
        ranks = self.costs.place(degree[first], stride[first])
        return AxisGroup(
            degree=degree,
            members=tuple(members[which] for members in ranks.members),
            depths=tuple(depths[which] for depths in ranks.depths),
            alike=Alike(first=first, which=which, ranks=ranks),
        )


def _dense(group: LayoutGroup, costs: _Placer, apart: Mapping[str, IntArray]) -> StateAxes:
    columns = group.columns
    sharding = np.minimum(apart["dp_shard"], apart["cp"])
    all_data = np.minimum(sharding, apart["dp_replicate"])
    replicas = np.where(columns.shards_optimizer, apart["dp_replicate"], all_data)
    return StateAxes(
        shards=costs.place(columns.state_shard, sharding),
        replicas=costs.place(columns.replicas, replicas),
        everyone=costs.place(columns.replicas * columns.state_shard, all_data),
    )


def _experts(
    group: LayoutGroup, costs: _Placer, apart: Mapping[str, IntArray], stride: IntArray
) -> StateAxes:
    columns = group.columns
    folds_replicas = "dp_replicate" in group.profile.expert_fold
    replicas = stride if folds_replicas else np.maximum(stride, apart["dp_replicate"])
    return StateAxes(
        shards=costs.place(columns.expert_shard, stride),
        replicas=costs.place(columns.expert_replicas, replicas),
        everyone=costs.place(columns.expert_replicas * columns.expert_shard, stride),
    )


def _inner_stride(apart: Mapping[str, IntArray], group: LayoutGroup) -> IntArray:
    strides_of_fold = [apart[axis] for axis in group.profile.expert_fold if axis in apart]
    return np.asarray(np.minimum.reduce(strides_of_fold))
