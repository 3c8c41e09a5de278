"""What one accelerator achieves inside a server, and what an engine adds to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.predict.costs.constants import TimeConstants, read_constants
from meshfit.predict.costs.rates import MatmulRates, Rates, rates
from meshfit.predict.costs.tables.chips import CHIP_OF, CHIPS, LINK_OF
from meshfit.predict.costs.tables.matmul import matmul_table
from meshfit.serve.asked.traffic import Metric
from meshfit.serve.time.matmuls import ComputeType

FILE = "constants.csv"
_PEAK: dict[ComputeType, str] = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "fp4": "fp4"}
_FAMILY = {"bf16": "16bit", "fp8": "fp8", "fp8_block": "fp8", "fp4": "fp4"}


@cache
def serving_constants() -> TimeConstants:
    """What is known of servers beyond single operations."""
    return read_constants(FILE, "meshfit.serve.time")


def likely_range(metric: Metric, seconds: float) -> tuple[float, float]:
    """Where four of five measured servers lie around a predicted latency; a gap between tokens is as
    sure as their mean, the whole of a request as its first token."""
    kind = "tpot" if metric in ("tpot", "itl") else "ttft"
    factor = math.exp(serving_constants()[f"spread.{kind}"])
    return seconds / factor, seconds * factor


def is_measured(accelerator: str) -> bool:
    """Whether servers on that accelerator's chip were measured, so that its constants are fitted."""
    entry = serving_constants().entries.get(f"memory.{CHIP_OF.get(accelerator)}")
    return entry is not None and entry.is_fitted


@dataclass(frozen=True, kw_only=True)
class ServingDevice:
    """Rates and overheads of one accelerator under one engine.

    Attributes:
        matmul: rates by what products are made in.
        experts: rate of grouped matmuls over that of single ones.
        memory_bytes_per_s: of weights and activations; ``cache_bytes_per_s`` of attention's decode.
        attention: rates of attention over prompts and of recurrences.
        attention_share: of those rates, what is achieved here.
        latent_flops_per_s: of latent attention's decode; ``scan_flops_per_s`` of recurrences.
        custom_s: of a smallest all_reduce by the engine's own kernel.
        launch_s: of the host for each kernel that no graph holds.
        kernel_s, step_s, sequence_s, request_s: see ``constants.csv``.
    """

    matmul: Mapping[ComputeType, MatmulRates]
    experts: float
    memory_bytes_per_s: float
    cache_bytes_per_s: float
    attention: Rates
    attention_share: float
    latent_flops_per_s: float
    scan_flops_per_s: float
    custom_s: float
    launch_s: float
    kernel_s: float
    step_s: float
    sequence_s: float
    request_s: float


def serving_device(
    accelerator: AcceleratorSpec,
    engine: str,
    *,
    release: str = "",
    constants: TimeConstants | None = None,
) -> ServingDevice:
    """What ``accelerator`` achieves under a release of ``engine``.

    Raises:
        InputError: the accelerator has no rate in 16 bits.
    """
    known = constants or serving_constants()
    chip = CHIP_OF.get(accelerator.name)
    name = chip or accelerator.name.partition("-")[0]
    memory = accelerator.memory_bytes_per_s * _of(known, "memory", name)
    attention = rates(accelerator, "bf16_mixed")
    large = accelerator.peak_flops_per_s["bf16"] * accelerator.matmul_fraction
    kinds: tuple[ComputeType, ...] = ("bf16", "fp8", "fp8_block", "fp4")
    matmul = {
        kind: _matmul_rates(accelerator, kind, known, chip, name)
        for kind in kinds
        if _PEAK[kind] in accelerator.peak_flops_per_s
    }
    return ServingDevice(
        matmul=matmul,
        experts=_of(known, "experts", name),
        memory_bytes_per_s=memory,
        cache_bytes_per_s=memory * _of(known, "cache", name),
        attention=attention,
        attention_share=known["attention"],
        latent_flops_per_s=known["latent"] * large,
        scan_flops_per_s=known["scan"] * large,
        custom_s=_of(known, "custom", LINK_OF.get(accelerator.name, "other")),
        launch_s=_of(known, "launch", name),
        kernel_s=_of(known, "kernel", engine),
        step_s=_of(known, "step", engine),
        sequence_s=_of(known, "sequence", engine),
        request_s=of_release(known, "request", engine, release),
    )


def _matmul_rates(
    accelerator: AcceleratorSpec,
    kind: ComputeType,
    constants: TimeConstants,
    chip: str | None,
    name: str,
) -> MatmulRates:
    share = constants.of_chip("matmul", name, _FAMILY[kind])
    peak = accelerator.peak_flops_per_s[_PEAK[kind]] * accelerator.matmul_fraction
    return MatmulRates(
        flops_per_s=peak * share,
        table=matmul_table(chip, kind) if chip else None,
        share=share,
        num_cores=CHIPS[accelerator.name].num_cores if accelerator.name in CHIPS else None,
    )


def _of(constants: TimeConstants, kind: str, name: str) -> float:
    """``KIND.NAME``, or that of others."""
    own = f"{kind}.{name}"
    return constants[own if own in constants.entries else f"{kind}.other"]


def of_release(constants: TimeConstants, kind: str, engine: str, release: str) -> float:
    """``KIND.ENGINE-RELEASE``, or that of the engine, or of others."""
    own = f"{kind}.{engine}-{release}"
    return constants[own] if own in constants.entries else _of(constants, kind, engine)
