"""MPT: ALiBi, LayerNorms without bias, a plain MLP."""

from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import DecoderFamily, four_times_hidden
from meshfit.workload.families.keys import Config, flag, mapping, shown, whole_number
from meshfit.workload.model import ModelSpec, Names

MPT = DecoderFamily(
    model_type="mpt",
    defaults=DecoderSizes(
        vocab_size=50368,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=24,
        num_attention_heads=16,
        max_position_embeddings=2048,
    ),
    reads_grouping=False,
    reads_head_dim=False,
    tie_word_embeddings=True,
    gated=False,
    norm="layer_norm",
    norm_vectors=1,
    norms=("norm_1", "norm_2"),
    dropouts=("emb_pdrop", "resid_pdrop"),
    names=Names(
        layers="transformer.blocks", embedding="transformer.wte", final_norm="transformer.norm_f"
    ),
    synonyms={"d_model": "hidden_size", "n_heads": "num_attention_heads",
              "n_layers": "num_hidden_layers", "max_seq_len": "max_position_embeddings"},
)  # fmt: skip


def read(name: str, config: Config) -> ModelSpec:
    """The model; its MLP is four times the hidden size.

    Raises:
        InputError: a key cannot be right, or asks for what transformers' class does not build.
    """
    if not flag(config, "no_bias", True):
        raise InputError("no_bias is false; transformers' MPT has no biases")
    attention = mapping(config, "attn_config")
    for key, value in (("qk_ln", False), ("attn_type", "multihead_attention")):
        if attention.get(key, value) != value:
            raise InputError(
                f"attn_config.{key} is {shown(attention[key])}; expected {shown(value)}"
            )
    if (ratio := whole_number(config, "expansion_ratio", 4, maximum=64)) != 4:
        raise InputError(f"expansion_ratio is {ratio}; transformers' MPT is always 4 times as wide")
    return replace(MPT.read(name, four_times_hidden(config, MPT)), config=config)
