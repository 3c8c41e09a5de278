"""Passes that Megatron-Core makes again where it discards outputs instead of recomputing layers.

``CheckpointWithoutOutput`` (``core/tensor_parallel/random.py``) drops what a part has made once it is
used and makes it again from inputs that are kept anyway, just before the backward that needs it. No
collective is repeated.
"""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.layer import has_own_norm
from meshfit.predict.shape.group import LayoutGroup
from meshfit.workload.blocks.feed_forward import MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


def remade_bytes(layer: LayerSpec, group: LayoutGroup) -> FloatArray:
    """Bytes that elementwise kernels of one layer move again for one micro-batch on one rank: norms of
    their own (read, written), activations of experts (gate and up read, their product written), and
    rotations behind the up projections of latent attention."""
    options, numerics = group.profile.megatron, group.numerics
    columns, element = group.columns, numerics.compute_bytes
    between = columns.tokens / columns.sequence_split * group.model.hidden_size
    inside = columns.tokens / columns.tp
    moved = np.zeros(len(group))
    for _, block in layer.blocks:
        own_norm = has_own_norm(block, fuses_norms=options.transformer_engine)
        if own_norm and "layernorm" in options.discarded_modules:
            moved = moved + between * (numerics.residual_bytes + element)
        if isinstance(block, MoeSpec) and "moe_act" in options.discarded_modules:
            expert = block.expert
            width = expert.intermediate_size * (3 if expert.gated else 2)
            moved = moved + inside * block.experts_per_token * width * element
        if isinstance(block, LatentAttentionSpec) and "mla_up_proj" in options.discarded_modules:
            rotated = 2 * block.num_attention_heads * block.qk_head_dim
            moved = moved + inside * rotated * 2 * element
    return moved


def up_projections(layer: LayerSpec, group: LayoutGroup) -> list[tuple[int, int]]:
    """Inputs and outputs, undivided, of the linears between latents and heads that are run again;
    tensor parallelism divides their outputs."""
    if "mla_up_proj" not in group.profile.megatron.discarded_modules:
        return []
    found = []
    for _, block in layer.blocks:
        if not isinstance(block, LatentAttentionSpec):
            continue
        expanded = block.num_attention_heads * (block.qk_nope_head_dim + block.v_head_dim)
        found.append((block.kv_lora_rank, expanded))
        if block.q_lora_rank is not None:
            found.append((block.q_lora_rank, block.num_attention_heads * block.qk_head_dim))
    return found
