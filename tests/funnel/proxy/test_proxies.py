"""Proxies whose runs are told how long a step takes."""

import io
from types import SimpleNamespace

import jsonschema
import pytest
import yaml
from rich.console import Console

from meshfit.compare.candidate import measured_candidate
from meshfit.errors import InputError
from meshfit.funnel.proxy import proxies
from meshfit.funnel.proxy.job_files import proxy_cluster, write_proxy_job
from meshfit.funnel.proxy.proxies import ProxyOptions, fit_by_proxy
from meshfit.funnel.proxy.shrink import shrunk
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout
from meshfit.record.schema import Failure, Record
from meshfit.report.measured.proxies import proxies_view
from tests.cli.test_json_keys import COUNT, NUMBER, TEXT, keys, listed, maybe
from tests.funnel.small_job import read_small_job, result, write_job

INTERVAL = keys(low=NUMBER, middle=NUMBER, high=NUMBER, basis=TEXT)
DOCUMENT = keys(
    schema_version={"const": 1},
    outcome={"enum": ["ok", "no_winner"]},
    winner=maybe(keys(label=TEXT, layout={"type": "object"})),
    reason=TEXT,
    nodes=COUNT,
    candidates=listed(
        keys(
            label=TEXT,
            layout={"type": "object"},
            outcome=TEXT,
            failure=maybe(TEXT),
            parity=maybe({"type": "boolean"}),
            step_time=maybe(INTERVAL),
            predicted={"type": "object"},
            factor=maybe(NUMBER),
            unmeasured=maybe(NUMBER),
            proxy=maybe(
                keys(
                    label=TEXT,
                    layout={"type": "object"},
                    num_hidden_layers=COUNT,
                    global_batch_size=COUNT,
                    step_time=maybe(NUMBER),
                    predicted=maybe(INTERVAL),
                    folder=TEXT,
                )
            ),
        ),
        1,
    ),
)

CLUSTER = "cluster: 4x2 H100-SXM\n"


def whole_job(folder, more="run: {shortlist: 3}\n"):
    path = write_job(folder, more)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(CLUSTER if line.startswith("cluster:") else line for line in lines))
    return path


class Runs:
    """Stands where proxies are run: each as ``ends`` says, by the axis that its layout has."""

    def __init__(self):
        self.jobs = []
        self.ends = {}

    def fit_layouts(self, job, layouts, **_options):
        [layout] = layouts
        self.jobs.append(job)
        outcome = next((end for axis, end in self.ends.items() if getattr(layout, axis) > 1), "ok")
        estimates, _ = proxies.estimate_candidates(job, proxies.Candidates.from_layouts([layout]))
        row = Record(
            plan_hash="k",
            candidate=layout.label,
            repeat=0,
            purpose="measure",
            layout=layout,
            outcome=outcome,
            started_at="2026-01-01T00:00:00+00:00",
            seconds=1.0,
            result=result() if outcome == "ok" else None,
            failure=None if outcome == "ok" else Failure(message="no memory"),
            prediction=estimates.prediction(0),
        )
        return SimpleNamespace(candidates=(measured_candidate([row], warmup_steps=1),))


@pytest.fixture
def runs(monkeypatch):
    made = Runs()
    monkeypatch.setattr(proxies, "fit_layouts", made.fit_layouts)
    return made


def compared(path, nodes=1):
    options = ProxyOptions(num_hosts=nodes, here=False, runner_of=lambda _path: None)
    console = Console(file=io.StringIO())
    return fit_by_proxy(path, read_job(path), options, out=path.parent / "out", console=console)


def test_every_layout_of_the_shortlist_is_judged_by_a_smaller_job(runs, tmp_path):
    document = compared(whole_job(tmp_path))
    candidates = document["candidates"]
    assert len(candidates) == 3
    assert all(job.topology.num_accelerators == 2 for job in runs.jobs)
    for one in candidates:
        step, predicted = one["step_time"], one["predicted"]["interval"]["step_time"]
        assert step["middle"] == pytest.approx(predicted["middle"] * one["factor"])
        measured = one["proxy"]["step_time"] / one["proxy"]["predicted"]["middle"]
        assert one["factor"] == pytest.approx(measured)
        assert step["low"] <= step["middle"] <= step["high"]
    middles = [one["step_time"]["middle"] for one in candidates]
    assert middles == sorted(middles)
    assert document["winner"]["label"] == candidates[0]["label"]
    assert "the whole job was not run" in document["reason"]


def test_a_proxy_that_fails_is_a_row_without_a_step(runs, tmp_path):
    runs.ends = {"tp": "out_of_memory"}
    document = compared(whole_job(tmp_path))
    failed = [one for one in document["candidates"] if one["layout"].get("tp", 1) > 1]
    assert failed
    assert all((one["step_time"], one["failure"]) == (None, "no memory") for one in failed)
    assert document["candidates"][-1] in failed


def test_a_layout_that_has_no_proxy_is_a_row_with_the_reason(runs, tmp_path):
    path = whole_job(tmp_path, "run: {shortlist: 2}\nsearch: {tp: [4]}\n")
    document = compared(path)
    assert document["outcome"] == "no_winner"
    assert {one["proxy"] for one in document["candidates"]} == {None}
    assert all("fills 2 ranks" in one["failure"] for one in document["candidates"])
    assert runs.jobs == []


def test_what_is_shown_has_every_layout_its_proxy_and_reasons(runs, tmp_path):
    runs.ends = {"tp": "out_of_memory"}
    document = compared(whole_job(tmp_path))
    console = Console(file=io.StringIO(), width=200)
    console.print(proxies_view(document))
    text = console.file.getvalue()
    for one in document["candidates"]:
        assert one["proxy"]["label"].split(",")[0] in text
    assert "out of memory" in text
    assert document["reason"].split(";")[0] in text


def test_json_has_the_keys_that_a_script_can_rely_on(runs, tmp_path):
    path = whole_job(tmp_path, "run: {shortlist: 4}\nsearch: {tp: [1, 2, 4]}\n")
    runs.ends = {"dp_shard": "crash"}
    jsonschema.validate(compared(path), DOCUMENT)


def test_the_proxys_job_is_an_ordinary_one_wherever_it_lies(tmp_path):
    data = "  data: {source: text, path: texts/a.txt}\n"
    path = whole_job(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(data if line.startswith("  data:") else line for line in lines))
    job = read_job(path, rank_order="dp_shard,pp")
    layout = make_layout({"pp": 2, "dp_shard": 4})
    proxy = shrunk(layout, 4, num_hidden_layers=4, global_batch_size=4)
    cluster = proxy_cluster(job, 2, here=False)
    written = write_proxy_job(path, job, proxy, cluster, tmp_path / "far" / "away")
    small = read_job(written)
    assert small.layout == proxy.layout == make_layout({"pp": 2, "dp_shard": 2})
    assert small.training.data.path == str(tmp_path / "texts" / "a.txt")
    assert small.training.global_batch_size == proxy.global_batch_size
    assert small.topology.num_accelerators == 4
    assert small.profile.rank_order == job.profile.rank_order
    assert "calibration" not in yaml.safe_load(written.read_text())


def test_this_machine_runs_proxies_of_its_own_accelerators_on_one_node(tmp_path):
    job = read_job(whole_job(tmp_path))
    with pytest.raises(InputError, match="on this machine give --proxy 1"):
        proxy_cluster(job, 2, here=True)
    with pytest.raises(InputError, match="H100-SXM5-80, and this machine has"):
        proxy_cluster(job, 1, here=True)
    with pytest.raises(InputError, match="give fewer than these, not 1"):
        proxy_cluster(read_small_job(tmp_path / "here"), 1, here=True)
