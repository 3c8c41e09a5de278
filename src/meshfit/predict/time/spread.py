"""How far a prediction may lie from what will be measured, by what it is made of.

**Step time.** Terms err on their own, each as a share of itself; what rests on no measurement errs
more. The spread of the sum is the root of the squares, and a floor that even equal configurations
repeat with. Shares are those of ``constants.csv`` (``spread.*``), scaled so that 80 % of the
residuals of published measurements lie inside.

**Memory.** What is allocated errs as a share of itself, by what the engine's memory model was checked
against; what the allocator holds beyond it, and what lies outside, each as a share of itself. The
shares (``spread.memory.*``) are half widths of 80 % intervals.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.predict.costs.constants import TimeConstants
from meshfit.predict.costs.tables.chips import CHIP_OF
from meshfit.profile import EngineProfile
from meshfit.workload.training import PrecisionSpec

FloatArray = NDArray[np.float64]

COMPUTED = ("compute", "recompute")
IDLE = ("bubble",)
ONCE = ("optimizer", "other")

HALF_WIDTH_OF_80_PERCENT = 1.2816
"""Standard deviations of a normal distribution from its middle to the end of its 80 % interval."""


def is_measured(accelerator: AcceleratorSpec, precision: PrecisionSpec) -> bool:
    """Whether matmuls and attention are read from tables that were measured on this chip."""
    return accelerator.name in CHIP_OF and precision.matmul != "fp32"


def step_spread(
    terms: Mapping[str, FloatArray], constants: TimeConstants, *, measured: bool
) -> FloatArray:
    """Factor for every layout: the step is believed to lie between ``t / spread`` and
    ``t * spread`` in 80 % of cases.

    Args:
        terms: seconds by term (``step.TERMS``).
        measured: see ``is_measured``.
    """
    total = np.maximum(sum(terms.values(), start=np.zeros(1)), 1e-30)
    by_kind: dict[float, FloatArray] = {}
    for name, seconds in terms.items():
        kind = _share_of_itself(name, constants, measured=measured)
        by_kind[kind] = by_kind.get(kind, np.zeros(1)) + seconds
    variance = sum(
        ((kind * seconds / total) ** 2 for kind, seconds in by_kind.items()),
        start=np.full(total.shape, constants["spread.floor"] ** 2),
    )
    return np.asarray(np.exp(constants["spread.scale"] * np.sqrt(variance)))


def term_spreads(names: Sequence[str], constants: TimeConstants, *, measured: bool) -> FloatArray:
    """Factor for every term, as ``step_spread`` has it for their sum, [terms]."""
    shares = [_share_of_itself(name, constants, measured=measured) for name in names]
    return np.asarray(np.exp(constants["spread.scale"] * np.array(shares)))


def drawn_steps(
    terms: FloatArray, spreads: FloatArray, own_spread: float, *, draws: int
) -> FloatArray:
    """Seconds that the steps of N layouts may take, [N, draws]; the same ones each time.

    A term errs alike in every layout that has it: computation that is slower than predicted slows all
    of them, a slow exchange those that wait for it. What remains is each layout's own.

    Args:
        terms: seconds, [N, terms].
        spreads: factor of each term's 80 % interval, [terms].
        own_spread: the same for what equal layouts differ by.
    """
    random = np.random.default_rng(0)
    shared = random.standard_normal((terms.shape[1], draws)) / HALF_WIDTH_OF_80_PERCENT
    own = random.standard_normal((terms.shape[0], draws)) / HALF_WIDTH_OF_80_PERCENT
    seconds = terms @ np.exp(np.log(spreads)[:, None] * shared)
    return np.asarray(seconds * np.exp(np.log(own_spread) * own))


def _share_of_itself(name: str, constants: TimeConstants, *, measured: bool) -> float:
    """Of a term: what it errs by."""
    if name in COMPUTED:
        return constants["spread.computed.measured" if measured else "spread.computed.roofline"]
    if name in IDLE:
        return constants["spread.bubble"]
    return constants["spread.once" if name in ONCE else "spread.communicated"]


def memory_spread(
    *,
    allocated: FloatArray,
    reserved: FloatArray,
    context: FloatArray,
    profile: EngineProfile,
    constants: TimeConstants,
    assumptions: int = 0,
) -> FloatArray:
    """Factor for every layout: reserved memory and context are believed to lie between
    ``total / spread`` and ``total * spread`` in 80 % of cases.

    Args:
        allocated, reserved, context: bytes; reserved holds allocated.
        assumptions: choices that decide memory and were not stated, such as the micro-batch.
    """
    variance = (
        (constants[f"spread.memory.{profile.memory_checked}"] * allocated) ** 2
        + (constants["spread.memory.held_free"] * (reserved - allocated)) ** 2
        + (constants["spread.memory.context"] * context) ** 2
        + assumptions * (constants["spread.memory.assumed"] * allocated) ** 2
    )
    return np.asarray(np.exp(np.sqrt(variance) / np.maximum(reserved + context, 1.0)))
