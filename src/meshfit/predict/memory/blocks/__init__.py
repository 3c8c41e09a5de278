"""What blocks keep for backward: one module a kind.

``block_memory`` is the one entrance. To cover another kind of block, write a function from it and a
``LayerBasis`` to ``BlockMemory`` in a module of its own and add it to ``_KINDS``; what is not there
is refused by ``predict.coverage``.
"""

from collections.abc import Callable
from typing import Any

from meshfit.predict.memory.blocks.attention import attention_memory
from meshfit.predict.memory.blocks.compressed import compressed_memory
from meshfit.predict.memory.blocks.experts import moe_memory
from meshfit.predict.memory.blocks.feed_forward import mlp_memory
from meshfit.predict.memory.blocks.gated import gated_recurrence_memory, short_convolution_memory
from meshfit.predict.memory.blocks.latent import latent_memory
from meshfit.predict.memory.blocks.linear_attention import (
    gated_delta_memory,
    kimi_delta_memory,
    lightning_memory,
)
from meshfit.predict.memory.blocks.parts import BlockMemory
from meshfit.predict.memory.blocks.state_space import mamba2_memory, mamba_memory
from meshfit.predict.shape.layer_basis import LayerBasis
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.compressed import CompressedAttentionSpec
from meshfit.workload.blocks.convolution import ShortConvolutionSpec
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.linear import (
    GatedDeltaNetSpec,
    GatedRecurrenceSpec,
    KimiDeltaSpec,
    LightningAttentionSpec,
)
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec

__all__ = ["BlockMemory", "block_memory", "is_covered"]

_KINDS: dict[type[Block], Callable[[Any, LayerBasis], BlockMemory]] = {
    AttentionSpec: attention_memory,
    LatentAttentionSpec: latent_memory,
    CompressedAttentionSpec: compressed_memory,
    MlpSpec: mlp_memory,
    MoeSpec: moe_memory,
    GatedDeltaNetSpec: gated_delta_memory,
    KimiDeltaSpec: kimi_delta_memory,
    LightningAttentionSpec: lightning_memory,
    GatedRecurrenceSpec: gated_recurrence_memory,
    ShortConvolutionSpec: short_convolution_memory,
    MambaSpec: mamba_memory,
    Mamba2Spec: mamba2_memory,
}


def is_covered(block: Block) -> bool:
    """Whether ``block_memory`` knows this kind of block."""
    return type(block) in _KINDS


def block_memory(block: Block, basis: LayerBasis) -> BlockMemory:
    """What one block keeps from forward to backward; ``is_covered`` says for which there is one."""
    return _KINDS[type(block)](block, basis)
