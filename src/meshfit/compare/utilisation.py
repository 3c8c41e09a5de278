"""How much of a device's peak a measured throughput makes use of."""

from dataclasses import dataclass

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.units import format_percent
from meshfit.workload.counts import (
    flops_formula,
    forward_flops_per_token,
    head_tensors,
    training_flops_per_token,
)
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """Shares of the dense peak, with what they rest on.

    Attributes:
        mfu: of forward and backward alone (PaLM, 2204.02311, appendix B), causal attention.
        hfu: with what recompute runs again (2205.05198); None where that is not counted.
        flops_per_s: achieved per device, the numerator of ``mfu``.
        peak_flops_per_s: dense, of one device, in the precision of the matmuls.
        formula: of the FLOPs, in words.
    """

    mfu: float
    hfu: float | None
    flops_per_s: float
    peak_flops_per_s: float
    formula: str


def peak_of(accelerator: AcceleratorSpec, training: TrainingSpec) -> float | None:
    """Dense peak of one device for this workload's matmuls, in FLOP/s; None where none is stated.

    A CPU rank has none: what a share of cores can reach no data sheet says.
    """
    if accelerator.device_type == "cpu":
        return None
    return accelerator.peak_flops_per_s.get(training.precision.matmul)


def utilisation(
    model: ModelSpec,
    training: TrainingSpec,
    *,
    tokens_per_s_per_device: float,
    peak_flops_per_s: float,
    layout: LayoutSpec | None = None,
) -> Utilisation:
    """MFU, and HFU under ``layout``'s recompute, of useful tokens a second on one device.

    Raises:
        InputError: either is over 100 %, which no device reaches: something that was put in is wrong.
    """
    per_token = training_flops_per_token(model, training.sequence_length)
    again = None if layout is None else _recomputed_flops_per_token(model, training, layout)
    flops_per_s = per_token * tokens_per_s_per_device
    hardware = None if again is None else (per_token + again) * tokens_per_s_per_device
    for name, rate in (("MFU", flops_per_s), ("HFU", hardware)):
        if rate is not None and rate > peak_flops_per_s:
            raise InputError(
                f"{name} would be {format_percent(rate / peak_flops_per_s)}: {rate:.3g} FLOP/s on a "
                f"device with a dense peak of {peak_flops_per_s:.3g} FLOP/s; the peak (another "
                f"device, or with sparsity), the throughput or the model is not what was given"
            )
    return Utilisation(
        mfu=flops_per_s / peak_flops_per_s,
        hfu=None if hardware is None else hardware / peak_flops_per_s,
        flops_per_s=flops_per_s,
        peak_flops_per_s=peak_flops_per_s,
        formula=f"3 x forward; {flops_formula(model)}; causal attention",
    )


def _recomputed_flops_per_token(
    model: ModelSpec, training: TrainingSpec, layout: LayoutSpec
) -> float | None:
    """FLOPs that recompute adds to each token: the layers' forward once more; None if only parts of
    a layer, or of the layers, are recomputed."""
    if layout.recompute == "none":
        return 0.0
    if layout.recompute != "full":
        return None
    head = 2 * sum(tensor.matmul_elements for tensor in head_tensors(model))
    return forward_flops_per_token(model, training.sequence_length) - head
