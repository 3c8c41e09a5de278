"""The terms that steps are compared by: those of a profile, and what they are called."""

from collections.abc import Mapping

from meshfit.predict.time.messages.message import TERM_AXES
from meshfit.record.schema import StepProfile

UNATTRIBUTED = "unattributed"
PARTS_OF_OTHER = ("host", "core_wait", UNATTRIBUTED)
"""What a profile tells apart in the ``other`` of a step, which predictions have as one."""

_WORDS: Mapping[str, str] = {
    "host": "the host between operations (Python, dispatch)",
    "core_wait": "waiting for a core",
    UNATTRIBUTED: "time that nothing measured explains",
}


def profile_terms(profile: StepProfile, *, apart: bool = True) -> dict[str, float]:
    """Seconds of a profiled step by term, exposed communication by collective and axis; they add up
    to the step. Terms that were not obtained are left out.

    ``apart``: with what is known of ``other`` told apart; without, all of it is unattributed, as in
    records from before that was counted.
    """
    seconds = {name: value for name, value in profile.time.as_json().items() if value is not None}
    seconds.pop("step")
    other_s = seconds.pop("other", None)
    if not apart:
        return seconds if other_s is None else seconds | {UNATTRIBUTED: other_s}
    parts = {
        "host": profile.host_s,
        "core_wait": profile.core_wait_s,
        UNATTRIBUTED: profile.unattributed_s,
    }
    return seconds | {name: value for name, value in parts.items() if value is not None}


def as_predicted(term: str) -> str:
    """The term of a prediction that a profile's term is part of."""
    if term in PARTS_OF_OTHER:
        return "other"
    head, _, axis = term.replace("exposed.p2p.", "exposed.send_recv.").rpartition(".")
    return f"{head}.{TERM_AXES.get(axis, axis)}" if head else term


def term_in_words(term: str) -> str:
    """``exposed.all_gather.dp_shard`` as ``exposed all-gather over dp_shard``."""
    if not term.startswith("exposed."):
        return _WORDS.get(term, term.replace("_", " "))
    _, collective, _ = as_predicted(term).split(".")
    _, _, axis = term.rpartition(".")
    return f"exposed {collective.replace('_', '-')} over {axis}"
