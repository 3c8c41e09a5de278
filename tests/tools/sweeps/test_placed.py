from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from meshfit.errors import RunError
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.read import read_job
from meshfit.mesh.candidates import Candidates
from tools.sweeps import placed

JOB = Path(__file__).parents[3] / "examples" / "lab" / "job.yaml"
LAYOUT = "tp=2,dp_replicate=2,micro_batch_size=8"
ACROSS = "tp,dp_replicate"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """As ``run_placed`` where every layout takes a second more than it is predicted to."""
    folders = []

    def ran(job, layouts, *, out, console):
        folders.append(out.name)
        estimates, _ = estimate_candidates(job, Candidates.from_layouts(layouts))
        predictions = [estimates.prediction(index) for index in range(len(layouts))]
        return SimpleNamespace(
            candidates=[
                SimpleNamespace(
                    layout=layout, predicted=one, step_time_s=one.step_time.middle + 1,
                    outcome=ran.outcome, parity=SimpleNamespace(ok=True),
                )
                for layout, one in zip(layouts, predictions, strict=True)
            ]
        )  # fmt: skip

    ran.outcome = "ok"
    monkeypatch.setattr(placed, "fit_layouts", ran)

    def run_all(*wanted, outcome="ok"):
        ran.outcome = outcome
        return placed.run_placed(read_job(JOB), wanted, out=tmp_path, console=Console()), folders

    return run_all


def test_a_layout_is_predicted_and_run_in_each_of_its_rank_orders(run):
    (inside, across), folders = run((LAYOUT, ""), (LAYOUT, ACROSS))
    assert inside.rank_order == ("dp_replicate", "tp")
    assert inside.levels == {"tp": "host", "dp_replicate": "between"}
    assert across.levels == {"tp": "between", "dp_replicate": "host"}
    assert across.predicted_s > inside.predicted_s
    assert across.measured_s == pytest.approx(across.predicted_s + 1)
    assert folders == ["own-order", "tp-dp_replicate"]


def test_what_is_to_be_shown_stays_in_its_order_while_one_sweep_holds_each_rank_order(run):
    steps, folders = run((LAYOUT, ACROSS), ("dp_replicate=4,micro_batch_size=4", ""), (LAYOUT, ""))
    assert [one.rank_order[0] for one in steps] == ["tp", "dp_replicate", "dp_replicate"]
    assert folders == ["tp-dp_replicate", "own-order"]


def test_a_layout_that_failed_is_no_measurement(run):
    with pytest.raises(RunError, match="tp=2,micro_batch_size=8: out_of_memory, so it cannot"):
        run((LAYOUT, ""), outcome="out_of_memory")
