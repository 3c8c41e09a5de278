"""What a whole training run is given: tokens, a price, and how often machines fail."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BudgetSpec:
    """One training run from its first step to its last.

    Attributes:
        tokens: tokens to train on.
        price_per_device_h, currency: of one accelerator for an hour; None leaves cost out.
        mtbf_device_s: accelerator-seconds between failures that stop the job; None: none happen.
        restart_s: from a failure until the job trains again.
        save_s: seconds in which nothing is trained while a checkpoint is written; None: its size
            over what the cluster's storage takes.
        checkpoint_interval_s: training time between checkpoints; None: the best one.
    """

    tokens: int
    price_per_device_h: float | None = None
    currency: str = "USD"
    mtbf_device_s: float | None = None
    restart_s: float = 600.0
    save_s: float | None = None
    checkpoint_interval_s: float | None = None
