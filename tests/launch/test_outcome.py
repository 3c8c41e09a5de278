"""The verdicts, from evidence as real launches leave it (two ranks, Gloo), without launching."""

import pytest

from meshfit.launch.evidence import Evidence, RankError
from meshfit.launch.outcome import classify
from meshfit.record.heartbeat import Heartbeat
from meshfit.record.schema import RunResult

CLOSED = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:35235"
)
RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:541] Connection reset by peer"
TIMED_OUT = "RuntimeError: [gloo/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation"
NO_MESH = "RuntimeError: Gloo connectFullMesh failed with ... Connection refused"
NO_STORE = "DistStoreError: Timed out after 6 seconds waiting for clients. 1/2 clients joined."
CPU_OOM = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 70368744177664 bytes. Error code 12"
)
CUDA_OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
SIGABRT, SIGKILL, SIGSEGV, SIGTERM = -6, -9, -11, -15

RESULT = RunResult(losses=(), gradient_norms=(), useful_tokens_per_step=1, ranks=())


def beat(rank: int, *, phase: str = "train", step: int = 2, waiting: bool = False) -> Heartbeat:
    return Heartbeat(rank=rank, pid=1, phase=phase, step=step, time=0.0, waiting=waiting)


def beats(*entries: Heartbeat) -> dict[int, Heartbeat]:
    return {entry.rank: entry for entry in entries}


BOTH = beats(beat(0, waiting=True), beat(1))


def evidence(**changes: object) -> Evidence:
    """Two ranks in step 2, rank 0 waiting, torchrun ended with 1 as it does in every case."""
    errors = changes.pop("errors", {})
    assert isinstance(errors, dict)
    ordered = tuple(
        RankError(rank=rank, message=message, time_s=float(second))
        for second, (rank, message) in enumerate(errors.items())
    )
    values = {"num_ranks": 2, "exit_code": 1, "heartbeats": BOTH, "oom_kills": 0}
    return Evidence(**(values | {"errors": ordered} | changes))


CASES = {
    "an exception is a crash of its rank, whatever the others say of their peer first": (
        evidence(errors={0: RESET, 1: "ValueError: boom"}, exit_codes={0: 1, 1: SIGABRT}),
        ("crash", 1, "ValueError: boom"),
    ),
    "of two exceptions the earlier one is the cause": (
        evidence(errors={1: "ValueError: first", 0: "KeyError: 'second'"}),
        ("crash", 1, "ValueError: first"),
    ),
    "an exception that mentions a connection but comes from elsewhere is a cause": (
        evidence(errors={1: "OSError: unable to connect to the data server", 0: CLOSED}),
        ("crash", 1, "unable to connect to the data server"),
    ),
    "the CPU allocator's refusal is out of memory": (
        evidence(errors={1: CPU_OOM, 0: CLOSED}, exit_codes={1: 1}),
        ("out_of_memory", 1, "tried to allocate 70368744177664 bytes"),
    ),
    "CUDA's refusal is out of memory": (
        evidence(errors={0: CUDA_OOM}),
        ("out_of_memory", 0, "Tried to allocate 2.00 GiB"),
    ),
    "a rank killed while the kernel's killer struck is out of memory, with that evidence": (
        evidence(errors={0: CLOSED}, exit_codes={0: SIGABRT, 1: SIGKILL}, oom_kills=1),
        ("out_of_memory", 1, "count in /proc/vmstat rose by 1"),
    ),
    "a rank killed while the kernel's killer was idle is a crash": (
        evidence(errors={0: CLOSED}, exit_codes={0: SIGABRT, 1: SIGKILL}),
        ("crash", 1, "killed by signal 9 (SIGKILL); not by the kernel's out-of-memory killer"),
    ),
    "a rank killed where the kernel does not count is a crash that says so": (
        evidence(exit_codes={1: SIGKILL}, oom_kills=None),
        ("crash", 1, "does not say whether by its out-of-memory killer"),
    ),
    "a segmentation fault is a crash with the rank's last words": (
        evidence(errors={0: RESET}, exit_codes={0: 1, 1: SIGSEGV}, last_words={1: "Segfault!"}),
        ("crash", 1, "killed by signal 11 (SIGSEGV): Segfault!"),
    ),
    "an exit code of a rank is a crash": (
        evidence(errors={0: CLOSED}, exit_codes={0: 1, 1: 7}),
        ("crash", 1, "rank 1 ended with exit code 7"),
    ),
    "a rank that torchrun itself ended is not to blame": (
        evidence(exit_codes={0: SIGTERM, 1: 7}),
        ("crash", 1, "exit code 7"),
    ),
    "a rank that aborts because its peer died is not to blame": (
        evidence(exit_codes={0: SIGABRT, 1: SIGKILL}),
        ("crash", 1, "rank 1 was killed by signal 9"),
    ),
    "a rank that leaves early is to blame for the others' lost connection": (
        evidence(errors={0: CLOSED}, exit_codes={0: 1}),
        ("crash", 1, "rank 1 ended without an error while others waited"),
    ),
    "when every rank lost its peer, the first to notice tells": (
        evidence(errors={1: RESET, 0: CLOSED}, exit_codes={0: 1, 1: 1}),
        ("crash", 1, "Connection reset by peer"),
    ),
    "a meshfit error of the worker is an invalid candidate": (
        evidence(errors={1: "InputError: tp = 3 does not divide 8 heads", 0: CLOSED}),
        ("invalid", 1, "does not divide 8 heads"),
    ),
    "no progress is a hang of the rank that does not wait": (
        evidence(exit_code=None, stop="hang", stop_after_s=60.0),
        ("hang", 1, "no rank moved for 1 min 00 s: rank 0 waits for others in phase train, step 2"),
    ),
    "a hang says where the culprit's Python stands": (
        evidence(exit_code=None, stop="hang", stop_after_s=60.0, stack_tops={1: "File x, line 3"}),
        ("hang", 1, "(rank 1 at File x, line 3)"),
    ),
    "when every rank waits, no rank is to blame for the hang": (
        evidence(
            exit_code=None,
            stop="hang",
            stop_after_s=9.0,
            heartbeats=beats(beat(0, waiting=True), beat(1, step=3, waiting=True)),
        ),
        ("hang", None, "rank 1 waits for others in phase train, step 3"),
    ),
    "a collective that gives up waiting is a hang, and not of the rank that waited": (
        evidence(errors={0: TIMED_OUT}, exit_codes={0: 1, 1: SIGTERM}),
        ("hang", 1, "rank 0 gave up waiting"),
    ),
    "an exception before the supervisor lost patience is the cause": (
        evidence(exit_code=None, stop="hang", stop_after_s=9.0, errors={1: "ValueError: boom"}),
        ("crash", 1, "ValueError: boom"),
    ),
    "a missed deadline is a hang that blames no rank, as the ranks may have been busy": (
        evidence(exit_code=None, stop="deadline", stop_after_s=600.0),
        ("hang", None, "not done by the deadline of 10 min 00 s: rank 0 waits"),
    ),
    "a deadline missed before any rank spoke is an error of launching": (
        evidence(exit_code=None, stop="deadline", stop_after_s=5.0, heartbeats={}),
        ("launch_error", None, "no rank reached the worker"),
    ),
    "a module that cannot be imported is an error of launching": (
        evidence(heartbeats={}, exit_codes={0: 1, 1: 1}, last_words={0: "No module named nowhere"}),
        ("launch_error", 0, "before it reached the worker, with exit code 1: No module named"),
    ),
    "an import error inside a worker that has just started is an error of launching": (
        evidence(
            errors={0: "ModuleNotFoundError: No module named 'transformers'"},
            heartbeats=beats(beat(0, phase="import", step=0)),
        ),
        ("launch_error", 0, "transformers"),
    ),
    "an import error in the middle of the work is a crash": (
        evidence(errors={0: "ImportError: flash_attn is not installed"}),
        ("crash", 0, "flash_attn"),
    ),
    "ranks that do not find each other are an error of launching": (
        evidence(
            errors={1: NO_MESH, 0: NO_STORE},
            heartbeats=beats(beat(0, phase="init"), beat(1, phase="init")),
        ),
        (
            "launch_error",
            1,
            "the ranks did not find each other: RuntimeError: Gloo connectFullMesh",
        ),
    ),
    "torchrun's own failure is an error of launching": (
        evidence(heartbeats={}, torchrun_words="RendezvousTimeoutError"),
        ("launch_error", None, "torchrun failed: RendezvousTimeoutError"),
    ),
    "torchrun killed is a crash without a rank": (
        evidence(exit_code=SIGKILL),
        ("crash", None, "torchrun was killed by signal 9"),
    ),
    "a good end without a result is a crash": (
        evidence(exit_code=0, result_problem="result.json cannot be read"),
        ("crash", None, "without a result: result.json cannot be read"),
    ),
    "a result does not make up for a failed rank": (
        evidence(result=RESULT, errors={1: "ValueError: boom"}),
        ("crash", 1, "boom"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_verdict(name: str) -> None:
    given, (outcome, rank, message) = CASES[name]
    verdict = classify(given)
    assert verdict.failure is not None
    assert (verdict.outcome, verdict.failure.rank) == (outcome, rank)
    assert message in verdict.failure.message
    assert verdict.result is None


def test_a_good_end_with_a_result_is_ok() -> None:
    verdict = classify(evidence(exit_code=0, result=RESULT))
    assert (verdict.outcome, verdict.failure, verdict.result) == ("ok", None, RESULT)


def test_a_failure_says_where_its_rank_was_and_how_it_ended() -> None:
    killed = classify(evidence(exit_codes={1: SIGKILL})).failure
    assert killed is not None
    assert (killed.phase, killed.step, killed.signal, killed.exit_code) == ("train", 2, 9, None)
    left = classify(evidence(exit_codes={1: 7})).failure
    assert left is not None
    assert (left.signal, left.exit_code) == (None, 7)


def test_the_abort_that_follows_an_exception_is_not_reported_as_its_signal() -> None:
    raised = classify(evidence(errors={1: "ValueError: boom"}, exit_codes={1: SIGABRT})).failure
    assert raised is not None
    assert (raised.signal, raised.exit_code) == (None, None)
