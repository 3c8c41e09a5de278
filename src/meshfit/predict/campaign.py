"""Days, accelerator-hours, cost and goodput of a whole training run.

Failures are taken as a Poisson process over all accelerators, after J. T. Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006).
"""

import math
from dataclasses import dataclass

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError
from meshfit.predict.memory.states import moment_bytes
from meshfit.predict.shape.held import model_held
from meshfit.units import format_duration
from meshfit.workload.budget import BudgetSpec
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

HOUR_S = 3600.0
LARGEST_FACTOR = 1000.0
"""Wall over training time from which a run is said to make no progress."""


@dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """What failures and the guard against them cost.

    Attributes:
        size_bytes: one checkpoint, over all ranks: parameters and optimizer state.
        save_s: seconds in which nothing is trained while it is written.
        interval_s: seconds of training between two of them.
    """

    size_bytes: int
    save_s: float
    interval_s: float


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """One training run.

    Attributes:
        steps: optimizer steps.
        training_s: seconds of steps alone; ``wall_s`` with checkpoints, failures and restarts.
        goodput: training_s / wall_s, 0-1.
        device_h: accelerator-hours of ``wall_s``.
        cost: in the currency of the budget; None without a price.
        checkpointing: None where nothing fails, so that nothing need be saved.
    """

    steps: int
    training_s: float
    wall_s: float
    device_h: float
    cost: float | None
    checkpointing: Checkpointing | None

    @property
    def goodput(self) -> float:
        return self.training_s / self.wall_s


def checkpoint_bytes(model: ModelSpec, training: TrainingSpec) -> int:
    """Bytes of one checkpoint: the trained parameters and the optimizer's moments, once each.

    Weights that adapters leave frozen are not written again.
    """
    held = model_held(model, training.adapter)
    parameters = held.trained.total * training.precision.parameter_bytes
    return round(parameters + moment_bytes(held, training).total)


def save_seconds(size_bytes: int, topology: Topology) -> float:
    """Seconds to write a checkpoint, every host writing its share at its own rate.

    Raises:
        InputError: the cluster does not say how fast a host writes.
    """
    rate = topology.storage_write_bytes_per_s
    if rate is None:
        raise InputError(
            "budget.mtbf needs the time of a checkpoint, and the cluster names no storage: write "
            "budget.save: 60 s, or storage: {write: 2 GB/s per node} in the cluster's file"
        )
    return size_bytes / (rate * topology.num_hosts)


def best_interval_s(save_s: float, mtbf_s: float) -> float:
    """Training time between checkpoints that loses least (Daly 2006, equation 37).

    ``sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d`` for ``d < 2M``, else M.
    """
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def wall_factor(checkpointing: Checkpointing, mtbf_s: float, restart_s: float) -> float:
    """Wall time over training time: ``M e^(R/M) (e^((t + d)/M) - 1) / t`` (Daly 2006, equation 20).

    Raises:
        InputError: failures come too fast for any progress.
    """
    interval = checkpointing.interval_s
    try:
        segment = math.expm1((interval + checkpointing.save_s) / mtbf_s)
        factor = mtbf_s * math.exp(restart_s / mtbf_s) * segment / interval
    except OverflowError:
        factor = math.inf
    if factor > LARGEST_FACTOR:
        raise InputError(
            f"budget: a failure every {format_duration(mtbf_s)} leaves no time to train, with "
            f"{format_duration(checkpointing.save_s)} to save after every "
            f"{format_duration(interval)} and {format_duration(restart_s)} to restart; save faster "
            f"or more rarely (budget.save, checkpoint_every), or use fewer accelerators"
        )
    return factor


def campaign(
    budget: BudgetSpec,
    *,
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    step_s: float,
) -> Campaign:
    """The whole run, given what one optimizer step takes.

    Raises:
        InputError: machines fail, and neither budget nor cluster says how long a checkpoint takes,
            or they fail too often for any progress.
    """
    steps = math.ceil(budget.tokens / training.useful_tokens_per_step)
    training_s = steps * step_s
    checkpointing, factor = None, 1.0
    if budget.mtbf_device_s is not None:
        mtbf_s = budget.mtbf_device_s / topology.num_accelerators
        checkpointing = _checkpointing(budget, model, training, topology, mtbf_s)
        factor = wall_factor(checkpointing, mtbf_s, budget.restart_s)
    wall_s = training_s * factor
    device_h = wall_s * topology.num_accelerators / HOUR_S
    price = budget.price_per_device_h
    return Campaign(
        steps=steps,
        training_s=training_s,
        wall_s=wall_s,
        device_h=device_h,
        cost=None if price is None else device_h * price,
        checkpointing=checkpointing,
    )


def _checkpointing(
    budget: BudgetSpec,
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    mtbf_s: float,
) -> Checkpointing:
    size = checkpoint_bytes(model, training)
    save_s = save_seconds(size, topology) if budget.save_s is None else budget.save_s
    interval_s = budget.checkpoint_interval_s or best_interval_s(save_s, mtbf_s)
    return Checkpointing(size_bytes=size, save_s=save_s, interval_s=interval_s)
