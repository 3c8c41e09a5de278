"""What one layer keeps for backward, and what of it recomputation drops."""

from functools import lru_cache

from meshfit.predict.memory.megatron.attention import (
    attention_tensors,
    backward_scores,
    latent_attention_tensors,
)
from meshfit.predict.memory.megatron.feed_forward import mlp_tensors, moe_tensors
from meshfit.predict.memory.megatron.mixer import mixer_gradients, mixer_tensors
from meshfit.predict.memory.megatron.settings import LayerSettings
from meshfit.predict.memory.megatron.tensors import BytesPerToken, Saved, total
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

_PARTS = {"moe": ("moe_act", "shared_experts")}
"""Module -> those inside it."""

_MOVED_OF_EXPERTS = ("norm.input", "experts.input", "experts.up")
"""Inputs of ``mlp_norm``, ``expert_fc1`` and ``moe_act``, as ``--offload-modules`` names parts."""


@lru_cache(maxsize=1024)
def layer_tensors(
    layer: LayerSpec, hidden_size: int, settings: LayerSettings
) -> tuple[tuple[Saved, ...], ...]:
    """Per block of the layer, in order: its norm, itself, and the dropout on the way back to the
    residual stream (a mask)."""
    return tuple(
        (
            *_norm(block, hidden_size, settings),
            *_block(block, hidden_size, settings),
            *_dropout(hidden_size, settings),
        )
        for _, block in layer.blocks
    )


def layer_bytes(layer: LayerSpec, hidden_size: int, settings: LayerSettings) -> BytesPerToken:
    """All of it, nothing recomputed."""
    return total(t for block in layer_tensors(layer, hidden_size, settings) for t in block)


def recomputed_bytes(
    layer: LayerSpec, hidden_size: int, settings: LayerSettings, modules: tuple[str, ...]
) -> BytesPerToken:
    """What selective recomputation of ``modules`` drops in forward; of ``moe`` all that is inside."""
    parts = {part for module in modules for part in (module, *_PARTS.get(module, ()))}
    return total(
        t
        for block in layer_tensors(layer, hidden_size, settings)
        for t in block
        if t.module in parts
    )


def moved_tensors(
    layer: LayerSpec, hidden_size: int, settings: LayerSettings, dropped: tuple[str, ...] = ()
) -> tuple[Saved, ...]:
    """What waits on the host under ``--fine-grained-activation-offloading`` with all modules that a
    layer has: of attention all from the norm's input on (``attn_norm``, ``qkv_linear``,
    ``core_attn``, ``attn_proj``), of experts their inputs. Nothing moves of an MLP, whose norm is part
    of its linear. What recomputation of ``dropped`` modules makes again is not moved.
    """
    tensors = (
        t
        for _, block in layer.blocks
        for t in (*_norm(block, hidden_size, settings), *_block(block, hidden_size, settings))
        if isinstance(block, AttentionSpec | LatentAttentionSpec)
        or (isinstance(block, MoeSpec) and t.name in _MOVED_OF_EXPERTS)
    )
    parts = {part for module in dropped for part in (module, *_PARTS.get(module, ()))}
    return tuple(t for t in tensors if t.module not in parts)


def checkpoint_bytes(hidden_size: int, settings: LayerSettings) -> BytesPerToken:
    """A layer's input, all that full recomputation keeps."""
    return total([_residual("layer.input", hidden_size, settings)])


def backward_bytes(
    layer: LayerSpec, hidden_size: int, settings: LayerSettings
) -> tuple[BytesPerToken, ...]:
    """What backward holds beyond what forward kept up to then, in each block of the layer from the
    last to the first: gradients alive at once, less what the blocks behind have freed."""
    phases, freed = [], BytesPerToken()
    blocks = layer_tensors(layer, hidden_size, settings)
    for (_, block), tensors in zip(reversed(layer.blocks), reversed(blocks), strict=True):
        phases.append(total(_gradients(block, hidden_size, settings)) - freed)
        freed += total(tensors)
    return tuple(phases)


def has_own_norm(block: Block, *, fuses_norms: bool) -> bool:
    """Whether the norm before a block is a module of its own, which ``layernorm`` can recompute.

    Transformer Engine's layers have it in the first linear, but before experts, whose router takes
    its output as well, and before latent attention, whose linears into the latents do
    (``get_gpt_layer_with_transformer_engine_submodules``).
    """
    return not fuses_norms or isinstance(block, MoeSpec | LatentAttentionSpec)


def _norm(block: Block, hidden_size: int, settings: LayerSettings) -> tuple[Saved, ...]:
    """The norm's input, its statistics, and its output, which the next linear keeps."""
    module = "layernorm" if has_own_norm(block, fuses_norms=settings.fuses_norms) else ""
    return (
        _residual("norm.input", hidden_size, settings),
        Saved(name="norm.statistics", bytes_per_token=FP32_BYTES * settings.norm_statistics, split="sequence"),
        Saved(name="norm.out", bytes_per_token=settings.linear_input_bytes * hidden_size, split="sequence", module=module),
    )  # fmt: skip


def _residual(name: str, hidden_size: int, settings: LayerSettings) -> Saved:
    return Saved(name=name, bytes_per_token=settings.element_bytes * hidden_size, split="sequence")


def _dropout(hidden_size: int, settings: LayerSettings) -> tuple[Saved, ...]:
    if not settings.hidden_dropout:
        return ()
    return (Saved(name="dropout.mask", bytes_per_token=hidden_size, split="sequence"),)


def _block(block: Block, hidden_size: int, settings: LayerSettings) -> tuple[Saved, ...]:
    match block:
        case AttentionSpec():
            return attention_tensors(block, settings)
        case LatentAttentionSpec():
            return latent_attention_tensors(block, settings)
        case MlpSpec():
            return mlp_tensors(block, settings)
        case MoeSpec():
            return moe_tensors(block, hidden_size, settings)
    return mixer_tensors(block, settings)


def _gradients(block: Block, hidden_size: int, settings: LayerSettings) -> tuple[Saved, ...]:
    """The residual stream's gradient, the same after dropout, gathered for the matmul, and the
    widest gradient inside the block (its input's counterpart takes the place of what is freed)."""
    element = settings.element_bytes
    passing = (
        Saved(name="d_residual", bytes_per_token=2 * element * hidden_size, split="sequence"),
        Saved(name="d_gathered", bytes_per_token=element * hidden_size, split="whole"),
    )
    match block:
        case AttentionSpec():
            width = block.num_attention_heads * block.head_dim
            inside = (
                Saved(name="d_q", bytes_per_token=element * width, split="tp"),
                Saved(name="d_kv", bytes_per_token=2 * element * block.num_key_value_heads * block.head_dim, split="kv"),
                Saved(name="d_out", bytes_per_token=element * width, split="tp"),
                *backward_scores(settings.kernel, block.num_attention_heads, element),
            )  # fmt: skip
        case LatentAttentionSpec():
            heads = block.num_attention_heads
            widths = 2 * block.qk_head_dim + 2 * block.v_head_dim
            inside = (
                Saved(name="d_qkv", bytes_per_token=element * heads * widths, split="tp"),
                *backward_scores(settings.kernel, heads, element),
            )
        case MlpSpec():
            width = block.intermediate_size * (2 if block.gated else 1)
            inside = (Saved(name="d_up", bytes_per_token=element * width, split="tp"),)
        case MoeSpec():
            rows = block.experts_per_token * settings.capacity_factor
            width = block.expert.intermediate_size * (2 if block.expert.gated else 1)
            inside = (
                Saved(name="d_up", bytes_per_token=element * width * rows, split="experts"),
                Saved(
                    name="d_dispatched",
                    bytes_per_token=element * hidden_size * rows,
                    split="dispatched",
                ),
            )
        case _:
            inside = mixer_gradients(block, settings)
    return passing + inside
