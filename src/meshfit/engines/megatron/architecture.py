"""The model that Megatron's arguments describe."""

import re
from dataclasses import replace

from meshfit.engines.syntax.setting import Settings
from meshfit.errors import InputError
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.tensor import linear, norm
from meshfit.workload.model import LayerSpec, ModelSpec, MtpSpec

GPT2_VOCABULARY = 50257
"""Of the tokenizer that scripts name where they give no size (``GPT2BPETokenizer``)."""

MOST_LAYERS = 10_000

POSITIONS = ("learned_absolute", "rope", "yarn", "mrope", "relative", "none")


def architecture(options: Settings) -> ModelSpec | None:
    """The architecture; None where the arguments do not give its layers, width and heads.

    Raises:
        InputError: sizes that do not add up.
    """
    sizes = [
        options.get(f"--{name}") for name in ("num-layers", "hidden-size", "num-attention-heads")
    ]
    if None in sizes:
        return None
    num_layers, hidden, heads = (size.at_least(1) for size in sizes if size is not None)
    if num_layers > MOST_LAYERS:
        raise InputError(f"--num-layers {num_layers} is not allowed; at most {MOST_LAYERS:,} are")
    length = options.count("--max-position-embeddings", "--seq-length", default=0)
    position = options.choice("--position-embedding-type", POSITIONS, "learned_absolute")
    is_rms = options.choice("--normalization", ("LayerNorm", "RMSNorm"), "LayerNorm") == "RMSNorm"
    model = ModelSpec(
        name="as the arguments say",
        model_type="llama" if options.is_on("--swiglu") else "gpt",
        hidden_size=hidden,
        vocab_size=options.count("--padded-vocab-size", "--vocab-size", default=GPT2_VOCABULARY),
        layers=_layers(options, num_layers, hidden, heads),
        norm="rms_norm" if is_rms else "layer_norm",
        tie_word_embeddings=not options.is_on("--untie-embeddings-and-output-weights"),
        max_position_embeddings=length,
        learned_positions=length if position.startswith("learned") else 0,
        dropout=max(
            options.number("--attention-dropout", default=0.1) or 0.0,
            options.number("--hidden-dropout", default=0.1) or 0.0,
        ),
    )
    return with_mtp(model, options)


def _layers(options: Settings, num_layers: int, hidden: int, heads: int) -> tuple[LayerSpec, ...]:
    attention, mlp = _attention(options, hidden, heads), _mlp(options, hidden)
    return with_experts(attention, mlp, num_layers, options)


def with_experts(
    attention: Block, mlp: MlpSpec, num_layers: int, options: Settings
) -> tuple[LayerSpec, ...]:
    """Layers of an attention and an MLP, with experts such as it where ``--moe-layer-freq`` says so.

    Raises:
        InputError: it cannot be read, or names another number of layers.
    """
    dense = LayerSpec(blocks=(("self_attn", attention), ("mlp", mlp)))
    if "--num-experts" not in options:
        return (dense,) * num_layers
    routed = LayerSpec(blocks=(("self_attn", attention), ("mlp", _experts(options, mlp))))
    pattern = options.text("--moe-layer-freq", default="1")
    has_experts = layers_with_experts(pattern, num_layers)
    return tuple(routed if has else dense for has in has_experts)


def _attention(options: Settings, hidden: int, heads: int) -> Block:
    if options.is_on("--multi-latent-attention"):
        return LatentAttentionSpec(
            num_attention_heads=heads,
            kv_lora_rank=options.count("--kv-lora-rank", default=32),
            qk_nope_head_dim=options.count("--qk-head-dim", default=128),
            qk_rope_head_dim=options.count("--qk-pos-emb-head-dim", default=64),
            v_head_dim=options.count("--v-head-dim", default=128),
            q_lora_rank=options.whole("--q-lora-rank"),
        )
    has_bias = not options.is_on("--disable-bias-linear")
    groups = options.count("--num-query-groups")
    return AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=groups if options.is_on("--group-query-attention") else heads,
        head_dim=options.count("--kv-channels", default=max(1, hidden // heads)),
        qkv_bias=has_bias or options.is_on("--add-qkv-bias"),
        output_bias=has_bias,
        qk_norm=options.is_on("--qk-layernorm"),
    )


def _mlp(options: Settings, hidden: int) -> MlpSpec:
    """The dense MLP; where no width is given Megatron takes four times the hidden size, two thirds
    of it in multiples of 64 where it is gated."""
    gated = options.is_on("--swiglu")
    usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    return MlpSpec(
        intermediate_size=options.count("--ffn-hidden-size", default=usual),
        gated=gated,
        bias=not options.is_on("--disable-bias-linear"),
    )


def _experts(options: Settings, mlp: MlpSpec) -> MoeSpec:
    width = options.count("--moe-ffn-hidden-size", default=mlp.intermediate_size)
    shared = options.count("--moe-shared-expert-intermediate-size", default=0, least=0)
    return MoeSpec(
        num_experts=options.count("--num-experts"),
        experts_per_token=options.count("--moe-router-topk", default=2),
        expert=replace(mlp, intermediate_size=width),
        shared=replace(mlp, intermediate_size=shared) if shared else None,
        shared_gate=options.is_on("--moe-shared-expert-gate"),
    )


def layers_with_experts(pattern: str, num_layers: int) -> tuple[bool, ...]:
    """``--moe-layer-freq``: every n-th layer from the first on, or a sum of lists times counts
    (``([0]*3+[1]*58)``).

    Raises:
        InputError: it is written otherwise, or has another number of layers.
    """
    if pattern.isdigit() and int(pattern) > 0:
        return tuple(index % int(pattern) == 0 for index in range(num_layers))
    terms = re.findall(r"\[([01, ]+)\](?:\*(\d{1,6}))?", pattern)
    flags = [
        flag == "1"
        for listed, times in terms
        for flag in re.findall("[01]", listed) * int(times or 1)
    ]
    if len(flags) != num_layers:
        raise InputError(
            f"--moe-layer-freq {pattern!r} names {len(flags)} layers, --num-layers is {num_layers}"
        )
    return tuple(flags)


def with_mtp(model: ModelSpec, options: Settings) -> ModelSpec:
    """``model`` with as many further predictions as ``--mtp-num-layers`` says."""
    depth = options.count("--mtp-num-layers", default=0, least=0)
    if not depth:
        return model
    hidden = model.hidden_size
    names = ("enorm", "hnorm", "final_layernorm")
    norms = (t for name in names for t in norm(name, hidden, vectors=model.vectors_per_norm))
    entry = linear("eh_proj", 2 * hidden, hidden, split="column")
    return replace(
        model, mtp=MtpSpec(depth=depth, layers=model.layers[-1:], extra=(*norms, *entry))
    )
