"""The interface through which rules and predictions see an engine.

A mesh alone does not decide memory or speed: the engine does too. Each engine keeps its own
profile in ``engines/NAME/profile.py``; the packages below only ever see this type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """What one release of one engine does with a layout.

    Attributes:
        rules: names of the rules of ``mesh.rules`` that hold for this engine.
        rank_order: mesh axes from the outermost (ranks farthest apart) to the innermost (adjacent).
        option_names: layout key -> the engine's own spelling; keys it lacks map to themselves.
        schedules: pipeline schedules it runs.
        zero_stages: ZeRO stages it runs.
        live_unsharded_blocks: blocks whose full parameters are in memory at once under a sharded
            stage 3 (the one in use plus those prefetched).
        gradient_bytes_per_parameter: bytes of one gradient as it is kept between micro-batches.
        context_bytes: memory of a CUDA context and its communicators outside the allocator.
        allocator_overhead_fraction: reserved / allocated - 1 on a CUDA device.
    """

    name: str
    version: str
    rules: tuple[str, ...]
    rank_order: tuple[str, ...]
    schedules: tuple[str, ...]
    zero_stages: tuple[int, ...]
    recompute: tuple[str, ...]
    option_names: Mapping[str, str] = field(default_factory=dict)
    live_unsharded_blocks: int = 2
    gradient_bytes_per_parameter: int = 4
    context_bytes: int = 0
    allocator_overhead_fraction: float = 0.0

    def option(self, key: str) -> str:
        """The engine's own name of layout key ``key``."""
        return self.option_names.get(key, key)
