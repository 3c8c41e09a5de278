"""The launches of a sweep, in order. Nothing here runs anything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshfit.cluster.document import topology_document
from meshfit.cluster.topology import Topology
from meshfit.compare.parity import JUDGED_STEPS
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.proof import on_reduced_model, plainest
from meshfit.funnel.sweep.routing import reference_name, routing_groups
from meshfit.job.spec import Job
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import Purpose, Record, RoutingGroups, RunRequest, SweepPlan

TaskKey = tuple[Purpose, str, int]
"""What identifies a launch, and its row, within one plan: purpose, candidate, repeat."""

CANDIDATE_PURPOSES: tuple[Purpose, ...] = ("measure", "parity")

WEIGHTS_SEED = 0
PROFILED_STEPS = 2
"""Recorded after the timed steps of each launch; every repeat is another launch."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One launch: what is asked, where its files go, and whether it is part of a candidate."""

    request: RunRequest
    folder: Path
    layout: LayoutSpec
    """The candidate's own layout (the request's may be adapted to a cut model)."""

    @property
    def key(self) -> TaskKey:
        return self.request.purpose, self.request.candidate, self.request.repeat

    @property
    def is_candidate(self) -> bool:
        return self.request.purpose in CANDIDATE_PURPOSES

    @property
    def is_on_disk(self) -> bool:
        """Whether what other launches read of this one is there: weights, a reference's gradients."""
        where = Path(self.request.weights) if self.request.purpose == "weights" else self.folder
        return self.is_candidate or any(where.glob("*.safetensors"))

    @property
    def title(self) -> str:
        """For a progress line."""
        match self.request.purpose:
            case "weights":
                return f"initial weights of the {self.request.candidate} model"
            case "reference":
                return f"reference: one process, {self.request.candidate} model"
            case "parity":
                return f"{self.layout.label} (parity on the cut model)"
            case _:
                return f"{self.layout.label} (repeat {self.request.repeat + 1})"


def key_of(record: Record) -> TaskKey:
    """The key of the task that a row belongs to."""
    return record.purpose, record.candidate, record.repeat


class TaskList:
    """Builds every task of one sweep from its plan."""

    def __init__(self, job: Job, plan: SweepPlan, folder: RunFolder) -> None:
        self._job = job
        self._plan = plan
        self._folder = folder

    def __iter__(self) -> Iterator[Task]:
        """Weights, references, then candidates with their repeats interleaved (A B C A B C)."""
        layouts = [planned.layout for planned in self._plan.layouts]
        is_reduced = self._plan.parity_kind == "reduced"
        if self._job.weights is None:
            yield self._weights("full")
        if is_reduced:
            yield self._weights("reduced")
        yield from self._references("reduced" if is_reduced else "full", layouts)
        if is_reduced:
            yield from (self._parity(layout) for layout in layouts)
            first = plainest(layouts)
            layouts = [first, *(layout for layout in layouts if layout != first)]
        for repeat in range(self._job.run.repeats):
            yield from (self._measure(layout, repeat) for layout in layouts)

    def _config(self, model: str) -> dict[str, Any]:
        return self._plan.parity_config if model == "reduced" else dict(self._job.model.config)

    def _weights_of(self, model: str) -> str:
        if model == "full" and self._job.weights is not None:
            return str(self._job.weights)
        return str(self._folder.weights(model) / "weights")

    def _weights(self, model: str) -> Task:
        return self._task("weights", model, self._plan.parity_layout, self._folder.weights(model))

    def _references(self, model: str, layouts: Sequence[LayoutSpec]) -> Iterator[Task]:
        """One, or one for each way in which ``layouts`` let ranks route tokens."""
        for groups in dict.fromkeys(self._routing_groups(model, layout) for layout in layouts):
            name = reference_name(model, groups)
            yield self._task(
                "reference",
                model,
                self._plan.parity_layout,
                self._folder.reference(name),
                name=name,
                routing_groups=groups,
            )

    def _routing_groups(self, model: str, layout: LayoutSpec) -> RoutingGroups | None:
        return routing_groups(self._config(model), self._job.training, layout)

    def _reference_of(self, model: str, layout: LayoutSpec) -> Path:
        return self._folder.reference(reference_name(model, self._routing_groups(model, layout)))

    def _parity(self, layout: LayoutSpec) -> Task:
        return self._task(
            "parity",
            "reduced",
            layout,
            self._folder.launch(layout, "parity", 0),
            reference=self._reference_of("reduced", layout),
        )

    def _measure(self, layout: LayoutSpec, repeat: int) -> Task:
        proven_whole = self._plan.parity_kind == "single_process"
        return self._task(
            "measure",
            "full",
            layout,
            self._folder.launch(layout, "measure", repeat),
            repeat=repeat,
            reference=self._reference_of("full", layout) if proven_whole else None,
        )

    def _task(
        self,
        purpose: Purpose,
        model: str,
        layout: LayoutSpec,
        folder: Path,
        *,
        name: str | None = None,
        repeat: int = 0,
        reference: Path | None = None,
        routing_groups: RoutingGroups | None = None,
    ) -> Task:
        job = self._job
        is_candidate = purpose in CANDIDATE_PURPOSES
        predictions = {planned.layout: planned.prediction for planned in self._plan.layouts}
        request = RunRequest(
            plan_hash=self._plan.plan_hash,
            candidate=layout.label if is_candidate else name or model,
            repeat=repeat,
            purpose=purpose,
            model_config=self._config(model),
            weights=self._weights_of(model),
            layout=on_reduced_model(layout) if model == "reduced" else layout,
            training=job.training,
            device_type=job.topology.accelerator.device_type,
            steps=JUDGED_STEPS if purpose == "parity" else max(job.run.steps, JUDGED_STEPS),
            warmup_steps=job.run.warmup_steps,
            judged_steps=JUDGED_STEPS,
            seed=WEIGHTS_SEED,
            threads_per_rank=job.run.threads_per_rank,
            reference=str(reference) if reference else None,
            routing_groups=routing_groups,
            topology=topology_document(job.topology),
            hosts=planned_hosts(job.topology, layout.world_size),
            rank_order=job.profile.rank_order,
            track_memory=purpose == "measure",
            profile_steps=PROFILED_STEPS if purpose == "measure" else 0,
            prediction=predictions.get(layout) if purpose == "measure" else None,
        )
        return Task(request=request, folder=folder, layout=layout)


def planned_hosts(topology: Topology, world_size: int) -> tuple[str, ...]:
    """Host of each rank, where there are several hosts that ranks could land on."""
    if topology.lab is None and topology.is_here:
        return ()
    return tuple(topology.host_of(rank) for rank in range(world_size))
