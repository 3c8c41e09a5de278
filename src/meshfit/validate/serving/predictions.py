"""Predicted latencies of measured servers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.predict.costs.constants import TimeConstants
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.load.served import ServedReplica, served_replica
from meshfit.serve.load.steady import benchmark_ttft_s, steady_state
from meshfit.serve.load.two_pools import PoolPair, decode_pool, prefill_pool
from meshfit.serve.setting.budget import ServingBudget, serving_budget
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.serve.time.clock import ReplicaClock
from meshfit.validate.collectives.systems import topology_of
from meshfit.validate.rows import NotModelledError
from meshfit.validate.serving.models import served_model
from meshfit.validate.serving.rows import ServingRow

ENGINES: dict[str, str] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
"""Backend of the table -> engine."""

TWO_POOLS = "two pools, whose numbers of workers are not stated"

_CACHE_BYTES = {"fp8": 1.0, "fp4": 1.0}
"""Of an element of the KV cache by precision: servers of 8- and 4-bit weights keep it in 8 bits."""


@dataclass(frozen=True, kw_only=True)
class ServingPrediction:
    """Seconds predicted for one row; or why there are none."""

    row: ServingRow
    tpot_s: float | None = None
    ttft_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ServedGroup:
    """Rows of one server layout with the clock that times them.

    ``capacity`` has the requests of each row's length whose KV cache fits.
    """

    rows: tuple[int, ...]
    clock: ReplicaClock
    budget: ServingBudget
    concurrency: tuple[float, ...]
    capacity: tuple[float, ...]
    prompt_tokens: tuple[float, ...]
    output_tokens: tuple[float, ...]

    def of_any_release(self) -> "ServedGroup":
        """The same without the engine's release."""
        return replace(self, clock=replace(self.clock, release=""))

    def predicted(self, constants: TimeConstants | None = None) -> tuple[list[float], list[float]]:
        """Seconds a token and to the first token, of every row; under given constants."""
        clock = self.clock if constants is None else self.clock.with_constants(constants)
        steady = steady_state(
            clock,
            concurrency=np.array(self.concurrency),
            capacity=np.array(self.capacity),
            prompt_tokens=np.array(self.prompt_tokens),
            output_tokens=np.array(self.output_tokens),
            step_tokens=self.budget.step_tokens,
        )
        return steady.tpot_s.tolist(), benchmark_ttft_s(clock, steady).tolist()


def predict_serving(
    rows: Sequence[ServingRow], *, knows_release: bool = True
) -> list[ServingPrediction]:
    """A prediction of every row, in order; nothing of what was measured is looked at.

    Args:
        knows_release: whether the engine's release is used; a plan does not know it.
    """
    groups, reasons = served_groups(rows)
    found = [
        ServingPrediction(row=row, reason=reasons.get(number, ""))
        for number, row in enumerate(rows)
    ]
    for group in groups:
        asked = group if knows_release else group.of_any_release()
        for number, tpot, ttft in zip(group.rows, *asked.predicted(), strict=True):
            found[number] = ServingPrediction(row=rows[number], tpot_s=tpot, ttft_s=ttft)
    for number, row in enumerate(rows):
        if row.pools is not None:
            found[number] = _of_two_pools(row, row.pools, knows_release=knows_release)
    return found


def _of_two_pools(
    row: ServingRow, pools: DisaggregatedLayout, *, knows_release: bool
) -> ServingPrediction:
    if row.concurrency is None:
        return ServingPrediction(row=row, reason="concurrency is not stated")
    try:
        prefill, decode = (
            _served(row, layout, row.release if knows_release else "")
            for layout in (pools.prefill, pools.decode)
        )
    except NotModelledError as error:
        return ServingPrediction(row=row, reason=str(error))
    pair = PoolPair(
        prefill=prefill_pool(prefill, row.prompt_tokens),
        decode=decode_pool(decode, row.prompt_tokens, row.output_tokens),
        prefill_replicas=pools.prefill.replicas,
        decode_replicas=pools.decode.replicas,
    )
    lengths = [
        LengthSpec(median_tokens=n, p99_tokens=n) for n in (row.prompt_tokens, row.output_tokens)
    ]
    load = pair.under(
        TrafficSpec(
            prompt=lengths[0], output=lengths[1], arrivals="closed", concurrency=row.concurrency
        )
    )
    burst_s = decode.clock.of_engine("burst") * pair.burst_s(row.concurrency)
    return ServingPrediction(row=row, tpot_s=load.tpot_s, ttft_s=load.ttft_s + burst_s)


def served_groups(rows: Sequence[ServingRow]) -> tuple[list[ServedGroup], dict[int, str]]:
    """The rows by clock, and by number why others are not modelled."""
    together: dict[tuple[object, ...], list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    for number, row in enumerate(rows):
        if row.layout is None:
            reasons[number] = TWO_POOLS
        elif row.concurrency is None:
            reasons[number] = "concurrency is not stated"
        else:
            key = (*row.group[:5], row.expert_mode, row.release, row.layout)
            together[key].append(number)
    groups = []
    for numbers in together.values():
        try:
            groups.append(_group(rows, numbers))
        except NotModelledError as error:
            reasons |= dict.fromkeys(numbers, str(error))
    return groups, reasons


def _group(rows: Sequence[ServingRow], numbers: Sequence[int]) -> ServedGroup:
    first = rows[numbers[0]]
    assert first.layout is not None
    served = _served(first, first.layout, first.release)
    own = [rows[number] for number in numbers]
    return ServedGroup(
        rows=tuple(numbers),
        clock=served.clock,
        budget=served.budget,
        concurrency=tuple(float(row.concurrency or 1) for row in own),
        capacity=tuple(_capacity(served, row) for row in own),
        prompt_tokens=tuple(float(row.prompt_tokens) for row in own),
        output_tokens=tuple(float(row.output_tokens) for row in own),
    )


def _served(row: ServingRow, layout: ServingLayout, release: str) -> ServedReplica:
    """One replica of a row's server."""
    if row.backend not in ENGINES:
        raise NotModelledError(f"backend not known: {row.backend}")
    profile = engine_profile(ENGINES[row.backend])
    topology = _topology(row.system, layout)
    budget = serving_budget(
        profile,
        topology.accelerator,
        cache_element_bytes=_CACHE_BYTES.get(row.precision, 2.0),
    )
    return served_replica(
        served_model(row.model, row.linear_mode, row.expert_mode),
        layout,
        profile,
        topology,
        budget=budget,
        request_tokens=row.prompt_tokens + row.output_tokens,
        release=release,
    )


def _topology(system: str, layout: ServingLayout) -> Topology:
    nodes = -(-layout.ranks_per_replica // 8)
    try:
        return topology_of(system, nodes, 8)
    except InputError as error:
        raise NotModelledError(str(error)) from None


def _capacity(served: ServedReplica, row: ServingRow) -> float:
    """Requests whose caches fit when they are half done on average."""
    return float(max(served.capacity(row.prompt_tokens + row.output_tokens // 2), 1))
