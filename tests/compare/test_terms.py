from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.terms import as_predicted, profile_terms, term_in_words
from tests.compare.builders import profile

SECONDS = st.floats(0, 10)


def test_terms_read_as_words():
    assert term_in_words("exposed.all_gather.dp_shard") == "exposed all-gather over dp_shard"
    assert term_in_words("input_wait") == "input wait"
    assert term_in_words("core_wait") == "waiting for a core"


def test_a_message_is_called_the_same_measured_and_predicted():
    assert as_predicted("exposed.p2p.pp") == "exposed.send_recv.pp"
    assert term_in_words("exposed.p2p.pp") == term_in_words("exposed.send_recv.pp")


def test_what_ranks_of_an_expert_exchange_is_predicted_under_the_axis_that_they_are_of():
    assert as_predicted("exposed.all_gather.etp") == "exposed.all_gather.tp"
    assert as_predicted("exposed.all_gather.edp") == "exposed.all_gather.dp_shard"
    assert term_in_words("exposed.all_gather.etp") == "exposed all-gather over etp"


def test_what_a_profile_tells_apart_is_one_term_of_a_prediction():
    assert {as_predicted(term) for term in ("host", "core_wait", "unattributed")} == {"other"}


@given(compute=SECONDS, shares=st.tuples(SECONDS, SECONDS, SECONDS), gather=SECONDS)
def test_terms_of_a_profile_add_up_to_its_step(compute, shares, gather):
    host, core_wait, rest = shares
    step = profile(
        compute=compute,
        other=host + core_wait + rest,
        host_s=host,
        core_wait_s=core_wait,
        all_gather__tp=gather,
    )
    assert abs(sum(profile_terms(step).values()) - step.time.step) < 1e-9


def test_an_older_profile_has_all_of_other_unattributed():
    assert profile_terms(profile(compute=1.0, other=3.0)) == {"compute": 1.0, "unattributed": 3.0}
