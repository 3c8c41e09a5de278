"""Collectives that were measured on a job's cluster count wherever something is predicted of it."""

import json

import pytest

from meshfit.funnel.check.advising import changes_to_fit
from meshfit.funnel.plan.sensitivity import sensitivity_document
from meshfit.funnel.plan.timeline import write_timeline
from meshfit.funnel.space.planning import estimate_candidates, make_plan
from meshfit.job.read import read_job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import make_layout
from meshfit.record.files import write_json_atomically
from meshfit.record.probe import PROBED_COLLECTIVES, CollectiveCurve, CurvePoint, ProbeRecord

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {{kind: training, sequence_length: 8192, global_batch: 64 sequences}}
cluster: 2x8 H100-SXM
search: {{micro_batch_size: 1, recompute: none, cp: 1}}
calibration: none
curves: {curves}
"""
SLOW_BYTES_PER_S = 20e9
"""Of an NVSwitch that something holds up: a twentieth of what the formula has."""
TOO_LARGE = make_layout({"tp": 8, "dp_replicate": 2, "micro_batch_size": 8})


def slow_curve(collective):
    rate = SLOW_BYTES_PER_S
    points = tuple(
        CurvePoint(
            size_bytes=size, seconds=size / rate, algorithm_bytes_per_s=rate, bus_bytes_per_s=rate
        )
        for size in (2**10, 2**20, 2**30)
    )
    return CollectiveCurve(collective=collective, members=(8, 1), groups=1, points=points)


@pytest.fixture
def jobs(tmp_path):
    """The same job by formulas, and on a cluster whose groups of eight were measured as slow."""

    def read(curves):
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(curves=curves))
        return read_job(path, to_run=False)

    topology = read("none").topology
    record = ProbeRecord(
        measured_at="2026-01-01T00:00:00+00:00",
        source="test",
        accelerator=topology.accelerator.name,
        library="NCCL",
        level_names=tuple(level.name for level in topology.levels),
        level_sizes=tuple(level.size for level in topology.levels),
        gpus_per_host=topology.gpus_per_host,
        hosts=(),
        curves=tuple(map(slow_curve, PROBED_COLLECTIVES)),
        absent={},
    )
    write_json_atomically(tmp_path / "curves.json", record)
    return read("none"), read("curves.json")


def test_assumptions_are_varied_from_the_step_times_of_the_plan(jobs):
    _, measured = jobs
    plan = make_plan(measured)
    rows = {row["assumption"]: row for row in sensitivity_document(plan)}
    for position, leader in enumerate(rows["contention"]["leaders"]):
        step_s = float(plan.estimates.step_middle_s[plan.order[position]])
        assert leader["step_time"][0] == pytest.approx(step_s)


def test_a_timeline_is_as_long_as_what_was_measured_makes_it(jobs, tmp_path):
    layout = make_layout({"tp": 8, "dp_shard": 2})
    ends = []
    for job in jobs:
        write_timeline(job, layout, tmp_path / "step.json")
        events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
        ends.append(max(one["ts"] + one["dur"] for one in events if one["ph"] == "X") / 1e6)
        time = estimate_candidates(job, Candidates.from_layouts([layout]))[0].prediction(0).time
        assert ends[-1] == pytest.approx(time.step - (time.other or 0.0))
    assert ends[1] > 1.5 * ends[0]


def test_advice_costs_what_it_costs_on_these_links(jobs):
    by_formula, as_measured = (
        {change.words: change.slowdown for change in changes_to_fit(job, TOO_LARGE)} for job in jobs
    )
    assert by_formula.keys() == as_measured.keys() != set()
    assert any(as_measured[words] != by_formula[words] for words in by_formula)
