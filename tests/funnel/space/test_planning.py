import numpy as np
import pytest

from meshfit.funnel.space import planning
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {{sequence_length: 4096, global_batch: {batch} sequences}}
cluster: {cluster}
engine: megatron
"""


@pytest.fixture
def job(tmp_path):
    def read(cluster, batch=64):
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(cluster=cluster, batch=batch))
        return read_job(path, to_run=False, calibration="none")

    return read


def test_what_fits_is_ranked_by_speed(job):
    plan = make_plan(job("2x8 H100-SXM"))
    fitting = plan.fitting_order()[: plan.num_simulated]
    speeds = plan.estimates.tokens_per_s[fitting[plan.verdicts[fitting] == 0]]
    assert len(speeds) > 1
    assert (np.diff(speeds) <= 0).all()


def test_where_nothing_fits_the_layout_that_needs_least_comes_first(job):
    plan = make_plan(job("1x2 RTX-4090"))
    assert not len(plan.fitting_order())
    needed = plan.estimates.memory_middle_bytes[plan.order]
    assert (np.diff(needed) >= 0).all()


def test_fewer_layouts_are_simulated_where_each_has_many_actions(job, monkeypatch):
    few = make_plan(job("2x8 H100-SXM"))
    monkeypatch.setattr(planning, "SIMULATED_ACTIONS", 1)
    assert make_plan(job("2x8 H100-SXM")).num_simulated == planning.LEAST_SIMULATED
    assert few.num_simulated > planning.LEAST_SIMULATED
