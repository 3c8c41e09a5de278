"""Layouts whose real step is compared with their dry run. No torch here."""

from tests.run.layouts import CASES, STRATEGY_CASES, Case

_NAMES = {
    "llama": (
        "dp_replicate=4",
        "dp_replicate=2,dp_shard=2,zero_stage=1,micro_batch_size=2",
        "dp_shard=4,zero_stage=3",
        "dp_shard=4,zero_stage=2",
        "dp_replicate=2,dp_shard=2,zero_stage=3",
        "tp=4,micro_batch_size=8",
        "dp_replicate=2,tp=2,micro_batch_size=2",
        "dp_shard=2,tp=2,zero_stage=3,micro_batch_size=2",
        "pp=4,schedule=gpipe",
        "pp=4",
        "dp_shard=2,pp=2,vpp=2,schedule=interleaved_1f1b,zero_stage=3,micro_batch_size=2",
        "dp_shard=2,pp=2,zero_stage=3",
        "dp_replicate=2,pp=2,micro_batch_size=2",
        "tp=2,pp=2,micro_batch_size=4",
        "dp_shard=4,zero_stage=3,recompute=full",
        "dp_shard=2,tp=2,zero_stage=3,micro_batch_size=4,recompute=full",
        "dp_replicate=2,cp=2",
        "dp_shard=2,cp=2,cp_method=all_gather,zero_stage=3",
        "tp=2,cp=2,micro_batch_size=4",
    ),
    "llama_uneven": ("dp_replicate=2,dp_shard=2,zero_stage=3",),
    "qwen3": ("pp=4,micro_batch_size=2",),
    "mistral": ("dp_shard=2,tp=2,zero_stage=3,micro_batch_size=4",),
    "gpt2": ("dp_shard=4,zero_stage=3,recompute=full",),
    "deepseek_v3_dense": (
        "dp_shard=2,tp=2,zero_stage=3,micro_batch_size=4",
        "tp=4,micro_batch_size=8",
    ),
    "llama lora": ("dp_replicate=4", "tp=4,micro_batch_size=8"),
    "llama_bytes lora documents": ("tp=4,micro_batch_size=8",),
    "llama bf16_mixed": ("dp_shard=4,zero_stage=3", "pp=4"),
}

NAMES = {f"{model} {label}" for model, labels in _NAMES.items() for label in labels}

COMPARED: list[Case] = [case for case in (*CASES, *STRATEGY_CASES) if case.name in NAMES]

LAST_RANK = 3


def ranks_compared(case: Case) -> tuple[int, ...]:
    """The first rank, and the last where it runs another part of the model."""
    return (0, LAST_RANK) if case.layout.pp > 1 else (0,)


def is_copied_by_gloo(case: Case) -> bool:
    """Whether Gloo works on copies of its own: it reduces and then cuts what it scatters."""
    return case.layout.zero_stage > 1 or case.layout.tp > 1
