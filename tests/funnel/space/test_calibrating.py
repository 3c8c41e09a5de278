"""From measured runs to the next plan: made-up launches, real files, real plans."""

import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from meshfit.breakdown import MemoryBreakdown
from meshfit.cli.main import app
from meshfit.compare.candidate import measured_candidate
from meshfit.errors import InputError
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.calibrating import learn, residuals, store
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout
from meshfit.record.residuals import read_residuals
from meshfit.record.schema import Failure
from meshfit.report.parts.calibration import calibration_view
from tests.compare.builders import parity, record


def show(renderable):
    console = Console(width=140, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {{sequence_length: 4096, global_batch: 64 sequences, precision: {precision}}}
cluster: {cluster}
engine: {engine}
search: {{micro_batch_size: 1, vpp: 1, cp: 1, recompute: none, schedule: 1f1b}}
calibration: runs.jsonl
"""
RAN = ("dp_shard=8", "tp=8", "dp_shard=4,tp=2", "dp_shard=2,tp=4", "pp=2,dp_shard=4", "pp=4,tp=2")


def job_in(folder, cluster="1x8 H100-SXM", engine="native", precision="bf16_mixed", **options):
    path = folder / "job.yaml"
    path.write_text(JOB.format(cluster=cluster, engine=engine, precision=precision))
    return read_job(path, to_run=False, **options)


def launches(job, *, compute=1.0, exposed=1.0, memory=1.0):
    """Each of ``RAN`` as it would have been measured, were the formulas off by these factors."""
    plain = replace(job, calibration=None)
    found = []
    for text in RAN:
        layout = read_job_layout(text)
        (one,) = residuals(plain, [measured(layout, 1.0, 1)], "p")
        seconds = sum(
            value * (exposed if "." in name else compute)
            for name, value in one.predicted_terms.items()
        )
        found.append(measured(layout, seconds, round(memory * one.predicted_memory_bytes)))
    return found


def read_job_layout(text):
    pairs = (pair.split("=") for pair in text.split(","))
    return make_layout({key: int(value) for key, value in pairs})


def measured(layout, seconds, memory_bytes, **keys):
    row = record(layout, [seconds] * 8, peak_bytes=memory_bytes, **keys)
    return measured_candidate([row], warmup_steps=2)


def test_a_later_plan_is_corrected_by_what_was_measured(tmp_path):
    job = job_in(tmp_path)
    before = make_plan(job)
    assert store(job, launches(job, compute=1.2, exposed=1.2, memory=1.04), "p") == len(RAN)
    after = make_plan(job)
    row = {after.layout(i).label: i for i in range(len(after))}
    for text in RAN:
        index = row[read_job_layout(text).label]
        now, then = after.estimates.prediction(index), before.estimates.prediction(index)
        assert now.step_time.middle == pytest.approx(1.2 ** (6 / 7) * then.step_time.middle)
        assert now.memory.reserved == then.memory.reserved
        assert now.memory_total.middle > 1.03 * then.memory_total.middle
        assert {now.step_time.basis, now.memory_total.basis} == {"measured_here"}
        assert now.step_time.high / now.step_time.low < then.step_time.high / then.step_time.low


def test_slow_collectives_change_the_order_and_the_document_says_so(tmp_path):
    job = job_in(tmp_path)
    before = make_plan(job)
    best = before.layout(int(before.order[0]))
    for sweep in ("first", "second"):
        store(job, launches(job, compute=1.0, exposed=8.0), sweep)
    plan = make_plan(job)
    document = json.loads(json.dumps(plan_document(plan)["calibration"]))
    factors = document["factors"]
    assert factors["collectives"]["factor"] > 1.5 * factors["compute"]["factor"]
    assert (factors["compute"]["layouts"], factors["compute"]["basis"]) == (12, "measured_here")
    assert [row["rank"] for row in document["order"]] == list(range(1, 11))
    was_first = [row for row in document["order"] if row["rank_without"] == 1]
    assert all(row["label"] == best.label for row in was_first)
    assert any(row["rank"] != row["rank_without"] for row in document["order"])
    text = show(calibration_view(document))
    assert "exposed collectives" in text
    assert "without:" in text


def test_without_calibration_formulas_alone_predict(tmp_path):
    job = job_in(tmp_path)
    store(job, launches(job, compute=3.0, exposed=3.0), "p")
    plain = make_plan(job_in(tmp_path, calibration="none"))
    assert plan_document(plain).get("calibration") is None
    assert plain.estimates.prediction(0).step_time.basis == "formula"


def test_a_file_without_runs_changes_nothing_and_says_so(tmp_path):
    plan = make_plan(job_in(tmp_path))
    document = plan_document(plan)["calibration"]
    assert (document["rows"], document["order"]) == (0, [])
    assert "no runs yet" in show(calibration_view(document))


@pytest.mark.parametrize(
    ("elsewhere", "reason", "memory_counts"),
    [
        ({"cluster": "1x8 A100-SXM-80GB"}, "on another accelerator", False),
        ({"engine": "torchtitan"}, "under another engine or version", False),
        ({"precision": "bf16"}, "step time in another precision", True),
        ({"cluster": "2x8 H100-SXM"}, "step time on another kind of topology", True),
    ],
)
def test_runs_that_say_nothing_here_are_left_out(tmp_path, elsewhere, reason, memory_counts):
    there = job_in(tmp_path)
    store(there, launches(there, compute=2.0), "p")
    found = learn(job_in(tmp_path, **elsewhere))
    assert found.left_out == {reason: len(RAN)}
    assert found.calibration.step_time.samples == 0
    assert found.calibration.memory.samples == (len(RAN) if memory_counts else 0)


def on_shared_cores(job, host="here"):
    return replace(job, topology=replace(job.topology, hosts=(host,), oversubscribed=True))


def test_ranks_that_shared_cores_teach_the_same_machine_alone(tmp_path):
    job = job_in(tmp_path)
    shared = on_shared_cores(job)
    store(shared, launches(shared, compute=2.0), "p")
    assert learn(shared).calibration.step_time.samples == len(RAN)
    for other in (job, on_shared_cores(job, host="elsewhere")):
        found = learn(other)
        assert found.left_out == {"step time where ranks shared cores": len(RAN)}
        assert found.calibration.memory.samples == len(RAN)


def test_layouts_that_failed_or_computed_something_else_have_no_row(tmp_path):
    job = job_in(tmp_path)
    layout = read_job_layout("tp=8")
    failed = measured_candidate(
        [replace(record(layout, None, outcome="out_of_memory"), failure=Failure(message="x"))],
        warmup_steps=0,
    )
    wrong = measured(layout, 1.0, 100, outcome="parity_failed", verdict=parity(ok=False))
    assert store(job, [failed, wrong], "p") == 0
    assert not job.calibration.exists()


def test_a_sweep_that_ends_twice_is_remembered_once(tmp_path):
    job = job_in(tmp_path)
    runs = launches(job)
    assert [store(job, runs, "p"), store(job, runs, "p"), store(job, runs, "q")] == [6, 0, 6]
    assert len(read_residuals(job.calibration).rows) == 12


def test_rows_are_predicted_anew_by_todays_formulas(tmp_path):
    job = job_in(tmp_path)
    store(job, launches(job), "p")
    text = job.calibration.read_text()
    rows = [json.loads(line) | {"predicted_terms": {"compute": 1e6}} for line in text.splitlines()]
    job.calibration.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert learn(job).calibration.step_time.factor == pytest.approx(1.0, rel=1e-6)


def test_measured_memory_is_that_of_the_allocator(tmp_path):
    job = job_in(tmp_path)
    layout = read_job_layout("tp=8")
    on_gpu = replace(
        measured(layout, 1.0, 1), memory=MemoryBreakdown(parameters=100, reserved=130, context=7)
    )
    on_cpu = replace(on_gpu, memory=MemoryBreakdown(parameters=100))
    rows = residuals(job, [on_gpu, on_cpu], "p")
    assert [row.measured_memory_bytes for row in rows] == [130, 100]


def test_the_options_exclude_each_other(tmp_path):
    job_in(tmp_path)
    arguments = ["plan", str(tmp_path), "--calibration", "x.jsonl", "--no-calibration"]
    with pytest.raises(InputError, match="exclude each other"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
