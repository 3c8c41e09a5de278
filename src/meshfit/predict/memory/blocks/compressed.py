"""Attention over compressed keys beside a sliding window (DeepSeek V4)."""

from meshfit.predict.memory.blocks.core import Heads, core_gradients, core_tensors, kernel_outputs
from meshfit.predict.memory.blocks.parts import BlockMemory, inner_norm_tensors, linear_input
from meshfit.predict.shape.layer_basis import LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor
from meshfit.workload.blocks.compressed import CompressedAttentionSpec


def compressed_memory(block: CompressedAttentionSpec, basis: LayerBasis) -> BlockMemory:
    """Query latent, q of every head, the one key that is also the value, the compressor's two
    projections, the output and its low-rank half. No rank divides it (its tensors are whole)."""
    element, heads = basis.compute_bytes, block.num_attention_heads
    width = heads * block.head_dim
    of = Heads(
        queries=heads,
        keys=1,
        key_dim=block.head_dim,
        value_dim=block.head_dim,
    )
    core = tuple(
        _whole(t.name, t.bytes_per_token, in_core=t.in_core) for t in core_tensors(of, basis)
    )
    compressor = 0
    if block.compression is not None:
        compressor = 2 * block.head_dim * (1 if block.compression.indexer is None else 2)
    low = block.output_groups * block.output_rank
    return BlockMemory(
        saved=(
            linear_input("attention.input", basis.hidden_size, 2, basis),
            *inner_norm_tensors("query_latent.norm", block.q_lora_rank, basis, split="whole"),
            _whole("query_latent.normed", element * block.q_lora_rank),
            *core,
            _whole("attention.compressor", element * compressor),
            _whole("attention.output_latent", element * low),
        ),
        matmul_outputs=(
            _whole("query_latent.projected", element * block.q_lora_rank),
            _whole("attention.q_projected", element * width),
            _whole("attention.k_projected", element * block.head_dim),
            _whole("attention.output_latent", element * low),
            SavedTensor(name="attention.projected", bytes_per_token=element * basis.hidden_size, split="sequence"),
        ),
        kernel_outputs=kernel_outputs(core),
        gradients=BytesPerToken(whole=core_gradients(of, basis)),
        last_input=BytesPerToken(whole=float(element * low)),
    )  # fmt: skip


def _whole(name: str, bytes_per_token: float, *, in_core: bool = False) -> SavedTensor:
    return SavedTensor(name=name, bytes_per_token=bytes_per_token, split="whole", in_core=in_core)
