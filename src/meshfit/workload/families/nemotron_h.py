"""Nemotron-H and Nemotron 3: layers that hold one block each, Mamba-2, attention, MLP or experts."""

from collections.abc import Sequence

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.state_space import Mamba2Spec
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, grouped_query_attention
from meshfit.workload.families.experts import expert_counts
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    Config,
    element_bytes,
    flag,
    layer_kinds,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.mamba import MAX_KERNEL
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec, MoeSpec, Names

DEFAULTS = DecoderSizes(
    vocab_size=131072,
    hidden_size=4096,
    intermediate_size=21504,
    num_hidden_layers=4,
    num_attention_heads=32,
    max_position_embeddings=4096,
)
"""Of transformers' ``NemotronHConfig``."""

_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_KINDS = {
    "linear_attention": "mamba",
    "mamba": "mamba",
    "full_attention": "attention",
    "attention": "attention",
    "moe": "moe",
    "mlp": "mlp",
}
_SYNONYMS = {
    "num_local_experts": "n_routed_experts",
    "layer_types": "layers_block_type",
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_expand": "expand",
    "mamba_conv_bias": "use_conv_bias",
}


def read(name: str, config: Config) -> ModelSpec:
    """The model. Sizes of Mamba come from heads and their width; ``expand`` is not used.

    The head is never tied to the embedding, whatever ``tie_word_embeddings`` says, as in its class.

    Raises:
        InputError: a key cannot be right, or the pattern of layers contradicts their number.
    """
    own = with_own_names(config, _SYNONYMS)
    kinds = _layer_kinds(own)
    sizes = decoder_sizes({**own, "num_hidden_layers": len(kinds)}, DEFAULTS)
    layer_of = {
        kind: LayerSpec(blocks=(("mixer", _block(own, sizes, kind)),), norms=("norm",))
        for kind in set(kinds)
    }
    depth = whole_number(own, "num_nextn_predict_layers", 0, minimum=0, maximum=MAX_LAYERS)
    return ModelSpec(
        name=name,
        model_type="nemotron_h",
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        layers=tuple(layer_of[kind] for kind in kinds),
        norm="rms_norm",
        tie_word_embeddings=False,
        max_position_embeddings=sizes.max_position_embeddings,
        dropout=max(probability(own, k, 0.0) for k in ("attention_dropout", "hidden_dropout")),
        mtp_unknown=(
            f"num_nextn_predict_layers is {depth}; transformers has no code of these heads"
            if depth
            else ""
        ),
        names=Names(embedding="model.embeddings", final_norm="model.norm_f"),
        config=config,
    )


def _layer_kinds(config: Config) -> Sequence[str]:
    """By ``layers_block_type``, else by the letters of ``hybrid_override_pattern``.

    Raises:
        InputError: neither is there or can be read, or it is not as long as there are layers.
    """
    stated = optional_whole_number(config, "num_hidden_layers", maximum=MAX_LAYERS)
    listed = config.get("layers_block_type")
    if listed is not None:
        length = len(listed) if isinstance(listed, list) else 0
        kinds: Sequence[str] = layer_kinds(config, length, _KINDS, (), key="layers_block_type")
        key = "layers_block_type"
    else:
        key = "hybrid_override_pattern"
        pattern = config.get(key, "ME*-" if stated in (None, 4) else None)
        if not isinstance(pattern, str) or not pattern or set(pattern) - _LETTERS.keys():
            raise InputError(
                f"{key} is {shown(pattern)}; expected one letter a layer: M (Mamba),"
                " E (experts), * (attention), - (MLP)"
            )
        kinds = [_LETTERS[letter] for letter in pattern]
    if stated is not None and len(kinds) != stated:
        raise InputError(f"{key} has {len(kinds)} layers, but num_hidden_layers is {stated}")
    return kinds


def _block(config: Config, sizes: DecoderSizes, kind: str) -> Block:
    if kind == "mamba":
        return _mamba(config)
    if kind == "attention":
        head_dim = "head_dim" if "head_dim" in config else "attention_head_dim"
        return grouped_query_attention(
            sizes,
            num_key_value_heads=optional_whole_number(config, "num_key_value_heads", 8)
            or sizes.num_attention_heads,
            head_dim=whole_number(config, head_dim, 128),
        )
    if kind == "moe":
        return _experts(config)
    return _mlp(config, sizes.intermediate_size)


def _mamba(config: Config) -> Mamba2Spec:
    mixer = Mamba2Spec(
        num_heads=whole_number(config, "mamba_num_heads", 128, maximum=MAX_HEADS),
        head_dim=whole_number(config, "mamba_head_dim", 64),
        state_size=whole_number(config, "ssm_state_size", 128),
        num_groups=whole_number(config, "n_groups", 8, maximum=MAX_HEADS),
        conv_kernel=whole_number(config, "conv_kernel", 4, maximum=MAX_KERNEL),
        conv_bias=flag(config, "use_conv_bias", True),
        proj_bias=flag(config, "use_bias", False),
        state_element_bytes=element_bytes(config, "mamba_ssm_cache_dtype", "float32"),
    )
    if mixer.num_heads % mixer.num_groups:
        raise InputError(
            f"mamba_num_heads {mixer.num_heads} is no multiple of n_groups {mixer.num_groups}"
        )
    return mixer


def _experts(config: Config) -> MoeSpec:
    num_experts, per_token = expert_counts(
        config, ("n_routed_experts", 8), ("num_experts_per_tok", 2)
    )
    shared = whole_number(config, "moe_shared_expert_intermediate_size", 7688)
    return MoeSpec(
        num_experts=num_experts,
        experts_per_token=per_token,
        expert=MlpSpec(
            intermediate_size=whole_number(config, "moe_intermediate_size", 7688), gated=False
        ),
        shared=_mlp(config, shared),
        expert_input_size=optional_whole_number(config, "moe_latent_size"),
        latent_bias=flag(config, "mlp_bias", False),
    )


def _mlp(config: Config, intermediate_size: int) -> MlpSpec:
    return MlpSpec(
        intermediate_size=intermediate_size, gated=False, bias=flag(config, "mlp_bias", False)
    )
