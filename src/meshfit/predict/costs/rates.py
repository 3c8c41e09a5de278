"""What an accelerator achieves: matmuls and attention by shape, and passes over memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.costs.tables.attention import attention_table
from meshfit.predict.costs.tables.chips import CHIP_OF, CHIPS
from meshfit.predict.costs.tables.matmul import MatmulTable, matmul_table
from meshfit.workload.training import AttentionKernel, Fp8Recipe

FloatArray = NDArray[np.float64]

TILE = 128
"""Rows and columns of the result that one core computes at once, where nothing was measured."""
K_RAMP = 128
"""Depth of a matmul at which filling and draining a tile's pipeline costs half of its time: a tile's
side, assumed (as much of both operands is fetched before the first product as of one tile)."""

_FALLBACKS = {
    "fp32": ("fp32", "tf32"),
    "bf16_mixed": ("bf16", "fp32", "fp16"),
    "fp16_mixed": ("fp16", "bf16", "fp32"),
    "fp8_mixed": ("fp8",),
    "bf16": ("bf16", "fp32", "fp16"),
}
"""Precision -> types whose rate it computes at, the first that the accelerator has. Where there is no
bf16 (V100, T4), its products are made in fp32."""
_HOPPER = ("H100", "H200")


@dataclass(frozen=True, kw_only=True)
class MatmulRates:
    """FLOP/s of matmuls in one type.

    Attributes:
        flops_per_s: of large ones, where there is no table.
        table: what was measured; ``share`` is what a training step achieves of it.
        num_cores: that tiles are spread over; None where they are not known.
    """

    flops_per_s: float
    table: MatmulTable | None = None
    share: float = 1.0
    num_cores: int | None = None

    def rate(self, m: FloatArray, n: FloatArray, k: FloatArray) -> FloatArray:
        """FLOP/s of ``[m, k] x [k, n]``: measured; else a roofline with whole tiles and waves."""
        if self.table is not None:
            return np.asarray(self.share * self.table.rate(m, n, k))
        if self.num_cores is None:
            return np.full(np.broadcast(m, n, k).shape, self.flops_per_s)
        return np.asarray(self.flops_per_s * self._quantisation(m, n, k))

    def _quantisation(self, m: FloatArray, n: FloatArray, k: FloatArray) -> FloatArray:
        """Share of the work that is wanted: tiles are computed whole, and waves of them too."""
        assert self.num_cores is not None
        tiles = np.ceil(m / TILE) * np.ceil(n / TILE)
        in_tiles = m * n / (tiles * TILE * TILE)
        in_waves = tiles / (np.ceil(tiles / self.num_cores) * self.num_cores)
        return np.asarray(in_tiles * in_waves * k / (k + K_RAMP))


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one accelerator achieves; ``runs_ahead``: whether the host issues work in advance.

    Attributes:
        linear: matmuls of layers, in the type that the precision asks for.
        other: routers, the output head, and what an fp8 recipe leaves in 16 bits.
        chip: of the tables; None where nothing was measured on it.
        slowdown: of attention, whose one long kernel no gaps interrupt.
        attention_over_matmul: where no attention was measured on the chip.
        scan_flops_per_s: of a recurrence's kernels.
        core_share: of a core, what a rank's host has to issue work with; the device's own rates
            are those of its share already.
    """

    linear: MatmulRates
    other: MatmulRates
    memory_bytes_per_s: float
    runs_ahead: bool
    chip: str | None = None
    attention_shares: tuple[tuple[str, float], ...] = ()
    attention_backward_share: float = 1.0
    slowdown: float = 1.0
    attention_over_matmul: float = 1.0
    scan_flops_per_s: float
    core_share: float = 1.0

    def matmul_s(
        self,
        m: FloatArray,
        n: FloatArray,
        k: FloatArray,
        *,
        in_linear: bool = True,
        moved_bytes: FloatArray | float = 0.0,
    ) -> FloatArray:
        """Seconds of one matmul: the larger of arithmetic and of moving ``moved_bytes``."""
        rate = (self.linear if in_linear else self.other).rate(m, n, k)
        return np.asarray(np.maximum(2.0 * m * n * k / rate, moved_bytes / self.memory_bytes_per_s))

    def attention_rate(
        self, heads: FloatArray, length: FloatArray, head_dim: int, kernel: AttentionKernel
    ) -> FloatArray:
        """FLOP/s of a fused kernel's forward over what lies below the diagonal."""
        share = dict(self.attention_shares).get(kernel, 1.0) / self.slowdown
        table = attention_table(self.chip, head_dim) if self.chip else None
        if table is not None:
            return np.asarray(share * table.rate(heads, length))
        over = self.attention_over_matmul * self.other.flops_per_s
        return np.full(np.broadcast(heads, length).shape, share * over)


def rates(
    accelerator: AcceleratorSpec,
    precision_name: str,
    *,
    constants: TimeConstants | None = None,
    fp8_recipe: Fp8Recipe | None = None,
    kernels: str = "pytorch",
    core_share: float = 1.0,
) -> Rates:
    """Achievable rates in a precision.

    What is known of real steps (constants, tables) holds for accelerators of the catalogue; others
    achieve what their specification says.

    Args:
        kernels: whose modules compute (``EngineProfile.kernels``).
        core_share: of a core, what each rank has (``time.shared_cores``).

    Raises:
        InputError: the accelerator has no figure for this precision.
    """
    known = constants or shipped_constants()
    chip = CHIP_OF.get(accelerator.name)
    is_known = accelerator.name in CHIPS
    engine = known[f"engine.{kernels}"] if is_known else 1.0
    throttled = 1 / _power_share(accelerator, known)
    slowdown = throttled / engine
    linear = _matmul_rates(accelerator, precision_name, known, slowdown, fp8_recipe)
    other_name = "bf16_mixed" if precision_name == "fp8_mixed" else precision_name
    other = _matmul_rates(accelerator, other_name, known, slowdown, None)
    return Rates(
        linear=linear,
        other=other,
        memory_bytes_per_s=accelerator.memory_bytes_per_s
        * (known["memory.share"] * engine if is_known else 1.0),
        runs_ahead=accelerator.device_type == "cuda",
        chip=chip,
        attention_shares=_attention_shares(chip, known) if is_known else (),
        attention_backward_share=known["attention.backward"] if is_known else 1.0,
        slowdown=throttled,
        attention_over_matmul=known["attention.over_matmul"] if other.num_cores else 1.0,
        scan_flops_per_s=known["scan.over_matmul"] * other.flops_per_s,
        core_share=core_share,
    )


def _matmul_rates(
    accelerator: AcceleratorSpec,
    precision_name: str,
    constants: TimeConstants,
    slowdown: float,
    recipe: Fp8Recipe | None,
) -> MatmulRates:
    name = _first_known(accelerator, precision_name)
    family = "fp8" if name == "fp8" else "16bit"
    chip = CHIP_OF.get(accelerator.name)
    is_known = accelerator.name in CHIPS and name != "fp32"
    share = 1.0
    if is_known:
        share = constants.of_chip("matmul", chip or accelerator.name.split("-")[0], family)
    if recipe == "rowwise" and name == "fp8":
        share *= constants["matmul.rowwise"]
    kind = "fp8_block" if name == "fp8" and recipe == "blockwise" else name
    peak = accelerator.peak_flops_per_s[name] * accelerator.matmul_fraction
    return MatmulRates(
        flops_per_s=peak * share / slowdown,
        table=matmul_table(chip, kind) if chip and is_known else None,
        share=share / slowdown,
        num_cores=CHIPS[accelerator.name].num_cores if is_known else None,
    )


def _first_known(accelerator: AcceleratorSpec, precision_name: str) -> str:
    for name in _FALLBACKS[precision_name]:
        if name in accelerator.peak_flops_per_s:
            return name
    known = ", ".join(accelerator.peak_flops_per_s)
    raise InputError(
        f"accelerator {accelerator.name} has no peak rate for {precision_name}; known: {known}"
    )


def _power_share(accelerator: AcceleratorSpec, constants: TimeConstants) -> float:
    """Share of its rate that an accelerator keeps under a power limit."""
    limit, chip = accelerator.power_limit_w, CHIPS.get(accelerator.name)
    if limit is None or chip is None or limit >= chip.rated_power_w:
        return 1.0
    return float((limit / chip.rated_power_w) ** constants["power.exponent"])


def _attention_shares(chip: str | None, constants: TimeConstants) -> tuple[tuple[str, float], ...]:
    """Rate of each kernel over that of the tables: on Hopper these are of FlashAttention 3."""
    flash = constants["attention.flash.on_hopper"] if chip in _HOPPER else 1.0
    return (("flash", flash), ("flash1", flash * constants["attention.flash1"]))
