"""What a person bounds or pins of the space of layouts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """Allowed values by axis or policy; None: everything that makes sense is searched, but of
    ``offload`` nothing (moving things to the host is a matter of what the host has to spare) and of
    ``cp_method`` the engine's own.

    A bound on a policy concerns the layouts in which the policy means something: ``vpp`` and
    ``schedule`` those with pp > 1, ``sp`` those with tp > 1, ``zero_stage`` those with
    dp_shard > 1, ``cp_method`` those with cp > 1, ``etp`` those with ep > 1. So ``zero_stage=(3,)``
    keeps plain data parallel; ``dp_replicate=(1,)`` drops it.
    """

    dp_replicate: tuple[int, ...] | None = None
    dp_shard: tuple[int, ...] | None = None
    tp: tuple[int, ...] | None = None
    sp: tuple[bool, ...] | None = None
    cp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    vpp: tuple[int, ...] | None = None
    schedule: tuple[str, ...] | None = None
    ep: tuple[int, ...] | None = None
    etp: tuple[int, ...] | None = None
    zero_stage: tuple[int, ...] | None = None
    micro_batch_size: tuple[int, ...] | None = None
    recompute: tuple[str, ...] | None = None
    cp_method: tuple[str, ...] | None = None
    offload: tuple[str, ...] | None = None
