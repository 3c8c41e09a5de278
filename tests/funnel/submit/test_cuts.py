from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.funnel.submit.cuts import cuts, time_limits_s
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan
from meshfit.funnel.sweep.tasks import TaskList
from tests.funnel.small_job import DDP, FSDP2, read_small_cluster_job


@pytest.fixture
def job(tmp_path):
    return read_small_cluster_job(tmp_path, "run: {repeats: 2, deadline: 10 min}\n")


@pytest.fixture
def tasks(job, tmp_path):
    plan = make_sweep_plan(job, "k", [DDP, FSDP2], {})
    return list(TaskList(job, plan, RunFolder(tmp_path / "out")))


def test_one_job_does_everything_in_the_sweeps_order(tasks):
    [job] = cuts(tasks, each=False)
    assert job.tasks == tuple(tasks)
    assert not job.is_ground


def test_one_job_each_puts_what_all_rest_on_first(tasks):
    ground, ddp, fsdp2 = cuts(tasks, each=True)
    assert [task.request.purpose for task in ground.tasks] == ["weights", "reference"]
    assert (ground.is_ground, ddp.is_ground) == (True, False)
    assert [task.key for task in ddp.tasks] == [("measure", DDP.label, n) for n in (0, 1)]
    assert [task.key for task in fsdp2.tasks] == [("measure", FSDP2.label, n) for n in (0, 1)]


def test_ground_that_is_there_needs_no_job(tasks):
    left = [task for task in tasks if task.is_candidate]
    assert [job.title for job in cuts(left, each=True)] == [DDP.label, FSDP2.label]


def test_a_job_asks_for_the_nodes_that_its_largest_launch_fills(tasks, job):
    ground, ddp, _ = cuts(tasks, each=True)
    assert (ground.num_nodes(job.topology), ddp.num_nodes(job.topology)) == (1, 2)


def test_without_a_budget_a_job_may_take_all_its_deadlines(tasks, job):
    assert time_limits_s(cuts(tasks, each=False), job.topology, job.run, spent_device_s=0) == [
        7 * 600
    ]


def test_limits_of_all_jobs_take_no_more_than_is_left_of_the_budget(tasks, job):
    run = replace(job.run, budget_device_s=3600.0)
    jobs = cuts(tasks, each=True)
    limits = time_limits_s(jobs, job.topology, run, spent_device_s=1200.0)
    nodes = [job_.num_nodes(job.topology) for job_ in jobs]
    assert sum(limit * count for limit, count in zip(limits, nodes, strict=True)) == pytest.approx(
        2400.0
    )


def test_a_budget_that_leaves_no_job_a_minute_is_refused(tasks, job):
    run = replace(job.run, budget_device_s=200.0)
    with pytest.raises(InputError, match=r"run\.budget leaves .* to one of 3 jobs"):
        time_limits_s(cuts(tasks, each=True), job.topology, run, spent_device_s=0)
    with pytest.raises(InputError, match=r"run\.budget leaves 0"):
        time_limits_s(cuts(tasks, each=True), job.topology, run, spent_device_s=400.0)
