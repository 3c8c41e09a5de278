"""Bytes and counts of messages: by hand, and in agreement with what the step time pays for."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines.deepspeed.profile import DEEPSPEED
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.predict.costs.collectives import CollectiveCosts
from meshfit.predict.costs.rates import rates
from meshfit.predict.time.exchange.machine import machine_for
from meshfit.predict.time.messages.message import Message
from meshfit.predict.time.messages.ranks import rank_messages
from meshfit.predict.time.step import with_idle, worked
from meshfit.predict.time.terms import EXPOSED_TERMS, TERMS
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec, MlpSpec, MoeSpec
from meshfit.workload.training import AdapterSpec, RuntimeSpec
from tests.predict.builders import BF16, WITHOUT_HOST, cluster, group, llama, llama_8b, training

NOTHING_HIDDEN = replace(WITHOUT_HOST, overlap_fraction=0.0)
PROFILES = {
    "native": NOTHING_HIDDEN,
    "native, reducing once": replace(NOTHING_HIDDEN, reduces_each_micro_batch=False),
    **{
        profile.name: replace(profile, overlap_fraction=0.0, hides_pipeline_exchange=False)
        for profile in (MEGATRON, DEEPSPEED, TORCHTITAN)
    },
}

keys = st.fixed_dictionaries(
    {
        "dp_replicate": st.sampled_from([1, 2, 4]),
        "dp_shard": st.sampled_from([1, 2, 8]),
        "tp": st.sampled_from([1, 2, 4]),
        "sp": st.booleans(),
        "cp": st.sampled_from([1, 2]),
        "cp_method": st.sampled_from([None, "all_gather", "all_to_all"]),
        "pp": st.sampled_from([1, 2]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "operations", "full"]),
        "micro_batch_size": st.sampled_from([1, 2]),
        "ep": st.sampled_from([1, 2]),
        "etp": st.sampled_from([1, 2]),
    }
)


def mixture(**more):
    model = llama(**more)
    moe = MoeSpec(
        num_experts=4,
        experts_per_token=2,
        expert=MlpSpec(intermediate_size=96, gated=True),
        shared=MlpSpec(intermediate_size=64, gated=True),
    )
    layer = LayerSpec(blocks=(("self_attn", model.layers[0].attention), ("mlp", moe)))
    return replace(model, layers=(model.layers[0], layer) * 2)


def with_latents(model, q_lora_rank):
    """The same model, its attention latent."""
    latent = LatentAttentionSpec(
        num_attention_heads=4,
        q_lora_rank=q_lora_rank,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=8,
    )
    layers = tuple(
        replace(layer, blocks=(("self_attn", latent), *layer.blocks[1:])) for layer in model.layers
    )
    return replace(model, layers=layers)


ATTENTION = {
    "of heads": lambda model: model,
    "latent": partial(with_latents, q_lora_rank=24),
    "latent, full queries": partial(with_latents, q_lora_rank=None),
}

models = st.builds(
    lambda attention, make, tied: ATTENTION[attention](make(tied=tied)),
    attention=st.sampled_from(list(ATTENTION)),
    make=st.sampled_from([llama, mixture]),
    tied=st.booleans(),
)


def possible(keys):
    """Without what no engine runs: sp on one rank, and experts over more ranks than there are."""
    if keys["tp"] == 1:
        keys["sp"] = False
    if keys["ep"] == 1 or keys["tp"] < keys["etp"]:
        keys["etp"] = 1
    if keys["dp_shard"] * keys["cp"] * keys["tp"] < keys["ep"] * keys["etp"]:
        keys["ep"] = keys["etp"] = 1
    return keys


@pytest.mark.parametrize("name", PROFILES)
@given(keys=keys, model=models, has_adapter=st.booleans())
@settings(deadline=None, max_examples=40)
def test_what_is_sent_is_what_the_step_time_pays_for(name, keys, model, has_adapter):
    """With nothing hidden, a term is the sum of its messages' times. One that fails belongs where a
    module of ``predict.time.exchange`` counts a message that ``messages`` does not, or the reverse."""
    adapter = AdapterSpec(rank=4, base_bits=4) if has_adapter else None
    topology = cluster(nodes=8)
    spec = training(
        global_batch_size=64,
        precision=BF16,
        adapter=adapter,
        runtime=RuntimeSpec(overlap_parameters=False, overlap_gradients=False),
    )
    layouts = group(model, spec, possible(keys), profile=PROFILES[name])
    costs = CollectiveCosts(topology=topology)
    machine = machine_for(layouts, rates(topology.accelerator, "bf16_mixed"), costs)
    terms = with_idle(worked(layouts, machine), layouts, machine)
    paid = dict(zip(TERMS, terms[0], strict=True))
    exposed = np.array([paid[name] for name in EXPOSED_TERMS])
    sums = []
    for shape, _ in layouts.pipeline.distinct_ranks:
        total = dict.fromkeys(EXPOSED_TERMS, 0.0)
        for message in rank_messages(shape, layouts):
            total[message.term] += seconds(message, machine)
        sums.append(np.array([total[name] for name in EXPOSED_TERMS]))
    assert any(total == pytest.approx(exposed, rel=1e-9, abs=1e-15) for total in sums)


def seconds(message: Message, machine) -> float:
    # a ring of sends costs what a gather of the same bytes does
    priced = "all_gather" if message.term == "send_recv.cp" else message.collective
    ranks = ranks_of(message, machine.axes)
    return float((message.times * machine.seconds(priced, message.size, ranks))[0])


def ranks_of(message: Message, axes):
    cp = axes.cp_heads if message.collective == "all_to_all" else axes.cp_keys
    plain = {"tp": axes.tp, "cp": cp, "pp": axes.pp, "ep": axes.ep, "etp": axes.etp}
    if message.axis in plain:
        return axes.ends if message.term == "all_reduce.pp" else plain[message.axis]
    is_of_experts = message.axis == "edp" or "experts" in message.what
    states = axes.experts if is_of_experts else axes.dense
    if message.collective != "all_reduce":
        return states.shards
    over_replicas = message.axis == "dp_replicate" or message.what == "gradients of experts"
    return states.replicas if over_replicas else states.everyone


def by_term(layout, *, model=None, spec=None, profile=WITHOUT_HOST, rank=0):
    spec = spec or training(sequence_length=2048, global_batch_size=64, precision=BF16)
    layouts = group(model or llama_8b(), spec, layout, profile=profile)
    totals: dict[str, tuple[float, float]] = {}
    for message in rank_messages(layouts.pipeline.ranks[rank], layouts):
        times, sent = totals.get(message.term, (0.0, 0.0))
        if message.times[0] and message.ranks[0] > 1:
            totals[message.term] = times + message.times[0], sent + message.sent_bytes[0]
    return totals


def test_a_hierarchical_exchange_trades_heads_inside_and_passes_keys_outside():
    """Of 32 query and 8 key heads of 128, in 16 bits; 2,048 tokens over 4 x 2 ranks."""
    totals = by_term({"cp": 8, "cp_method": "hierarchical", "cp_inner": 4})
    per_token, layers, micro_batches = 128 * 2, 32, 64
    heads, keys = 2 * (32 + 8) * per_token, 2 * 8 * per_token
    _, traded = totals["all_to_all.cp"]
    assert traded == pytest.approx(micro_batches * layers * 2 * 3 / 4 * 256 * heads)
    _, passed = totals["send_recv.cp"]
    assert passed == pytest.approx(micro_batches * layers * 3 * 1 / 2 * 512 * keys)


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


def test_recomputation_gathers_no_parameters_more():
    """A layer's forward runs again between the gather for its backward and its backward."""
    plain, again = by_term({"dp_shard": 8}), by_term({"dp_shard": 8, "recompute": "full"})
    assert plain["all_gather.dp_shard"] == again["all_gather.dp_shard"]


def test_c17_replicas_of_shards_meet_once_a_step():
    """pytorch/torchtitan#1929: with gradient accumulation the sum over replicas is not repeated."""
    times, _ = by_term({"dp_shard": 8, "dp_replicate": 2, "micro_batch_size": 1})[
        "all_reduce.dp_replicate"
    ]
    assert times == 1


def test_tensor_parallel_meets_four_times_a_layer_and_more_at_the_ends():
    times, sent = by_term({"tp": 8, "sp": False})["all_reduce.tp"]
    hidden, loss = 2048 * 4096 * 2, 3
    assert times == 64 * (32 * 4 + 2 + loss)
    assert sent == pytest.approx(2 * 7 / 8 * hidden * 64 * (32 * 4 + 2), rel=1e-4)


def test_full_recomputation_sums_half_as_often_again_in_megatron():
    """2205.05198, section 5: the forward of every layer runs again, its two sums with it."""
    times, _ = by_term({"tp": 8, "sp": False, "recompute": "full"}, profile=MEGATRON)[
        "all_reduce.tp"
    ]
    loss = 3
    assert times == 64 * (32 * 6 + 2 + loss)


def test_recomputation_by_operation_keeps_sums_and_makes_gathers_again():
    totals = by_term({"tp": 8, "recompute": "operations"}, profile=TORCHTITAN)
    assert totals["reduce_scatter.tp"][0] == 64 * (32 * 4 + 2)
    assert totals["all_gather.tp"][0] == 64 * (32 * 6 + 2)


def test_megatron_gathers_inputs_again_and_torch_keeps_them():
    """Embedding: the gathered gradient; head: the input, which Megatron gathers again."""
    torch, megatron = (by_term({"tp": 8}, profile=p) for p in (TORCHTITAN, MEGATRON))
    assert torch["all_gather.tp"][0] == 64 * (32 * 4 + 2)
    assert megatron["all_gather.tp"][0] == 64 * (32 * 6 + 3)
    assert torch["reduce_scatter.tp"] == megatron["reduce_scatter.tp"]


@pytest.mark.parametrize(("loss", "sums"), [("plain", 3), ("fused", 2)])
def test_a_loss_over_a_divided_vocabulary_sums_numbers_a_token(loss, sums):
    spec = training(
        sequence_length=2048, global_batch_size=64, precision=BF16, runtime=RuntimeSpec(loss=loss)
    )
    times, sent = by_term({"tp": 8}, spec=spec, profile=MEGATRON)["all_reduce.tp"]
    assert times == 64 * sums
    assert sent == pytest.approx(times * 2 * 7 / 8 * 2048 * 4)


def test_a_ring_passes_keys_of_all_ranks_but_its_neighbours_own():
    """Keys and values forward, and again with their gradients backward: of four ranks each sends
    three quarters of what all hold."""
    times, sent = by_term({"cp": 4})["send_recv.cp"]
    assert times == 64 * 32 * 3
    keys_and_values = 2048 * 2 * 8 * 128 * 2
    assert sent == pytest.approx(times * 3 / 4 * keys_and_values)


@pytest.mark.parametrize(
    ("recompute", "passes"), [("none", 3), ("operations", 3), ("selective", 4), ("full", 4)]
)
def test_recomputed_attention_passes_its_keys_again(recompute, passes):
    times, _ = by_term({"cp": 4, "recompute": recompute})["send_recv.cp"]
    assert times == 64 * 32 * passes


def test_an_engine_exchanges_as_it_does_where_a_layout_does_not_say():
    assert "all_to_all.cp" in by_term({"cp": 4, "zero_stage": 0}, profile=DEEPSPEED)


def test_ulysses_moves_queries_keys_values_and_outputs_once_each_way():
    times, sent = by_term({"cp": 4, "cp_method": "all_to_all"})["all_to_all.cp"]
    assert times == 64 * 32 * 2
    on_rank = 2048 / 4 * (2 * 32 + 2 * 8) * 128 * 2
    assert sent == pytest.approx(times * 3 / 4 * on_rank)


def test_stages_pass_hidden_states_at_every_cut_and_interleaving_at_more():
    plain = by_term({"pp": 4, "tp": 2}, rank=1)["send_recv.pp"]
    interleaved = by_term({"pp": 4, "tp": 2, "vpp": 2}, rank=1)["send_recv.pp"]
    assert plain == (64 * 2, 64 * 2 * 2048 / 2 * 4096 * 2)
    assert interleaved[0] == 2 * plain[0]


def test_scattered_hidden_states_are_put_together_by_those_who_need_the_whole():
    """2104.04473, section 4.1; under sequence parallelism no rank needs it."""
    layout = {"pp": 2, "tp": 8, "sp": False}
    totals = by_term(layout, profile=MEGATRON)
    assert totals["send_recv.pp"][1] == 64 * 2048 * 4096 * 2 / 8
    assert totals["all_gather.tp"] == (64, pytest.approx(64 * 7 / 8 * 2048 * 4096 * 2))


def test_a_tied_embedding_on_two_stages_is_summed_once():
    model = replace(llama_8b(), tie_word_embeddings=True)
    totals = by_term({"pp": 4, "tp": 2}, model=model, profile=MEGATRON)
    assert totals["all_reduce.pp"] == (1, 128_256 * 4096 / 2 * 4)
    assert "all_reduce.pp" not in by_term({"pp": 4, "tp": 2}, model=model, profile=MEGATRON, rank=1)


def test_stage_2_beside_whole_parameters_scatters_every_micro_batch():
    """DeepSpeed's ZeRO-2 keeps a shard of the gradients, and gathers what it has updated once."""
    totals = by_term({"dp_shard": 8, "zero_stage": 2}, profile=DEEPSPEED)
    parameters = 8_030_261_248
    assert totals == {
        "reduce_scatter.dp_shard": (8, pytest.approx(8 * 7 / 8 * parameters * 4)),
        "all_gather.dp_shard": (1, pytest.approx(7 / 8 * parameters * 2)),
    }


def test_only_adapters_are_reduced_and_frozen_weights_are_gathered_as_they_are_stored():
    rank = 8
    spec = training(
        sequence_length=2048,
        global_batch_size=64,
        precision=BF16,
        adapter=AdapterSpec(rank=rank, base_bits=4),
    )
    totals = by_term({"dp_shard": 8}, spec=spec)
    width, inner, keys = 4096, 14336, 1024
    pairs = 2 * (width + width) + 2 * (width + keys) + 3 * (width + inner)
    adapters = 32 * rank * pairs
    assert totals["reduce_scatter.dp_shard"][1] == pytest.approx(8 * 7 / 8 * adapters * 4)
    linears = 32 * (2 * width * width + 2 * width * keys + 3 * width * inner)
    norms, root = 32 * 2 * width, 2 * 128_256 * width + width
    stored = linears * (0.5 + 4 / 64) + (norms + adapters / 1) * 2
    assert totals["all_gather.dp_shard"][1] == pytest.approx(
        8 * 7 / 8 * (2 * stored + root * 2), rel=1e-6
    )


def test_experts_are_gathered_over_the_ranks_that_hold_the_same_ones():
    """Eight ranks, two of them for the experts: those of one rank lie on four others."""
    model = mixture(hidden_size=256, num_layers=2)
    layouts = group(model, training(precision=BF16), {"dp_shard": 8, "ep": 2})
    expert = [m for m in rank_messages(layouts.pipeline.ranks[0], layouts) if m.axis == "edp"]
    assert {int(m.ranks[0]) for m in expert if m.times[0]} == {4}
    gathered = next(m for m in expert if m.collective == "all_gather" and m.times[0])
    assert gathered.size_bytes[0] == 4 / 2 * 3 * 96 * 256 * 2


def test_a_rank_alone_sends_nothing():
    assert by_term({}) == {}


LATENT_WIDTH = 24 + 16 + 4


def latent_terms(layout, **options):
    """Of a small model of two layers with latent attention: bytes sent by term, and its width."""
    model = with_latents(llama(), q_lora_rank=24)
    return by_term(layout, model=model, **options), model


def test_latents_are_gathered_in_place_of_hidden_states_where_an_engine_does_so():
    """The width of what stands in front of attention is the latents'; nothing else changes."""
    profile = replace(WITHOUT_HOST, gathers_latents=False)
    hidden, model = latent_terms({"tp": 2}, profile=profile)
    latent, _ = latent_terms({"tp": 2})
    saved = (model.hidden_size - LATENT_WIDTH) * 2048 * 2 * 64 * len(model.layers) / 2
    for term in ("all_gather.tp", "reduce_scatter.tp"):
        assert hidden[term][0] == latent[term][0]
        assert hidden[term][1] - latent[term][1] == pytest.approx(saved)


def test_what_makes_latents_is_summed_over_ranks_with_tokens_of_their_own():
    once, model = latent_terms({"tp": 2})
    weights = LATENT_WIDTH * model.hidden_size
    loss = 3 * 2048 * 4 * 64
    assert once["all_reduce.tp"][1] == pytest.approx(len(model.layers) * weights * 4 + loss)
    each, _ = latent_terms({"tp": 2, "dp_shard": 2})
    loss, micro_batches = loss / 2, 32
    assert each["all_reduce.tp"][1] == pytest.approx(
        micro_batches * len(model.layers) * weights * 2 + loss
    )
