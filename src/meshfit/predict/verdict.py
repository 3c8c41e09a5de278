"""Whether a predicted memory fits a device."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["fits", "tight", "does_not_fit"]
VERDICTS: tuple[Verdict, ...] = ("fits", "tight", "does_not_fit")
FITS, TIGHT, DOES_NOT_FIT = range(3)


def verdict_codes(
    *,
    middle_bytes: NDArray[np.float64],
    high_bytes: NDArray[np.float64],
    capacity_bytes: int,
    headroom_fraction: float,
) -> NDArray[np.int8]:
    """Index into ``VERDICTS`` for every layout.

    ``fits``: the upper end of the interval is within ``(1 - headroom) * capacity``. ``tight``: its
    middle is within the capacity. ``does_not_fit``: else.

    Args:
        middle_bytes, high_bytes: of reserved memory plus context (allocated where there is no
            allocator to reserve).
        capacity_bytes: what the device reports.
    """
    fits = high_bytes <= (1 - headroom_fraction) * capacity_bytes
    possible = middle_bytes <= capacity_bytes
    return np.where(fits, FITS, np.where(possible, TIGHT, DOES_NOT_FIT)).astype(np.int8)


def verdict(
    *, middle_bytes: float, high_bytes: float, capacity_bytes: int, headroom_fraction: float
) -> Verdict:
    """``verdict_codes`` of one layout, as a word."""
    codes = verdict_codes(
        middle_bytes=np.array([middle_bytes]),
        high_bytes=np.array([high_bytes]),
        capacity_bytes=capacity_bytes,
        headroom_fraction=headroom_fraction,
    )
    return VERDICTS[int(codes[0])]
