"""``check --measured``: a throughput that someone saw, against what the layout should do."""

import re
from typing import Any

from meshfit.compare.utilisation import peak_of, utilisation
from meshfit.errors import InputError
from meshfit.job.spec import Job
from meshfit.mesh.orders import levels_of_axes
from meshfit.mesh.spec import LayoutSpec
from meshfit.units import format_bandwidth, format_duration, parse_duration

FAR_BEYOND = 1.5
"""So many times the slow end of the predicted interval is more than a prediction errs by."""

EXAMPLE = "840 tokens/s/GPU, 13440 tokens/s total, 6.5 samples/s total, or 160 s a step"

_RATE = re.compile(r"\s*(?P<number>[\d.,_eE+]+)\s*(?P<what>tokens|samples)/s\s*(?P<of>.*?)\s*")
_OF_ONE = ("/gpu", "/accelerator", "/rank", "per gpu", "per rank", "per accelerator")
_OF_ALL = ("total", "global", "in all")


def tokens_per_s(text: str, job: Job) -> float:
    """Tokens per second of the whole job that ``text`` means.

    Raises:
        InputError: no rate, or one that does not say whether it is of one rank or of all: logs of
            training programs have both, under the same name.
    """
    step = re.fullmatch(r"(.*?)\s*(a|per)\s+step", text.strip())
    if step:
        seconds = parse_duration(step[1])
        if seconds <= 0:
            raise InputError(f"--measured {text!r} must be greater than 0")
        return job.training.tokens_per_step / seconds
    rate = _RATE.fullmatch(text)
    if rate is None:
        raise InputError(f"--measured {text!r} is no throughput; write it like {EXAMPLE}")
    try:
        number = float(rate["number"].replace(",", "").replace("_", ""))
    except ValueError:
        number = 0.0
    if number <= 0:
        raise InputError(f"--measured {text!r} must be a number greater than 0")
    tokens = number * (job.training.sequence_length if rate["what"] == "samples" else 1)
    of = rate["of"].lower()
    if of in _OF_ALL:
        return tokens
    if of in _OF_ONE:
        return tokens * job.topology.num_accelerators
    raise InputError(
        f"--measured {text!r} does not say of what: {rate['what']} over the wall time of all ranks "
        f"together ({rate['number']} {rate['what']}/s total), or of one "
        f"({rate['number']} {rate['what']}/s/GPU)"
    )


def measured_document(
    job: Job, layout: LayoutSpec, measured: float, step_time: dict[str, float]
) -> dict[str, Any]:
    """``measured`` of ``check --json``.

    ``mfu`` is the share of the accelerators' dense peak that causal attention and matmuls alone
    account for; null where the peak is not known. ``of_predicted`` is measured over predicted
    throughput. ``suspicion`` is null unless the step takes ``FAR_BEYOND`` of the slow end of what is
    predicted; ``links`` then are the levels that the layout's groups use, with their rates.

    Args:
        measured: tokens per second of the whole job.
        step_time: the predicted interval, in seconds.

    Raises:
        InputError: ``measured`` needs more than the accelerators' dense peak.
    """
    seconds = job.training.tokens_per_step / measured
    accelerators = job.topology.num_accelerators
    is_far_off = seconds > FAR_BEYOND * step_time["high"]
    return {
        "tokens_per_s": measured,
        "tokens_per_s_per_accelerator": measured / accelerators,
        "step_time": seconds,
        "mfu": _mfu(job, measured / accelerators),
        "of_predicted": step_time["middle"] / seconds,
        "suspicion": _suspicion(seconds, step_time) if is_far_off else None,
        "links": _links(job, layout) if is_far_off else [],
    }


def _mfu(job: Job, tokens_per_s: float) -> float | None:
    peak = peak_of(job.topology.accelerator, job.training)
    if peak is None:
        return None
    return utilisation(
        job.model, job.training, tokens_per_s_per_device=tokens_per_s, peak_flops_per_s=peak
    ).mfu


def _suspicion(seconds: float, step_time: dict[str, float]) -> str:
    return (
        f"a step of {format_duration(seconds)} is {seconds / step_time['middle']:.3g} times what is "
        f"predicted ({format_duration(step_time['middle'])}, at most "
        f"{format_duration(step_time['high'])}): that is no scaling loss but a slow path or "
        f"another setting; hold these links against `meshfit probe` and `nvidia-smi topo -m`"
    )


def _links(job: Job, layout: LayoutSpec) -> list[str]:
    """Which level each axis's groups need, and what one accelerator gets of it."""
    profile, levels = job.profile, {level.name: level for level in job.topology.levels}
    widest = levels_of_axes(layout, job.topology, profile.rank_order, profile.expert_fold)
    return [
        f"{axis} over {name} at {format_bandwidth(levels[name].bandwidth_bytes_per_s)}"
        for axis, name in widest.items()
    ]
