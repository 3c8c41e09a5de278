"""Records with only what a test cares about filled in."""

from meshfit.breakdown import Interval, MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import Failure, Parity, RankReport, Record, RunResult, StepProfile


def parity(*, ok: bool = True, message: str = "", gradient_error: float | None = 1e-7) -> Parity:
    return Parity(
        ok=ok,
        kind="single_process",
        loss_error=1e-7,
        gradient_norm_error=1e-7,
        gradient_error=gradient_error,
        worst_parameter="lm_head.weight",
        tolerance_loss=5e-6,
        tolerance_gradient=5e-6,
        message=message,
    )


def prediction(*, compute: float = 1.0, binding: str = "compute", **exposed: float) -> Prediction:
    time = TimeBreakdown(
        compute=compute, exposed={name.replace("__", "."): s for name, s in exposed.items()}
    )
    return Prediction(
        memory=MemoryBreakdown(parameters=100),
        time=time,
        memory_total=Interval(low=90, middle=100, high=110),
        step_time=Interval(low=time.step / 2, middle=time.step, high=time.step * 2),
        tokens_per_s=1.0,
        binding=binding,
        profile="native",
    )


def profile(
    *, host_s: float | None = None, core_wait_s: float | None = None, **terms: float
) -> StepProfile:
    """A profiled step; terms with ``__`` are exposed communication."""
    exposed = {name.replace("__", "."): s for name, s in terms.items() if "__" in name}
    time = TimeBreakdown(
        **{name: s for name, s in terms.items() if "__" not in name}, exposed=exposed
    )
    return StepProfile(
        time=time,
        waiting_s=0.0,
        communication_s=sum(exposed.values()),
        host_s=host_s,
        core_wait_s=core_wait_s,
    )


def record(
    layout: LayoutSpec,
    steps_s: list[float] | None,
    *,
    repeat: int = 0,
    peak_bytes: int = 100,
    outcome: str = "ok",
    verdict: Parity | None = None,
    message: str = "",
    predicted: Prediction | None = None,
    profile: StepProfile | None = None,
) -> Record:
    """One launch on two ranks, the second always 10 % faster than ``steps_s``."""
    result = None
    if steps_s is not None:
        ranks = tuple(
            RankReport(
                rank=rank,
                host="host0",
                step_s=tuple(s * (0.9 if rank else 1.0) for s in steps_s),
                input_wait_s=tuple(0.0 for _ in steps_s),
                memory=MemoryBreakdown(parameters=peak_bytes - 10 * rank),
                profile=profile,
            )
            for rank in range(2)
        )
        result = RunResult(
            losses=(1.0,), gradient_norms=(1.0,), useful_tokens_per_step=1000, ranks=ranks
        )
    return Record(
        plan_hash="p",
        candidate=layout.label,
        repeat=repeat,
        purpose="measure",
        layout=layout,
        outcome=outcome,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        result=result,
        parity=verdict if verdict is not None or result is None else parity(),
        failure=Failure(message=message) if message else None,
        prediction=predicted,
    )
