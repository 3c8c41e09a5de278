"""Which layouts save checkpoints, and which load them. No torch here."""

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


SAVED: list[Saved] = [
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
    _saved("llama_tied", "dp_shard=4", on_4="pp=2,dp_shard=2", on_1="micro_batch_size=8"),
    _saved("llama_tied", "pp=4,micro_batch_size=2", on_4="dp_replicate=4"),
    _saved("qwen3_moe", "dp_shard=4,ep=2", on_4="dp_shard=4,ep=4 pp=2,dp_shard=2,ep=2 dp_replicate=4"),
    _saved("deepseek_v3", "dp_shard=4,ep=4", on_4="dp_shard=4,ep=2", on_1="micro_batch_size=8"),
]  # fmt: skip
