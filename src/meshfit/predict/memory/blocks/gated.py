"""Short gated convolutions (LFM2) and Griffin's gated recurrence."""

from meshfit.predict.memory.blocks.parts import BlockMemory, linear_input
from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor
from meshfit.workload.blocks.convolution import ShortConvolutionSpec
from meshfit.workload.blocks.linear import GatedRecurrenceSpec


def short_convolution_memory(block: ShortConvolutionSpec, basis: LayerBasis) -> BlockMemory:
    """Both gates and x as one projection makes them, x gated, convolved, and gated again."""
    each = basis.compute_bytes * block.width
    return _gated_memory(basis, {"gates_and_x": 3 * each, "gated": each, "convolved": each}, each)


def gated_recurrence_memory(block: GatedRecurrenceSpec, basis: LayerBasis) -> BlockMemory:
    """Both branches, the convolution's output, two gates, and in fp32 decay, input and states of
    the recurrence."""
    each = basis.compute_bytes * block.width
    kept = {
        "branches": 3 * each,
        "convolved": each,
        "gates": 2 * each,
        "recurrence": 3 * FP32_BYTES * block.width,
    }
    return _gated_memory(basis, kept, each)


def _gated_memory(basis: LayerBasis, kept: dict[str, int], width_bytes: int) -> BlockMemory:
    made = next(iter(kept))
    return BlockMemory(
        saved=(
            linear_input("mixer.input", basis.hidden_size, 1, basis),
            *(SavedTensor(name=f"mixer.{name}", bytes_per_token=size, split="whole") for name, size in kept.items()),
            SavedTensor(name="mixer.product", bytes_per_token=width_bytes, split="whole"),
        ),
        matmul_outputs=(
            SavedTensor(name=f"mixer.{made}", bytes_per_token=kept[made], split="whole"),
            SavedTensor(name="mixer.projected", bytes_per_token=basis.compute_bytes * basis.hidden_size, split="sequence"),
        ),
        gradients=BytesPerToken(whole=4.0 * width_bytes),
        last_input=BytesPerToken(whole=float(width_bytes)),
    )  # fmt: skip
