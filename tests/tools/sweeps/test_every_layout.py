"""Sweeps of every layout: the jobs that the project ships, and what is made of their rows."""

from pathlib import Path

import pytest
from rich.console import Console

from meshfit.errors import InputError
from meshfit.job.read import read_job
from meshfit.job.spec import SHORTLIST_LENGTH, Job
from tests.funnel.small_job import read_small_job
from tools.sweeps.every_layout import (
    ExhaustiveDocument,
    LayoutRow,
    predicted_today,
    run_every_layout,
    timed_layouts,
)
from tools.sweeps.every_layout_page import SweepShown, exhaustive_markdown
from tools.sweeps.regret import score_shortlist

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "exhaustive"


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return [read_job(path) for path in sorted(FOLDER.glob("*.yaml"))]


def test_three_jobs_have_many_legal_layouts_and_are_predicted_different_winners(
    jobs: list[Job],
) -> None:
    winners = set()
    for job in jobs:
        steps, shortlist = predicted_today(job)
        assert job.topology.num_accelerators == 4
        assert len(steps) >= 30
        assert len(shortlist) == SHORTLIST_LENGTH
        assert set(shortlist) <= set(steps)
        winners.add(min(steps, key=lambda label: steps[label]))
    assert len(jobs) == len(winners) == 3


def test_their_links_differ_and_their_predictions_know_no_measurement(jobs: list[Job]) -> None:
    links = {job.topology.lab for job in jobs}
    assert len(links) == 3
    assert None not in links
    assert all(job.calibration is None for job in jobs)


def test_predictions_that_learned_from_runs_are_refused(tmp_path: Path) -> None:
    job = read_small_job(tmp_path)
    with pytest.raises(InputError, match="write `calibration: none`"):
        run_every_layout(job, out=tmp_path / "out", console=Console())


def row(layout: str, predicted_s: float, measured_s: float | None, outcome: str) -> LayoutRow:
    return {
        "layout": layout,
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "noise_s": None if measured_s is None else 0.01,
        "repeat_medians_s": [] if measured_s is None else [measured_s, measured_s],
        "outcome": outcome,
        "parity_ok": None if measured_s is None else outcome == "ok",
    }


@pytest.fixture
def document() -> ExhaustiveDocument:
    return {
        "schema_version": 1,
        "job": "some",
        "meshfit": "0.1.0",
        "measured_at": "2026-01-01T00:00+00:00",
        "machine": "a processor, 2 cores",
        "software": {"torch": "2.13.0"},
        "ranks": 4,
        "repeats": 2,
        "timed_steps": 6,
        "links": ["host: 2 x 1000 MB/s a rank"],
        "legal": 4,
        "shortlist": ["tp=4"],
        "rows": [
            row("tp=4", 0.2, 0.5, "ok"),
            row("pp=4", 0.1, 0.4, "ok"),
            row("dp_replicate=4", 0.3, 0.1, "parity_failed"),
            row("dp_shard=4", 0.3, None, "crash"),
        ],
    }


def test_only_layouts_that_ended_well_and_are_predicted_are_judged(
    document: ExhaustiveDocument,
) -> None:
    assert [one.label for one in timed_layouts(document)] == ["tp=4", "pp=4"]
    [again] = timed_layouts(document, {"pp=4": 7.0, "ep=4": 1.0})
    assert (again.label, again.predicted_s, again.measured_s) == ("pp=4", 7.0, 0.4)


def test_the_page_says_what_was_held_what_was_lost_and_what_failed(
    document: ExhaustiveDocument,
) -> None:
    score = score_shortlist(timed_layouts(document), document["shortlist"])
    shown = SweepShown(job="some", conditions="Here.", failed=["dp_shard=4"], scores={"one": score})
    without_the_list = SweepShown(
        job="other", conditions="There.", failed=[], scores={"two": score}
    )
    text = exhaustive_markdown([shown, without_the_list])
    cells = [cell.strip() for cell in text.splitlines()[2].strip("|").split("|")]
    assert cells == [
        *("some", "2", "one", "`pp=4`, 400 ms", "1", "no", "no", "0 of 2"),
        *("0.0%", "25.0%", "100.0%"),
    ]
    assert "held the fastest layout in 0 of 1 sweeps" in text
    assert "drawn at random hold it with a chance of 50.0% and have a mean regret of 12.5%" in text
    assert "Left out, as their runs did not end well: dp_shard=4." in text
