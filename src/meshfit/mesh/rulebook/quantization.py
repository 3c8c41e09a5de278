"""Blocks and groups of quantised weights that a cut must keep whole."""

from collections.abc import Callable
from typing import Any

from meshfit.mesh.rule import Fact, rule


def _per_rank(width_name: str) -> Callable[..., dict[str, Any]]:
    """``per_rank``, what a rank holds of the width of that name, for a message."""

    def details(*, tp: int, **facts: Any) -> dict[str, Any]:
        width = facts[width_name]
        return {"per_rank": width // tp if width % tp == 0 else f"{width / tp:.1f}"}

    return details


def _is_kept(width: Fact, tp: Fact, block_size: Fact) -> Fact:
    return width % (block_size * tp) == 0


@rule(
    subject="tp",
    message=(
        "FFN width per rank {per_rank} cuts a quantisation {quantization_unit} of "
        "{quantization_block_size} ({intermediate_size} over tp={tp})"
    ),
    details=_per_rank("intermediate_size"),
    module="mlp",
    lists_all=True,
)
def dense_width_keeps_quantization(
    intermediate_size: Fact,
    tp: Fact,
    quantization_block_size: Fact,
    quantization_unit: Fact = "block",
) -> Fact:
    """One scale serves a block of weights, which has to lie on one rank."""
    return _is_kept(intermediate_size, tp, quantization_block_size)


@rule(
    subject="tp",
    message=(
        "expert width per rank {per_rank} cuts a quantisation {quantization_unit} of "
        "{quantization_block_size} ({moe_intermediate_size} over tp={tp}); ep would keep experts whole"
    ),
    details=_per_rank("moe_intermediate_size"),
    module="routed experts",
    lists_all=True,
)
def expert_width_keeps_quantization(
    moe_intermediate_size: Fact,
    tp: Fact,
    quantization_block_size: Fact,
    ep: Fact = 1,
    quantization_unit: Fact = "block",
) -> Fact:
    """As for a dense MLP; with ep an expert is not cut."""
    return (ep > 1) | _is_kept(moe_intermediate_size, tp, quantization_block_size)


@rule(
    subject="tp",
    message=(
        "shared expert width per rank {per_rank} cuts a quantisation {quantization_unit} of "
        "{quantization_block_size} ({shared_expert_intermediate_size} over tp={tp})"
    ),
    details=_per_rank("shared_expert_intermediate_size"),
    module="shared expert",
    lists_all=True,
)
def shared_expert_width_keeps_quantization(
    shared_expert_intermediate_size: Fact,
    tp: Fact,
    quantization_block_size: Fact,
    quantization_unit: Fact = "block",
) -> Fact:
    """Shared experts are cut by tp even where routed ones are whole."""
    return _is_kept(shared_expert_intermediate_size, tp, quantization_block_size)


@rule(
    subject="tp",
    message=(
        "attention width per rank {per_rank} cuts a quantisation {quantization_unit} of "
        "{attention_quantization_block_size} ({attention_width} over tp={tp})"
    ),
    details=_per_rank("attention_width"),
    module="attention",
    lists_all=True,
)
def attention_width_keeps_quantization(
    attention_width: Fact,
    tp: Fact,
    attention_quantization_block_size: Fact,
    quantization_unit: Fact = "block",
) -> Fact:
    """The output projection is cut along the heads, its inputs."""
    return _is_kept(attention_width, tp, attention_quantization_block_size)


@rule(
    subject="tp",
    message=(
        "keys of {per_rank} channels a rank cut a quantisation block of "
        "{key_value_quantization_rows} ({num_key_value_heads} key/value heads of {head_dim} over "
        "tp={tp})"
    ),
    details=lambda num_key_value_heads, head_dim, tp, **_: {
        "per_rank": max(1, num_key_value_heads // tp) * head_dim
    },
    module="attention",
    lists_all=True,
)
def key_value_width_keeps_quantization(
    num_key_value_heads: Fact, head_dim: Fact, tp: Fact, key_value_quantization_rows: Fact
) -> Fact:
    """Keys and values are cut by heads, their outputs, down to one head a rank."""
    held = num_key_value_heads // tp
    held = held + (held == 0)
    return (tp == 1) | ((held * head_dim) % key_value_quantization_rows == 0)
