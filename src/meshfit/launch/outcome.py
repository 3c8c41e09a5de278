"""How a launch ended, and which rank is to blame: a verdict from evidence, touching nothing.

When one rank fails, all others fail a moment later because it is gone, and torchrun's exit code is
1 in every case. So the verdict looks for the failure that no other explains: the earliest
exception that is not about a lost or silent peer, then a rank that ended without writing one, then
the rank that was not waiting.
"""

import re
import signal
from dataclasses import dataclass

from meshfit.launch.evidence import Evidence, RankError
from meshfit.launch.progress import culprit, culprit_by_stacks, describe
from meshfit.record.heartbeat import STARTUP_PHASES
from meshfit.record.schema import Failure, Outcome, RunResult
from meshfit.units import format_duration

_TIMED_OUT = re.compile(
    r"timed out waiting|wait timeout|socket timeout|watchdog caught collective operation timeout"
    r"|DistStoreError.*time",
    re.IGNORECASE | re.DOTALL,
)
_FROM_COMMUNICATION = re.compile(r"^(RuntimeError|Dist\w*Error|ConnectionError): ")
_PEER_LOST = re.compile(
    r"connection (was )?(closed|reset|refused)|connectFullMesh|broken pipe|recvValue failed"
    r"|ncclRemoteError|ncclSystemError|remote process exited|DistNetworkError|failed to recv"
    r"|peer closed|unable to connect",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|DefaultCPUAllocator|CUDA out of memory|CUDA error: out of memory"
    r"|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc|MemoryError"
    r"|cannot allocate memory",
    re.IGNORECASE,
)
_NOT_STARTED = re.compile(r"^PlacementError: |ModuleNotFoundError|ImportError|No module named")
_INVALID = re.compile(r"^InputError: ")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome, with the failure unless it is ``ok``."""

    outcome: Outcome
    failure: Failure | None = None
    result: RunResult | None = None


def says_out_of_memory(message: str) -> bool:
    """Whether a message is one of those that PyTorch, CUDA and Python have for want of memory."""
    return _OUT_OF_MEMORY.search(message) is not None


def classify(evidence: Evidence) -> Verdict:
    """The verdict on one launch. ``ok`` needs exit code 0 and a valid result."""
    if evidence.exit_code == 0 and evidence.stop is None:
        return _ended_by_itself(evidence)
    for verdict in (_exception, _stopped, _silent_death, _peers_only):
        if found := verdict(evidence):
            return found
    return _torchrun_itself(evidence)


def _ended_by_itself(evidence: Evidence) -> Verdict:
    if evidence.result:
        return Verdict(outcome="ok", result=evidence.result)
    message = f"every rank ended well, but without a result: {evidence.result_problem}"
    return _verdict("crash", message, evidence)


def _exception(evidence: Evidence) -> Verdict | None:
    """The earliest exception that is a cause and not a consequence."""
    causes = [error for error in evidence.errors if not _is_consequence(error)]
    if not causes:
        return None
    cause = causes[0]
    return _verdict(_outcome_of(cause, evidence), cause.message, evidence, rank=cause.rank)


def _outcome_of(error: RankError, evidence: Evidence) -> Outcome:
    if says_out_of_memory(error.message):
        return "out_of_memory"
    if _INVALID.search(error.message):
        return "invalid"
    heartbeat = evidence.heartbeats.get(error.rank)
    starting = heartbeat is None or heartbeat.phase in STARTUP_PHASES
    return "launch_error" if starting and _NOT_STARTED.search(error.message) else "crash"


def _stopped(evidence: Evidence) -> Verdict | None:
    """The supervisor's own end of a launch that would not end."""
    if evidence.stop is None:
        return None
    after = format_duration(evidence.stop_after_s)
    late = f"not done by the deadline of {after}"
    reason = late if evidence.stop == "deadline" else f"no rank moved for {after}"
    if not evidence.heartbeats:
        words = f" (torchrun: {evidence.torchrun_words})" if evidence.torchrun_words else ""
        return _verdict("launch_error", f"{reason}; no rank reached the worker{words}", evidence)
    if evidence.stop == "deadline":  # the ranks may have been busy to the end: none is to blame
        where = describe(evidence.heartbeats, evidence.num_ranks)
        return _verdict("hang", f"{reason}: {where}", evidence)
    return _hang(reason, evidence)


def _hang(reason: str, evidence: Evidence) -> Verdict:
    rank = culprit(evidence.heartbeats, evidence.num_ranks)
    message = f"{reason}: {describe(evidence.heartbeats, evidence.num_ranks)}"
    if rank is not None and rank in evidence.stack_tops:
        message += f" (rank {rank} at {evidence.stack_tops[rank]})"
    elif rank is None and (found := culprit_by_stacks(evidence.stack_tops, evidence.num_ranks)):
        rank, how = found
        message += f" (rank {rank} {how})"
    return _verdict("hang", message, evidence, rank=rank)


def _silent_death(evidence: Evidence) -> Verdict | None:
    """A rank that failed without an exception: a signal, or an exit of its own."""
    wrote = {error.rank for error in evidence.errors}
    ended_by_torchrun = -signal.SIGTERM
    silent = {
        rank: code
        for rank, code in evidence.exit_codes.items()
        if rank not in wrote and code != ended_by_torchrun
    }
    if not silent:
        return None
    # Should several have died, the abort of a rank whose peer vanished is the consequence.
    rank = min(silent, key=lambda rank: (silent[rank] == -signal.SIGABRT, rank))
    code = silent[rank]
    if code < 0:
        return _killed(f"rank {rank}", -code, evidence, rank=rank)
    words = evidence.last_words.get(rank, "")
    reached = rank in evidence.heartbeats
    if says_out_of_memory(words):
        outcome: Outcome = "out_of_memory"
    else:
        outcome = "crash" if reached else "launch_error"
    where = "ended" if reached else "ended before it reached the worker,"
    message = f"rank {rank} {where} with exit code {code}" + (f": {words}" if words else "")
    return _verdict(outcome, message, evidence, rank=rank, code=code)


def _killed(who: str, number: int, evidence: Evidence, rank: int | None = None) -> Verdict:
    message = f"{who} was killed by signal {number} ({signal.Signals(number).name})"
    if number != signal.SIGKILL:
        words = evidence.last_words.get(rank, "") if rank is not None else ""
        message += f": {words}" if words else ""
        return _verdict("crash", message, evidence, rank=rank, code=-number)
    if evidence.oom_kills is None:
        message += "; this host does not say whether by its out-of-memory killer"
    elif evidence.oom_kills == 0:
        message += "; not by the kernel's out-of-memory killer, whose count in /proc/vmstat stayed"
    else:
        message += (
            "; probably by the kernel's out-of-memory killer, whose count in /proc/vmstat rose "
            f"by {evidence.oom_kills} meanwhile"
        )
    outcome: Outcome = "out_of_memory" if evidence.oom_kills else "crash"
    return _verdict(outcome, message, evidence, rank=rank, code=-number)


def _peers_only(evidence: Evidence) -> Verdict | None:
    """Every exception is about a peer: someone stood still, left early, or never came."""
    if not evidence.errors:
        return None
    first = evidence.errors[0]
    phases = [beat.phase for beat in evidence.heartbeats.values()]
    if all(phase in STARTUP_PHASES for phase in phases):
        message = f"the ranks did not find each other: {first.message}"
        return _verdict("launch_error", message, evidence, rank=first.rank)
    if _TIMED_OUT.search(first.message):
        return _hang(f"rank {first.rank} gave up waiting ({first.message})", evidence)
    failed = {error.rank for error in evidence.errors} | set(evidence.exit_codes)
    left = [rank for rank in range(evidence.num_ranks) if rank not in failed]
    if left:
        message = f"rank {left[0]} ended without an error while others waited: {first.message}"
        return _verdict("crash", message, evidence, rank=left[0])
    return _verdict("crash", first.message, evidence, rank=first.rank)


def _torchrun_itself(evidence: Evidence) -> Verdict:
    """No rank left a trace: torchrun was killed or never started them."""
    code = evidence.exit_code
    if code is not None and code < 0:
        return _killed("torchrun", -code, evidence)
    outcome: Outcome = "crash" if evidence.heartbeats else "launch_error"
    return _verdict(outcome, f"torchrun failed: {evidence.torchrun_words}", evidence, code=code)


def _verdict(
    outcome: Outcome,
    message: str,
    evidence: Evidence,
    *,
    rank: int | None = None,
    code: int | None = None,
) -> Verdict:
    """``code``: exit code of what is to blame, when that, and no exception, tells of the end."""
    heartbeat = evidence.heartbeats.get(rank) if rank is not None else None
    failure = Failure(
        message=message,
        rank=rank,
        phase=heartbeat.phase if heartbeat else None,
        step=heartbeat.step if heartbeat else None,
        signal=-code if code is not None and code < 0 else None,
        exit_code=code if code is not None and code >= 0 else None,
    )
    return Verdict(outcome=outcome, failure=failure)


def _is_consequence(error: RankError) -> bool:
    if not _FROM_COMMUNICATION.search(error.message):
        return False
    return bool(_TIMED_OUT.search(error.message) or _PEER_LOST.search(error.message))
