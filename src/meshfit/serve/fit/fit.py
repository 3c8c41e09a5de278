"""``meshfit serve fit``: starts each layout, compares its output, drives the traffic, names one."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshfit.engines import engine_profile
from meshfit.errors import InputError, MeshfitError, NothingFitsError
from meshfit.mesh.facts import facts_of
from meshfit.record.files import decode, encode, write_json_atomically
from meshfit.record.lines import append_lines, whole_lines
from meshfit.record.lock import folder_lock
from meshfit.record.serving import (
    BaselineOutputs,
    GreedyOutput,
    OutputParity,
    ServingOutcome,
    ServingRow,
)
from meshfit.serve.bench.benchmark import traffic_document
from meshfit.serve.bench.launched import bench_running, launchable, launched
from meshfit.serve.fit.choice import ServingChoice, choose_layout
from meshfit.serve.fit.parity import (
    TOLERANCE,
    TOLERANCE_16_BITS,
    compare_outputs,
    fixed_prompts,
    greedy_outputs,
)
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.load.served import served_replica
from meshfit.serve.servers.commands import ON_CPU, ServerKind
from meshfit.serve.servers.weights import weights_folder
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.space import layout_violations

WIDTHS = (1, 2, 4, 8)
"""Of the baseline: the least at which the model fits."""

ROWS_NAME = "results.jsonl"
BASELINE_NAME = "baseline.json"

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ServingFitEnd:
    """Every row, and which layout it is."""

    kind: ServerKind
    rows: tuple[ServingRow, ...]
    choice: ServingChoice
    folder: Path


def serving_fit(job: ServingJob, kind: ServerKind, folder: Path, *, say: Say) -> ServingFitEnd:
    """Runs what is left of the job's layouts in ``folder`` and chooses among all of them.

    A layout that fails is a row with its reason. Rows of an earlier, interrupted run of the same plan
    are kept.

    Args:
        say: takes one line a finished layout.

    Raises:
        InputError: no layouts, one that is never legal here, or ``folder`` is in use.
        RunError: the baseline did not run, without which no output can be compared.
    """
    layouts = _layouts(job, kind)
    plan_hash = _plan_hash(job, kind, layouts)
    with folder_lock(folder):
        fit = _Fit(job=job, kind=kind, folder=folder, plan_hash=plan_hash)
        done = {row.label: row for row in _rows(folder, plan_hash)}
        left = [layout for layout in layouts if layout.label not in done]
        if left:
            say(
                f"{len(left)} of {len(layouts)} layouts to run on {kind}, "
                f"{job.run.requests} requests each"
            )
            baseline = fit.baseline()
            for layout in left:
                row = fit.run(layout, baseline)
                append_lines(folder / ROWS_NAME, [encode(row)])
                done[row.label] = row
                say(f"{row.label}  {row.outcome.replace('_', ' ')}  {row.failure}".rstrip())
    rows = tuple(done[layout.label] for layout in layouts)
    return ServingFitEnd(kind=kind, rows=rows, choice=choose_layout(rows), folder=folder)


@dataclass(frozen=True, kw_only=True)
class _Fit:
    job: ServingJob
    kind: ServerKind
    folder: Path
    plan_hash: str

    def baseline(self) -> tuple[GreedyOutput, ...]:
        """What the unsharded model generates; from an earlier run of the same plan where it is kept."""
        path = self.folder / BASELINE_NAME
        if path.is_file():
            kept = decode(BaselineOutputs, path.read_bytes(), where=str(path))
            if kept.plan_hash == self.plan_hash:
                return kept.outputs
        weights = self.job.baseline_weights or self._weights()
        layout = baseline_layout(self.job, self.kind)
        with launched(self.job, layout, self.kind, self.folder / "baseline", weights) as servers:
            outputs = greedy_outputs(servers[0], self._prompts(), timeout_s=self.job.run.deadline_s)
        write_json_atomically(path, BaselineOutputs(plan_hash=self.plan_hash, outputs=outputs))
        return outputs

    def run(self, layout: ServingLayout, baseline: Sequence[GreedyOutput]) -> ServingRow:
        """One layout, whatever becomes of it."""
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        started_s = time.monotonic()
        folder = self.folder / layout.label.replace(",", "_")
        parity: OutputParity | None = None
        bench: dict[str, Any] | None = None
        failure = ""
        try:
            with launched(self.job, layout, self.kind, folder, self._weights()) as servers:
                prompts, patience_s = self._prompts(), self.job.run.deadline_s
                parity = _worst(
                    [
                        compare_outputs(
                            greedy_outputs(one, prompts, timeout_s=patience_s),
                            baseline,
                            tolerance=TOLERANCE if self.kind in ON_CPU else TOLERANCE_16_BITS,
                        )
                        for one in servers
                    ]
                )
                bench = bench_running(self.job, layout, self.kind, servers, folder).document
        except MeshfitError as error:
            failure = str(error)
        outcome, failure = _outcome(parity, bench, failure)
        return ServingRow(
            plan_hash=self.plan_hash,
            label=layout.label,
            layout=layout.as_json(),
            accelerators=layout.num_accelerators,
            outcome=outcome,
            started_at=started_at,
            seconds=time.monotonic() - started_s,
            parity=parity,
            bench=bench,
            failure=failure,
        )

    def _weights(self) -> Path:
        return weights_folder(self.job, self.folder)

    def _prompts(self) -> list[list[int]]:
        return fixed_prompts(self.job.model.vocab_size, self.job.model.max_position_embeddings)


def baseline_layout(job: ServingJob, kind: ServerKind) -> ServingLayout:
    """One unsharded replica; on GPUs the narrowest that fits.

    Raises:
        NothingFitsError: none does.
    """
    if kind in ON_CPU:
        return ServingLayout()
    profile, facts = engine_profile(kind), facts_of(model=job.model)
    for width in WIDTHS:
        layout = ServingLayout(tp=width)
        topology = topology_for(job, layout)
        replica = served_replica(
            job.model,
            layout,
            profile,
            topology,
            budget=job.budget(profile, topology.accelerator),
            request_tokens=job.longest_tokens,
        )
        if replica.fits and not layout_violations(layout, facts, profile, topology):
            return layout
    raise NothingFitsError(
        f"{job.model.name} fits no replica of up to {WIDTHS[-1]} accelerators, so there is no baseline"
    )


def _layouts(job: ServingJob, kind: ServerKind) -> list[ServingLayout]:
    asked = job.layouts or ((job.layout,) if job.layout is not None else ())
    if not asked:
        raise InputError(
            "no layouts to run: write `layouts: [{replicas: 1}, {replicas: 2}]` in the job; "
            "`meshfit serve plan` ranks them"
        )
    return [launchable(job, layout, kind) for layout in dict.fromkeys(asked)]


def _rows(folder: Path, plan_hash: str) -> list[ServingRow]:
    path = folder / ROWS_NAME
    rows = [decode(ServingRow, line, where=str(path)) for line in whole_lines(path)]
    return [row for row in rows if row.plan_hash == plan_hash]


def _worst(parities: Sequence[OutputParity]) -> OutputParity:
    return max(parities, key=lambda one: (not one.ok, one.largest_difference))


def _outcome(
    parity: OutputParity | None, bench: Mapping[str, Any] | None, failure: str
) -> tuple[ServingOutcome, str]:
    """What a row is called, and why."""
    if failure:
        return "launch_error", failure
    assert parity is not None and bench is not None
    if not parity.ok:
        where = (
            "" if parity.first_divergence is None else f", first at token {parity.first_divergence}"
        )
        return (
            "parity_failed",
            f"its output is not the baseline's: log-probabilities differ by up to "
            f"{parity.largest_difference:.2g} (tolerance {parity.tolerance:g}), {parity.share_equal:.1%} "
            f"of tokens equal{where}",
        )
    if failed := bench["measured"]["failed"]:
        each = "; ".join(f"{count} requests: {why}" for why, count in failed.items())
        return "requests_failed", each
    return "ok", ""


def _plan_hash(job: ServingJob, kind: ServerKind, layouts: Sequence[ServingLayout]) -> str:
    """Identity of everything that decides the result."""
    document = {
        "model": dict(job.model.config),
        "weights": _stamps(job.weights),
        "baseline": _stamps(job.baseline_weights),
        "traffic": traffic_document(job.traffic),
        "targets": [asdict(target) for target in job.targets],
        "server": kind,
        "settings": [job.max_sequences, job.step_tokens, job.memory_fraction, job.eager],
        "requests": job.run.requests,
        "seed": job.run.seed,
        "layouts": [layout.label for layout in layouts],
    }
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _stamps(folder: Path | None) -> list[tuple[str, int, int]]:
    """Name, size and time of change of every file of weights."""
    if folder is None:
        return []
    files = sorted(folder.glob("*.safetensors"))
    stats = [one.stat() for one in files]
    return [(f.name, s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)]
