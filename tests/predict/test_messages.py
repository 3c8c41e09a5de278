"""Bytes and counts of messages agree with what the step time pays for."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.predict.collectives import CollectiveCosts
from meshfit.predict.compute import rates
from meshfit.predict.messages import Message, rank_messages
from meshfit.predict.step import EXPOSED_TERMS, TERMS, machine_for, step_terms
from tests.predict.builders import BF16, WITHOUT_HOST, cluster, group, llama, llama_8b, training

NOTHING_HIDDEN = replace(WITHOUT_HOST, overlap_fraction=0.0)

keys = st.fixed_dictionaries(
    {
        "dp_replicate": st.sampled_from([1, 2, 4]),
        "dp_shard": st.sampled_from([1, 2, 8]),
        "tp": st.sampled_from([1, 2]),
        "sp": st.booleans(),
        "cp": st.sampled_from([1, 2]),
        "cp_method": st.sampled_from([None, "all_gather", "all_to_all"]),
        "pp": st.sampled_from([1, 2]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "full"]),
        "micro_batch_size": st.sampled_from([1, 2]),
    }
)


@given(keys=keys, tied=st.booleans())
@settings(deadline=None)
def test_what_is_sent_is_what_the_step_time_pays_for(keys, tied):
    """With nothing hidden, a term is the sum of its messages' times. One that fails belongs where
    a formula of ``step`` counts a message that ``messages`` does not, or the reverse."""
    if keys["tp"] == 1:
        keys["sp"] = False
    topology = cluster(nodes=8)
    spec = training(global_batch_size=64, precision=BF16)
    layouts = group(llama(tied=tied), spec, keys, profile=NOTHING_HIDDEN)
    costs = CollectiveCosts(topology=topology)
    machine = machine_for(layouts, rates(topology.accelerator, "bf16_mixed", 1.0), costs)
    paid = dict(zip(TERMS, step_terms(layouts, machine)[0], strict=True))
    axes = {
        "tp": machine.axes.tp,
        "cp": machine.axes.cp,
        "pp": machine.axes.pp,
        "dp_shard": machine.axes.states,
        "dp_replicate": machine.axes.replicas,
        "all_reduce.dp_shard": machine.axes.gradients,
    }

    def seconds(message: Message) -> float:
        placed = axes.get(message.term, axes[message.axis])
        # a ring of sends costs what a gather of the same bytes does
        priced = "all_gather" if message.term == "send_recv.cp" else message.collective
        return float((message.times * costs.seconds(priced, message.size_bytes, placed))[0])

    sums = []
    for shape, _ in layouts.pipeline.distinct_ranks:
        total = dict.fromkeys(EXPOSED_TERMS, 0.0)
        for message in rank_messages(shape, layouts):
            total[message.term] += seconds(message)
        sums.append(total)
    exposed = {name: paid[name] for name in EXPOSED_TERMS}
    assert any(total == pytest.approx(exposed, rel=1e-9, abs=1e-15) for total in sums)


def by_term(layout, *, model=None, spec=None):
    spec = spec or training(sequence_length=2048, global_batch_size=64, precision=BF16)
    layouts = group(model or llama_8b(), spec, layout)
    totals: dict[str, tuple[float, float]] = {}
    for message in rank_messages(layouts.pipeline.ranks[0], layouts):
        times, sent = totals.get(message.term, (0.0, 0.0))
        if message.times[0] and message.ranks[0] > 1:
            totals[message.term] = times + message.times[0], sent + message.sent_bytes[0]
    return totals


def test_data_parallel_sends_each_gradient_twice_less_its_own_share():
    parameters = 8_030_261_248
    totals = by_term({"dp_replicate": 8})
    assert totals == {"all_reduce.dp_replicate": (1, pytest.approx(2 * 7 / 8 * parameters * 4))}


def test_full_sharding_sends_a_model_and_a_half_a_micro_batch():
    """Gathered forward and backward in 16 bits (but the root unit once), gradients in 32."""
    totals = by_term({"dp_shard": 8})
    root = 2 * 128_256 * 4096 + 4096
    layers = 8_030_261_248 - root
    micro_batches = 64 // 8
    _, gathered = totals["all_gather.dp_shard"]
    assert gathered == pytest.approx(7 / 8 * micro_batches * 2 * (2 * layers + root))
    _, scattered = totals["reduce_scatter.dp_shard"]
    assert scattered == pytest.approx(7 / 8 * micro_batches * 4 * (layers + root))


def test_c17_replicas_of_shards_meet_once_a_step():
    """pytorch/torchtitan#1929: with gradient accumulation the sum over replicas is not repeated."""
    times, _ = by_term({"dp_shard": 8, "dp_replicate": 2, "micro_batch_size": 1})[
        "all_reduce.dp_replicate"
    ]
    assert times == 1


def test_tensor_parallel_meets_four_times_a_layer_and_more_at_the_ends():
    times, sent = by_term({"tp": 8, "sp": False})["all_reduce.tp"]
    hidden = 2048 * 4096 * 2
    assert times == 64 * (32 * 4 + 2)
    assert sent == pytest.approx(2 * 7 / 8 * hidden * times)


def test_a_rank_alone_sends_nothing():
    assert by_term({}) == {}
