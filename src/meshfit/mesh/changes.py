"""Single changes of a layout: one axis or one policy, and what must follow from it.

A change of an axis takes its ranks from data parallelism, or gives them to it, so that the world
stays full. Nothing here knows whether a change is legal or helps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshfit.mesh.candidates import OFFLOAD, RECOMPUTE, SCHEDULES, Candidates
from meshfit.mesh.facts import Facts
from meshfit.mesh.generate import divisors
from meshfit.mesh.neighbour import Neighbours, is_known
from meshfit.mesh.rules import allowed
from meshfit.mesh.spec import LayoutSpec, stages_text, value_text
from meshfit.profile import EngineProfile

AXES_BESIDE_DATA = ("tp", "pp", "cp")
MOST_LAYERS_MOVED = 3
LARGEST_MICRO_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Change:
    """A layout, and in words what makes it of another: keys as ``--layout`` takes them."""

    layout: LayoutSpec
    words: str


def single_changes(
    layout: LayoutSpec, *, num_ranks: int, num_hidden_layers: int, profile: EngineProfile
) -> list[Change]:
    """Every other layout one change away that fills ``num_ranks`` and has a layer on each stage, but
    for ends that the layout leaves to the embedding and the head.

    Values are those that the engine's profile names; degrees are divisors of ``num_ranks``.
    """
    maker = _Maker(layout, num_ranks, num_hidden_layers, profile)
    found: dict[LayoutSpec, Change] = {}
    for change in maker.changes():
        is_whole = change.layout.world_size == num_ranks
        if is_whole and _has_layers(change.layout, num_hidden_layers) and change.words:
            found.setdefault(change.layout, change)
    return list(found.values())


def _has_layers(layout: LayoutSpec, num_hidden_layers: int) -> bool:
    given = layout.stage_layers
    if given is not None and len(given) == layout.num_stages:
        return min(given[1:-1], default=1) > 0
    return layout.num_stages <= num_hidden_layers


def legal_changes(
    layout: LayoutSpec, changes: Sequence[Change], facts: Facts, profile: EngineProfile
) -> list[Change]:
    """Those of ``changes`` that are legal, the nearest to ``layout`` first, and of equal degrees
    the nearest alone; ``facts`` are those of model, training and topology."""
    known = [change for change in changes if is_known(change.layout)]
    candidates = Candidates.from_layouts([change.layout for change in known])
    legal = candidates.take(np.flatnonzero(allowed(candidates, profile, facts)))
    words = {change.layout: change for change in known}
    return [words[one] for one in Neighbours(legal).nearest_meshes(layout, len(legal))]


class _Maker:
    def __init__(
        self, layout: LayoutSpec, num_ranks: int, num_hidden_layers: int, profile: EngineProfile
    ) -> None:
        self._layout = layout
        self._num_ranks = num_ranks
        self._num_hidden_layers = num_hidden_layers
        self._profile = profile

    def changes(self) -> Iterator[Change]:
        yield from self._policies()
        yield from self._moved_layers()
        yield from self._micro_batches()
        yield from self._data_parallel()
        yield from self._degrees()

    def _with(self, **keys: Any) -> Change:
        changed = _consistent(self._layout, keys, self._profile)
        return Change(layout=changed, words=_difference(self._layout, changed))

    def _policies(self) -> Iterator[Change]:
        layout, profile = self._layout, self._profile
        for recompute in (name for name in RECOMPUTE if name in profile.recompute):
            yield from (
                self._with(recompute=recompute, recompute_layers=layers)
                for layers in self._recomputed(recompute)
            )
        usual_first = sorted(SCHEDULES, key=lambda name: name != LayoutSpec().schedule)
        for schedule in (name for name in usual_first if name in profile.schedules):
            yield self._with(schedule=schedule)
        for offload in (name for name in OFFLOAD if name in profile.offload):
            yield self._with(offload=offload)
        if layout.tp > 1:
            yield self._with(sp=not layout.sp)
        if layout.dp_shard > 1:
            yield from (self._with(zero_stage=stage) for stage in profile.zero_stages)

    def _recomputed(self, recompute: str) -> tuple[int, ...]:
        """Numbers of layers that a policy is tried with."""
        on_stage = max(1, self._num_hidden_layers // self._layout.num_stages)
        if recompute == "alternate":
            return (2,)
        if recompute == "block":
            return tuple(dict.fromkeys((max(1, on_stage // 4), max(1, on_stage // 2))))
        return (1,)

    def _moved_layers(self) -> Iterator[Change]:
        """Fewer layers at the ends of the pipeline, which hold embedding, head and most activations."""
        layout = self._layout
        stages = layout.layers_of_stages(self._num_hidden_layers)
        if len(stages) != layout.num_stages or layout.num_stages < 2:
            return
        if layout.stage_layers is None and self._num_hidden_layers % layout.num_stages:
            yield self._with(stage_layers=stages)
        last = layout.num_stages - 1
        for ends, where in (
            ((0,), "first stage"),
            ((last,), "last stage"),
            ((0, last), "first and last stage"),
        ):
            for count in range(1, MOST_LAYERS_MOVED + 1):
                layers = self._moved(ends, count)
                if layers is None:
                    continue
                fewer = "one layer less" if count == 1 else f"{count} layers less"
                yield Change(
                    layout=replace(layout, stage_layers=layers),
                    words=f"{fewer} on the {where}, stage_layers={stages_text(layers)}",
                )
        if layout.stage_layers is not None:
            yield Change(
                layout=replace(layout, stage_layers=None), words="stages as even as can be"
            )

    def _moved(self, ends: tuple[int, ...], count: int) -> tuple[int, ...] | None:
        """``count`` layers from each of ``ends`` to the emptiest other stages; None where they have
        too few, or no stage is left to take them."""
        layers = list(self._layout.layers_of_stages(self._num_hidden_layers))
        others = [stage for stage in range(len(layers)) if stage not in ends]
        if not others or any(layers[end] <= count for end in ends):
            return None
        for end in ends:
            layers[end] -= count
        middle = (len(layers) - 1) / 2
        for _ in range(count * len(ends)):
            layers[min(others, key=lambda stage: (layers[stage], abs(stage - middle)))] += 1
        return tuple(layers)

    def _micro_batches(self) -> Iterator[Change]:
        size = 1
        while size <= max(LARGEST_MICRO_BATCH, self._layout.micro_batch_size):
            yield self._with(micro_batch_size=size)
            size *= 2

    def _data_parallel(self) -> Iterator[Change]:
        """Ranks of data parallelism between replicas and shards."""
        layout = self._layout
        beside = layout.tp * layout.pp * layout.cp
        if self._num_ranks % beside:
            return
        total = self._num_ranks // beside
        for shard in divisors(total):
            yield self._with(dp_shard=shard, dp_replicate=total // shard)

    def _degrees(self) -> Iterator[Change]:
        layout = self._layout
        for axis in AXES_BESIDE_DATA:
            for value in divisors(self._num_ranks):
                yield from self._taken_from_data(axis, value)
                yield self._with(**{axis: value})
        for value in divisors(self._num_ranks):
            yield self._with(ep=value)
            if layout.ep > 1:
                yield self._with(etp=value)
        for vpp in range(1, self._num_hidden_layers // max(1, layout.pp) + 1):
            if layout.pp > 1 and self._num_hidden_layers % (layout.pp * vpp) == 0:
                yield self._with(vpp=vpp)

    def _taken_from_data(self, axis: str, value: int) -> Iterator[Change]:
        """``axis`` of this degree, and one of the data axes as large as is left for it."""
        layout = self._layout
        for data_axis in ("dp_shard", "dp_replicate"):
            kept = layout.world_size // getattr(layout, axis) // getattr(layout, data_axis)
            if self._num_ranks % (kept * value) == 0:
                yield self._with(**{axis: value, data_axis: self._num_ranks // (kept * value)})


def _consistent(layout: LayoutSpec, keys: dict[str, Any], profile: EngineProfile) -> LayoutSpec:
    """``layout`` with ``keys``, and with what each of them decides of others."""
    changed = replace(layout, **keys)
    also: dict[str, Any] = {}
    if (changed.tp > 1) != (layout.tp > 1):
        also["sp"] = changed.tp > 1 and profile.sequence_parallel
    if changed.dp_shard == 1:
        also["zero_stage"] = 0
    elif layout.dp_shard == 1 and "zero_stage" not in keys:
        also["zero_stage"] = profile.default_zero_stage
    if (changed.pp, changed.vpp) != (layout.pp, layout.vpp):
        also["stage_layers"] = None
    if changed.pp == 1:
        also |= {"vpp": 1, "schedule": LayoutSpec().schedule, "stage_layers": None}
    elif (changed.vpp > 1) != (layout.vpp > 1) and "schedule" not in keys:
        also["schedule"] = "interleaved_1f1b" if changed.vpp > 1 else LayoutSpec().schedule
    if changed.ep == 1:
        also["etp"] = 1
    return replace(changed, **also)


def _difference(before: LayoutSpec, after: LayoutSpec) -> str:
    """Keys that must be given to come from one to the other; those that follow are left out."""
    default = LayoutSpec().as_full_json() | {"sp": before.tp > 1}
    old, new = before.as_json(), after.as_json()
    follows = {"zero_stage", "stage_layers"}
    follows |= {"schedule", "vpp"} if after.pp == 1 else set()
    follows |= {"etp"} if after.ep == 1 else set()
    follows |= {"sp"} if after.tp == 1 else set()
    keys = [key for key in new if new[key] != old.get(key, default[key])]
    keys += [key for key in old if key not in new and key not in follows]
    words = ",".join(f"{key}={value_text(getattr(after, key))}" for key in keys)
    drops_stages = "stage_layers" in old and "stage_layers" not in new
    return f"{words} without stage_layers" if drops_stages else words
