"""What is predicted to go around cut experts is what the program sends, by its dry run."""

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.spec import make_layout
from meshfit.predict.time.messages.ranks import rank_messages
from meshfit.workload.families import read_family
from tests.predict.builders import group, training
from tests.run.layouts import CONFIGS

LENGTH, BATCH = 32, 8
CHOICE_BYTES, WEIGHT_BYTES = 8, 4
"""A choice and its weight, which go with a token and are left out of predictions."""

LAYOUTS = [
    {"dp_shard": 2, "tp": 2, "ep": 2, "etp": 2, "micro_batch_size": 2},
    {"tp": 4, "ep": 2, "etp": 2, "micro_batch_size": 2},
]


def sent(calls) -> dict[tuple[str, str], float]:
    sums: dict[tuple[str, str], float] = {}
    for key, size_bytes in calls:
        sums[key] = sums.get(key, 0.0) + size_bytes
    return {key: size for key, size in sums.items() if key[1] in ("ep", "etp") and size}


@pytest.mark.parametrize("keys", LAYOUTS, ids=lambda keys: make_layout(keys).label)
def test_bytes_along_ep_and_etp_are_those_of_a_dry_run(keys) -> None:
    from meshfit.dryrun.program import trace_of_step

    config = CONFIGS["mixtral"] | {"num_hidden_layers": 2}
    layout, spec = make_layout(keys), training(sequence_length=LENGTH, global_batch_size=BATCH)
    layouts = group(read_family("mixtral", config), spec, keys, profile=NATIVE)
    predicted = sent(
        ((one.collective, one.axis), float((one.size_bytes * one.times)[0]))
        for one in rank_messages(layouts.pipeline.ranks[0], layouts)
    )
    trace = trace_of_step(config, layout, spec, rank=0)
    found = sent(((call.kind, call.axis), call.size_bytes) for call in trace.collectives)
    assert predicted.keys() == found.keys()
    gathered = BATCH * LENGTH * layout.etp // (layout.tp * layout.data_parallel_size)
    choices = gathered * config["num_experts_per_tok"] * config["num_hidden_layers"]
    counts = BATCH // (layout.micro_batch_size * layout.data_parallel_size) * 2 * 8 * 8
    beside = {
        ("all_gather", "etp"): choices * (CHOICE_BYTES + WEIGHT_BYTES),
        ("reduce_scatter", "etp"): choices * WEIGHT_BYTES,
        ("all_to_all", "ep"): counts,  # of each layer and micro-batch: int64 of eight experts
    }
    for key, size_bytes in predicted.items():
        assert found[key] - beside[key] == pytest.approx(size_bytes), key
