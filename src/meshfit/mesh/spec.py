"""A layout: the degrees of the mesh axes and the policies that go with them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any

AXES: tuple[str, ...] = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Mesh axes from the outermost (ranks farthest apart) to the innermost (adjacent ranks).

``ep`` is no axis of its own: expert parallelism is folded into dp_shard x cp x tp."""


@dataclass(frozen=True, kw_only=True)
class LayoutSpec:
    """One way of dividing one workload over the ranks of a world.

    Attributes:
        dp_replicate: ranks that hold the same states and split the batch (DDP; HSDP's outer axis).
        dp_shard: ranks that split the batch and shard states as ``zero_stage`` says.
        tp, sp: tensor parallel degree; sequence parallel between its blocks (default: with tp > 1).
        cp, cp_method: context parallel degree; ring, all_gather, all_to_all, or hierarchical.
        cp_inner: neighbours that exchange heads in a hierarchical exchange; the others pass keys on.
        pp, vpp: pipeline ranks; virtual stages on each. ``pp * vpp`` is the number of stages.
        schedule: one of ``candidates.SCHEDULES``.
        stage_layers: layers of every stage in model order; None: as even as can be.
        ep, etp: expert parallel and expert tensor parallel degrees, inside dp_shard x cp x tp.
        zero_stage: 0 nothing sharded, 1 optimizer, 2 parameters kept gathered from forward to
            backward (FSDP2 with reshard_after_forward false), 3 gathered for each use.
        micro_batch_size: sequences one forward takes on one data-parallel rank.
        recompute: ``none``; ``selective`` (core attention); ``operations`` (all but the outputs of
            attention and of every second matmul, or the parts whose outputs Megatron-Core
            discards); ``alternate`` (every ``recompute_layers``-th layer in full); ``block`` (the
            first ``recompute_layers`` layers of every stage in full); ``full`` (all of them,
            ``recompute_layers`` to a checkpoint).
        offload: one of ``candidates.OFFLOAD``.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1
    sp: bool = False
    cp: int = 1
    cp_method: str | None = None
    cp_inner: int = 1
    pp: int = 1
    vpp: int = 1
    schedule: str = "1f1b"
    stage_layers: tuple[int, ...] | None = None
    ep: int = 1
    etp: int = 1
    zero_stage: int = 0
    micro_batch_size: int = 1
    recompute: str = "none"
    recompute_layers: int = 1
    offload: str | None = None

    @property
    def world_size(self) -> int:
        return self.dp_replicate * self.dp_shard * self.tp * self.cp * self.pp

    @property
    def data_parallel_size(self) -> int:
        """Ranks that see different sequences."""
        return self.dp_replicate * self.dp_shard

    @property
    def gradient_ranks(self) -> int:
        """Ranks that see different tokens of one stage, and so add up their gradients."""
        return self.data_parallel_size * self.cp

    @property
    def num_stages(self) -> int:
        return self.pp * self.vpp

    def num_micro_batches(self, global_batch_size: int) -> int:
        """Micro-batches of one optimizer step on one data-parallel rank (floor)."""
        return global_batch_size // (self.data_parallel_size * self.micro_batch_size)

    def layers_of_stages(self, num_hidden_layers: int) -> tuple[int, ...]:
        """Layers of every stage in model order."""
        return self.stage_layers or even_stages(num_hidden_layers, self.num_stages)

    @property
    def family(self) -> str:
        """The strategies in use, outermost first: ``DDP``, ``FSDP2``, ``HSDP+TP``, ``PP+FSDP2``."""
        parts = []
        if self.pp > 1:
            parts.append("PP")
        if self.dp_shard > 1:
            sharded = {1: "ZeRO-1", 2: "ZeRO-2", 3: "FSDP2"}.get(self.zero_stage, "DP")
            parts.append("HSDP" if self.dp_replicate > 1 else sharded)
        elif self.dp_replicate > 1:
            parts.append("DDP")
        if self.cp > 1:
            parts.append("CP")
        if self.ep > 1:
            parts.append("EP")
        if self.tp > 1:
            parts.append("TP")
        return "+".join(parts) or "single"

    @property
    def label(self) -> str:
        """Every key that differs from its default, as ``--layout`` takes them."""
        return (
            ",".join(f"{key}={value_text(value)}" for key, value in self.as_json().items())
            or "single"
        )

    @property
    def slug(self) -> str:
        """``label`` as a file name."""
        return self.label.replace("=", "").replace(",", "-").replace(":", "_")

    def as_json(self) -> dict[str, Any]:
        """Keys that differ from the default, in a fixed order; ``sp`` only when it is not tp > 1.

        Where another key changes what is meant by default (``schedule`` beside vpp, ``zero_stage``
        beside dp_shard), the default is written out.
        """
        document = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }
        document.pop("sp", None)
        if self.sp != (self.tp > 1):
            document["sp"] = self.sp
        if self.vpp > 1:
            document["schedule"] = self.schedule
        if self.pp == 1:
            document.pop("schedule", None)
        if self.dp_shard > 1:
            document["zero_stage"] = self.zero_stage
        if self.stage_layers is not None:
            document["stage_layers"] = list(self.stage_layers)
        return document

    def as_full_json(self) -> dict[str, Any]:
        """Every key, defaults included."""
        return asdict(self) | {"stage_layers": self.stage_layers and list(self.stage_layers)}


def make_layout(
    keys: Mapping[str, Any], *, sequence_parallel: bool = True, zero_stage: int = 3
) -> LayoutSpec:
    """A layout from keys as written in a job: what is absent gets the documented default.

    ``sp`` follows tp > 1 (unless the engine has no sequence parallelism); ``zero_stage`` is the
    engine's, 3 by default, with dp_shard > 1 (2 when ``reshard_after_forward`` is false), else 0;
    ``schedule`` is interleaved_1f1b with vpp > 1; ``alternate`` recomputes every second layer. Keys
    must be known ones.
    """
    values = dict(keys)
    reshard = values.pop("reshard_after_forward", None)
    values.setdefault("sp", sequence_parallel and values.get("tp", 1) > 1)
    if values.get("dp_shard", 1) > 1:
        values.setdefault("zero_stage", 2 if reshard is False else zero_stage)
    if values.get("vpp", 1) > 1:
        values.setdefault("schedule", "interleaved_1f1b")
    if values.get("recompute") == "alternate":
        values.setdefault("recompute_layers", 2)
    if values.get("stage_layers") is not None:
        values["stage_layers"] = tuple(values["stage_layers"])
    return LayoutSpec(**values)


LAYOUT_KEYS: tuple[str, ...] = (*(f.name for f in fields(LayoutSpec)), "reshard_after_forward")


def even_stages(num_hidden_layers: int, num_stages: int) -> tuple[int, ...]:
    """Layers over stages as evenly as can be, the remainder to the middle stages.

    The first and last stage hold the embedding and the head as well, so they get no extra layer
    before the others do: 46 layers over 4 stages are 11, 12, 12, 11.
    """
    base, extra = divmod(num_hidden_layers, num_stages)
    by_distance = sorted(range(num_stages), key=lambda i: (abs(2 * i - (num_stages - 1)), i))
    favoured = set(by_distance[:extra])
    return tuple(base + (stage in favoured) for stage in range(num_stages))


def balanced_stages(
    num_hidden_layers: int, num_stages: int, *, embedding: int, head: int, bare_ends: bool = False
) -> tuple[int, ...] | None:
    """Layers over stages as evenly as can be with embedding and head counted as so many layers.

    126 layers, embedding and head over 16 stages are 7 layers on the first and the last and 8 on
    each other (2407.21783, section 3.3.2). None where that leaves a stage without a layer;
    ``bare_ends``: where it leaves one between the ends so.
    """
    counted = list(even_stages(num_hidden_layers + embedding + head, num_stages))
    counted[0] -= embedding
    counted[-1] -= head
    least_at_ends = 0 if bare_ends else 1
    fills = min(counted[0], counted[-1]) >= least_at_ends and min(counted[1:-1], default=1) >= 1
    return tuple(counted) if fills else None


def stages_text(layers: Sequence[int]) -> str:
    """Layers of every stage as ``--layout`` takes them: ``3:5``, and ``7:8x14:7`` for runs."""
    runs = [(count, len(list(same))) for count, same in groupby(layers)]
    parts = (
        [f"{count}x{times}"] if times > _SHORT_RUN else [str(count)] * times
        for count, times in runs
    )
    return ":".join(part for run in parts for part in run)


_SHORT_RUN = 2

_RUN = r"\d{1,18}(x\d{1,4})?"


def stages_of_text(text: str) -> list[int] | None:
    """The inverse of ``stages_text``, of at least two stages; None where the text is none."""
    if not re.fullmatch(rf"{_RUN}(:{_RUN})+|\d{{1,18}}x\d{{1,4}}", text):
        return None
    runs = (part.partition("x") for part in text.split(":"))
    return [int(count) for count, _, times in runs for _ in range(int(times or 1))]


def value_text(value: object) -> str:
    """A value of a layout's key as ``--layout`` takes it."""
    if isinstance(value, list | tuple):
        return stages_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
