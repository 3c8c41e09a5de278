"""How a model is divided to be served.

One replica is a pipeline of ``pp`` stages; a stage has ``tp x attention_dp`` ranks. Attention of one
sequence is cut over ``tp`` ranks, and ``attention_dp`` such groups share out the sequences; experts
are spread over ``ep`` of the stage's ranks, and each expert is cut over the rest of them
(``expert_tp``). Dense MLPs, embedding and head are cut over tp.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

Phase = Literal["both", "prefill", "decode"]
"""What a pool of replicas computes of a request."""


@dataclass(frozen=True, kw_only=True)
class ServingLayout:
    """Equal replicas, each of ``ranks_per_replica`` accelerators."""

    replicas: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1

    @property
    def ranks_per_stage(self) -> int:
        return self.tp * self.attention_dp

    @property
    def ranks_per_replica(self) -> int:
        return self.ranks_per_stage * self.pp

    @property
    def num_accelerators(self) -> int:
        return self.replicas * self.ranks_per_replica

    @property
    def expert_tp(self) -> int:
        """Ranks that one expert is cut over."""
        return self.ranks_per_stage // self.ep

    @property
    def label(self) -> str:
        """Every key that is not 1: ``replicas=2,tp=4``; ``single`` where all are."""
        return ",".join(f"{key}={value}" for key, value in self.as_json().items()) or "single"

    def as_json(self) -> dict[str, Any]:
        """Keys that are not 1, in a fixed order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {key: value for key, value in values.items() if value != 1}


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Settings of the engines of one pool; None: those of the job, else the engine's defaults."""

    memory_fraction: float | None = None
    max_sequences: int | None = None
    step_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class DisaggregatedLayout:
    """Replicas that only compute prompts, and others that go on from their KV cache.

    ``replicas`` of each pool counts its workers.
    """

    prefill: ServingLayout
    decode: ServingLayout
    prefill_settings: PoolSettings = PoolSettings()
    decode_settings: PoolSettings = PoolSettings()

    @property
    def num_accelerators(self) -> int:
        return self.prefill.num_accelerators + self.decode.num_accelerators

    @property
    def label(self) -> str:
        return f"prefill({self.prefill.label}) decode({self.decode.label})"

    def as_json(self) -> dict[str, Any]:
        return {"prefill": self.prefill.as_json(), "decode": self.decode.as_json()}


Deployment = ServingLayout | DisaggregatedLayout
