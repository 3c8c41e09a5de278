import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.simulate.fleet import serve_open_loop
from meshfit.serve.simulate.replica import Replica
from tests.serve.simulate.clocks import LinearClock, pool, request, scheduler


def served(requests, spec=None, clock=None):
    (replica,) = serve_open_loop(requests, pool(spec or scheduler(), clock))
    return replica


def test_one_request_alone_takes_its_prefill_and_one_step_a_further_token():
    alone = request(prompt=100, output=10)
    served([alone])
    assert alone.first_token_s == pytest.approx(10e-3 + 100 * 0.1e-3)
    assert alone.finished_s - alone.first_token_s == pytest.approx(9 * (10e-3 + 0.1e-3))


def test_a_prompt_beyond_the_token_budget_is_computed_in_chunks():
    long = request(prompt=1300, output=1)
    served([long])
    assert long.finished_s == pytest.approx(3 * 10e-3 + 1300 * 0.1e-3)


def test_chunks_attend_to_what_is_cached_before_them():
    long = request(prompt=1000, output=1)
    served([long], clock=LinearClock(per_pair_s=1e-8))
    pairs = 1000 * 1001 / 2
    assert long.finished_s == pytest.approx(2 * 10e-3 + 1000 * 0.1e-3 + pairs * 1e-8, rel=1e-3)


def test_steps_grow_with_the_caches_of_decoding_requests():
    alone = request(prompt=500, output=201)
    served([alone], clock=LinearClock(per_cached_s=1e-6))
    contexts = sum(500 + step for step in range(200))
    expected = 200 * (10e-3 + 0.1e-3) + contexts * 1e-6
    assert alone.finished_s - alone.first_token_s == pytest.approx(expected, rel=1e-3)


def test_an_arrival_waits_for_the_end_of_the_step_in_progress_and_joins_the_batch():
    first, second = request(0, 0.0, 100, 100), request(1, 0.105, 100, 1)
    served([first, second])
    step_s = 10.1e-3
    boundary_s = 20e-3 + math.ceil((0.105 - 20e-3) / step_s) * step_s
    mixed_s = 10e-3 + 101 * 0.1e-3
    assert second.first_token_s == pytest.approx(boundary_s + mixed_s)


def test_without_mixed_steps_decoding_waits_for_prompts():
    first, second = request(0, 0.0, 100, 3), request(1, 0.021, 400, 1)
    replica = served([first, second], scheduler(mixed_steps=False))
    assert second.first_token_s == pytest.approx(20e-3 + 10.1e-3 + 50e-3)
    assert first.finished_s == pytest.approx(20e-3 + 10.1e-3 + 50e-3 + 10.1e-3)
    gaps = [entry[1] for entry in replica.entries if entry[3] > 0]
    assert gaps == pytest.approx([10.1e-3, 60.1e-3])


def test_requests_beyond_the_places_wait_in_order():
    requests = [request(number, 0.0, 10, 5) for number in range(3)]
    served(requests, scheduler(max_sequences=1))
    for before, after in itertools.pairwise(requests):
        assert after.admitted_s == pytest.approx(before.finished_s)


def test_a_more_urgent_request_overtakes_those_that_wait():
    requests = [
        request(0, 0.0, 10, 5),
        request(1, 0.0, 10, 5),
        request(2, 0.001, 10, 5, priority=-1),
    ]
    served(requests, scheduler(max_sequences=1))
    assert requests[2].finished_s < requests[1].finished_s


def test_a_full_cache_preempts_the_youngest_which_computes_its_context_anew():
    old, young = request(0, 0.0, 60, 60), request(1, 0.0, 60, 60)
    replica = served([old, young], scheduler(kv_capacity_tokens=160, block_tokens=16))
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert young.finished_s > old.finished_s
    (gap,) = replica.gaps
    assert gap.seconds > 20e-3


def test_a_request_preempted_again_while_it_recomputes_its_context_shows_its_gap():
    requests = [request(n, 0.0, *tokens) for n, tokens in enumerate([(36, 46), (37, 43), (88, 45)])]
    replica = served(requests, scheduler(kv_capacity_tokens=192, token_budget=48))
    assert requests[-1].preemptions == 2
    in_steps = sum(steps * decoding for _, _, steps, decoding, _, _ in replica.entries)
    assert in_steps + len(replica.gaps) == sum(one.output_tokens - 1 for one in requests)


def test_a_request_larger_than_the_cache_is_refused_and_says_why():
    huge, small = request(0, 0.0, 4000, 200), request(1)
    served([huge, small])
    assert huge.refused == "4199 tokens of context exceed the KV cache of 4096"
    assert huge.finished_s is None
    assert small.finished_s is not None


def test_a_shared_prefix_is_computed_once():
    first = request(0, 0.0, 300, 2, prefix=("system",), segment_tokens=256)
    second = request(1, 1.0, 300, 2, prefix=("system",), segment_tokens=256)
    served([first, second])
    assert (first.reused_tokens, second.reused_tokens) == (0, 256)
    assert second.first_token_s - second.arrival_s == pytest.approx(10e-3 + 44 * 0.1e-3)


def test_a_request_whose_cache_comes_with_it_computes_one_token_of_its_prompt():
    moved = request(prompt=400, output=3, is_transferred=True)
    served([moved])
    assert moved.first_token_s == pytest.approx(10.1e-3)


def test_micro_batches_share_the_requests_that_decode():
    """Two stages, two micro-batches of one request each: a turn takes one step of one request; the
    first turn computes the second prompt, too."""
    spec = scheduler(micro_batches=2)
    requests = [request(0, 0.0, 10, 101), request(1, 0.0, 10, 101)]
    served(requests, spec, LinearClock(stages=2))
    assert requests[0].finished_s - requests[0].first_token_s == pytest.approx(
        99 * 10.1e-3 + 11.1e-3
    )


REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 0.2),
        st.integers(1, 700),
        st.integers(1, 60),
        st.integers(0, 2),
        st.sampled_from([(), ("a",), ("a", "b"), ("c",)]),
    ),
    min_size=1,
    max_size=25,
)
SCHEDULERS = st.builds(
    scheduler,
    max_sequences=st.integers(1, 6),
    token_budget=st.integers(8, 300),
    kv_capacity_tokens=st.integers(50, 100).map(lambda blocks: 16 * blocks),
    mixed_steps=st.booleans(),
    micro_batches=st.integers(1, 3),
    prefix_caching=st.booleans(),
)


def arriving(drawn):
    now_s, requests = 0.0, []
    for number, (gap_s, prompt, output, priority, prefix) in enumerate(drawn):
        now_s += gap_s
        requests.append(
            request(
                number, now_s, prompt, output, priority=priority, prefix=prefix, segment_tokens=64
            )
        )
    return requests


def play(requests, spec):
    """Serves ``requests`` one activity at a time; yields the replica after each."""
    replica = Replica(spec, pool(spec).table)
    for one in requests:
        while replica.ends_s <= one.ready_s:
            replica.advance(replica.ends_s)
            yield replica
        replica.receive(one, one.ready_s)
        yield replica
    while replica.ends_s < math.inf:
        replica.advance(replica.ends_s)
        yield replica


@given(REQUESTS, SCHEDULERS)
def test_no_request_is_lost_or_served_twice(drawn, spec):
    requests = arriving(drawn)
    *_, replica = play(requests, spec)
    numbers = [one.number for one in replica.finished]
    refused = [one.number for one in requests if one.refused]
    assert sorted(numbers + refused) == [one.number for one in requests]
    assert replica.outstanding == 0
    for one in replica.finished:
        assert one.generated_tokens == one.output_tokens
        assert one.arrival_s <= one.admitted_s < one.first_token_s <= one.finished_s


@given(REQUESTS, SCHEDULERS)
def test_every_token_after_the_first_has_its_gap(drawn, spec):
    """Also of requests that lose their cache again while their context is computed anew."""
    *_, replica = play(arriving(drawn), spec)
    in_steps = sum(steps * decoding for _, _, steps, decoding, _, _ in replica.entries)
    tokens = sum(one.output_tokens for one in replica.finished)
    assert in_steps + len(replica.gaps) == tokens - len(replica.finished)


@given(REQUESTS, SCHEDULERS)
def test_the_cache_is_never_more_than_full_and_empty_in_the_end(drawn, spec):
    for replica in play(arriving(drawn), spec):
        assert 0 <= replica.kv_blocks() <= spec.capacity_blocks
    assert replica.kv_blocks() == 0


@given(REQUESTS, SCHEDULERS)
def test_requests_of_one_priority_are_admitted_as_they_came(drawn, spec):
    requests = arriving(drawn)
    for _ in play(requests, spec):
        pass
    for priority in range(3):
        admitted = [
            one.admitted_s for one in requests if one.priority == priority and not one.refused
        ]
        assert admitted == sorted(admitted)


@given(REQUESTS, SCHEDULERS)
def test_a_replica_idles_only_when_nothing_is_left_to_do(drawn, spec):
    for replica in play(arriving(drawn), spec):
        assert (replica.ends_s == math.inf) == (replica.outstanding == 0)


@given(REQUESTS, SCHEDULERS)
def test_throughput_never_exceeds_what_full_steps_give(drawn, spec):
    requests = arriving(drawn)
    *_, replica = play(requests, spec)
    clock = LinearClock()
    if not replica.finished:
        return
    tokens = sum(one.output_tokens for one in replica.finished)
    span_s = max(one.finished_s for one in replica.finished)
    assert tokens <= spec.max_sequences * span_s / clock.start_s
    computed = sum(one.prompt_tokens - one.reused_tokens for one in replica.finished)
    assert computed <= spec.token_budget * spec.micro_batches * span_s / clock.start_s
