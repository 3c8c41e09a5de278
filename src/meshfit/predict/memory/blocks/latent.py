"""Multi-head latent attention with heads expanded, as in training."""

from dataclasses import replace

from meshfit.predict.memory.blocks.core import Heads, core_gradients, core_tensors, kernel_outputs
from meshfit.predict.memory.blocks.parts import BlockMemory, inner_norm_tensors, linear_input
from meshfit.predict.shape.layer_basis import LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor, Split
from meshfit.workload.blocks.latent import LatentAttentionSpec


def latent_memory(block: LatentAttentionSpec, basis: LayerBasis) -> BlockMemory:
    """The latents of queries and of keys and values with their norms, and the core on whole heads.

    What expands into heads takes latents of all tokens, on every tensor-parallel rank. Every head has
    its own copy of the rotated key.
    """
    element, heads = basis.compute_bytes, block.num_attention_heads
    of = Heads(
        queries=heads,
        keys=heads,
        key_dim=block.qk_head_dim,
        value_dim=block.v_head_dim,
        value_storage=heads * (block.qk_nope_head_dim + block.v_head_dim),
    )
    core = core_tensors(of, basis)
    queries_normed: Split = "sequence" if basis.gathers_latents else "whole"
    return BlockMemory(
        saved=(
            *_inputs(block, basis),
            *_latent("query_latent", block.q_lora_rank or 0, basis, normed=queries_normed),
            *_latent("key_latent", block.kv_lora_rank, basis, normed="whole"),
            *core,
        ),
        matmul_outputs=_matmuls(block, basis),
        kernel_outputs=kernel_outputs(core),
        gradients=BytesPerToken(tp=core_gradients(of, basis)),
        last_input=BytesPerToken(tp=float(element * heads * block.v_head_dim)),
    )


def _inputs(block: LatentAttentionSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """What the projections into latents read, and q where it is one full projection. Where latents are
    gathered, the former are of a rank's own tokens, and the latter is gathered for itself."""
    if not basis.gathers_latents:
        return (linear_input("attention.input", basis.hidden_size, 2, basis),)
    makes_latents = 1 if block.q_lora_rank is None else 2
    shared = linear_input("attention.input", basis.hidden_size, makes_latents, basis)
    own = replace(shared, split="sequence")
    if block.q_lora_rank is not None:
        return (own,)
    return (own, linear_input("attention.gathered_input", basis.hidden_size, 1, basis))


def _latent(name: str, rank: int, basis: LayerBasis, *, normed: Split) -> tuple[SavedTensor, ...]:
    """A norm over the latent, of the tokens that ``normed`` says, and its output, which the next linear
    keeps of all tokens."""
    if not rank:
        return ()
    output = SavedTensor(name=f"{name}.normed", bytes_per_token=basis.compute_bytes * rank, split="whole")  # fmt: skip
    return (*inner_norm_tensors(f"{name}.norm", rank, basis, split=normed), output)


def _matmuls(block: LatentAttentionSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    element, heads = basis.compute_bytes, block.num_attention_heads
    queries = heads * block.qk_head_dim
    expanded = heads * (block.qk_nope_head_dim + block.v_head_dim)
    latents = () if block.q_lora_rank is None else (("query_latent", block.q_lora_rank),)
    made: Split = "sequence" if basis.gathers_latents else "whole"
    return (
        *(SavedTensor(name=f"{name}.projected", bytes_per_token=element * rank, split=made) for name, rank in latents),
        SavedTensor(name="attention.q_projected", bytes_per_token=element * queries, split="tp"),
        SavedTensor(name="key_latent.projected", bytes_per_token=element * (block.kv_lora_rank + block.qk_rope_head_dim), split=made),
        SavedTensor(name="attention.kv_projected", bytes_per_token=element * expanded, split="tp"),
        SavedTensor(name="attention.projected", bytes_per_token=element * basis.hidden_size, split="sequence"),
    )  # fmt: skip
