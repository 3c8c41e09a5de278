"""Keys of ``runtime:`` that a job sets and that move nothing: said, so that no one relies on them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np

from meshfit.funnel.space.basis import uncorrected_basis
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimate import estimate_on
from meshfit.predict.estimates import Estimates
from meshfit.workload.training import (
    Allocator,
    AttentionKernel,
    Fp8Recipe,
    LossKind,
    RuntimeSpec,
)

_SWITCH = (False, True)

VALUES: dict[str, tuple[Any, ...]] = {
    "compile": _SWITCH,
    "attention": get_args(AttentionKernel),
    "loss": get_args(LossKind),
    "allocator": get_args(Allocator),
    "fp8_recipe": get_args(Fp8Recipe),
    "fp8_parameters": _SWITCH,
    "attention_dropout": (0.0, 0.1),
    "hidden_dropout": (0.0, 0.1),
    "overlap_gradients": _SWITCH,
    "overlap_parameters": _SWITCH,
    "overlap_tensor_parallel": _SWITCH,
    "fused_gradient_accumulation": _SWITCH,
    "bucket_bytes": (1, 2**30),
    "optimizer_in_backward": _SWITCH,
    "paged_optimizer": _SWITCH,
    "communication_sms": (0.0, 0.2),
    "expert_imbalance": (1.0, 2.0),
    "expert_capacity_factor": (1.0, 2.0),
    "router_bias_rate": (0.0, 0.001),
}
"""Key of ``RuntimeSpec`` -> values of which one at least moves an estimate, where the key can."""

NAMES = {"bucket_bytes": "bucket"}
"""As a job writes them, where that is another name."""


def inert_notes(job: Job, layouts: Sequence[LayoutSpec]) -> list[str]:
    """One sentence for all keys that are set and of which no value moves memory or time of any of
    ``layouts``; none where all do."""
    inert = [NAMES.get(key, key) for key in _inert_keys(job, layouts)]
    if not inert:
        return []
    named = ", ".join(f"runtime.{key}" for key in inert)
    verb = "moves" if len(inert) == 1 else "move"
    return [
        f"{named} {verb} neither memory nor time here: not part of what {job.profile.name} does with "
        f"these layouts on {job.topology.accelerator.name}, or not modelled"
    ]


def _inert_keys(job: Job, layouts: Sequence[LayoutSpec]) -> Iterator[str]:
    default = RuntimeSpec()
    runtime = job.training.runtime
    asked = [
        f.name for f in fields(RuntimeSpec) if getattr(runtime, f.name) != getattr(default, f.name)
    ]
    limited = job.topology.accelerator.power_limit_w is not None
    if not layouts or not (asked or limited):
        return
    candidates = Candidates.from_layouts(list(layouts))
    figures = _Figures(job, candidates)
    for key in asked:
        if not any(figures.differ(_with(job, key, value)) for value in VALUES[key]):
            yield key
    if limited and not figures.differ(_without_limit(job)):
        yield "power_limit"


def _with(job: Job, key: str, value: Any) -> Job:
    runtime = replace(job.training.runtime, **{key: value})
    return replace(job, training=replace(job.training, runtime=runtime))


def _without_limit(job: Job) -> Job:
    accelerator = replace(job.topology.accelerator, power_limit_w=None)
    return replace(job, topology=replace(job.topology, accelerator=accelerator))


class _Figures:
    """Memory and time of a job's layouts, to be held against those of a changed job."""

    def __init__(self, job: Job, candidates: Candidates) -> None:
        self._candidates = candidates
        self._own = self._of(job)

    def differ(self, job: Job) -> bool:
        other = self._of(job)
        return any(not np.array_equal(read(self._own), read(other)) for read in _READ)

    def _of(self, job: Job) -> Estimates:
        return estimate_on(uncorrected_basis(job), self._candidates)


_READ: tuple[Callable[[Estimates], Any], ...] = (
    lambda estimates: estimates.memory_middle_bytes,
    lambda estimates: estimates.memory_host,
    lambda estimates: estimates.step_middle_s,
)
