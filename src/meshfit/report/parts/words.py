"""Words and short texts that tables and the page share, so that both say the same."""

from collections.abc import Mapping
from typing import Any

from meshfit.mesh.spec import value_text
from meshfit.report.documents.fit import CandidateDocument, SpreadDocument
from meshfit.units import format_bytes, format_duration

ABSENT = "\N{EN DASH}"

VERDICTS: Mapping[str, str] = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "invalid": "invalid",
}

OUTCOMES: Mapping[str, str] = {
    "ok": "ok",
    "out_of_memory": "out of memory",
    "hang": "hang",
    "crash": "crash",
    "invalid": "invalid",
    "parity_failed": "parity failed",
    "launch_error": "launch error",
    "interrupted": "interrupted",
}

PARITY_KINDS: Mapping[str, str] = {
    "single_process": "one process, same model",
    "reduced": "one process, model cut to fewer layers",
    "reference": "plain reference layout, full model",
}

CATEGORIES: Mapping[str, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "logits_and_loss": "logits and loss",
    "temporary": "temporary",
    "communication": "communication",
    "unattributed": "unattributed",
}

BASES: Mapping[str, str] = {
    "measured_here": "measured here",
    "measured_node_type": "measured on this kind of node",
    "formula": "formula",
}


def rate(tokens_per_s: float | None) -> str:
    """``12,340`` tokens a second; three digits below ten."""
    if tokens_per_s is None:
        return ABSENT
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.2f}"


def duration(seconds: float | None) -> str:
    return ABSENT if seconds is None else format_duration(seconds)


def milliseconds(seconds: float | None) -> str:
    """``1,810``, ``85.3``, ``0.38``: for tables whose every figure is in ms; a dash for nothing as well."""
    if not seconds:
        return ABSENT
    milli = 1e3 * seconds
    return f"{milli:,.0f}" if milli >= 100 else f"{milli:.1f}" if milli >= 10 else f"{milli:.2f}"


def size(size_bytes: float | None) -> str:
    return ABSENT if size_bytes is None else format_bytes(size_bytes)


def error(value: float | None) -> str:
    """A relative error: ``2.3e-7``, ``0.52``."""
    if value is None:
        return ABSENT
    if value == 0 or value >= 0.01:
        return f"{value:.2g}"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def duration_spread(spread: SpreadDocument | None) -> str:
    """``120-135 ms``: the 10th to the 90th percentile; empty when both read the same."""
    return "" if spread is None else between(duration(spread["low"]), duration(spread["high"]))


def rate_spread(spread: SpreadDocument | None) -> str:
    """``8,100-8,700``, as ``duration_spread``."""
    return "" if spread is None else between(rate(spread["low"]), rate(spread["high"]))


def interval(document: Mapping[str, Any] | None, of: str) -> str:
    """The range of a predicted ``memory`` or ``step_time``; empty when there is none."""
    found = (document or {}).get(of)
    if not found:
        return ""
    show = size if of == "memory" else duration
    return between(show(found["low"]), show(found["high"]))


def between(low: str, high: str) -> str:
    """``120-135 ms`` (with an en dash) from ``120 ms`` and ``135 ms``: a shared unit is said once."""
    low_number, _, low_unit = low.partition(" ")
    _, _, high_unit = high.partition(" ")
    if low == high:
        return ""
    return f"{low_number if low_unit == high_unit else low}\N{EN DASH}{high}"


def parity(candidate: CandidateDocument) -> str:
    """One phrase: whether the candidate computes what the reference computes."""
    found = candidate.get("parity")
    if not found:
        return "not compared"
    if found["ok"]:
        return "equal"
    return "differs"


def parity_failure(candidate: CandidateDocument) -> str:
    """What differs and, when the ratio is a known one, by which factor; empty when nothing does."""
    found = candidate.get("parity")
    if not found or found["ok"]:
        return ""
    by = f"the ratio is {found['factor']}" if found.get("factor") else ""
    return "; ".join(part for part in (found.get("message"), by) if part) or "parity failed"


def failure(candidate: CandidateDocument) -> str:
    """Why a run failed, with the rank and phase when they are known; empty when it did not."""
    found = candidate.get("failure")
    if not found:
        return ""
    where = [
        f"{key} {found[key]}" for key in ("rank", "phase", "signal") if found.get(key) is not None
    ]
    return f"{found['message']} ({', '.join(where)})" if where else str(found["message"])


def why(candidate: CandidateDocument) -> str:
    """How it failed, or why it won, tied or lost (the reason of what failed repeats the failure)."""
    failures = [part for part in (failure(candidate), parity_failure(candidate)) if part]
    return "; ".join(failures) or candidate.get("reason", "")


def layout(keys: Mapping[str, Any]) -> str:
    """``dp_shard=2,tp=2`` from a layout's keys, as ``--layout`` takes them."""
    return ",".join(f"{key}={value_text(value)}" for key, value in keys.items()) or "single"
