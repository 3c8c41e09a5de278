"""The JSON keys of ``meshfit serve`` that a script can rely on: keys may be added, none may go."""

import json

import jsonschema
import pytest

from meshfit.cli.output import print_json
from meshfit.record.serving import OutputParity, ServingRow
from meshfit.report.serving.fit import serving_fit_document
from meshfit.report.serving.plan import serving_plan_document
from meshfit.report.serving.simulation import simulation_document
from meshfit.serve.bench.document import bench_document
from meshfit.serve.bench.measured import measured
from meshfit.serve.bench.suspicion import links_of, measured_document
from meshfit.serve.fit.choice import choose_layout
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.plan.planning import make_serving_plan
from meshfit.serve.simulate.deployment import predicted_deployment
from meshfit.serve.simulate.simulation import simulate
from tests.cli.test_json_keys import COUNT, LAYOUT, NUMBER, TEXT, keys, listed, maybe
from tests.serve.bench.test_measured import record, served

MEMORY = keys(
    total=COUNT, weights=COUNT, kv_cache=COUNT, workspace=COUNT, communication=COUNT,
    unattributed=COUNT,
)  # fmt: skip
PERCENTILES = keys(p50=NUMBER, p90=NUMBER, p95=NUMBER, p99=NUMBER)
LATENCIES = keys(ttft=PERCENTILES, itl=PERCENTILES, tpot=PERCENTILES, e2e=PERCENTILES)
BOUND = keys(name=TEXT, compute=NUMBER, memory=NUMBER, communication=NUMBER, host=NUMBER)
ROW = keys(
    engine=TEXT,
    layout=LAYOUT,
    verdict={"enum": ["meets_targets", "misses_targets", "saturated", "does_not_fit"]},
    missed_targets=listed(TEXT),
    pareto={"type": "boolean"},
    memory=MEMORY,
    prefill_memory=maybe(MEMORY),
    kv_tokens=COUNT,
    kv_bytes_per_request=keys(lower=NUMBER, engine=NUMBER, upper=NUMBER, page_tokens=COUNT),
    concurrency=COUNT,
    load=maybe(NUMBER),
    ttft=maybe(NUMBER),
    tpot=maybe(NUMBER),
    latencies=LAYOUT,
    interval=LAYOUT,
    tokens_per_s_per_gpu=NUMBER,
    most_tokens_per_s_per_gpu=maybe(NUMBER),
    price_per_million_tokens=maybe(NUMBER),
    prefill_bound=maybe(BOUND),
    decode_bound=maybe(BOUND),
    twice_tp=maybe(keys(layout=LAYOUT, ttft=NUMBER, tpot=NUMBER, kv_tokens=NUMBER)),
    notes=listed(TEXT),
)
PLAN = keys(
    job=TEXT,
    accelerator=TEXT,
    accelerators=COUNT,
    meets_targets={"type": "boolean"},
    candidates=listed(ROW, 1),
    pareto_front=listed(LAYOUT, 1),
    space=keys(legal=COUNT, pairs_of_pools=COUNT, rejected=LAYOUT),
)
SIMULATION = keys(
    engine=TEXT,
    layout=LAYOUT,
    latencies=LATENCIES,
    definitions=LAYOUT,
    loop={"enum": ["open", "closed"]},
    served_rate=NUMBER,
    goodput=keys(rate=maybe(NUMBER), fraction=maybe(NUMBER)),
    missed_targets=LAYOUT,
    saturation=keys(rate=NUMBER, load=maybe(NUMBER), distance=maybe(NUMBER), meaning=TEXT),
    preemptions=COUNT,
    pools={"additionalProperties": keys(busy=NUMBER, kv_mean=NUMBER, kv_over_time=listed({}))},
)
SUSPICION = keys(
    output_tokens_per_s=NUMBER, of_predicted=NUMBER, suspicion=maybe(TEXT), links=listed(listed({}))
)
BENCH = keys(
    started_at=TEXT,
    client=TEXT,
    loop=TEXT,
    server=TEXT,
    router=TEXT,
    traffic=LAYOUT,
    requests=COUNT,
    memory=maybe(LAYOUT),
    measured=keys(latencies=LATENCIES, served=COUNT, failed=LAYOUT, client_lag_s=NUMBER),
    prediction=keys(
        basis=TEXT,
        latencies=maybe(LATENCIES),
        saturation_rate=maybe(NUMBER),
        measured_over_predicted=maybe(LAYOUT),
        suspicion=maybe(TEXT),
        links=listed(listed({})),
    ),
)
FIT = keys(
    outcome={"enum": ["ok", "none_meets_targets"]},
    winner=maybe(LAYOUT),
    reason=TEXT,
    server=TEXT,
    candidates=listed(
        keys(label=TEXT, accelerators=COUNT, outcome=TEXT, parity=maybe(LAYOUT), measured={}), 1
    ),
)
JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {rate: 4/s, prompt: 500, output: 50}
cluster: 4 H100-SXM
layout: {tp: 2}
run: {requests: 100}
price: 2 USD/GPU-h
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(JOB)
    return read_serving_job(path)


@pytest.fixture(scope="module")
def simulation(job):
    deployment = predicted_deployment(job, job.layout, job.profiles[0], job.topology)
    return simulate(deployment.pools, job.traffic, deployment.draw)


@pytest.fixture
def printed(capsys):
    def as_printed(document):
        print_json(document)
        return json.loads(capsys.readouterr().out)

    return as_printed


def test_serve_plan(job, printed):
    jsonschema.validate(printed(serving_plan_document(make_serving_plan(job))), PLAN)


def test_serve_simulate(job, simulation, printed):
    document = simulation_document(simulation, engine="vllm", layout=job.layout.as_json())
    jsonschema.validate(printed(document), SIMULATION)
    seen = measured_document(1.0, simulation.output_tokens_per_s, job.layout, job.topology)
    jsonschema.validate(printed(seen), SUSPICION)


def test_serve_bench(job, simulation, printed):
    found = record([served(number, ttft_s=60.0) for number in range(9)])
    document = bench_document(
        found,
        measured(found),
        simulation,
        basis="by formula",
        links=links_of(job.layout, job.topology),
    )
    jsonschema.validate(printed(document), BENCH)


def test_serve_fit(printed):
    parity = OutputParity(
        ok=True,
        prompts=6,
        share_equal=1.0,
        first_divergence=None,
        largest_difference=0.0,
        tolerance=1e-3,
    )
    row = ServingRow(
        plan_hash="",
        label="tp=2",
        layout={"tp": 2},
        accelerators=2,
        outcome="parity_failed",
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        parity=parity,
        failure="why",
    )
    document = serving_fit_document((row,), choose_layout([row]), server="vllm-cpu")
    jsonschema.validate(printed(document), FIT)
