"""A benchmark beside its prediction, as one document."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meshfit.record.serving import ServingRecord
from meshfit.serve.asked.latencies import METRICS, Percentiles
from meshfit.serve.bench.measured import Measured
from meshfit.serve.bench.suspicion import slow_path
from meshfit.serve.simulate.simulation import Simulation


def bench_document(
    record: ServingRecord,
    found: Measured,
    predicted: Simulation | None,
    *,
    basis: str,
    clock: Mapping[str, float] | None = None,
    links: Sequence[Sequence[float | None]] = (),
) -> dict[str, Any]:
    """What was done, what was measured, and what a simulation of the same requests had said.

    Args:
        basis: what the prediction rests on, or why there is none.
        clock: coefficients of a clock that was measured on the server.
        links: between the ranks that the prediction rests on (``suspicion.links_of``); a server far
            slower than predicted makes one look at them.
    """
    suspicion = _suspicion(found, predicted) if links else None
    return {
        "started_at": record.started_at,
        "client": record.client,
        "loop": record.loop,
        "server": record.server,
        "router": record.router,
        "layout": record.layout,
        "traffic": record.traffic,
        "requests": len(record.requests),
        "warm_up_requests": record.warm_up,
        "memory": None if record.memory is None else asdict(record.memory),
        "measured": asdict(found),
        "prediction": {
            "basis": basis,
            "clock": None if clock is None else dict(clock),
            "latencies": None if predicted is None else predicted.latencies,
            "saturation_rate": None if predicted is None else predicted.saturation_per_s,
            "load": None if predicted is None else predicted.load,
            "stability": None if predicted is None else predicted.stability,
            "measured_over_predicted": None if predicted is None else _ratios(found, predicted),
            "suspicion": suspicion,
            "links": [list(row) for row in links] if suspicion else [],
        },
    }


def _suspicion(found: Measured, predicted: Simulation | None) -> str | None:
    """By the median time per token, which a queue does not prolong."""
    if predicted is None or predicted.stability == "overloaded":
        return None
    seen, said = found.latencies["tpot"].get("p50"), predicted.latencies["tpot"].get("p50")
    return slow_path(seen, said) if seen and said else None


def _ratios(found: Measured, predicted: Simulation) -> dict[str, Percentiles]:
    return {
        metric: {
            name: seconds / predicted.latencies[metric][name]
            for name, seconds in found.latencies[metric].items()
            if predicted.latencies[metric].get(name)
        }
        for metric in METRICS
    }
