"""What tensor parallelism cuts: heads, widths, vocabulary, and the sequence between blocks."""

from typing import Any

from meshfit.mesh.padding import padded_size, padded_vocabulary
from meshfit.mesh.rule import Fact, rule


@rule(
    subject="tp",
    message="{num_attention_heads} attention heads cannot be divided by tp={tp}",
    module="attention",
    lists_all=True,
)
def attention_heads_divisible(num_attention_heads: Fact, tp: Fact) -> Fact:
    """A head is computed by one rank."""
    return num_attention_heads % tp == 0


@rule(
    subject="tp",
    message=(
        "{num_key_value_heads} key/value heads cannot be divided by tp={tp}: "
        "{engine} does not replicate KV heads"
    ),
    module="attention",
    lists_all=True,
)
def key_value_heads_divisible(num_key_value_heads: Fact, tp: Fact) -> Fact:
    """The column-wise split of k_proj and v_proj cuts between heads, and no head is copied."""
    return num_key_value_heads % tp == 0


@rule(
    subject="tp",
    message=(
        "{num_key_value_heads} key/value heads and tp={tp} do not divide one another, so a rank "
        "would hold part of a head"
    ),
    module="attention",
    lists_all=True,
)
def key_value_heads_divide_or_replicate(
    num_key_value_heads: Fact, tp: Fact, key_value_heads_of_layers: tuple[int, ...] = ()
) -> Fact:
    """Up to tp = kv heads they are divided; beyond, each is copied to tp / kv ranks.

    Where layers differ, it holds for every number of heads among them.
    """
    holds: Fact = True
    for heads in key_value_heads_of_layers or (num_key_value_heads,):
        holds = holds & ((heads % tp == 0) | (tp % heads == 0))
    return holds


@rule(
    subject="tp",
    message=(
        "{num_key_value_heads} key/value heads over tp={tp}: each is held by {copies} ranks, and "
        "the memory of keys and values stops shrinking at tp={num_key_value_heads}"
    ),
    details=lambda num_key_value_heads, tp: {
        "copies": "several" if tp % num_key_value_heads else tp // num_key_value_heads
    },
    module="attention",
)
def key_value_heads_replicated(num_key_value_heads: Fact, tp: Fact) -> Fact:
    """Copies of a head are legal, and save nothing."""
    return tp <= num_key_value_heads


@rule(
    subject="tp",
    message=(
        "{mixer_heads} heads of the state-space or linear-attention layers cannot be divided by "
        "tp={tp}"
    ),
    module="mixer",
    lists_all=True,
)
def mixer_heads_divisible(mixer_heads: Fact, tp: Fact) -> Fact:
    """A head and its state are on one rank."""
    return mixer_heads % tp == 0


@rule(
    subject="tp",
    message="{linear_key_heads} key heads of the linear-attention layers cannot be divided by tp={tp}",
    module="mixer",
    lists_all=True,
)
def linear_key_heads_divisible(linear_key_heads: Fact, tp: Fact) -> Fact:
    """A key head serves several value heads, and none is copied."""
    return linear_key_heads % tp == 0


@rule(
    subject="tp",
    message="{state_space_groups} groups of the state-space layers cannot be divided by tp={tp}",
    module="mixer",
    lists_all=True,
)
def state_space_groups_divisible(state_space_groups: Fact, tp: Fact) -> Fact:
    """The heads of a group share B and C, and no group is copied."""
    return state_space_groups % tp == 0


@rule(
    subject="tp",
    message=(
        "{state_space_groups} groups of the state-space layers cannot be divided by tp={tp}: "
        "{engine} copies a single group and no more"
    ),
    module="mixer",
    lists_all=True,
)
def state_space_groups_divisible_or_one(state_space_groups: Fact, tp: Fact) -> Fact:
    """The heads of a group share B and C; one group for all of them lies on every rank."""
    return (state_space_groups == 1) | (state_space_groups % tp == 0)


@rule(
    subject="tp",
    message="{state_space_channels} channels of the state-space layers cannot be divided by tp={tp}",
    module="mixer",
)
def state_space_channels_divisible(state_space_channels: Fact, tp: Fact) -> Fact:
    """A channel and its state are on one rank (Mamba before heads)."""
    return state_space_channels % tp == 0


@rule(
    subject="hidden_size",
    message=(
        "hidden_size {hidden_size} cannot be divided by {num_attention_heads} attention heads, and "
        "no head_dim is given"
    ),
    module="attention",
)
def hidden_size_divisible_by_heads(
    hidden_size: Fact, num_attention_heads: Fact, head_dim: Fact = 0
) -> Fact:
    """Without a head size of its own, a head is an equal part of the hidden states."""
    return (head_dim > 0) | (hidden_size % num_attention_heads == 0)


@rule(
    subject="tp",
    message="intermediate_size {intermediate_size} cannot be divided by tp={tp}",
    module="mlp",
)
def intermediate_size_divisible(intermediate_size: Fact, tp: Fact) -> Fact:
    """The MLP is split along its inner width, in equal shards."""
    return intermediate_size % tp == 0


@rule(
    subject="tp",
    message=(
        "expert width {moe_intermediate_size} cannot be divided by tp={tp}; ep would keep experts "
        "whole"
    ),
    module="routed experts",
)
def expert_width_divisible(moe_intermediate_size: Fact, tp: Fact, ep: Fact = 1) -> Fact:
    """Without ep the routed experts follow the dense tensor-parallel split."""
    return (ep > 1) | (moe_intermediate_size % tp == 0)


@rule(
    subject="etp",
    message="expert width {moe_intermediate_size} cannot be divided by etp={etp}",
    module="routed experts",
)
def expert_width_divisible_by_etp(moe_intermediate_size: Fact, etp: Fact, ep: Fact = 1) -> Fact:
    """With ep, a routed expert is split over the expert tensor-parallel ranks only."""
    return (ep == 1) | (moe_intermediate_size % etp == 0)


@rule(
    subject="tp",
    message="shared expert width {shared_expert_intermediate_size} cannot be divided by tp={tp}",
    module="shared expert",
)
def shared_expert_width_divisible(shared_expert_intermediate_size: Fact, tp: Fact) -> Fact:
    """Shared experts see every token and are split like a dense MLP."""
    return shared_expert_intermediate_size % tp == 0


@rule(
    subject="tp",
    message=(
        "{vision_num_attention_heads} heads of the vision tower cannot be divided by tp={tp}: it "
        "has to be replicated, which costs its full weights on every rank"
    ),
    module="vision tower",
    lists_all=True,
    option_key="vision_replicated",
)
def vision_tower_replicated(vision_num_attention_heads: Fact, tp: Fact) -> Fact:
    """The text model may still be fine."""
    return vision_num_attention_heads % tp == 0


@rule(
    subject="tp",
    message=(
        "vocab_size {vocab_size} cannot be divided by tp={tp}: {engine} does not pad the "
        "vocabulary, and {needed} rows would be needed"
    ),
    details=lambda vocab_size, tp: {"needed": padded_size(vocab_size, tp)},
    module="embedding",
)
def vocabulary_divisible(vocab_size: Fact, tp: Fact) -> Fact:
    """Embedding and head are split along the vocabulary, in equal shards."""
    return vocab_size % tp == 0


def _padding(
    *,
    vocab_size: Any,
    tp: Any,
    vocabulary_multiple: Any,
    vocabulary_multiple_per_rank: Any = False,
) -> dict[str, Any]:
    padded = padded_vocabulary(vocab_size, tp, vocabulary_multiple, vocabulary_multiple_per_rank)
    return {
        "padded": padded,
        "needed": padded_size(vocab_size, tp),
        "needed_of_whole_multiples": padded_size(vocab_size, vocabulary_multiple * tp),
    }


@rule(
    subject="tp",
    message=(
        "vocab_size {vocab_size} is padded to {padded}, a multiple of {vocabulary_multiple}, which "
        "cannot be divided by tp={tp}; {needed} rows would do, or {needed_of_whole_multiples} with "
        "whole multiples of {vocabulary_multiple} on every rank"
    ),
    details=_padding,
    module="embedding",
)
def padded_vocabulary_divisible(vocab_size: Fact, tp: Fact, vocabulary_multiple: Fact) -> Fact:
    """Padding to a fixed multiple helps the degrees that divide what comes out, and no others."""
    return padded_size(vocab_size, vocabulary_multiple) % tp == 0


@rule(
    subject="vocab_size",
    message=(
        "vocab_size {vocab_size} is padded to {padded}: embedding and head count the padded rows, "
        "and a checkpoint for other programs has to cut them off"
    ),
    details=_padding,
    module="embedding",
)
def vocabulary_padded(
    vocab_size: Fact, tp: Fact, vocabulary_multiple: Fact, vocabulary_multiple_per_rank: Fact
) -> Fact:
    """The engine's vocabulary is not the model's."""
    padded = padded_vocabulary(vocab_size, tp, vocabulary_multiple, vocabulary_multiple_per_rank)
    return padded == vocab_size


@rule(
    subject="sp",
    message="sequence parallel (sp) with tp={tp} has no ranks to divide between",
    lists_all=True,
)
def sequence_parallel_needs_tensor_parallel(sp: Fact, tp: Fact) -> Fact:
    """Sequence parallel splits activations over the tensor-parallel ranks."""
    return (sp == 0) | (tp > 1)


@rule(
    subject="sequence_length",
    message="sequence_length {sequence_length} cannot be divided by tp={tp} with sequence parallel",
    module="activations",
)
def sequence_divisible_by_tp(sequence_length: Fact, tp: Fact, sp: Fact = True) -> Fact:
    """Sequence parallel gives every rank an equal part; uneven parts go wrong in silence."""
    return (sp == 0) | (sequence_length % tp == 0)
