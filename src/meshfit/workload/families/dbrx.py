"""DBRX: experts in every layer, LayerNorms without bias, sizes in two configs inside."""

from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, grouped_query_attention
from meshfit.workload.families.experts import Experts
from meshfit.workload.families.keys import (
    MAX_HEADS,
    Config,
    flag,
    mapping,
    probability,
    whole_number,
    with_own_names,
)
from meshfit.workload.model import LayerSpec, ModelSpec, Names

DEFAULTS = DecoderSizes(
    vocab_size=32000,
    hidden_size=2048,
    intermediate_size=3584,
    num_hidden_layers=24,
    num_attention_heads=16,
    max_position_embeddings=2048,
)
"""Of transformers' ``DbrxConfig``; it has no dense MLP."""

EXPERTS = Experts(
    total=("moe_num_experts", 4), chosen=("moe_top_k", 1), width=("ffn_hidden_size", 3584)
)
_SYNONYMS = {"d_model": "hidden_size", "n_heads": "num_attention_heads",
             "n_layers": "num_hidden_layers", "max_seq_len": "max_position_embeddings"}  # fmt: skip


def read(name: str, config: Config) -> ModelSpec:
    """The model; what ``attn_config`` and ``ffn_config`` leave out has transformers' defaults.

    Raises:
        InputError: a key cannot be right.
    """
    own = with_own_names(config, _SYNONYMS)
    sizes = decoder_sizes(own, DEFAULTS)
    attention = grouped_query_attention(
        sizes,
        num_key_value_heads=whole_number(
            mapping(own, "attn_config"), "kv_n_heads", 1, maximum=MAX_HEADS
        ),
        head_dim=None,
    )
    layer = LayerSpec(
        blocks=(
            ("norm_attn_norm.attn", attention),
            ("ffn", EXPERTS.read(mapping(own, "ffn_config"))),
        ),
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
    )
    return ModelSpec(
        name=name,
        model_type="dbrx",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=(layer,) * sizes.num_hidden_layers,
        norm="layer_norm",
        norm_vectors=1,
        tie_word_embeddings=flag(own, "tie_word_embeddings", False),
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=max(probability(own, key, 0.0) for key in ("resid_pdrop", "emb_pdrop")),
        names=Names(
            layers="transformer.blocks",
            embedding="transformer.wte",
            final_norm="transformer.norm_f",
        ),
        config=config,
    )
