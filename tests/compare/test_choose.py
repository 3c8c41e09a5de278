import pytest

from meshfit.compare.candidate import measured_candidate
from meshfit.compare.choose import choose
from meshfit.mesh.spec import LayoutSpec
from tests.compare.builders import parity, prediction, record

DDP = LayoutSpec(dp_replicate=4)
FSDP = LayoutSpec(dp_shard=4, zero_stage=3)
TP = LayoutSpec(tp=4, sp=True)


def measured(*records, warmup_steps=0):
    return measured_candidate(records, warmup_steps=warmup_steps)


def pick(*candidates, capacity_bytes=1000, headroom_fraction=0.1):
    return choose(candidates, capacity_bytes=capacity_bytes, headroom_fraction=headroom_fraction)


def test_a_step_lasts_as_long_as_its_slowest_rank_and_warm_up_is_dropped():
    candidate = measured(record(DDP, [9.0, 1.0, 2.0, 3.0]), warmup_steps=1)
    assert candidate.step_s == (1.0, 2.0, 3.0)
    assert candidate.step_time_s == 2.0
    assert candidate.tokens_per_s == 500


def test_the_fastest_layout_wins_and_second_place_says_by_how_much_it_lost():
    choice = pick(
        measured(record(DDP, [1.0, 1.01, 0.99])), measured(record(FSDP, [2.0, 2.01, 1.99]))
    )
    assert choice.winner.layout == DDP
    assert choice.tied == ()
    assert "dp_shard=4,zero_stage=3 comes next, 100.0% slower a step" in choice.reason


def test_layouts_inside_the_noise_tie_with_the_fastest_and_the_lowest_peak_is_named():
    noisy = [1.0, 1.2, 0.9, 1.1]
    choice = pick(
        measured(record(DDP, noisy, peak_bytes=500)),
        measured(record(FSDP, [s * 1.01 for s in noisy], peak_bytes=200)),
    )
    assert choice.winner.layout == DDP
    assert [c.layout for c in choice.tied] == [FSDP]
    assert f"ties with {FSDP.label}" in choice.reason
    assert f"{FSDP.label} has the lowest memory peak (200 B)" in choice.reason
    assert "within noise" in choice.reasons[FSDP.label]


def test_drift_between_repeats_counts_as_noise():
    steady = measured(record(DDP, [1.0] * 4), record(DDP, [1.3] * 4, repeat=1))
    assert steady.step_noise_s >= 0.15


def test_one_step_a_layout_says_nothing_about_noise_so_nothing_is_told_apart():
    choice = pick(measured(record(DDP, [1.0])), measured(record(FSDP, [1.001])))
    assert len(choice.tied) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(FSDP, [0.1] * 3, outcome="parity_failed",
                verdict=parity(ok=False, message="gradients are 4 times the reference")),
         "gradients are 4 times"),
        (record(FSDP, None, outcome="out_of_memory", message="rank 2 ran out of memory"),
         "out of memory: rank 2"),
        (record(FSDP, [0.1] * 3, peak_bytes=950), "leaves less than the asked 10.0% headroom"),
    ],
)  # fmt: skip
def test_a_faster_layout_that_is_wrong_failed_or_too_big_cannot_win(bad, reason):
    choice = pick(measured(record(DDP, [1.0] * 3)), measured(bad))
    assert choice.winner.layout == DDP
    assert reason in choice.reasons[FSDP.label]


def test_a_failure_in_a_later_repeat_disqualifies():
    flaky = measured(
        record(FSDP, [0.1] * 3), record(FSDP, None, repeat=1, outcome="hang", message="rank 1")
    )
    assert flaky.outcome == "hang"
    assert flaky.step_s
    assert pick(measured(record(DDP, [1.0] * 3)), flaky).winner.layout == DDP


def test_without_a_qualified_layout_there_is_no_winner_and_every_reason_is_told():
    choice = pick(measured(record(DDP, None, outcome="crash", message="boom")))
    assert choice.winner is None
    assert "dp_replicate=4: crash: boom" in choice.reason


def test_the_reason_names_what_binds_and_the_term_second_place_loses_in():
    choice = pick(
        measured(
            record(DDP, [1.0] * 3, predicted=prediction(binding="exposed.all_reduce.dp_replicate"))
        ),
        measured(record(TP, [2.0] * 3, predicted=prediction(all_reduce__tp=0.8))),
    )
    assert "What binds it is exposed all-reduce over dp_replicate" in choice.reason
    assert "it loses most in exposed all-reduce over tp" in choice.reason


def test_a_layout_that_takes_more_than_twice_as_long_is_so_many_times_as_long():
    choice = pick(measured(record(DDP, [1.0] * 3)), measured(record(TP, [10.5] * 3)))
    assert choice.reasons[TP.label] == "10.5 times as long a step as the winner"
