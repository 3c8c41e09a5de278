"""One optimizer step: whole, or put together from short ones."""

from dataclasses import dataclass

from meshfit.cluster.topology import DeviceType
from meshfit.dryrun.order import slots_of
from meshfit.dryrun.program import trace_of_step
from meshfit.dryrun.repeat import Longer, NotAlikeError, repeated
from meshfit.dryrun.script import Action, script_of, trace_of
from meshfit.dryrun.shorten import Run, shortened
from meshfit.dryrun.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step's trace and what was run for it: layers of a stage and micro-batches.

    ``why_whole`` says why every one of them was run, None where they were not.
    """

    trace: Trace
    layers_run: int
    micro_batches_run: int
    why_whole: str | None = None


def step_of(run: Run, device_type: DeviceType, *, whole: bool = False) -> Step:
    """The step of a rank.

    Raises:
        InputError: the runner has no code for this layout, or not with this model.
    """
    if whole:
        return _whole(run, device_type, "asked for")
    try:
        return _repeated(run, device_type)
    except NotAlikeError as reason:
        return _whole(run, device_type, str(reason))


def _whole(run: Run, device_type: DeviceType, why: str) -> Step:
    return Step(
        trace=_trace(run, device_type),
        layers_run=max(run.stage_sizes),
        micro_batches_run=run.num_micro_batches,
        why_whole=why,
    )


def _repeated(run: Run, device_type: DeviceType) -> Step:
    short = shortened(run)
    more_layers = run.stage_sizes[0] - short.stage_sizes[0]
    more_micro_batches = run.num_micro_batches - short.num_micro_batches
    script = _script(short, device_type)
    deeper = (
        _script(short.with_stage_size(short.stage_sizes[0] + 1), device_type)
        if more_layers
        else script
    )
    wider = (
        _script(short.with_micro_batches(short.num_micro_batches + 1), device_type)
        if more_micro_batches
        else script
    )
    actions = repeated(
        script,
        layers=Longer(actions=deeper, added=more_layers),
        micro_batches=Longer(actions=wider, added=more_micro_batches),
        slots=slots_of(run.layout, run.num_micro_batches, run.pp_rank)
        if run.layout.vpp == 1
        else None,
    )
    try:
        trace = trace_of(actions, run.first_layers)
    except ValueError as error:
        raise NotAlikeError(str(error)) from error
    return Step(
        trace=trace,
        layers_run=short.stage_sizes[0],
        micro_batches_run=short.num_micro_batches,
    )


def _script(run: Run, device_type: DeviceType) -> tuple[Action, ...]:
    return script_of(_trace(run, device_type), run.first_layers)


def _trace(run: Run, device_type: DeviceType) -> Trace:
    return trace_of_step(run.config, run.layout, run.training, run.rank, device_type)
