import pytest

from meshfit.record.files import decode, encode
from meshfit.record.serving import ServedRequest, ServingRecord
from meshfit.serve.asked.traffic import Target
from meshfit.serve.bench.llmd import llmd_report
from meshfit.serve.bench.measured import measured


def served(number: int, *, late_s: float = 0.0, ttft_s: float = 0.2, error: str = ""):
    sent_s = number + late_s
    return ServedRequest(
        number=number,
        prompt_tokens=10,
        output_tokens=0 if error else 3,
        planned_s=float(number),
        sent_s=sent_s,
        first_token_s=None if error else sent_s + ttft_s,
        finished_s=None if error else sent_s + ttft_s + 0.3,
        gaps_s=() if error else (0.1, 0.2),
        error=error,
    )


def record(requests, *, warm_up: int = 0) -> ServingRecord:
    return ServingRecord(
        started_at="2026-01-01T00:00:00+00:00",
        client="own",
        loop="open",
        server="a server",
        router="none: one server",
        layout={},
        traffic={"rate_per_s": 1.0},
        seed=0,
        warm_up=warm_up,
        requests=tuple(requests),
    )


def test_latencies_count_from_the_sending_and_leave_the_warm_up_out():
    found = measured(record([served(0, ttft_s=9.0), *(served(n) for n in range(1, 10))], warm_up=1))
    assert found.latencies["ttft"]["p99"] == pytest.approx(0.2)
    assert found.latencies["itl"] == pytest.approx({"p50": 0.1, "p90": 0.2, "p95": 0.2, "p99": 0.2})
    assert found.latencies["tpot"]["p50"] == pytest.approx(0.15)
    assert found.served == 9
    assert found.offered_per_s == pytest.approx(1.0)


def test_failures_are_counted_by_reason_and_are_no_goodput():
    requests = [served(0), served(1, error="503 busy"), served(2, error="503 busy"), served(3)]
    target = Target(metric="ttft", percentile=95, limit_s=1.0)
    found = measured(record(requests), [target])
    assert found.failed == {"503 busy": 2}
    assert found.good_fraction == pytest.approx(0.5)
    assert not found.missed


def test_requests_sent_late_show_as_lag_of_the_client():
    assert measured(
        record([served(n, late_s=0.05) for n in range(9)])
    ).client_lag_s == pytest.approx(0.05)


@pytest.mark.parametrize(("growth_s", "stationary"), [(0.0, True), (0.5, False)])
def test_first_tokens_that_come_later_and_later_are_not_stationary(growth_s, stationary):
    requests = [served(n, ttft_s=0.2 + growth_s * n) for n in range(12)]
    assert measured(record(requests)).is_stationary is stationary


def test_a_benchmark_in_which_all_fails_has_no_latencies():
    found = measured(record([served(n, error="refused") for n in range(3)]))
    assert found.latencies["ttft"] == {}
    assert (found.served, found.served_per_s) == (0, 0.0)


def test_a_record_survives_a_round_trip():
    kept = record([served(0), served(1, error="broken")])
    assert decode(ServingRecord, encode(kept), where="it") == kept


def test_llm_ds_report_holds_seconds_with_their_units():
    report = llmd_report(record([served(n) for n in range(5)]), model="tiny")
    latency = report["metrics"]["latency"]
    assert latency["time_to_first_token"]["units"] == "s"
    assert latency["time_per_output_token"]["p50"] == pytest.approx(0.15)
    assert report["metrics"]["requests"]["total"] == 5
    assert report["scenario"]["load"]["metadata"]["client"] == "own"
