"""Linear attention, as the chunked kernels of flash-linear-attention keep it.

``fla/ops/gated_delta_rule/chunk.py`` and ``fla/ops/kda/chunk.py`` keep q, k, v, the gate's
logarithm, the writing strength, and of every chunk of ``CHUNK`` tokens the triangular matrix; what
they derive from these they compute again in backward.
"""

from meshfit.predict.memory.blocks.parts import BlockMemory, inner_norm_tensors, linear_input
from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor
from meshfit.workload.blocks.linear import (
    GatedDeltaNetSpec,
    KimiDeltaSpec,
    LightningAttentionSpec,
)

CHUNK = 64
"""Tokens of one chunk of those kernels."""


def gated_delta_memory(block: GatedDeltaNetSpec, basis: LayerBasis) -> BlockMemory:
    """The convolution keeps its input; q, k and v come after it, q and k once a value head."""
    key = block.num_key_heads * block.key_head_dim
    value = block.num_value_heads * block.value_head_dim
    repeated = block.num_value_heads * block.key_head_dim
    return _recurrence(
        basis,
        convolved=2 * key + value,
        operands=2 * repeated + value,
        value=value,
        heads=block.num_value_heads,
        decays=block.num_value_heads,
    )


def kimi_delta_memory(block: KimiDeltaSpec, basis: LayerBasis) -> BlockMemory:
    """As the gated delta rule, with a decay for every channel of a key."""
    width = block.num_heads * block.head_dim
    return _recurrence(
        basis,
        convolved=3 * width,
        operands=3 * width,
        value=width,
        heads=block.num_heads,
        decays=width,
    )


def lightning_memory(block: LightningAttentionSpec, basis: LayerBasis) -> BlockMemory:
    """q, k and v behind an activation that keeps its input; no chunk is kept."""
    width = block.num_heads * block.head_dim
    return _recurrence(
        basis, convolved=3 * width, operands=3 * width, value=width, heads=0, decays=0
    )


def _recurrence(
    basis: LayerBasis, *, convolved: int, operands: int, value: int, heads: int, decays: int
) -> BlockMemory:
    element = basis.compute_bytes
    sizes = {
        "before_convolution": element * convolved,
        "operands": element * operands,
        "chunks": element * CHUNK * heads,
        "decay": FP32_BYTES * decays,
        "strength": element * heads,
        "gate": element * value,
        "gated": element * value,
    }
    out = SavedTensor(name="linear_attention.out", bytes_per_token=element * value, split="whole")
    return BlockMemory(
        saved=(
            linear_input("linear_attention.input", basis.hidden_size, 1, basis),
            *(SavedTensor(name=f"linear_attention.{name}", bytes_per_token=float(size), split="whole") for name, size in sizes.items() if size),
            *inner_norm_tensors("linear_attention.norm", value, basis, split="whole"),
            out,
        ),
        matmul_outputs=(
            SavedTensor(name="linear_attention.before_convolution", bytes_per_token=element * convolved, split="whole"),
            SavedTensor(name="linear_attention.gate", bytes_per_token=element * value, split="whole"),
            SavedTensor(name="linear_attention.projected", bytes_per_token=element * basis.hidden_size, split="sequence"),
        ),
        kernel_outputs=(out,),
        gradients=BytesPerToken(whole=float(element * (operands + 2 * value))),
        last_input=BytesPerToken(whole=float(element * value)),
    )  # fmt: skip
