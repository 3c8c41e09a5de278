"""What binds a layout and what it loses in: measured before predicted."""

from meshfit.compare.candidate import measured_candidate
from meshfit.compare.causes import binds, cause_of, loses
from meshfit.mesh.spec import LayoutSpec
from tests.compare.builders import prediction, profile, record

DDP, TP, PP = LayoutSpec(dp_replicate=4), LayoutSpec(tp=4, sp=True), LayoutSpec(pp=4)


def candidate(layout, measured=None, predicted=None):
    one = record(layout, [1.0] * 3, profile=measured, predicted=predicted)
    return measured_candidate([one], warmup_steps=0)


WINNER = candidate(
    DDP,
    profile(compute=0.127, other=0.074, host_s=0.05, core_wait_s=0.02, all_reduce__dp=0.038),
    prediction(compute=1.0),
)


def test_the_measured_excess_decides_where_the_prediction_names_another_term():
    pipeline = candidate(
        PP,
        profile(compute=0.0875, bubble=0.0956, other=0.0466, p2p__pp=0.0391),
        prediction(compute=1.0, send_recv__pp=0.5),
    )
    cause = cause_of(pipeline, WINNER)
    assert (cause.term, cause.basis, cause.seconds, cause.against_s) == (
        "bubble",
        "measured",
        0.0956,
        0.0,
    )
    assert cause.predicted_term == "exposed.send_recv.pp"
    assert loses(cause) == (
        "it loses most in bubble (measured: 95.6 ms, the winner none; predicted was exposed send-recv "
        "over pp)"
    )


def test_it_is_the_excess_over_the_winner_that_counts_and_not_the_largest_term():
    sharded = candidate(TP, profile(compute=0.13, other=0.07, all_gather__tp=0.06))
    assert cause_of(sharded, WINNER).term == "exposed.all_gather.tp"


def test_what_an_older_record_does_not_tell_apart_is_compared_as_one_term():
    older = candidate(TP, profile(compute=0.127, other=0.3))
    cause = cause_of(older, WINNER)
    assert (cause.term, cause.seconds, cause.against_s) == ("unattributed", 0.3, 0.074)


def test_where_both_name_the_same_term_nothing_is_said_of_the_prediction():
    pipeline = candidate(
        PP, profile(compute=0.1, p2p__pp=0.4), prediction(compute=1.0, send_recv__pp=0.5)
    )
    cause = cause_of(pipeline, WINNER)
    assert (cause.term, cause.predicted_term) == ("exposed.p2p.pp", None)
    assert "predicted was" not in loses(cause)


def test_time_that_nothing_explains_gets_no_cause():
    unexplained = candidate(
        TP, profile(compute=0.17, other=1.8, host_s=0.1, core_wait_s=0.1, all_gather__tp=0.1)
    )
    words = loses(cause_of(unexplained, WINNER))
    assert words.startswith(
        "it loses most in time that nothing measured explains (measured: 1.60 s"
    )


def test_without_a_profile_of_both_the_prediction_tells_and_says_so():
    bare = candidate(TP, None, prediction(compute=1.0, all_reduce__tp=0.8))
    cause = cause_of(bare, WINNER)
    assert (cause.term, cause.basis) == ("exposed.all_reduce.tp", "predicted")
    assert loses(cause) == "by prediction it loses most in exposed all-reduce over tp"
    assert cause_of(candidate(TP), WINNER) is None


def test_what_binds_the_winner_is_its_largest_measured_term():
    cause = cause_of(WINNER, WINNER)
    assert (cause.term, cause.against_s) == ("compute", None)
    assert binds(cause) == (
        "What binds it is compute (measured: 127 ms of a profiled step of 239 ms)"
    )


def test_the_winner_says_where_its_prediction_named_another_term():
    waits = candidate(DDP, profile(compute=0.1, input_wait=0.5), prediction(binding="compute"))
    assert binds(cause_of(waits, waits)) == (
        "What binds it is input wait (measured: 500 ms of a profiled step of 600 ms; predicted was "
        "compute)"
    )


def test_a_layout_with_no_term_longer_than_the_winners_has_no_cause():
    assert cause_of(candidate(PP, profile(compute=0.1)), WINNER) is None
