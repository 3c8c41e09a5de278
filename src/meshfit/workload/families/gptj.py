"""GPT-J and CodeGen: attention and MLP in parallel behind one norm, a head with a bias."""

from dataclasses import replace

from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, four_times_hidden
from meshfit.workload.families.gpt2 import SYNONYMS
from meshfit.workload.families.keys import Config, optional_whole_number
from meshfit.workload.model import ModelSpec, Names

_OWN_NAMES = {own: common for common, own in SYNONYMS.items()}

GPTJ = DecoderFamily(
    model_type="gptj",
    defaults=DecoderSizes(
        vocab_size=50400,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=28,
        num_attention_heads=16,
        max_position_embeddings=2048,
    ),
    reads_grouping=False,
    reads_head_dim=False,
    mlp_bias=True,
    head_bias=True,
    gated=False,
    norm="layer_norm",
    norms=("ln_1",),
    parallel=True,
    dropouts=("attn_pdrop", "embd_pdrop", "resid_pdrop"),
    names=Names(layers="transformer.h", embedding="transformer.wte", final_norm="transformer.ln_f"),
    synonyms=_OWN_NAMES,
)


def read(name: str, config: Config) -> ModelSpec:
    """GPT-J or CodeGen; ``n_inner`` null means four times the hidden size.

    Raises:
        InputError: a key cannot be right.
    """
    inner = optional_whole_number(config, "n_inner")
    wide = {**config, "intermediate_size": inner} if inner else four_times_hidden(config, GPTJ)
    return replace(GPTJ.read(name, wide), config=config)
