"""Which layouts save checkpoints, and which load them. No torch here."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.run.layouts import Case, _cases

STEPS_BEFORE, STEPS_AFTER = 2, 2


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A layout whose checkpoint after two steps others go on from.

    ``loads`` by number of ranks.
    """

    case: Case
    loads: dict[int, tuple[Case, ...]]
    asynchronous: bool = False

    @property
    def folder(self) -> str:
        return f"checkpoints of {self.case.name}"


def loads_of(saves: Iterable[Saved]) -> list[tuple[Saved, Case]]:
    """What is saved and under which layout it is loaded, each pair once."""
    return [(saved, case) for saved in saves for cases in saved.loads.values() for case in cases]


def _saved(model: str, layout: str, *, asynchronous: bool = False, **loads: str) -> Saved:
    (case,) = _cases(model, layout)
    return Saved(
        case=case,
        loads={
            int(ranks.removeprefix("on_")): tuple(_cases(model, *layouts.split(" ")))
            for ranks, layouts in loads.items()
        },
        asynchronous=asynchronous,
    )


EVERYDAY: list[Saved] = [
    _saved("llama", "dp_shard=2,tp=2,micro_batch_size=2", on_4="dp_shard=4 pp=4", on_2="pp=2"),
    _saved("llama", "pp=2,dp_shard=2", asynchronous=True, on_4="dp_replicate=2,tp=2,micro_batch_size=4"),
    _saved("llama", "dp_shard=4,zero_stage=1", on_4="dp_replicate=4"),
    _saved("llama_tied", "pp=4,micro_batch_size=2",
           on_4="pp=2,vpp=2,dp_replicate=2,schedule=zbv_zero_bubble"),
    _saved("qwen3_moe", "dp_shard=4,ep=2", on_4="dp_shard=4,ep=4"),
]  # fmt: skip
"""Each kind of change once."""

ALL: list[Saved] = [
    _saved(
        "llama",
        "dp_shard=2,tp=2,micro_batch_size=2",
        on_4="dp_shard=2,tp=2,micro_batch_size=2 dp_shard=4 dp_replicate=4 pp=4 "
        "pp=2,tp=2,micro_batch_size=4 dp_shard=4,zero_stage=1",
        on_2="dp_shard=2 pp=2",
        on_1="micro_batch_size=8",
    ),
    _saved("llama", "pp=2,dp_shard=2", asynchronous=True, on_4="dp_shard=4 tp=4,micro_batch_size=8",
           on_2="tp=2,micro_batch_size=8"),
    _saved("llama", "dp_shard=4,zero_stage=1", on_4="dp_replicate=4 pp=2,dp_shard=2",
           on_2="dp_shard=2,zero_stage=1"),
    _saved("llama", "dp_shard=2,tp=2,zero_stage=1,micro_batch_size=2",
           on_4="dp_shard=2,tp=2,zero_stage=1,micro_batch_size=2 dp_shard=4 pp=2,dp_shard=2,zero_stage=1",
           on_2="dp_shard=2,zero_stage=1"),
    _saved("llama", "dp_shard=2,pp=2,zero_stage=1",
           on_4="dp_shard=2,pp=2,zero_stage=1 dp_shard=4,zero_stage=1 dp_replicate=2,tp=2,micro_batch_size=4"),
    _saved("llama_tied", "dp_shard=4", on_4="pp=2,dp_shard=2", on_1="micro_batch_size=8"),
    _saved("llama_tied", "pp=4,micro_batch_size=2", on_4="dp_replicate=4"),
    _saved("llama_tied", "pp=2,vpp=2,dp_shard=2,schedule=zbv_zero_bubble,zero_stage=2",
           on_4="pp=2,vpp=2,dp_shard=2,schedule=zbv_zero_bubble,zero_stage=1 pp=4",
           on_2="pp=2,vpp=2,schedule=dualpipe_v"),
    _saved("qwen3_moe", "dp_shard=4,ep=2", on_4="dp_shard=4,ep=4 pp=2,dp_shard=2,ep=2 dp_replicate=4"),
    _saved("deepseek_v3", "dp_shard=4,ep=4", on_4="dp_shard=4,ep=2", on_1="micro_batch_size=8"),
]  # fmt: skip
"""All of docs/checkpoints.md."""

SETS = {"everyday": EVERYDAY, "all": ALL}
