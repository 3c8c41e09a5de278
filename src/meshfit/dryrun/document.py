"""What a dry run says, as one document."""

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from meshfit.dryrun.operators import LEFT_OUT, REPLACEMENTS
from meshfit.dryrun.replay import AllocatorUse, replay
from meshfit.dryrun.step import Step
from meshfit.dryrun.trace import Moment, Trace
from meshfit.record.dryrun import DryRunRequest

RECOMPUTE = "recompute"


def document_of(request: DryRunRequest, step: Step) -> dict[str, Any]:
    """``memory``, ``collectives`` (in order, and summed up), ``flops``, ``operators``, ``run``.

    ``memory`` has the keys of every memory breakdown, at the peak, and ``peak_at``; on CUDA also
    ``allocators``, the replay with fixed and with expandable segments, of which ``reserved`` and
    ``out_of_memory`` are those that the job asks for. ``run`` says how many layers of a stage and micro-batches were run; all
    of them where ``why_whole`` says why.
    """
    trace = step.trace
    return {
        "memory": _memory(request, trace),
        "collectives": [
            {
                "kind": one.kind,
                "axis": one.axis,
                "bytes": one.size_bytes,
                "phase": one.phase,
                "module": one.module,
            }
            for one in trace.collectives
        ],
        "collectives_summed": _summed(trace),
        "flops": _flops(trace),
        "operations": len(trace.moments),
        "run": {
            "layers": step.layers_run,
            "micro_batches": step.micro_batches_run,
            "why_whole": step.why_whole,
        },
        "operators": [asdict(one) for one in REPLACEMENTS] if _is_cuda(request) else [],
        "left_out": list(LEFT_OUT) if _is_cuda(request) else [],
    }


def _is_cuda(request: DryRunRequest) -> bool:
    return request.device_type == "cuda"


def _memory(request: DryRunRequest, trace: Trace) -> dict[str, Any]:
    memory, moment = trace.peak()
    document: dict[str, Any] = {}
    if _is_cuda(request):
        uses = {
            name: replay(
                trace, expandable=name == "expandable", capacity_bytes=request.capacity_bytes
            )
            for name in ("default", "expandable")
        }
        chosen = uses[request.training.runtime.allocator]
        memory = replace(memory, reserved=chosen.reserved_bytes)
        document["out_of_memory"] = chosen.out_of_memory
        document["allocators"] = {name: _allocator(use) for name, use in uses.items()}
    return memory.as_json() | {"peak_at": _place(moment)} | document


def _allocator(use: AllocatorUse) -> dict[str, Any]:
    return {
        "allocated": use.allocated_bytes,
        "reserved": use.reserved_bytes,
        "fragmentation": use.fragmentation,
        "out_of_memory": use.out_of_memory,
    }


def _place(moment: Moment) -> dict[str, Any]:
    return {
        "operation": moment.operation,
        "phase": moment.phase,
        "module": moment.module,
        "layer": moment.layer,
        "micro_batch": moment.micro_batch,
    }


def _summed(trace: Trace) -> list[dict[str, Any]]:
    """Number and bytes of the collectives of each kind, axis and phase, the most bytes first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for one in trace.collectives:
        key = (one.kind, one.axis, one.phase)
        counts[key] += 1
        sizes[key] += one.size_bytes
    return [
        {"kind": kind, "axis": axis, "phase": phase, "count": counts[kind, axis, phase], "bytes": n}
        for (kind, axis, phase), n in sizes.most_common()
    ]


def _flops(trace: Trace) -> dict[str, int]:
    """``model``: forward and backward once; ``recompute``: forward again; ``total``: both."""
    again = sum(moment.flops for moment in trace.moments if moment.phase == RECOMPUTE)
    return {"total": trace.flops, "model": trace.flops - again, "recompute": again}
