from dataclasses import replace

import pytest

from meshfit.breakdown import TimeBreakdown
from meshfit.mesh.spec import make_layout
from meshfit.record.schema import Record, StepProfile
from meshfit.report.documents.fit import CandidateDocument, candidate
from meshfit.report.measured.profiles import profile_rows, profile_table
from tests.compare.builders import record


def profiled(compute_s: float, **exposed: float) -> StepProfile:
    named = {name.replace("__", "."): seconds for name, seconds in exposed.items()}
    time = TimeBreakdown(compute=compute_s, other=0.5, exposed=named)
    return StepProfile(time=time, waiting_s=sum(named.values()), communication_s=9.0)


@pytest.fixture
def launch() -> Record:
    """Two ranks, the second of which computes five times longer while the first waits."""
    plain = record(make_layout({"dp_replicate": 2}), [1.0] * 4)
    assert plain.result is not None
    profiles = (profiled(1.0, all_reduce__dp_replicate=4.0), profiled(5.0, all_gather__tp=0.0))
    ranks = tuple(
        replace(report, profile=profile)
        for report, profile in zip(plain.result.ranks, profiles, strict=True)
    )
    phases = {"import": 1.0, "first_step": 7.0}
    return replace(plain, result=replace(plain.result, ranks=ranks, phases_s=phases))


def test_a_candidate_shows_the_mean_over_ranks_and_counts_an_absent_collective_as_nothing(
    launch: Record,
) -> None:
    document = candidate([launch], warmup_steps=1)
    assert document["exposed"] == {"all_gather.tp": 0.0, "all_reduce.dp_replicate": 2.0}
    profile = document["profile"]
    assert profile is not None
    assert (profile["time"]["compute"], profile["time"]["bubble"]) == (3.0, None)
    assert profile["waiting"] == 2.0
    assert document["first_step"] == 7.0


def test_the_slow_rank_is_named_with_its_score(launch: Record) -> None:
    document = candidate([launch], warmup_steps=1)
    assert document["stragglers"] == [1]
    (row,) = profile_rows([document])
    assert row["stragglers"] == "rank 1 (0.27 of the fastest rank's speed)"
    assert document["ranks"][1]["score"]["relative"] == pytest.approx(1.5 / 5.5)


def test_a_candidate_without_a_profile_has_no_row() -> None:
    document: CandidateDocument = candidate(
        [record(make_layout({"dp_replicate": 2}), [1.0] * 4)], warmup_steps=1
    )
    assert document["exposed"] is None
    assert profile_rows([document]) == []


def test_terms_that_no_layout_has_get_no_column_and_nothing_is_a_dash(launch: Record) -> None:
    table = profile_table([candidate([launch], warmup_steps=1)])
    named = [str(column.header) for column in table.columns]
    assert named == ["layout", "step", "compute", "not attributed", "exposed", "stragglers"]
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert cells["compute"] == ["3,000"]
    assert cells["exposed"] == ["all_reduce.dp_replicate 2,000\nall_gather.tp \N{EN DASH}"]


def test_what_the_host_did_is_told_apart_from_what_nothing_explains(launch: Record) -> None:
    assert launch.result is not None
    counted = replace(profiled(1.0), host_s=0.3, core_wait_s=0.15)
    ranks = tuple(replace(report, profile=counted) for report in launch.result.ranks)
    document = candidate(
        [replace(launch, result=replace(launch.result, ranks=ranks))], warmup_steps=1
    )
    (row,) = profile_rows([document])
    told = {key: row["terms"][key] for key in ("host", "core_wait", "unattributed")}
    assert told == {"host": 0.3, "core_wait": 0.15, "unattributed": pytest.approx(0.05)}


def test_a_document_of_an_older_version_shows_the_rest_of_its_step_as_not_attributed(
    launch: Record,
) -> None:
    document = candidate([launch], warmup_steps=1)
    assert document["profile"] is not None
    for key in ("host", "core_wait", "unattributed"):
        del document["profile"][key]
    (row,) = profile_rows([document])
    assert (row["terms"]["host"], row["terms"]["unattributed"]) == (None, 0.5)
