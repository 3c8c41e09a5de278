from meshfit.record.serving import ServingRow
from meshfit.serve.fit.choice import choose_layout


def row(label, accelerators, *, outcome="ok", missed=(), e2e_s=1.0, failure=""):
    measured = {"missed": dict.fromkeys(missed, 9.0), "latencies": {"e2e": {"p50": e2e_s}}}
    return ServingRow(
        plan_hash="p",
        label=label,
        layout={},
        accelerators=accelerators,
        outcome=outcome,
        started_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        bench=None if outcome == "launch_error" else {"measured": measured},
        failure=failure,
    )


def test_the_fewest_accelerators_that_meet_the_targets_win():
    choice = choose_layout(
        [row("single", 1, missed=["ttft.p95"]), row("tp=2", 2), row("replicas=4", 4)]
    )
    assert choice.winner.label == "tp=2"
    assert "takes 2 accelerators, the fewest of 2 layouts" in choice.reason


def test_of_equally_many_the_fastest_wins():
    choice = choose_layout([row("replicas=2", 2, e2e_s=2.0), row("tp=2", 2, e2e_s=1.0)])
    assert choice.winner.label == "tp=2"
    assert "of 2 that take as many it is the fastest" in choice.reason


def test_none_wins_where_none_meets_and_each_says_why():
    choice = choose_layout(
        [
            row("single", 1, missed=["ttft.p95"]),
            row("tp=2", 2, outcome="parity_failed", failure="its output is not the baseline's"),
            row("tp=4", 4, outcome="launch_error", failure="it ended with 1"),
        ]
    )
    assert choice.winner is None
    assert "single: misses ttft.p95" in choice.reason
    assert "tp=2: its output is not the baseline's" in choice.reason
    assert "tp=4: it ended with 1" in choice.reason
