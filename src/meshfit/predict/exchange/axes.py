"""Where the ranks of every axis lie."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.collectives import AxisGroup, CollectiveCosts
from meshfit.predict.columns import strides
from meshfit.predict.group import LayoutGroup

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
    own, ``experts`` share these; ``ends`` are the first and the last pipeline rank."""

    tp: AxisGroup
    cp: AxisGroup
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
    inner, dense = _inner_stride(apart, group), _dense(group, costs, apart)
    has_groups = bool(columns.splits_experts.any())
    return Axes(
        tp=costs.place(columns.tp, apart["tp"]),
        cp=costs.place(columns.cp, apart["cp"]),
        pp=costs.place(columns.pp, apart["pp"]),
        ends=costs.place(np.minimum(columns.pp, 2), apart["pp"] * np.maximum(columns.pp - 1, 1)),
        ep=costs.place(c.ep, inner * c.etp),
        etp=costs.place(np.where(columns.splits_experts, c.etp, 1), inner),
        dense=dense,
        experts=_experts(group, costs, apart, inner * c.etp * c.ep) if has_groups else dense,
    )


def _dense(group: LayoutGroup, costs: CollectiveCosts, apart: Mapping[str, IntArray]) -> StateAxes:
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
    group: LayoutGroup, costs: CollectiveCosts, apart: Mapping[str, IntArray], stride: IntArray
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
