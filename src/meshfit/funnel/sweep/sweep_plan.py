"""What a sweep is, decided before anything runs, and the hash that ties rows to it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshfit import __version__
from meshfit.errors import InputError
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.funnel.sweep.proof import plan_proof
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.files import read_document
from meshfit.record.schema import PlannedLayout, SweepPlan
from meshfit.workload.corpus import Corpus, open_corpus


def plan_hash(job: Job, *, only: Sequence[LayoutSpec] | None = None) -> str:
    """Identity of everything that decides a sweep's result; equal hashes may share rows.

    ``only`` are the layouts of a run of given ones, None for a shortlist. Text goes in by its
    content, wherever it lies; given weights by names, sizes and times of change.

    Raises:
        InputError: the job's data cannot be read.
    """
    what = {
        "job": job.identity,
        "model": dict(job.model.config),
        "weights": _file_states(job.weights) if job.weights else None,
        "data": _corpus(job).describe() | {"path": None},
        "cluster": [job.topology.accelerator.name, job.topology.num_accelerators],
        "lab": asdict(job.topology.lab) if job.topology.lab else None,
        "engine": job.profile.name,
        "rank_order": job.profile.rank_order,
        "baseline": job.baseline.as_full_json() if job.baseline else None,
        "only": [layout.as_full_json() for layout in only] if only else None,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _file_states(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size in bytes and time of change in ns of everything in ``folder``, by name."""
    states = ((path.name, path.stat()) for path in folder.iterdir())
    return sorted((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _corpus(job: Job) -> Corpus:
    return open_corpus(
        job.training.data,
        vocab_size=job.model.vocab_size,
        sequence_length=job.training.sequence_length,
        global_batch_size=job.training.global_batch_size,
    )


def plan_in(path: Path, key: str) -> SweepPlan | None:
    """The plan in the file ``path``; None when there is none yet.

    Raises:
        InputError: it is that of another hash than ``key``, or broken.
    """
    if not path.exists():
        return None
    try:
        plan = read_document(SweepPlan, path)
    except InputError as error:
        raise InputError(
            f"{error}; nothing in {path.parent} can be resumed: choose another --out"
        ) from None
    if plan.plan_hash != key:
        raise InputError(
            f"{path.parent} holds the results of another job or version (plan "
            f"{plan.plan_hash[:8]}, this one is {key[:8]}): choose another --out"
        )
    return plan


def make_sweep_plan(
    job: Job, key: str, layouts: Sequence[LayoutSpec], document: Mapping[str, Any]
) -> SweepPlan:
    """The plan to run ``layouts``, with what is predicted of each and how parity is proved.

    ``document`` is what led to them, as ``plan --json`` prints it.

    Raises:
        InputError: parity cannot be proved here.
    """
    proof = plan_proof(job, layouts)
    estimates, _ = estimate_candidates(job, Candidates.from_layouts(layouts))
    return SweepPlan(
        plan_hash=key,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        layouts=tuple(
            PlannedLayout(layout=layout, prediction=estimates.prediction(index))
            for index, layout in enumerate(layouts)
        ),
        baseline=job.baseline.label if job.baseline else None,
        parity_kind=proof.kind,
        parity_layout=proof.layout,
        parity_config=proof.config,
        parity_steps=proof.steps,
        capacity_bytes=job.topology.accelerator.memory_bytes,
        document=dict(document),
    )
