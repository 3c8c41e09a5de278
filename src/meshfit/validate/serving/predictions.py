"""Predicted latencies of measured servers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.predict.costs.constants import TimeConstants
from meshfit.serve.budget import ServingBudget, serving_budget
from meshfit.serve.clock import ReplicaClock
from meshfit.serve.layout import ServingLayout
from meshfit.serve.memory import replica_memory
from meshfit.serve.steady import benchmark_ttft_s, steady_state
from meshfit.validate.collectives.systems import topology_of
from meshfit.validate.rows import NotModelledError
from meshfit.validate.serving.models import served_model
from meshfit.validate.serving.rows import ServingRow
from meshfit.workload.model import ModelSpec

ENGINES: dict[str, str] = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
"""Backend of the table -> engine."""

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
    return found


def served_groups(rows: Sequence[ServingRow]) -> tuple[list[ServedGroup], dict[int, str]]:
    """The rows by clock, and by number why others are not modelled."""
    together: dict[tuple[object, ...], list[int]] = defaultdict(list)
    reasons: dict[int, str] = {}
    for number, row in enumerate(rows):
        if row.layout is None:
            reasons[number] = "two pools (disaggregated)"
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
    if first.backend not in ENGINES:
        raise NotModelledError(f"backend not known: {first.backend}")
    engine = ENGINES[first.backend]
    model = served_model(first.model, first.linear_mode, first.expert_mode)
    layout = first.layout
    topology = _topology(first.system, layout)
    budget = serving_budget(
        engine_profile(engine),
        topology.accelerator,
        cache_element_bytes=_CACHE_BYTES.get(first.precision, 2.0),
    )
    clock = ReplicaClock(
        model=model,
        layout=layout,
        profile=engine_profile(engine),
        topology=topology,
        cache_bytes=budget.cache_element_bytes,
        release=first.release,
    )
    own = [rows[number] for number in numbers]
    return ServedGroup(
        rows=tuple(numbers),
        clock=clock,
        budget=budget,
        concurrency=tuple(float(row.concurrency or 1) for row in own),
        capacity=tuple(_capacity(model, layout, clock, budget, row) for row in own),
        prompt_tokens=tuple(float(row.prompt_tokens) for row in own),
        output_tokens=tuple(float(row.output_tokens) for row in own),
    )


def _topology(system: str, layout: ServingLayout) -> Topology:
    nodes = -(-layout.ranks_per_replica // 8)
    try:
        return topology_of(system, nodes, 8)
    except InputError as error:
        raise NotModelledError(str(error)) from None


def _capacity(
    model: ModelSpec,
    layout: ServingLayout,
    clock: ReplicaClock,
    budget: ServingBudget,
    row: ServingRow,
) -> float:
    """Requests whose caches fit when they are half done on average."""
    memory = replica_memory(
        model,
        layout,
        clock.profile,
        clock.topology.accelerator,
        request_tokens=row.prompt_tokens + row.output_tokens // 2,
        budget=budget,
    )
    return float(max(memory.concurrency, 1))
