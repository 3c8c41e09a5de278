"""``fit --proxy N``: the shortlist of a job judged by smaller jobs on N of its nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from meshfit.breakdown import Prediction
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.errors import InputError, NothingFitsError
from meshfit.funnel.check.checking import require_legal
from meshfit.funnel.proxy.compose import Composed, composed
from meshfit.funnel.proxy.job_files import proxy_cluster, write_proxy_job
from meshfit.funnel.proxy.shrink import Proxy, shrunk
from meshfit.funnel.space.planning import estimate_candidates, make_plan
from meshfit.funnel.sweep.fit import fit_layouts
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.runner import SweepRunner
from meshfit.funnel.sweep.shortlist import shortlist
from meshfit.funnel.sweep.sweep_plan import plan_hash
from meshfit.job.read import NO_CALIBRATION, read_job
from meshfit.job.spec import Job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ProxyOptions:
    """Where proxies run.

    Attributes:
        num_hosts: of the job's cluster.
        here: on this machine, which is one of them.
        runner_of: what does the launches of the job in a file.
    """

    num_hosts: int
    here: bool
    runner_of: Callable[[Path], SweepRunner]


@dataclass(frozen=True, kw_only=True)
class JudgedByProxy:
    """One layout of the whole job; ``proxy`` and what came of it, or ``refused``, why there is none."""

    layout: LayoutSpec
    predicted: Prediction
    folder: Path | None = None
    proxy: Proxy | None = None
    measured: MeasuredCandidate | None = None
    composed: Composed | None = None
    refused: str = ""

    @property
    def order(self) -> float:
        """Seconds that layouts are ordered by; those without a step come last."""
        return self.composed.step_time.middle if self.composed else float("inf")


def fit_by_proxy(
    source: Path, job: Job, options: ProxyOptions, *, out: Path | None, console: Console
) -> dict[str, Any]:
    """The document of the comparison; resumes what is in the run folder.

    Whole jobs and proxies are predicted by formulas alone, so that what is compared rests on the same.

    Raises:
        InputError: the cluster has no more than these nodes, or proxies cannot run there.
        NothingFitsError: no legal layout of the whole job fits.
        RunError: what every launch of a proxy rests on failed.
    """
    job = replace(job, calibration=None)
    cluster = proxy_cluster(job, options.num_hosts, here=options.here)
    ranks = options.num_hosts * job.topology.gpus_per_host
    root = out or RunFolder.of_plan(f"{job.name} proxies", plan_hash(job)).root
    judged = []
    for layout in _shortlisted(job):
        predicted = _predicted(job, layout)
        try:
            proxy = shrunk(
                layout,
                ranks,
                num_hidden_layers=job.model.num_hidden_layers,
                global_batch_size=job.training.global_batch_size,
            )
            folder = root / layout.slug
            path = write_proxy_job(source, job, proxy, cluster, folder)
            small = read_job(path, calibration=NO_CALIBRATION)
            require_legal(small, proxy.layout, what="proxy")
        except InputError as error:
            judged.append(JudgedByProxy(layout=layout, predicted=predicted, refused=str(error)))
            continue
        console.print(f"{layout.label}: by {proxy.layout.label}, {proxy.layers} layers")
        runner = options.runner_of(path)
        end = fit_layouts(small, [proxy.layout], out=folder / "run", console=console, runner=runner)
        [measured] = end.candidates
        judged.append(_judge(layout, predicted, proxy, measured, folder))
    return proxy_document(options.num_hosts, sorted(judged, key=lambda one: one.order))


def _shortlisted(job: Job) -> list[LayoutSpec]:
    """As ``fit`` would run them, the baseline first."""
    plan = make_plan(job)
    baseline = [job.baseline] if job.baseline is not None else []
    picked = shortlist(plan, job.run.shortlist, besides=job.baseline)
    if not picked:
        raise NothingFitsError(f"none of {len(plan)} legal layouts of the whole job fits")
    return baseline + [plan.layout(index) for index in picked]


def _predicted(job: Job, layout: LayoutSpec) -> Prediction:
    estimates, _ = estimate_candidates(job, Candidates.from_layouts([layout]))
    return estimates.prediction(0)


def _judge(
    layout: LayoutSpec,
    predicted: Prediction,
    proxy: Proxy,
    measured: MeasuredCandidate,
    folder: Path,
) -> JudgedByProxy:
    found = None
    is_right = measured.parity is None or measured.parity.ok
    if measured.outcome == "ok" and is_right and measured.step_time_s and measured.predicted:
        found = composed(
            predicted,
            measured.predicted,
            measured_s=measured.step_time_s,
            noise_s=measured.step_noise_s,
        )
    return JudgedByProxy(
        layout=layout,
        predicted=predicted,
        folder=folder,
        proxy=proxy,
        measured=measured,
        composed=found,
    )


def proxy_document(num_hosts: int, judged: Sequence[JudgedByProxy]) -> dict[str, Any]:
    """``fit --proxy --json``; ``judged`` are in the order of the steps that are composed."""
    best = judged[0] if judged and judged[0].composed else None
    return {
        "schema_version": SCHEMA_VERSION,
        "outcome": "ok" if best else "no_winner",
        "winner": best and {"label": best.layout.label, "layout": best.layout.as_json()},
        "reason": _reason(judged) if best else "no proxy ran well",
        "nodes": num_hosts,
        "candidates": [_candidate(one) for one in judged],
    }


def _reason(judged: Sequence[JudgedByProxy]) -> str:
    best = judged[0]
    assert best.composed is not None
    close = [
        one.layout.label
        for one in judged[1:]
        if one.composed and one.composed.step_time.overlaps(best.composed.step_time)
    ]
    said = f"{best.layout.label} has the shortest step by composition; the whole job was not run"
    return said + (f"; not told apart from it: {', '.join(close)}" if close else "")


def _candidate(one: JudgedByProxy) -> dict[str, Any]:
    ran, found = one.measured, one.composed
    return {
        "label": one.layout.label,
        "layout": one.layout.as_json(),
        "outcome": ran.outcome if ran else "invalid",
        "failure": one.refused or (ran.failure.message if ran and ran.failure else None),
        "parity": ran.parity.ok if ran and ran.parity else None,
        "step_time": found.step_time.as_json() if found else None,
        "predicted": one.predicted.as_json(),
        "factor": found.factor if found else None,
        "unmeasured": found.unmeasured if found else None,
        "proxy": _proxy(one),
    }


def _proxy(one: JudgedByProxy) -> dict[str, Any] | None:
    if one.proxy is None:
        return None
    ran = one.measured
    return {
        "label": one.proxy.layout.label,
        "layout": one.proxy.layout.as_json(),
        "num_hidden_layers": one.proxy.layers,
        "global_batch_size": one.proxy.global_batch_size,
        "step_time": ran.step_time_s if ran else None,
        "predicted": ran.predicted.step_time.as_json() if ran and ran.predicted else None,
        "folder": str(one.folder),
    }
