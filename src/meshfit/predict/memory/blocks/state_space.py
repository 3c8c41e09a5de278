"""Mamba and Mamba-2, as their CUDA kernels keep them.

state-spaces/mamba, ``ops/selective_scan_interface.py`` (``MambaInnerFn``) and
``ops/triton/ssd_combined.py`` (``MambaSplitConv1dScanCombinedFn``): both keep the input projection's
output and the scan's, and compute the convolution and the time steps again in backward.
"""

from meshfit.predict.memory.blocks.parts import BlockMemory, linear_input
from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor
from meshfit.workload.blocks.state_space import Mamba2Spec, MambaSpec

SCAN_CHUNK = 2048
"""Tokens after which Mamba's scan keeps its state (``MAX_DSTATE`` chunks of the kernel)."""


def mamba_memory(block: MambaSpec, basis: LayerBasis) -> BlockMemory:
    """Both halves of the input projection, time step, B and C, the scan's output and the gated one,
    and the fp32 state (a pair an element) every ``SCAN_CHUNK`` tokens."""
    element, inner = basis.compute_bytes, block.inner_size
    low = block.time_step_rank + 2 * block.state_size
    states = 2 * FP32_BYTES * inner * block.state_size / SCAN_CHUNK
    return _mixer(
        basis,
        kept={"xz": 2 * inner * element, "low_rank": low * element, "states": states},
        scanned=inner * element,
        projected=2 * inner * element,
        gradients=4.0 * inner * element,
    )


def mamba2_memory(block: Mamba2Spec, basis: LayerBasis) -> BlockMemory:
    """The input projection's output (gate, x, B, C, time steps), the scan's output, and the gated
    and normalised one that the output projection takes."""
    element, inner = basis.compute_bytes, block.num_heads * block.head_dim
    groups = 2 * block.num_groups * block.state_size
    projected = (2 * inner + groups + block.num_heads) * element
    return _mixer(
        basis,
        kept={"zxbcdt": projected},
        scanned=inner * element,
        projected=projected,
        gradients=float(projected + 2 * inner * element),
    )


def _mixer(
    basis: LayerBasis,
    *,
    kept: dict[str, float],
    scanned: float,
    projected: float,
    gradients: float,
) -> BlockMemory:
    out = SavedTensor(name="mixer.scanned", bytes_per_token=scanned, split="whole")
    gated = SavedTensor(name="mixer.gated", bytes_per_token=scanned, split="whole")
    return BlockMemory(
        saved=(
            linear_input("mixer.input", basis.hidden_size, 1, basis),
            *(SavedTensor(name=f"mixer.{name}", bytes_per_token=size, split="whole") for name, size in kept.items()),
            out,
            gated,
        ),
        matmul_outputs=(
            SavedTensor(name="mixer.projected_in", bytes_per_token=projected, split="whole"),
            SavedTensor(name="mixer.projected", bytes_per_token=basis.compute_bytes * basis.hidden_size, split="sequence"),
        ),
        kernel_outputs=(out,),
        gradients=BytesPerToken(whole=gradients),
        last_input=BytesPerToken(whole=scanned),
    )  # fmt: skip
