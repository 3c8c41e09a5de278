"""The replicas that are simulated: one pool, or one for prompts and one for output."""

from collections.abc import Callable
from dataclasses import dataclass

from meshfit.serve.asked.routing import Policy
from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.simulate.step_table import StepTable


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Equal replicas behind a router."""

    replicas: int
    scheduler: SchedulerSpec
    table: StepTable
    policy: Policy = "round_robin"


@dataclass(frozen=True, kw_only=True)
class TwoPools:
    """Replicas that compute prompts, and others that go on from their KV cache.

    ``transfer_s``: seconds that the cache of a prompt of so many tokens takes from one to the other.
    """

    prefill: Pool
    decode: Pool
    transfer_s: Callable[[int], float]


Pools = Pool | TwoPools
