"""Forward FLOPs of built models, counted by PyTorch, equal ours where every score is computed.

Left out are families whose CPU code computes otherwise than the formula (chunked scans, experts that
see every token); PyTorch counts matmuls only, so masked scores count in full.
"""

import pytest

from meshfit.workload import counts
from meshfit.workload.families import read_family
from tests.workload.families.test_against_transformers import ALL, LATENT, config_class, decoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOKENS = 24
LATENT_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 8, **LATENT}
"""Rotation over all of ``qk_rope_head_dim``, as the forward pass needs it."""

CONFIGS = {
    name: ALL[name]
    for name in (
        "llama, biases",
        "qwen3, biases, tied",
        "gpt2",
        "bloom",
        "cohere",
        "falcon",
        "gemma3_text",
        "gptj",
        "mixtral",
        "olmo2",
        "qwen2_moe",
        "afmoe",
        "opt",
        "t5",
    )
} | {"minicpm3": decoder("minicpm3", **LATENT_HEADS)}


def counted_by_torch(config):
    """FLOPs per token of one forward pass over ``TOKENS`` random tokens."""
    from torch.utils.flop_counter import FlopCounterMode

    built = config_class(config)
    auto = "AutoModelForSeq2SeqLM" if built.is_encoder_decoder else "AutoModelForCausalLM"
    model = getattr(transformers, auto).from_config(
        built, attn_implementation="eager", experts_implementation="eager"
    )
    ids = torch.randint(3, 90, (1, TOKENS))
    inputs = {"input_ids": ids} | ({"decoder_input_ids": ids} if built.is_encoder_decoder else {})
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(**inputs, use_cache=False)
    return counter.get_total_flops() / TOKENS


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_forward_flops_equal_those_that_pytorch_counts(config):
    ours = counts.forward_flops_per_token(read_family("tiny", config), TOKENS, causal=False)
    assert ours == pytest.approx(counted_by_torch(config), rel=1e-12)
