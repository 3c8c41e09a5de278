"""What autograd keeps of one forward, layer by layer, in bytes per token.

Two ways of computing in bf16 keep different things. *Cast*: parameters are cast once (FSDP2's
``MixedPrecisionPolicy``), and everything between the operators is bf16. *Autocast*
(``torch.autocast``): parameters and the residual stream stay fp32, and each matmul makes a bf16
copy of its own input and weight. In fp32 the two are the same.

The lists (here and in ``predict.memory.blocks``) were checked against
``torch.autograd.graph.saved_tensors_hooks`` on the Hugging Face models themselves (transformers
5.24, torch 2.13): see ``tests/predict/test_activations.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from meshfit.predict.memory.blocks import BlockMemory, block_memory
from meshfit.predict.memory.blocks.parts import NOTHING, linear_input, norm_tensors
from meshfit.predict.shape.adapters import (
    frees_last_input,
    kept_beside_adapters,
    low_rank_outputs,
)
from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor, total
from meshfit.workload.model import LayerSpec
from meshfit.workload.training import LossKind, PrecisionSpec


@dataclass(frozen=True, kw_only=True)
class LayerBytes:
    """One layer in bytes per token.

    Attributes:
        saved: kept where nothing is recomputed.
        without_core: kept where core attention is recomputed.
        operations: kept where all but every second matmul and attention is recomputed;
            ``operations_again``: of ``saved``, what that leaves to make again.
        gradients: alive at once while backward passes the layer, beyond what forward kept.
        last_input: the input of its last matmul, which backward frees first.
    """

    saved: BytesPerToken
    without_core: BytesPerToken
    operations: BytesPerToken
    operations_again: BytesPerToken
    gradients: BytesPerToken
    last_input: BytesPerToken


@lru_cache(maxsize=1024)
def layer_bytes(layer: LayerSpec, basis: LayerBasis) -> LayerBytes:
    """All that the memory of one layer is made of."""
    tensors = layer_tensors(layer, basis)
    operations = operation_tensors(layer, basis)
    kept_anyway = {tensor.name for tensor in operations}
    last = block_memory(layer.blocks[-1][1], basis)
    return LayerBytes(
        saved=total(tensors),
        without_core=total(t for t in tensors if not t.in_core),
        operations=total(operations),
        operations_again=total(t for t in tensors if t.name not in kept_anyway),
        gradients=_gradients(layer, basis),
        last_input=last.last_input if _frees_last_input(last, basis) else NOTHING,
    )


def _frees_last_input(block: BlockMemory, basis: LayerBasis) -> bool:
    return basis.adapter is None or frees_last_input(block.saved, basis.adapter)


def layer_tensors(layer: LayerSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """What one layer keeps without recomputation.

    Parallel blocks read one input: with one norm it is kept once, and layer norms of the same
    residual stream keep that once.
    """
    blocks = [block_memory(block, basis) for _, block in layer.blocks]
    tensors = _kept(layer, blocks, basis)
    if basis.adapter is None:
        return tensors
    linears = (t for _, block in layer.blocks for t in block.tensors(basis.hidden_size))
    return (
        *kept_beside_adapters(tensors, basis.adapter),
        *low_rank_outputs(
            linears, basis.adapter, basis.compute_bytes, gathers_latents=basis.gathers_latents
        ),
    )


def unkept(tensors: tuple[SavedTensor, ...], basis: LayerBasis) -> BytesPerToken:
    """Of what a block keeps when all weights are trained, what frozen ones let go after its forward."""
    if basis.adapter is None:
        return NOTHING
    kept = set(kept_beside_adapters(tensors, basis.adapter))
    return total(tensor for tensor in tensors if tensor not in kept)


def _kept(
    layer: LayerSpec, blocks: list[BlockMemory], basis: LayerBasis
) -> tuple[SavedTensor, ...]:
    shared = layer.parallel and len(layer.norms) == 1 and not basis.numerics.is_autocast
    inputs = {one.saved[0].name for one in blocks[1:]} if shared else set()
    return (
        *_norms(layer, basis),
        *(tensor for one in blocks for tensor in one.saved if tensor.name not in inputs),
        *_dropouts(layer, basis),
    )


def _norms(layer: LayerSpec, basis: LayerBasis) -> Iterator[SavedTensor]:
    one_stream = layer.parallel and (basis.layer_norm or basis.norm_kernel == "fused")
    for number, name in enumerate(layer.norms):
        for tensor in norm_tensors(name, basis.hidden_size, basis):
            if not (one_stream and number and tensor.name.endswith(".input")):
                yield tensor


def _dropouts(layer: LayerSpec, basis: LayerBasis) -> Iterator[SavedTensor]:
    """The mask of each dropout on the way back to the residual stream."""
    if basis.hidden_dropout:
        for name, _ in layer.blocks:
            yield SavedTensor(name=f"{name}.dropout_mask", bytes_per_token=basis.hidden_size, split="sequence")  # fmt: skip


def checkpoint_tensors(basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """What one layer keeps when all of it is recomputed: its input."""
    return (SavedTensor(name="layer.input", bytes_per_token=basis.residual_bytes * basis.hidden_size, split="sequence"),)  # fmt: skip


def operation_tensors(layer: LayerSpec, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """What one layer keeps when it is recomputed operation by operation.

    The first, third, fifth ... matmul's output, those of attention kernels and exchanges, and the
    layer's input (torchtitan's ``SelectiveAC``, ``distributed/activation_checkpoint.py``). Compiled
    layers drop outputs that backward has no use for: of the last projection of a block, which only
    the residual stream reads.
    """
    blocks = [block_memory(block, basis) for _, block in layer.blocks]
    matmuls = [tensor for one in blocks for tensor in one.matmul_outputs]
    kept = [t for t in matmuls[::2] if not (basis.compiled and t.name.endswith(".projected"))]
    kernels = (tensor for one in blocks for tensor in one.kernel_outputs)
    return (*checkpoint_tensors(basis), *kept, *kernels)


def head_tensors(basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """What the final norm and the output projection keep, without logits.

    They are no part of a compiled layer, so that the final norm is one kernel only where the engine
    itself has such a kernel.
    """
    outside = replace(basis, norm_kernel=basis.outer_norm_kernel)
    if basis.adapter is not None:
        return kept_beside_adapters(
            norm_tensors("final_norm", basis.hidden_size, outside), basis.adapter
        )
    return (
        *norm_tensors("final_norm", basis.hidden_size, outside),
        linear_input("head.input", basis.hidden_size, 1, basis),
    )


def _gradients(layer: LayerSpec, basis: LayerBasis) -> BytesPerToken:
    """The residual stream's gradient lives throughout; beside it the largest of what each block
    makes and of a norm (an eager one: three fp32 tensors of the hidden size)."""
    each = 2 * basis.compute_bytes if basis.norm_kernel == "fused" else 3 * FP32_BYTES
    candidates = [block_memory(block, basis).gradients for _, block in layer.blocks]
    candidates.append(BytesPerToken(sequence=float(each * basis.hidden_size)))
    largest = max(candidates, key=lambda one: one.undivided)
    return largest + BytesPerToken(sequence=float(basis.residual_bytes * basis.hidden_size))


@dataclass(frozen=True, kw_only=True)
class LossBytes:
    """Bytes per token and vocabulary entry around the loss, besides the logits themselves.

    Attributes:
        kept: from forward to backward of a micro-batch: the fp32 log-probabilities.
        forward, backward: what comes on top while the loss, or its gradient, is computed.
    """

    kept: float
    forward: float
    backward: float


def loss_bytes(precision: PrecisionSpec, kind: LossKind = "plain") -> LossBytes:
    """The loss over logits in the compute type.

    ``plain``, PyTorch's ``cross_entropy`` on logits upcast to fp32: forward makes the fp32 copy
    (none in fp32); backward holds the gradients of the log-probabilities and of the fp32 logits.
    ``fused``: one kernel each way, which keeps the logits and a few figures a token, and whose
    gradient is in the compute type. ``chunked``: no logits of the whole micro-batch exist; the
    gradient of the hidden states is made chunk by chunk.
    """
    element = precision.compute_bytes
    if kind == "chunked":
        return LossBytes(kept=0.0, forward=0.0, backward=0.0)
    if kind == "fused":
        return LossBytes(kept=element, forward=0.0, backward=element)
    upcast = 0 if element == FP32_BYTES else FP32_BYTES
    return LossBytes(kept=FP32_BYTES, forward=upcast, backward=2 * FP32_BYTES)
