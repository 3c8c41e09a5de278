"""Every collective of a step is booked under the axis it is for, where ranks of two axes are the same."""

import pytest

from tests.run.layouts import CONFIGS, Case

SHARDED = {("all_gather", "dp_shard"), ("reduce_scatter", "dp_shard"), ("all_reduce", "world")}
REPLICATED = {("all_reduce", "dp_replicate")}
RING = {("send", "cp"), ("recv", "cp")}
TENSOR = {(collective, "tp") for collective in ("all_gather", "reduce_scatter", "all_reduce")}


@pytest.mark.parametrize(
    ("model", "keys", "expected"),
    [
        (
            "mixtral",
            {"dp_shard": 4, "ep": 4, "micro_batch_size": 2},
            SHARDED | {("all_to_all", "ep")},
        ),
        (
            "mixtral",
            {"dp_shard": 2, "cp": 2, "ep": 4, "micro_batch_size": 4},
            SHARDED | RING | {("all_to_all", "ep")},
        ),
        (
            "mixtral",
            {"dp_shard": 2, "tp": 2, "ep": 2, "etp": 2, "micro_batch_size": 4},
            SHARDED
            | TENSOR
            | {("all_to_all", "ep"), ("all_gather", "etp"), ("reduce_scatter", "etp")},
        ),
        (
            "llama",
            {"cp": 4, "cp_method": "all_to_all", "micro_batch_size": 8},
            REPLICATED | {("all_to_all", "cp")},
        ),
        ("llama", {"dp_replicate": 2, "cp": 2, "micro_batch_size": 4}, REPLICATED | RING),
    ],
)
def test_an_axis_is_told_apart_from_another_of_the_same_ranks(
    model: str, keys: dict, expected: set
) -> None:
    from meshfit.dryrun.program import trace_of_step

    case = Case(model=model, keys=keys)
    config = CONFIGS[model] | {"num_hidden_layers": 1}
    trace = trace_of_step(config, case.layout, case.training, rank=0)
    assert {(call.kind, call.axis) for call in trace.collectives} == expected
