import pytest

from meshfit.report.serving.simulated_front import simulated_rows
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.plan.planning import make_serving_plan
from meshfit.serve.plan.simulated_front import simulated_front

JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {rate: 8/s, prompt: {median: 500, p99: 2000}, output: {median: 50, p99: 200}}
  targets: {ttft: {p95: 1 s}}
cluster: 2 H100-SXM
run: {requests: 400}
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "job.yaml"
    path.write_text(JOB)
    return make_serving_plan(read_serving_job(path))


def test_the_leading_rows_of_the_front_are_played_in_order(plan):
    found = simulated_front(plan, 2)
    front = [row for row in plan.fitting if row.is_on_front]
    assert [one.row for one in found] == front[:2]


def test_simulated_medians_are_near_those_that_the_plan_computes(plan):
    for one in simulated_front(plan, 2):
        document = simulated_rows([one])[0]
        tpot = document["latencies"]["tpot"]["p50"]
        assert tpot == pytest.approx(one.row.load.latency_s("tpot", 50), rel=0.35)


def test_rows_come_with_their_distance_from_saturation(plan):
    for document in simulated_rows(simulated_front(plan, 1)):
        assert 0 < document["saturation"]["load"] < 1
