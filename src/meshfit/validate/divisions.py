"""The layout of a row: degrees, sharding, stages, micro-batch and recomputation."""

import re
from dataclasses import dataclass

from meshfit.mesh.spec import LayoutSpec
from meshfit.validate.rows import NotModelledError, TruthRow
from meshfit.workload.model import ModelSpec

_SCHEDULES = (
    ("zbv", ("zbv_zero_bubble", 2)),
    ("zb-v", ("zbv_zero_bubble", 2)),
    ("dualpipe", ("dualpipe_v", 2)),
    ("interleaved zero", ("interleaved_zero_bubble", None)),
    ("interleavedzero", ("interleaved_zero_bubble", None)),
    ("zero bubble", ("interleaved_zero_bubble", 1)),
    ("zero-bubble", ("interleaved_zero_bubble", 1)),
    ("zb", ("interleaved_zero_bubble", 1)),
    ("bfs", ("looped_bfs", None)),
    ("interleaved", ("interleaved_1f1b", None)),
    ("1f1b", ("1f1b", 1)),
    ("gpipe", ("gpipe", 1)),
    ("afab", ("gpipe", 1)),
    ("all forward all backward", ("gpipe", 1)),
)
"""Words of ``pp_schedule`` -> schedule and stages of a rank, the first that is met; None: the
framework's number. Where it is empty, 1F1B."""

_RECOMPUTE = (
    ("none", ("none", 1)),
    ("every 2nd layer", ("alternate", 2)),
    ("selective layer", ("alternate", 2)),
    ("selective op", ("operations", 1)),
    ("op-level", ("operations", 1)),
    ("full", ("full", 1)),
    ("selective", ("selective", 1)),
)
"""Words of ``recompute`` -> policy and ``recompute_layers``, the first that is met."""


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What a framework does where a row does not say.

    Attributes:
        micro_batch_size: sequences of a micro-batch.
        recompute: policy of ``LayoutSpec.recompute``.
        zero_stage: where ``zero_stage`` is empty.
        stages_per_rank: under an interleaved schedule.
        experts_follow_tp: whether experts are cut over tp too; else they are whole.
    """

    micro_batch_size: int = 1
    recompute: str = "none"
    zero_stage: int = 0
    stages_per_rank: int = 2
    experts_follow_tp: bool = False


def layout_of(row: TruthRow, model: ModelSpec, defaults: Defaults) -> LayoutSpec:
    """The layout that a row's columns describe.

    Raises:
        NotModelledError: a degree is missing, or a policy or schedule is not known.
    """
    tp, pp, cp = row.required("tp"), row.required("pp"), row.whole("cp") or 1
    data_parallel = _data_parallel(row, tp * pp * cp)
    stage = row.whole("zero_stage")
    zero_stage = defaults.zero_stage if stage is None else stage
    replicate, shard = _replicas_and_shards(row, data_parallel, zero_stage)
    schedule, vpp = _schedule_and_stages(row, defaults) if pp > 1 else ("1f1b", 1)
    recompute, layers = recompute_of(row, default=defaults.recompute)
    micro_batch_size = row.whole("mbs") or _micro_batch(row, data_parallel)
    sp = row.flag("sp")
    return LayoutSpec(
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        sp=(tp > 1) if sp is None else sp and tp > 1,
        cp=cp,
        pp=pp,
        vpp=vpp,
        schedule=schedule,
        stage_layers=stage_layers_of(row, model.num_hidden_layers, pp, vpp),
        ep=row.whole("ep") or 1,
        etp=row.whole("etp") or (tp if model.moe and defaults.experts_follow_tp else 1),
        zero_stage=zero_stage if shard * cp > 1 else 0,
        micro_batch_size=micro_batch_size or defaults.micro_batch_size,
        recompute=recompute,
        recompute_layers=layers,
        offload=_offload(row.text("offload")),
    )


def _offload(text: str) -> str | None:
    """Where states or activations go: ``cpu``, ``activations``; ``opt+param`` and the like are
    states. Other words (a policy that decides as it runs) are kept as they are."""
    if text in ("", "none"):
        return None
    return "cpu" if re.search(r"\bopt", text) else text


def global_batch_of(row: TruthRow, layout: LayoutSpec) -> int:
    """Sequences of one optimizer step; one micro-batch a rank where the row does not say."""
    accumulated = row.whole("grad_accum") or 1
    one_each = layout.data_parallel_size * layout.micro_batch_size * accumulated
    return row.whole("gbs") or one_each


def recompute_of(row: TruthRow, *, default: str) -> tuple[str, int]:
    """Policy and ``recompute_layers`` of a row.

    Raises:
        NotModelledError: the words are not known.
    """
    text = row.text("recompute").lower()
    if text in ("", "config default"):
        return default, 1
    for words, policy in _RECOMPUTE:
        if words in text:
            return policy
    raise NotModelledError(f"recompute: {text}")


def stage_layers_of(row: TruthRow, layers: int, pp: int, vpp: int) -> tuple[int, ...] | None:
    """Layers of every stage in model order where the pipeline is uneven by order; else None.

    With given ends the layers between are spread evenly. Where the embedding or the loss counts as
    a layer, the stage that holds it has one less.

    Raises:
        NotModelledError: they do not add up.
    """
    first, last = row.whole("first_stage_layers"), row.whole("last_stage_layers")
    counted = (
        int(row.flag("embedding_counts_as_layer") or False),
        int(row.flag("loss_counts_as_layer") or False),
    )
    if first is not None or last is not None:
        return _given_ends(layers, pp, vpp, first, last)
    if not any(counted):
        if pp > layers:
            raise NotModelledError(f"{layers} layers do not fill {pp} ranks")
        return None
    each, rest = divmod(layers + sum(counted), pp * vpp)
    if rest:
        raise NotModelledError(f"{layers} layers with counted ends do not fill {pp * vpp} stages")
    stages = [each] * (pp * vpp)
    stages[0] -= counted[0]
    stages[-1] -= counted[1]
    return tuple(stages)


def _given_ends(
    layers: int, pp: int, vpp: int, first: int | None, last: int | None
) -> tuple[int, ...]:
    """Layers of the first and last pipeline rank as given, each shared out over its stages."""
    given = [count for count in (first, last) if count is not None]
    between, rest = divmod(layers - sum(given), max(1, pp - len(given)))
    if rest or any(count % vpp for count in (*given, between)):
        raise NotModelledError(f"{layers} layers do not fill {pp} ranks with ends of {given}")
    ranks = [between] * pp
    if first is not None:
        ranks[0] = first
    if last is not None:
        ranks[-1] = last
    return tuple(count // vpp for _ in range(vpp) for count in ranks)


def _data_parallel(row: TruthRow, others: int) -> int:
    stated = row.whole("dp")
    if stated is not None:
        return stated
    ranks = row.whole("n_gpus")
    if ranks is None or ranks % others:
        raise NotModelledError("not stated: dp")
    return ranks // others


def _replicas_and_shards(row: TruthRow, data_parallel: int, zero_stage: int) -> tuple[int, int]:
    if zero_stage == 0:
        return data_parallel, 1
    most = max(1, data_parallel // (row.whole("dist_opt_instances") or 1))
    stated = row.whole("dp_shard")
    shard = min(most, stated) if stated and data_parallel % stated == 0 else most
    return data_parallel // shard, shard


def _micro_batch(row: TruthRow, data_parallel: int) -> int | None:
    batch, accumulated = row.whole("gbs"), row.whole("grad_accum")
    if not batch or not accumulated:
        return None
    return max(1, batch // (data_parallel * accumulated))


def _schedule_and_stages(row: TruthRow, defaults: Defaults) -> tuple[str, int]:
    """The schedule of a pipeline and the stages of each rank."""
    schedule, usual = _schedule(row)
    stages = row.whole("vpp") or usual or defaults.stages_per_rank
    if stages > 1:
        schedule = {"1f1b": "interleaved_1f1b", "gpipe": "looped_bfs"}.get(schedule, schedule)
    return schedule, stages


def _schedule(row: TruthRow) -> tuple[str, int | None]:
    text = row.text("pp_schedule").lower()
    if not text:
        return "1f1b", 1
    for word, found in _SCHEDULES:
        if word in text:
            return found
    raise NotModelledError(f"schedule: {text}")
