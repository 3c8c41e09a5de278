"""Softmax attention with keys and values per head."""

from meshfit.predict.memory.blocks.core import Heads, core_gradients, core_tensors, kernel_outputs
from meshfit.predict.memory.blocks.parts import BlockMemory, inner_norm_tensors, linear_input
from meshfit.predict.shape.layer_basis import LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor
from meshfit.workload.blocks.attention import AttentionSpec


def attention_memory(block: AttentionSpec, basis: LayerBasis) -> BlockMemory:
    """Projections, norms over q and k, the kernel, an output gate, an indexer of key blocks."""
    element, heads = basis.compute_bytes, block.num_attention_heads
    query, value = heads * block.head_dim, heads * block.value_dim
    key = block.num_key_value_heads * block.head_dim
    values = block.num_key_value_heads * block.value_dim
    gated_queries = block.output_gate == "with_queries"
    of = Heads(
        queries=heads,
        keys=block.num_key_value_heads,
        key_dim=block.head_dim,
        value_dim=block.value_dim,
        value_storage=query + key + values if basis.fused_qkv else None,
    )
    core = core_tensors(of, basis)
    return BlockMemory(
        saved=(
            linear_input("attention.input", basis.hidden_size, basis.qkv_matmuls, basis),
            *core,
            SavedTensor(name="attention.out_of_kernel", bytes_per_token=element * value, split="traded"),
            *(_query_key_norms(block, basis) if block.qk_norm else ()),
            *(_gate(value, element) if gated_queries else ()),
            *_selection(block, basis),
        ),
        matmul_outputs=(
            _output("attention.q_projected", element * query * (2 if gated_queries else 1)),
            _output("attention.k_projected", element * key),
            _output("attention.v", element * values),
            SavedTensor(name="attention.projected", bytes_per_token=element * basis.hidden_size, split="sequence"),
        ),
        kernel_outputs=kernel_outputs(core),
        gradients=BytesPerToken(tp=core_gradients(of, basis)),
        last_input=BytesPerToken(tp=float(element * value)),
    )  # fmt: skip


def _output(name: str, bytes_per_token: float) -> SavedTensor:
    return SavedTensor(name=name, bytes_per_token=bytes_per_token, split="tp")


def _query_key_norms(block: AttentionSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    over_all = block.qk_norm_over == "all_heads"
    kinds = {"q_norm": block.num_attention_heads, "k_norm": block.num_key_value_heads}
    return tuple(
        tensor
        for name, heads in kinds.items()
        for tensor in inner_norm_tensors(
            f"attention.{name}",
            heads * block.head_dim,
            basis,
            groups=1 if over_all else heads,
        )
    )


def _gate(width: int, element: int) -> tuple[SavedTensor, ...]:
    """A sigmoid gate on the output: its value, and the output before it."""
    return (_output("attention.gate", element * width), _output("attention.gated", element * width))


def _selection(block: AttentionSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """An indexer's queries and key; its scores are never kept (it picks without a gradient)."""
    if block.selection is None:
        return ()
    width = (block.selection.num_heads + 1) * block.selection.head_dim
    return (
        SavedTensor(name="attention.indexer", bytes_per_token=basis.compute_bytes * width, split="whole"),
    )  # fmt: skip
