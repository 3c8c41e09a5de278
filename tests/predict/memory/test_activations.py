"""Expected figures: ``torch.autograd.graph.saved_tensors_hooks`` on transformers 5.24, torch 2.13,
one layer, final norm and head of hidden size 128, in bytes per token and hidden element."""

from dataclasses import replace

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.memory.activations import (
    checkpoint_tensors,
    head_tensors,
    layer_tensors,
    loss_bytes,
)
from meshfit.predict.shape.layer_basis import autocast, cast, layer_basis
from meshfit.predict.shape.saved import total
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from tests.predict.builders import BF16, FP32, llama, training


def per_hidden(model, numerics):
    basis = layer_basis(model, training(), NATIVE, numerics)
    saved = total(layer_tensors(model.layers[0], basis) + head_tensors(basis))
    return saved.undivided / model.hidden_size


def gpt2():
    attention = AttentionSpec(num_attention_heads=4, num_key_value_heads=4, head_dim=32)
    layer = LayerSpec(attention=attention, mlp=MlpSpec(intermediate_size=512, gated=False))
    return ModelSpec(
        name="gpt2",
        model_type="gpt2",
        hidden_size=128,
        vocab_size=512,
        layers=(layer,),
        norm="layer_norm",
        tie_word_embeddings=True,
        max_position_embeddings=256,
        learned_positions=256,
    )


# Measured total less token ids, rotary tables, logits, targets and autocast's weights.
@pytest.mark.parametrize(
    ("model", "numerics", "measured"),
    [
        (llama(), cast(FP32), 109.34375 - 0.125 - 1.0 - 16.0),
        (llama(), cast(BF16), 68.84375 - 0.125 - 0.5 - 16.0),
        (llama(), autocast(BF16), 96.59375 - 0.125 - 1.0 - 16.0 - 15.25),
        (llama(qk_norm=True), cast(BF16), 78.03125 - 0.125 - 0.5 - 16.0),
        (gpt2(), cast(FP32), 136.46875 - 0.15625 - 16.0),
        (gpt2(), cast(BF16), 76.375 - 0.15625 - 16.0),
        (gpt2(), autocast(BF16), 98.46875 - 0.15625 - 16.0 - 16.0),
    ],
    ids=[
        "llama-fp32", "llama-cast", "llama-autocast", "qwen3-cast",
        "gpt2-fp32", "gpt2-cast", "gpt2-autocast",
    ],
)  # fmt: skip
def test_saved_bytes_equal_what_autograd_saved(model, numerics, measured):
    # 0.0005: the loss's scalar
    assert per_hidden(model, numerics) == pytest.approx(measured, abs=5e-4)


def test_recomputation_keeps_only_the_layers_input():
    model = llama()
    kept = total(checkpoint_tensors(layer_basis(model, training(), NATIVE, cast(BF16))))
    assert (kept.tp, kept.sequence, kept.whole) == (0, 2 * 128, 0)


def test_inputs_that_are_gathered_again_are_divided_by_sequence_parallelism():
    model, numerics = llama(), cast(BF16)
    regathering = replace(NATIVE, saves_gathered_inputs=False)
    kept, regathered = (
        total(layer_tensors(model.layers[0], layer_basis(model, training(), profile, numerics)))
        for profile in (NATIVE, regathering)
    )
    assert kept.whole == 2 * 2 * 128
    assert regathered.whole == 0
    assert kept.sequence + kept.whole == regathered.sequence


def test_the_loss_of_bf16_logits_peaks_with_three_fp32_copies():
    loss = loss_bytes(BF16)
    assert loss.kept == 4
    assert loss.kept + loss.forward == 8
    assert loss.kept + loss.backward == 12
    assert loss_bytes(FP32).forward == 0


def test_gathered_latents_leave_hidden_states_and_their_norm_divided():
    """A latent of queries of 48: its input, and what its norm keeps, are of a rank's own tokens."""
    latent = LatentAttentionSpec(
        num_attention_heads=4,
        q_lora_rank=48,
        kv_lora_rank=32,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
    )
    layer = LayerSpec(blocks=(("self_attn", latent),))
    hidden, latents = (
        total(layer_tensors(layer, layer_basis(llama(), training(), profile, cast(BF16))))
        for profile in (replace(NATIVE, gathers_latents=False), NATIVE)
    )
    norm = (4 + 2) * 48 + 4  # its input in fp32, the normalised values, one 1/rms
    assert hidden.whole - latents.whole == 2 * 128 + norm
    assert latents.sequence - hidden.sequence == 2 * 128 + norm
    full_queries = LayerSpec(blocks=(("self_attn", replace(latent, q_lora_rank=None)),))
    hidden, latents = (
        total(layer_tensors(full_queries, layer_basis(llama(), training(), profile, cast(BF16))))
        for profile in (replace(NATIVE, gathers_latents=False), NATIVE)
    )
    assert hidden.whole == latents.whole  # q reads gathered hidden states
    assert latents.sequence - hidden.sequence == 2 * 128
