"""Where tokens of a mixture of experts went, in documents and tables."""

import math
from dataclasses import replace

import pytest

from meshfit.record.schema import RankReport, RoutingReport, RunResult
from meshfit.report.documents.routing import routing_of
from meshfit.report.measured.routing import routing_rows, routing_table


def result(routing: RoutingReport | None) -> RunResult:
    ranks = tuple(
        RankReport(rank=rank, host="h", step_s=(1.0,) * 3, input_wait_s=(0.0,) * 3, memory=None,
                   dispatch_s=(9.0, 0.1 + rank, 0.3 + rank), combine_s=())
        for rank in range(2)
    )  # fmt: skip
    return RunResult(losses=(1.0,) * 3, gradient_norms=(1.0,) * 3, useful_tokens_per_step=8,
                     ranks=ranks, routing=routing)  # fmt: skip


REPORT = RoutingReport(
    layers=(0, 1),
    tokens_per_expert=((8, 0), (4, 4), (6, 2)),
    tokens_per_layer=((9, 3), (9, 3)),
    imbalance=(2.0, 1.0, 1.5),
    entropy=(0.0, math.log(2), math.log(2)),
    dropped=(4, 0, 2),
    padded=(4, 0, 2),
    loss_by_route=((3.0, None), (2.0, 2.5), (1.0, None)),
)


def test_a_dense_model_has_no_routing() -> None:
    assert routing_of([result(None)], 1, ep=1) is None
    assert routing_of([], 1, ep=1) is None


def test_values_are_medians_over_timed_steps() -> None:
    found = routing_of([result(REPORT)], 1, ep=1)
    assert found is not None
    assert found["imbalance"] == 1.25
    assert found["entropy_fraction"] == pytest.approx(1.0)
    assert found["dropped"] == pytest.approx(2 / 8 / 2)
    assert found["padded"] == pytest.approx(2 / 8 / 2)
    assert found["dispatch"] == pytest.approx((0.2 + 1.2) / 2)
    assert found["combine"] is None
    assert found["tokens_per_expert"] == [[8, 0], [4, 4], [6, 2]]


@pytest.mark.parametrize(("ep", "fullest"), [(1, None), (2, 1.4), (4, 2.0)])
def test_the_fullest_rank_has_the_most_copies_for_its_experts_of_all_layers(ep, fullest) -> None:
    layers = ((6, 1, 2, 1), (4, 3, 2, 1))
    found = routing_of([result(replace(REPORT, tokens_per_layer=layers))], 1, ep=ep)
    assert found is not None
    assert found["fullest_rank"] == fullest


def test_rows_show_the_mean_step_and_the_last_losses() -> None:
    candidate = {"family": "FSDP2+EP", "layout": {"dp_shard": 2, "ep": 2}, "routing": routing_of([result(REPORT)], 1, ep=2)}  # fmt: skip
    dense = {"family": "DDP", "layout": {}, "routing": None}
    (row,) = routing_rows([candidate, dense])
    assert row["tokens"] == [6, 2]
    assert row["losses"] == [1.0, None]
    assert routing_table([candidate, dense]).row_count == 1
