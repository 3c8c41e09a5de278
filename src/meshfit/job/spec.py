"""A job as the rest of meshfit sees it: what is to be trained, where, and how hard to look."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from meshfit.cluster.topology import Topology
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.workload.budget import BudgetSpec
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

SHORTLIST_LENGTH = 6
"""Layouts that are run unless a job says otherwise: one of each strategy, and room for contenders."""

ParityMode = Literal["auto", "single_process", "reduced"]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """How the real runs of a sweep are done.

    Attributes:
        shortlist: most layouts that are run, the baseline not counted.
        repeats: launches of each layout, interleaved (A B C A B C).
        steps, warmup_steps: optimizer steps of a launch; first ones that timing leaves out.
        parity: what a layout is compared with; ``auto`` takes one process where it can hold the
            model, else the model cut to few layers.
        deadline_s: wall clock of one launch; hang_s: silence of all ranks before it counts as hung.
        port: fixed rendezvous port; None takes a free one for each launch.
        budget_device_s: accelerator-seconds (ranks x wall clock) after which no launch is started.
    """

    shortlist: int = SHORTLIST_LENGTH
    repeats: int = 2
    steps: int = 20
    warmup_steps: int = 5
    parity: ParityMode = "auto"
    deadline_s: float = 900.0
    hang_s: float = 180.0
    threads_per_rank: int = 1
    port: int | None = None
    budget_device_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job file, read and resolved.

    ``profile`` is the engine of the job and ``other_engines`` names those listed after it.
    ``weights`` is a folder of given weights, None for random ones. ``layout`` is the one layout
    that check, run and export work on; ``baseline`` is always a row of a comparison. ``identity``
    hashes what in the file decides the result of a sweep, for the plan hash. ``budget`` is that of
    the whole training run, None where it is not told. ``calibration`` is the file that real runs
    are remembered in, ``curves`` that of ``meshfit probe``, each None where none is to be used.
    ``engine_facts`` are what an engine's own file says that only rules of that engine ask for.
    ``notes`` are readings of the file that a person should see.
    """

    name: str
    model: ModelSpec
    weights: Path | None
    training: TrainingSpec
    topology: Topology
    profile: EngineProfile
    layout: LayoutSpec | None
    baseline: LayoutSpec | None
    search: SearchSpec
    run: RunSpec
    headroom_fraction: float
    identity: str
    budget: BudgetSpec | None = None
    notes: tuple[str, ...] = ()
    other_engines: tuple[str, ...] = ()
    calibration: Path | None = None
    curves: Path | None = None
    engine_facts: Mapping[str, Any] = field(default_factory=dict)
