"""Low-rank adapters: what is trained, what is frozen, what is kept."""

import pytest

from meshfit.predict.memory.pytorch import rank_memory
from meshfit.predict.memory.states import state_bytes
from meshfit.predict.shape.adapters import base_bytes, low_rank_outputs
from meshfit.workload.blocks.tensor import linear
from meshfit.workload.counts import total_parameters
from meshfit.workload.training import PRECISIONS, AdapterSpec, RuntimeSpec
from tests.predict.builders import group, llama_8b, training

BF16 = PRECISIONS["bf16"]
ALL, ATTENTION = AdapterSpec(rank=8), AdapterSpec(rank=8, targets=("q_proj", "v_proj"))
FOUR_BITS = AdapterSpec(rank=8, base_bits=4)


def of(adapter, *, length=2048, **keys):
    spec = training(precision=BF16, sequence_length=length, adapter=adapter, **keys)
    return group(llama_8b(), spec, {"micro_batch_size": 2, "recompute": "full"})


def states(adapter):
    found = of(adapter)
    return state_bytes(found.pipeline.ranks[0], found)


def test_adapters_on_q_and_v_of_llama_8b_are_rank_times_inputs_and_outputs():
    trained = 32 * 8 * ((4096 + 4096) + (4096 + 1024))
    assert states(ATTENTION).gradients[0] == 2 * trained
    assert states(ATTENTION).optimizer[0] == 2 * 2 * trained


def test_frozen_weights_have_no_gradient_and_no_moments():
    held, full = states(ALL), states(None)
    base = 2 * total_parameters(llama_8b())
    assert held.parameters[0] == pytest.approx(base + held.gradients[0])
    assert held.gradients[0] < 0.01 * full.gradients[0]


def test_four_bits_and_a_scale_for_64_weights_are_half_a_byte_and_a_sixteenth():
    assert base_bytes(4, 2) == 0.5625
    assert base_bytes(None, 2) == 2.0
    assert states(FOUR_BITS).parameters[0] < 0.4 * states(ALL).parameters[0]


def kept(adapter):
    found = group(llama_8b(), training(precision=BF16, adapter=adapter), {"micro_batch_size": 8})
    return rank_memory(found.pipeline.ranks[0], found).categories["activations"][0]


def test_fewer_targets_keep_fewer_inputs():
    assert kept(ATTENTION) < kept(ALL) < kept(None)


@pytest.mark.parametrize(("adapter", "printed_gib"), [(ALL, 16.2), (FOUR_BITS, 7.4)])
def test_llama_8b_takes_what_was_printed_for_an_rtx_4090(adapter, printed_gib):
    """torchtune's table of recipes (0.4): LoRA and QLoRA of rank 8, micro-batch 2, 2,048 tokens,
    compiled, with the recipes' own checkpointing and chunked loss."""
    runtime = RuntimeSpec(compile=True, loss="chunked")
    found = of(adapter, runtime=runtime)
    allocated = rank_memory(found.pipeline.ranks[0], found).allocated[0]
    assert allocated == pytest.approx(printed_gib * 2**30, rel=0.06)


def test_what_passes_between_two_factors_is_kept_as_tensor_parallelism_leaves_it():
    kept = low_rank_outputs(
        (
            *linear("self_attn.q_proj", 4096, 1024, split="column"),
            *linear("self_attn.o_proj", 1024, 4096, split="row"),
            *linear("mlp.up_proj", 4096, 8192, split="column"),
        ),
        AdapterSpec(rank=8, targets=("q_proj", "o_proj")),
        element_bytes=2,
        gathers_latents=True,
    )
    assert [(one.name, one.bytes_per_token, one.split) for one in kept] == [
        ("self_attn.q_proj.weight.low_rank", 16, "whole"),
        ("self_attn.o_proj.weight.low_rank", 16, "sequence"),
    ]


@pytest.mark.parametrize(("gathers_latents", "split"), [(True, "sequence"), (False, "whole")])
def test_what_makes_latents_sees_a_ranks_own_tokens_where_these_are_gathered(
    gathers_latents, split
):
    (kept,) = low_rank_outputs(
        linear("self_attn.q_a_proj", 4096, 1024),
        AdapterSpec(rank=8),
        element_bytes=2,
        gathers_latents=gathers_latents,
    )
    assert kept.split == split
