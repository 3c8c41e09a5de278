import pytest

from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.serve.simulate.arrivals import Draw, draw_requests
from meshfit.serve.simulate.fleet import serve_closed_loop, serve_open_loop
from tests.serve.simulate.clocks import LinearClock, pool, request, scheduler


def constant(tokens: int) -> LengthSpec:
    return LengthSpec(median_tokens=tokens, p99_tokens=tokens)


@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_one_place_and_equal_requests_wait_as_long_as_m_d_1_says(utilisation):
    """Mean waiting time rho D / (2 (1 - rho)) (Pollaczek-Khinchine with constant service)."""
    service_s = 10e-3 + 100 * 0.1e-3
    traffic = TrafficSpec(
        prompt=constant(100), output=constant(1), rate_per_s=utilisation / service_s
    )
    requests = draw_requests(traffic, Draw(requests=12_000, longest_tokens=1000))
    serve_open_loop(requests, pool(scheduler(max_sequences=1)))
    waited_s = sum(one.admitted_s - one.ready_s for one in requests) / len(requests)
    expected_s = utilisation * service_s / (2 * (1 - utilisation))
    assert waited_s == pytest.approx(expected_s, rel=0.1)


def test_round_robin_takes_replicas_in_turn():
    requests = [request(number, 0.01 * number) for number in range(6)]
    replicas = serve_open_loop(requests, pool(scheduler(), replicas=3))
    assert [sorted(one.number for one in replica.finished) for replica in replicas] == [
        [0, 3],
        [1, 4],
        [2, 5],
    ]


def test_least_outstanding_avoids_a_replica_that_is_busy():
    long, *short = [request(0, 0.0, 100, 200), *(request(n, 0.5 * n, 100, 2) for n in range(1, 6))]
    busy, other = serve_open_loop(
        [long, *short], pool(scheduler(), replicas=2, policy="least_outstanding")
    )
    assert [one.number for one in busy.finished if one.output_tokens == 2][:1] != [1]
    assert {1, 2, 3} <= {one.number for one in other.finished}


def test_a_closed_loop_keeps_as_many_requests_in_flight_as_it_is_told():
    requests = [request(number, 0.0, 50, 20) for number in range(30)]
    serve_closed_loop(requests, pool(scheduler()), concurrency=3, request_s=0.0)
    for one in requests:
        in_flight = sum(r.arrival_s <= one.arrival_s < r.finished_s for r in requests)
        assert in_flight <= 3
    ends = sorted(one.finished_s for one in requests)
    later = sorted(one.arrival_s for one in requests)[3:]
    assert later == pytest.approx(ends[:-3])


def test_a_closed_loop_of_one_is_one_request_after_the_other():
    requests = [request(number, 0.0, 50, 5) for number in range(3)]
    serve_closed_loop(requests, pool(scheduler(), LinearClock()), concurrency=1, request_s=0.01)
    alone_s = 0.01 + 15e-3 + 4 * 10.1e-3
    assert requests[-1].finished_s == pytest.approx(3 * alone_s)
