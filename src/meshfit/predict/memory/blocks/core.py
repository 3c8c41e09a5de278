"""The core of softmax attention: from q, k and v to its output."""

from dataclasses import dataclass

from meshfit.predict.shape.layer_basis import FP32_BYTES, AttentionKernel, LayerBasis
from meshfit.predict.shape.saved import SavedTensor

MASK_BYTES = 1
"""Of one element of a dropout mask."""


KERNEL_OUTPUTS = ("attention.out", "attention.log_sum_exp")


@dataclass(frozen=True, kw_only=True)
class Heads:
    """How many heads queries and keys have, and how wide keys and values are."""

    queries: int
    keys: int
    key_dim: int
    value_dim: int
    value_storage: int | None = None
    """Elements a token of the tensor that the values are a view of; None: they are one alone."""

    def kernel(self, basis: LayerBasis) -> AttentionKernel:
        """What computes attention over them."""
        return basis.attention_for(keys=self.keys, key_dim=self.key_dim, value_dim=self.value_dim)


def core_tensors(of: Heads, basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """q, k, v, the output (the input of the output projection), a mask, and what the kernel keeps of
    the scores: log-sum-exp of each row, or the scores themselves."""
    heads, kernel = of.queries, of.kernel(basis)
    element = basis.compute_bytes
    operand = FP32_BYTES if kernel == "math" else element
    repeated = heads if basis.repeats_keys or kernel == "unfused" else of.keys
    out = SavedTensor(name="attention.out", bytes_per_token=element * heads * of.value_dim, split="tp", in_core=True)  # fmt: skip
    return (
        SavedTensor(name="attention.q", bytes_per_token=operand * heads * of.key_dim, split="tp"),
        SavedTensor(name="attention.k", bytes_per_token=operand * repeated * of.key_dim, split="tp"),
        SavedTensor(name=value_name(basis), bytes_per_token=operand * _value_elements(of, repeated, operand, basis), split="tp"),
        out,
        *_mask(basis),
        *_scores(heads, basis, kernel),
    )  # fmt: skip


def _value_elements(of: Heads, repeated: int, operand: int, basis: LayerBasis) -> int:
    """A copy has the values alone: one for every head, or one in another type."""
    is_copy = repeated != of.keys or operand != basis.compute_bytes
    if of.value_storage is None or is_copy:
        return repeated * of.value_dim
    return of.value_storage


def value_name(basis: LayerBasis) -> str:
    """A value that is copied to all heads is another tensor than the projection's output."""
    return "attention.v_repeated" if basis.repeats_keys else "attention.v"


def _mask(basis: LayerBasis) -> tuple[SavedTensor, ...]:
    """One for all heads, of every token's place in its sequence."""
    if not basis.masked:
        return ()
    size = float(basis.compute_bytes * basis.sequence_length)
    return (SavedTensor(name="attention.mask", bytes_per_token=size, split="whole", in_core=True),)


def _scores(heads: int, basis: LayerBasis, kernel: str) -> tuple[SavedTensor, ...]:
    """``heads x sequence`` a token where they are written: the softmax in fp32, its copy in the
    compute type; a soft cap's tanh; with dropout the mask and its output instead of the copy."""
    each = heads * basis.sequence_length
    if kernel == "flash":
        return (
            SavedTensor(name="attention.log_sum_exp", bytes_per_token=FP32_BYTES * heads, split="tp", in_core=True),
        )  # fmt: skip
    sizes = {"attention.softmax_fp32": FP32_BYTES}
    if kernel == "unfused":
        if basis.compute_bytes != FP32_BYTES or basis.attention_dropout:
            sizes["attention.weights"] = basis.compute_bytes
        if basis.scores_capped:
            sizes["attention.capped"] = basis.compute_bytes
        if basis.attention_dropout:
            sizes["attention.dropout_mask"] = MASK_BYTES
    return tuple(
        SavedTensor(name=name, bytes_per_token=size * each, split="tp", in_core=True)
        for name, size in sizes.items()
    )


def kernel_outputs(core: tuple[SavedTensor, ...]) -> tuple[SavedTensor, ...]:
    """Of ``core_tensors``, what the kernel itself returns."""
    return tuple(tensor for tensor in core if tensor.name in KERNEL_OUTPUTS)


def core_gradients(of: Heads, basis: LayerBasis) -> float:
    """Bytes a token of the gradients of q, k, v and of the output, and of written scores, in fp32
    and in the compute type at once."""
    keys = of.queries if basis.repeats_keys else of.keys
    own = basis.compute_bytes * (of.queries + keys) * (of.key_dim + of.value_dim)
    if of.kernel(basis) == "flash":
        return float(own)
    return float(own + (FP32_BYTES + basis.compute_bytes) * of.queries * basis.sequence_length)
