"""What identifies a sweep: everything that decides its results, and nothing else."""

import json
from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan, plan_hash, plan_in
from meshfit.record.files import write_json_atomically
from tests.funnel.small_job import DDP, FSDP2, read_small_job


def test_a_port_and_a_budget_decide_no_result(tmp_path):
    plain = plan_hash(read_small_job(tmp_path))
    assert plan_hash(read_small_job(tmp_path, "run: {port: 29600, budget: 1 rank-h}\n")) == plain
    assert plan_hash(read_small_job(tmp_path, "run: {steps: 21}\n")) != plain


def test_a_run_of_one_layout_is_no_fit_and_not_that_of_another(tmp_path):
    job = read_small_job(tmp_path)
    assert len({plan_hash(job), plan_hash(job, only=[DDP]), plan_hash(job, only=[FSDP2])}) == 3


def test_text_counts_by_content_wherever_it_lies(tmp_path):
    job = read_small_job(tmp_path)

    def key(name, text):
        path = tmp_path / name
        path.write_text(text)
        data = replace(job.training.data, path=str(path))
        return plan_hash(replace(job, training=replace(job.training, data=data)))

    assert key("a.txt", "a" * 1000) == key("b.txt", "a" * 1000)
    assert key("a.txt", "b" * 1000) != key("b.txt", "a" * 1000)


def test_a_baseline_counts_by_content(tmp_path):
    baseline = tmp_path / "today.yaml"
    baseline.write_text("dp_replicate: 2\n")
    first = plan_hash(read_small_job(tmp_path, "baseline: today.yaml\n"))
    baseline.write_text("dp_shard: 2\n")
    assert plan_hash(read_small_job(tmp_path, "baseline: today.yaml\n")) != first


def test_given_weights_count_by_their_state(tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"1234")
    job = replace(read_small_job(tmp_path), weights=weights)
    first = plan_hash(job)
    assert first != plan_hash(read_small_job(tmp_path))
    (weights / "model.safetensors").write_bytes(b"12345")
    assert plan_hash(job) != first


def test_a_plan_is_taken_as_it_stands_and_another_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    assert plan_in(path, "k") is None
    plan = make_sweep_plan(read_small_job(tmp_path), "k", [DDP], {})
    write_json_atomically(path, plan)
    assert plan_in(path, "k") == plan
    with pytest.raises(InputError, match="another job or version"):
        plan_in(path, "other")
    assert json.loads(path.read_text())["plan_hash"] == "k"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"{}", b"[]"])
def test_a_damaged_plan_is_refused_with_what_would_work(tmp_path, content):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(InputError, match=r"plan\.json is not .*choose another --out"):
        plan_in(tmp_path / "plan.json", "key")
