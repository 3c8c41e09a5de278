"""The JSON keys a script can rely on, as schemas: keys may be added, none of these may go.

Everything is what the commands print, without a process of a run: ``fit`` is from built rows.
"""

import json
from dataclasses import replace

import jsonschema
import pytest

from meshfit.breakdown import MEMORY_CATEGORIES, TIME_TERMS
from meshfit.cli.output import print_json
from meshfit.compare.candidate import measured_candidate
from meshfit.compare.choose import choose
from meshfit.compare.parity import judge
from meshfit.funnel.check.checking import check_document
from meshfit.funnel.check.server_file import server_file_document
from meshfit.funnel.plan.plan_document import plan_document
from meshfit.funnel.space.planning import make_plan
from meshfit.funnel.sweep.fit_document import fit_document
from meshfit.funnel.sweep.sweep import SweepEnd
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan
from meshfit.job.engine_file import Added
from meshfit.job.read import read_job
from meshfit.record.schema import Failure, Record
from meshfit.serve.job.engine_file import served_file
from tests.funnel.small_job import DDP, FSDP2, read_small_job, result, write_job

NUMBER = {"type": "number"}
COUNT = {"type": "integer", "minimum": 0}
TEXT = {"type": "string", "minLength": 1}


def keys(**required):
    """An object that has at least these keys."""
    return {"type": "object", "required": list(required), "properties": required}


def listed(item, at_least=0):
    return {"type": "array", "items": item, "minItems": at_least}


def maybe(schema):
    """Present, and null where the figure could not be had."""
    return {"anyOf": [schema, {"type": "null"}]}


LAYOUT = {"type": "object"}
MEMORY = keys(total=COUNT, **dict.fromkeys(MEMORY_CATEGORIES, COUNT))
TIME = keys(step=NUMBER, **dict.fromkeys(TIME_TERMS, maybe(NUMBER)))
INTERVAL = keys(low=NUMBER, middle=NUMBER, high=NUMBER, basis=TEXT)
VERDICT = {"enum": ["fits", "tight", "does_not_fit", "invalid"]}
VIOLATION = keys(rule=TEXT, message=TEXT, values={"type": "object"}, nearest={}, option=maybe(TEXT))

CHECK_INVALID = keys(verdict={"const": "invalid"}, violations=listed(VIOLATION, 1))
CHECK_LEGAL = keys(
    verdict={"enum": ["fits", "tight", "does_not_fit"]},
    violations={"const": []},
    memory=keys(capacity=COUNT, stages=listed(MEMORY, 1)),
    time=TIME,
    advice=listed(TEXT),
)
HELD = keys(tokens=COUNT, bytes_per_token=NUMBER, request_tokens=COUNT, requests=COUNT)
DONE = keys(in_flight=COUNT, ttft=NUMBER, tpot=NUMBER, output_tokens_per_s=NUMBER)
CHECK_SERVER = keys(
    kind={"const": "serving"},
    file=keys(engine=TEXT, version=TEXT, form=TEXT),
    verdict={"enum": ["fits", "tight", "does_not_fit"]},
    layout=LAYOUT,
    label=TEXT,
    violations=listed(VIOLATION),
    warnings=listed(VIOLATION),
    unknown_options=listed(keys(option=TEXT, line=COUNT, nearest=maybe(TEXT), message=TEXT)),
    memory=keys(
        capacity=COUNT,
        total=COUNT,
        weights=COUNT,
        kv_cache={"type": "integer"},
        stages=listed({}, 1),
    ),
    kv_cache=HELD,
    load=maybe(DONE),
    alternatives=listed(
        keys(
            label=TEXT, layout=LAYOUT, kv_cache=HELD, options={"type": "object"}, diff=listed(TEXT)
        ),
        1,
    ),
)
PLAN = keys(
    space=keys(legal=COUNT, rejected={"type": "object", "additionalProperties": COUNT}),
    seconds=NUMBER,
    seconds_by_tier={"type": "object", "additionalProperties": NUMBER},
    candidates=listed(
        keys(
            layout=LAYOUT,
            memory=MEMORY,
            time=TIME,
            interval=keys(memory=INTERVAL, step_time=INTERVAL),
            binding=TEXT,
            verdict=VERDICT,
        ),
        1,
    ),
    asked=listed(keys(name=TEXT, layout=LAYOUT, verdict=maybe(VERDICT), advice=listed(TEXT))),
    too_large=listed(keys(layout=LAYOUT, changes=listed(keys(words=TEXT, layout=LAYOUT)))),
)
PARITY = keys(
    ok={"type": "boolean"},
    kind={"enum": ["single_process", "reduced", "reference"]},
    loss_error=NUMBER,
    gradient_error=maybe(NUMBER),
)
FIT = keys(
    outcome=TEXT,
    winner=maybe(keys(layout=LAYOUT, engine=TEXT, accelerator=TEXT, world_size=COUNT)),
    reason=TEXT,
    candidates=listed(
        keys(
            layout=LAYOUT,
            outcome=TEXT,
            parity=maybe(PARITY),
            tokens_per_s=maybe(NUMBER),
            step_time=maybe(NUMBER),
            memory=maybe(MEMORY),
            exposed=maybe({"type": "object"}),
            predicted=maybe(keys(memory=MEMORY, time=TIME)),
        )
    ),
)


@pytest.fixture
def printed(capsys):
    """A document as ``--json`` prints it."""

    def read_back(document):
        print_json(document)
        return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    return read_back


def legal_check(tmp_path, headroom="10%", capacity=None):
    job = read_small_job(tmp_path, f"search: {{headroom: {headroom}}}\n")
    if capacity is not None:
        accelerator = replace(job.topology.accelerator, memory_bytes=capacity)
        job = replace(job, topology=replace(job.topology, accelerator=accelerator))
    return check_document(job, DDP)


@pytest.mark.parametrize(
    ("verdict", "how"),
    [("fits", {}), ("tight", {"headroom": "99.999%"}), ("does_not_fit", {"capacity": 1000})],
)
def test_check_of_a_legal_layout(tmp_path, printed, verdict, how):
    document = printed(legal_check(tmp_path, **how))
    jsonschema.validate(document, CHECK_LEGAL)
    assert document["verdict"] == verdict
    assert bool(document["advice"]) == (verdict != "fits")


def test_check_of_a_layout_that_breaks_rules(tmp_path, printed):
    job = read_job(write_job(tmp_path), layout="tp=3,dp_shard=5")
    document = printed(check_document(job, job.layout))
    jsonschema.validate(document, CHECK_INVALID)
    assert len(document["violations"]) > 1


def test_check_of_a_file_of_a_server(tmp_path, printed):
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve meta-llama/Llama-3.1-70B --max-model-len 8192")
    given = served_file(path, Added(accelerator="H100-SXM"))
    jsonschema.validate(printed(server_file_document(given)), CHECK_SERVER)


def test_plan(tmp_path, printed):
    document = printed(plan_document(make_plan(read_small_job(tmp_path))))
    jsonschema.validate(document, PLAN)
    assert len(document["candidates"]) == min(20, document["space"]["legal"])


def fit_of(tmp_path, outcomes):
    """The document of a sweep whose layouts ended as ``outcomes`` says."""
    job = read_small_job(tmp_path, "run: {repeats: 1, steps: 6, warmup: 1}\n")
    plan = make_sweep_plan(job, "k", list(outcomes), plan_document(make_plan(job)))
    rows = [_row(job, planned, outcomes[planned.layout]) for planned in plan.layouts]
    candidates = [measured_candidate([row], warmup_steps=1) for row in rows]
    choice = choose(candidates, capacity_bytes=plan.capacity_bytes, headroom_fraction=0.1)
    end = SweepEnd(records=tuple(rows), not_run=())
    return fit_document(job, plan, end, candidates, choice)


def _row(job, planned, outcome):
    found = result() if outcome == "ok" else None
    return Record(
        plan_hash="k",
        candidate=planned.layout.label,
        repeat=0,
        purpose="measure",
        layout=planned.layout,
        outcome=outcome,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        result=found,
        parity=judge(
            found, result(), layout=planned.layout, training=job.training, kind="single_process"
        )
        if found
        else None,
        failure=None if found else Failure(message="why"),
        prediction=planned.prediction,
    )


def test_fit_with_a_winner(tmp_path, printed):
    document = printed(fit_of(tmp_path, {DDP: "ok", FSDP2: "out_of_memory"}))
    jsonschema.validate(document, FIT)
    assert document["winner"]["layout"] == {"dp_replicate": 2}
    for candidate in document["candidates"]:
        assert candidate["exposed"] is None
        assert candidate["absent"].keys() == {"exposed", "mfu"}
    failed = document["candidates"][1]
    assert (failed["tokens_per_s"], failed["memory"], failed["parity"]) == (None, None, None)
    assert "says nothing about GPUs" in document["notes"][0]


def test_fit_without_a_winner(tmp_path, printed):
    document = printed(fit_of(tmp_path, {DDP: "crash"}))
    jsonschema.validate(document, FIT)
    assert (document["outcome"], document["winner"]) == ("no_winner", None)
