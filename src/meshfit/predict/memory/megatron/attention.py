"""What attention keeps for backward, in the modules of Megatron-Core 0.19."""

from meshfit.predict.memory.megatron.kernels import Kernel
from meshfit.predict.memory.megatron.settings import LayerSettings
from meshfit.predict.memory.megatron.tensors import Saved
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec


def attention_tensors(attention: AttentionSpec, settings: LayerSettings) -> tuple[Saved, ...]:
    """Between the norm's output and the output projection, whose input is the last.

    q, k and v are kept once: as views of one tensor, as what a rotation made of them, or as
    FlashAttention's copies with the batch first, whose output is copied back where a micro-batch
    has several sequences.
    """
    element = settings.element_bytes
    query = attention.num_attention_heads * attention.head_dim
    key = attention.num_key_value_heads * attention.head_dim
    value = attention.num_key_value_heads * attention.value_dim
    kept = [
        Saved(name="q", bytes_per_token=element * query, split="tp"),
        Saved(name="k", bytes_per_token=element * key, split="kv"),
        Saved(name="v", bytes_per_token=element * value, split="kv"),
    ]
    if attention.qk_norm:
        kept += [
            Saved(name="q_norm.input", bytes_per_token=element * query, split="tp"),
            Saved(name="k_norm.input", bytes_per_token=element * key, split="kv"),
        ]
    if (
        settings.kernel == "unfused"
        and attention.num_key_value_heads < attention.num_attention_heads
    ):
        kept += [
            Saved(
                name="k.repeated", bytes_per_token=element * query, split="tp", module="core_attn"
            ),
            Saved(
                name="v.repeated", bytes_per_token=element * query, split="tp", module="core_attn"
            ),
        ]
    out = attention.num_attention_heads * attention.value_dim
    return (*kept, *core_tensors(attention.num_attention_heads, out, settings))


def latent_attention_tensors(
    attention: LatentAttentionSpec, settings: LayerSettings
) -> tuple[Saved, ...]:
    """The latents (and, normalised, once more), the heads' q, k and v made of them, and the core.

    ``mla_up_proj`` makes all of it again from the latents (``qkv_up_proj_and_rope_apply``, whose
    linears have the latents' norms in them).
    """
    element, heads = settings.element_bytes, attention.num_attention_heads
    query, value = heads * attention.qk_head_dim, heads * attention.v_head_dim
    latents = attention.kv_lora_rank + (attention.q_lora_rank or 0)
    return (
        Saved(name="latents", bytes_per_token=element * latents, split="sequence"),
        Saved(
            name="latents.normalised",
            bytes_per_token=element * latents,
            split="sequence",
            module="mla_up_proj",
        ),
        Saved(name="q", bytes_per_token=element * query, split="tp", module="mla_up_proj"),
        Saved(name="k", bytes_per_token=element * query, split="tp", module="mla_up_proj"),
        Saved(name="v", bytes_per_token=element * value, split="tp", module="mla_up_proj"),
        *core_tensors(heads, value, settings),
    )


def core_tensors(heads: int, out: int, settings: LayerSettings) -> tuple[Saved, ...]:
    """From q, k and v to the input of the output projection, ``out`` wide."""
    element = settings.element_bytes
    result = Saved(name="projection.input", bytes_per_token=element * out, split="tp")
    if settings.kernel == "unfused":
        return (*_scores(heads, settings), result)
    statistics = Saved(
        name="log_sum_exp", bytes_per_token=FP32_BYTES * heads, split="tp", module="core_attn"
    )
    if settings.kernel == "cudnn":
        return (statistics, result)
    copy = Saved(
        name="flash.out", bytes_per_token=element * out, split="batched", module="core_attn"
    )
    return (statistics, copy, result)


def _scores(heads: int, settings: LayerSettings) -> tuple[Saved, ...]:
    """The softmax's output; under dropout its mask and the dropped probabilities as well. Without the
    fused kernel a softmax in fp32 keeps its own output and casts it."""
    element = settings.element_bytes
    in_fp32 = settings.softmax_in_fp32 and not settings.fused_softmax
    softmax = FP32_BYTES if in_fp32 else element
    kept = [("softmax", softmax)]
    if settings.attention_dropout:
        kept += [("dropout.mask", 1), ("dropout.out", element)]
    elif in_fp32:
        kept += [("probabilities", element)]
    return tuple(
        Saved(name=name, bytes_per_token=bytes_ * heads, split="scores", module="core_attn")
        for name, bytes_ in kept
    )


def backward_scores(kernel: Kernel, heads: int, element: int) -> tuple[Saved, ...]:
    """Gradients of probabilities and scores that an unfused core makes."""
    if kernel != "unfused":
        return ()
    return (Saved(name="d_probabilities", bytes_per_token=element * heads, split="scores"),)
