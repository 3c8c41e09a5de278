"""A server far below what its layout should do: no scaling loss, but a slow path between its ranks.

A deployment that has 700 tokens/s on two accelerators and 0.2 on four (FastChat#2746) does not scale
badly: something it uses is broken, and the first to look at is what joins its ranks.
"""

import re
from typing import Any

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.serve.setting.layout import Deployment, ServingLayout
from meshfit.serve.time.device import likely_range
from meshfit.units import format_duration

FAR_BEYOND = 1.5
"""So many times the slow end of the predicted interval is more than a prediction errs by."""

_RATE = re.compile(r"\s*([0-9][0-9_,]*\.?[0-9]*)\s*tokens/s\s*")


def read_tokens_per_s(text: str) -> float:
    """Output tokens a second of the whole deployment.

    Raises:
        InputError: it is no such rate.
    """
    match = _RATE.fullmatch(text)
    value = float(match[1].replace(",", "").replace("_", "")) if match else 0.0
    if value <= 0:
        raise InputError(
            f"--measured {text!r} is no throughput of the deployment; write it like '700 tokens/s'"
        )
    return value


def measured_document(
    measured_tokens_per_s: float,
    predicted_tokens_per_s: float,
    deployment: Deployment,
    topology: Topology,
) -> dict[str, Any]:
    """``measured`` of ``serve simulate --json``: a throughput that someone saw, beside what was served
    in the simulation of the same traffic."""
    suspicion = slow_path(1 / measured_tokens_per_s, 1 / predicted_tokens_per_s)
    return {
        "output_tokens_per_s": measured_tokens_per_s,
        "of_predicted": measured_tokens_per_s / predicted_tokens_per_s,
        "suspicion": suspicion,
        "links": links_of(deployment, topology) if suspicion else [],
    }


def slow_path(measured_s: float, predicted_s: float) -> str | None:
    """What to think of a measured time per token; None where a prediction may err by as much."""
    _, slow_s = likely_range("tpot", predicted_s)
    if measured_s <= FAR_BEYOND * slow_s:
        return None
    return (
        f"{format_duration(measured_s)} a token is {measured_s / predicted_s:,.3g} times what is "
        f"predicted ({format_duration(predicted_s)}, at most {format_duration(slow_s)}): that is no "
        f"scaling loss but a slow path; hold these links against `meshfit probe`, `nvidia-smi topo -m` "
        f"and NCCL_DEBUG=INFO (P2P disabled, another route)"
    )


def links_of(deployment: Deployment, topology: Topology) -> list[list[float | None]]:
    """Bytes a second and direction between each two ranks of the widest replica; None on the
    diagonal."""
    pools = (
        [deployment]
        if isinstance(deployment, ServingLayout)
        else [deployment.prefill, deployment.decode]
    )
    ranks = range(max(pool.ranks_per_replica for pool in pools))
    return [[_link(one, other, topology) for other in ranks] for one in ranks]


def _link(one: int, other: int, topology: Topology) -> float | None:
    """Of the innermost level that joins two ranks."""
    if one == other:
        return None
    levels = zip(topology.levels, topology.domain_sizes(), strict=True)
    return next(
        level.bandwidth_bytes_per_s for level, size in levels if one // size == other // size
    )
