import json

from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.candidate import measured_candidate
from meshfit.record.schema import Failure
from meshfit.report.documents.fit import spread

finite = st.floats(min_value=1e-6, max_value=1e6)


def test_figures_are_those_that_the_comparison_uses(make_record, make_candidate):
    records = [make_record("ddp", repeat=r, step_s=0.1 + 0.05 * r) for r in range(3)]
    row, measured = make_candidate(*records), measured_candidate(records, warmup_steps=2)
    assert row["step_time"] == measured.step_time_s
    assert row["tokens_per_s"] == measured.tokens_per_s
    assert row["memory"] == measured.memory.as_json()


def test_launches_for_parity_alone_are_not_timed(make_record, make_candidate):
    row = make_candidate(
        make_record("ddp", step_s=0.1), make_record("ddp", step_s=9.0, purpose="parity")
    )
    assert row["step_time"] < 0.2
    assert row["repeats"] == 1


def test_warm_up_steps_are_not_timed(make_record, make_candidate):
    row = make_candidate(make_record("ddp", step_s=0.1))
    assert row["step_time"] < 0.2
    assert row["step_time_spread"]["count"] == 6


def test_repeats_share_one_median_between_those_of_the_repeats(make_record, make_candidate):
    fast, slow = make_record("ddp", step_s=0.1), make_record("ddp", repeat=1, step_s=0.2)
    medians = [make_candidate(r)["step_time"] for r in (fast, slow)]
    both = make_candidate(fast, slow)
    assert medians[0] < both["step_time"] < medians[1]
    assert both["repeats"] == 2
    assert both["step_time_spread"]["count"] == 12


def test_one_failed_repeat_decides_the_outcome_and_leaves_the_figures_of_the_others(
    make_record, make_candidate
):
    crash = make_record(
        "ddp", repeat=1, outcome="crash", result=None, failure=Failure(message="boom", rank=1)
    )
    row = make_candidate(make_record("ddp"), crash)
    assert row["outcome"] == "crash"
    assert row["failure"]["message"] == "boom"
    assert row["step_time"] is not None


def test_a_candidate_without_any_result_has_no_figures(make_record, make_candidate):
    row = make_candidate(make_record("ddp", outcome="hang", result=None, parity=None))
    absent = ("tokens_per_s", "step_time", "step_time_spread", "memory", "parity")
    assert [row[key] for key in absent] == [None] * len(absent)
    assert row["ranks"] == []


def test_memory_is_that_of_the_fullest_rank_of_all_repeats(make_record, make_candidate):
    row = make_candidate(make_record("pp"))
    assert row["memory"]["total"] == max(rank["memory"]["total"] for rank in row["ranks"])


def test_the_worst_gradients_come_first(make_record, make_candidate):
    row = make_candidate(make_record("ddp"), worst_gradients=1)
    assert [g["name"] for g in row["gradients"]] == ["model.norm.weight"]


def test_documents_are_json(fit_document, plan_document):
    assert json.loads(json.dumps(fit_document)) == fit_document
    assert json.loads(json.dumps(plan_document)) == plan_document


@given(st.lists(finite, min_size=1, max_size=50))
def test_a_spread_is_ordered_and_inside_the_values(values):
    found = spread(values)
    tolerance = 1e-9 * max(values)
    assert found["low"] <= found["median"] + tolerance
    assert found["median"] <= found["high"] + tolerance
    assert min(values) - tolerance <= found["low"]
    assert found["high"] <= max(values) + tolerance


def test_no_values_have_no_spread():
    assert spread([]) is None
