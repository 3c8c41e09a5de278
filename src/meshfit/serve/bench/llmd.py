"""A benchmark in the form of llm-d's benchmark report, version 0.1 (llmd-benchmark-report 0.2.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from meshfit.record.serving import ServingRecord
from meshfit.serve.asked.latencies import percentile
from meshfit.serve.bench.measured import asked_after_warm_up, request_times, span_s

_GENERATORS = {"vllm": "vllm-benchmark", "guidellm": "guidellm"}
_UNNAMED = "nop"
"""The form knows a list of load generators by name; of others, ``metadata.client`` says which."""

_POINTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def llmd_report(record: ServingRecord, *, model: str) -> dict[str, Any]:
    """The report of the requests after the warm-up; seconds as such, ``tpot`` as one value a request."""
    asked = asked_after_warm_up(record)
    served = [one for one in asked if not one.error]
    times = [request_times(one) for one in served]
    duration_s = span_s(asked, times)
    tpot_s = [one.tpot_s for one in times if one.tpot_s is not None]
    gaps_s = [gap for one in served for gap in one.gaps_s]
    output_tokens = sum(one.output_tokens for one in served)
    prompt_tokens = sum(one.prompt_tokens for one in served)
    latency = {
        "time_to_first_token": _statistics([one.ttft_s for one in times], "s"),
        "time_per_output_token": _statistics(tpot_s, "s/token"),
        "inter_token_latency": _statistics(gaps_s, "s/token"),
        "request_latency": _statistics([one.e2e_s for one in times], "s"),
    }
    return {
        "version": "0.1",
        "scenario": {
            "model": {"name": model},
            "load": {
                "name": _GENERATORS.get(record.client, _UNNAMED),
                "args": record.traffic,
                "metadata": {"client": record.client, "loop": record.loop},
            },
            "metadata": {"server": record.server, "layout": record.layout},
        },
        "metrics": {
            "time": {"duration": duration_s},
            "requests": {
                "total": len(asked),
                "failures": len(asked) - len(served),
                "input_length": _statistics([one.prompt_tokens for one in served], "count"),
                "output_length": _statistics([one.output_tokens for one in served], "count"),
            },
            "latency": {name: values for name, values in latency.items() if values},
            "throughput": {
                "input_tokens_per_sec": prompt_tokens / duration_s,
                "output_tokens_per_sec": output_tokens / duration_s,
                "total_tokens_per_sec": (prompt_tokens + output_tokens) / duration_s,
                "requests_per_sec": len(served) / duration_s,
            },
        },
    }


def _statistics(values: Sequence[float], units: str) -> dict[str, Any] | None:
    if not values:
        return None
    return {
        "units": units,
        "mean": float(np.mean(values)),
        "stddev": float(np.std(values)),
        "min": float(np.min(values)),
        "max": float(np.max(values)),
    } | {f"p{percent}": percentile(values, percent) for percent in _POINTS}
