"""A serving plan, as a document and for the terminal."""

import math
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts.words import ABSENT, rate
from meshfit.serve.load.loading import DEFAULT_PERCENTILE, ReplicaLoad
from meshfit.serve.load.two_pools import TwoPoolsLoad
from meshfit.serve.memory.replica import least_fraction
from meshfit.serve.plan.rows import ServingPlan, ServingRow, WiderTensorParallel, capacity_per_gpu
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.serve.time.bounds import Bounds
from meshfit.serve.time.device import likely_range
from meshfit.units import format_bytes, format_count

VERDICTS = {
    "meets_targets": "meets",
    "misses_targets": "misses",
    "saturated": "saturated",
    "does_not_fit": "does not fit",
}
DEFINITIONS = (
    "ttft: to the first token, mean and 95th percentile; itl: gaps between tokens; tpot: (end to end - "
    "ttft) / (tokens - 1), mean; load: offered over what the layout could serve at most; tok/s/GPU: at "
    "most; KV tok, reqs: tokens and requests of full length in the caches of all replicas; adp: "
    "attention by data parallelism; A > B: prompts in a pool A, output in a pool B; GiB: of the worst "
    "rank; prefill, decode: what most of their time waits for; tp x 2: tpot and tok/s/GPU at twice the "
    "tp; * on the Pareto front of ttft, tpot and tok/s/GPU"
)
_WIDTHS = {"tok/s/GPU": 9}
_ENGINE_WORDS = {"tensorrt_llm": "trt-llm"}
_KEY_WORDS = {"attention_dp": "adp"}
_BOUND_WORDS = {"compute": "comp.", "memory bandwidth": "mem.", "interconnect": "links"}


def serving_plan_document(plan: ServingPlan, *, top: int | None = None) -> dict[str, Any]:
    """Seconds, bytes and tokens a second, one entry a layout; ``top``: no more of them."""
    document: dict[str, Any] = {
        "job": plan.job.name,
        "accelerator": plan.topology.accelerator.name,
        "accelerators": plan.accelerators,
        "meets_targets": plan.meets_targets,
        "candidates": [_row(row, plan) for row in plan.rows[:top]],
        "pareto_front": [row.layout.as_json() for row in plan.rows if row.is_on_front],
        "space": {
            "legal": len(plan.of_one_pool),
            "pairs_of_pools": len(plan.rows) - len(plan.of_one_pool),
            "rejected": plan.rejected,
        },
        "seconds": plan.seconds,
    }
    if plan.tried:
        document["tried"] = {str(count): met for count, met in plan.tried.items()}
    return document


def _row(row: ServingRow, plan: ServingPlan) -> dict[str, Any]:
    memory = row.memory
    load = row.load
    cache, tokens = memory.worst.cache, memory.request_tokens
    return {
        "engine": row.engine,
        "layout": row.layout.as_json(),
        "verdict": row.verdict,
        "missed_targets": list(row.missed),
        "pareto": row.is_on_front,
        "memory": memory.memory.as_json(),
        "prefill_memory": (
            None if row.prefill_memory is None else row.prefill_memory.memory.as_json()
        ),
        "memory_capacity": memory.capacity_bytes,
        "memory_margin": memory.margin_bytes,
        "least_memory_fraction": least_fraction(memory),
        "kv_tokens": memory.kv_tokens,
        "kv_bytes_per_request": {
            "tokens": tokens,
            "lower": cache.lower_bytes(tokens),
            "engine": cache.request_bytes(tokens),
            "upper": cache.upper_bytes(tokens),
            "page_tokens": cache.page_tokens,
            "frees_behind_window": cache.frees_behind_window,
        },
        "concurrency": memory.concurrency,
        "in_flight": None if load is None else load.in_flight,
        "load": None if load is None else load.load,
        "ttft": None if load is None else load.ttft_s,
        "tpot": None if load is None else load.tpot_s,
        "latencies": _latencies(row, plan),
        "interval": {} if load is None else _intervals(load),
        "tokens_per_s_per_gpu": row.tokens_per_s_per_gpu,
        "most_tokens_per_s_per_gpu": None if load is None else capacity_per_gpu(row),
        "price_per_million_tokens": row.price_per_million_tokens,
        "prefill_bound": _bounds(row.prefill_bound),
        "decode_bound": _bounds(row.decode_bound),
        "twice_tp": _wider(row.wider),
        "notes": list(row.notes),
    }


def _latencies(row: ServingRow, plan: ServingPlan) -> dict[str, float]:
    """Percentiles that targets name, and the usual one of ttft and itl; infinite (null) where the
    layout cannot keep up."""
    if row.load is None:
        return {}
    asked = [(target.metric, target.percentile) for target in plan.job.targets]
    usual = [("ttft", DEFAULT_PERCENTILE), ("itl", DEFAULT_PERCENTILE)]
    return {
        f"{metric}.p{percentile:g}": row.load.latency_s(metric, percentile)  # type: ignore[arg-type]
        for metric, percentile in dict.fromkeys(asked + usual)
    }


def _intervals(load: ReplicaLoad | TwoPoolsLoad) -> dict[str, list[float]]:
    """Where four of five measured servers lie around the means."""
    return {
        "ttft": list(likely_range("ttft", load.ttft_s)),
        "tpot": list(likely_range("tpot", load.tpot_s)),
    }


def _bounds(bounds: Bounds | None) -> dict[str, Any] | None:
    if bounds is None:
        return None
    return {
        "name": bounds.name,
        "compute": bounds.compute,
        "memory": bounds.memory,
        "communication": bounds.communication,
        "host": bounds.host,
    }


def _wider(wider: WiderTensorParallel | None) -> dict[str, Any] | None:
    if wider is None:
        return None
    return {
        "layout": wider.layout.as_json(),
        "ttft": wider.ttft,
        "tpot": wider.tpot,
        "most_tokens_per_s_per_gpu": wider.tokens_per_s_per_gpu,
        "kv_tokens": wider.kv_tokens,
    }


def serving_plan_view(plan: ServingPlan, *, top: int, every: bool) -> RenderableType:
    """The table of layouts, what did not fit, and what stands behind the figures."""
    shown = [row for row in plan.rows if row.load is not None]
    parts: list[RenderableType] = [_table(plan, shown if every else shown[:top])]
    hidden = 0 if every else max(0, len(shown) - top)
    if hidden:
        parts.append(Text(f"{hidden} more layouts fit; --all shows them", style="dim"))
    parts += [Text(line) for line in _misfits(plan)]
    parts.append(Text(DEFINITIONS, style="dim"))
    parts += [Text(line, style="dim") for line in _endnotes(plan)]
    return Group(*parts)


def _table(plan: ServingPlan, rows: list[ServingRow]) -> Table:
    name = plan.topology.accelerator.name
    legal = len(plan.of_one_pool)
    table = Table(
        title=f"{plan.job.name}: {plan.accelerators} {name}, {legal} legal layouts, "
        f"{len(plan.rows) - legal} pairs of pools",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("")
    table.add_column("layout", no_wrap=True)
    for head in (
        "ttft ms", "p95", "itl p95", "tpot", "load", "tok/s/GPU", "KV tok", "reqs", "GiB",
    ):  # fmt: skip
        table.add_column(head, justify="right", min_width=_WIDTHS.get(head, 6))
    if plan.job.price_per_device_h is not None:
        table.add_column(f"{plan.job.currency}/M", justify="right", min_width=5)
    for head in ("prefill", "decode", "tp x 2", "targets"):
        table.add_column(head, no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, plan))
    return table


def _cells(row: ServingRow, plan: ServingPlan) -> list[str]:
    load = row.load
    assert load is not None
    cells = [
        "*" if row.is_on_front else "",
        f"{_ENGINE_WORDS.get(row.engine, row.engine)} {_label(row)}",
        _milliseconds(load.ttft_s),
        _milliseconds(load.latency_s("ttft", DEFAULT_PERCENTILE)),
        _milliseconds(load.latency_s("itl", DEFAULT_PERCENTILE)),
        _milliseconds(load.tpot_s),
        f"{load.load:.0%}" if load.load else ABSENT,
        rate(capacity_per_gpu(row)),
        format_count(row.memory.kv_tokens * _decoding(row).replicas),
        str(row.memory.concurrency * _decoding(row).replicas),
        f"{_worst_rank_bytes(row) / 2**30:.1f}",
    ]
    if plan.job.price_per_device_h is not None:
        price = row.price_per_million_tokens
        cells.append(ABSENT if price is None else f"{price:.2f}")
    return [*cells, _bound(row.prefill_bound), _bound(row.decode_bound), *_last_cells(row)]


def _decoding(row: ServingRow) -> ServingLayout:
    """The replicas that hold requests while they decode."""
    return row.layout.decode if isinstance(row.layout, DisaggregatedLayout) else row.layout


def _worst_rank_bytes(row: ServingRow) -> int:
    memories = [one for one in (row.memory, row.prefill_memory) if one is not None]
    return max(one.memory.total for one in memories)


def _label(row: ServingRow) -> str:
    """``2 x tp=4,ep=4``: replicas, and the degrees of one that are not 1; of two pools ``prefill >
    decode``."""
    layout = row.layout
    pools = (
        (layout.prefill, layout.decode) if isinstance(layout, DisaggregatedLayout) else (layout,)
    )
    return " > ".join(map(_pool_label, pools)) + (" \N{DAGGER}" if row.notes else "")


def _pool_label(layout: ServingLayout) -> str:
    own = {key: value for key, value in layout.as_json().items() if key != "replicas"}
    degrees = (
        ",".join(f"{_KEY_WORDS.get(key, key)}={value}" for key, value in own.items()) or "tp=1"
    )
    return f"{layout.replicas} x {degrees}"


def _last_cells(row: ServingRow) -> tuple[str, str]:
    wider = row.wider
    doubled = (
        ABSENT if wider is None else f"{wider.tpot - 1:+.0%}, {wider.tokens_per_s_per_gpu - 1:+.0%}"
    )
    missed = f" {', '.join(row.missed)}" if row.verdict == "misses_targets" else ""
    return doubled, VERDICTS[row.verdict] + missed


def _milliseconds(seconds: float) -> str:
    if seconds == math.inf:
        return ABSENT
    return f"{seconds * 1e3:,.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def _bound(bounds: Bounds | None) -> str:
    if bounds is None:
        return ABSENT
    largest = max(bounds.compute, bounds.memory, bounds.communication, bounds.host)
    return f"{_BOUND_WORDS.get(bounds.name, bounds.name)} {largest:.0%}"


def _misfits(plan: ServingPlan) -> list[str]:
    """Layouts of which a replica does not fit, the nearest of each engine with what is lacking."""
    lines = []
    for engine in dict.fromkeys(row.engine for row in plan.rows):
        misfits = [
            row for row in plan.rows if row.engine == engine and row.verdict == "does_not_fit"
        ]
        if not misfits:
            continue
        nearest = max(misfits, key=lambda row: row.memory.margin_bytes)
        memory = nearest.memory
        lines.append(
            f"{engine}: {len(misfits)} layouts do not fit; the nearest, {nearest.layout.label}, lacks "
            f"{format_bytes(-memory.margin_bytes)} of {format_bytes(memory.capacity_bytes)} for "
            f"{format_bytes(memory.memory.weights)} of weights and one request of "
            f"{memory.request_tokens} tokens"
        )
    return lines


def _endnotes(plan: ServingPlan) -> list[str]:
    lines = [f"\N{DAGGER} {note}" for note in dict.fromkeys(n for r in plan.rows for n in r.notes)]
    if plan.rejected:
        refused = ", ".join(f"{rule} {count}" for rule, count in plan.rejected.items())
        lines.append(f"refused by rules: {refused}")
    if plan.tried:
        counts = ", ".join(f"{count}: {met}" for count, met in plan.tried.items())
        lines.append(f"layouts that meet the targets by accelerators: {counts}")
    return lines
