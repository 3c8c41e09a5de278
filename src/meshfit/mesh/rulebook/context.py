"""What context parallelism cuts: the sequence, or heads of the whole sequence."""

import numpy as np

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} cannot be divided by 2*cp*tp = 2*{cp}*{tp} "
        "(tp counts with sequence parallel only)"
    ),
    module="attention",
)
def sequence_divisible_by_cp(
    sequence_length: Fact, cp: Fact, tp: Fact = 1, sp: Fact = True
) -> Fact:
    """Balanced causal shards are two chunks a rank, each split again by sequence parallel."""
    return (cp == 1) | (sequence_length % (2 * cp * (1 + (tp - 1) * (sp != 0))) == 0)


@rule(
    subject="sequence_length",
    message="sequence_length {sequence_length} cannot be divided by 2*cp = 2*{cp}",
    module="attention",
)
def sequence_in_two_chunks(sequence_length: Fact, cp: Fact) -> Fact:
    """Balanced causal shards are two chunks a rank, one early and one late."""
    return (cp == 1) | (sequence_length % (2 * cp) == 0)


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} cannot be divided by cp*tp = {cp}*{tp} with sequence "
        "parallel"
    ),
    module="activations",
)
def sequence_divisible_by_cp_and_tp(
    sequence_length: Fact, tp: Fact, cp: Fact = 1, sp: Fact = True
) -> Fact:
    """A context-parallel rank's part is split again over its tensor-parallel ranks."""
    return (sp == 0) | (sequence_length % (cp * tp) == 0)


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} cannot be divided over cp={cp} ranks "
        "(exchange {cp_exchange}: equal parts; any other: two chunks each)"
    ),
    module="attention",
)
def sequence_divisible_by_exchange(sequence_length: Fact, cp: Fact, cp_exchange: Fact) -> Fact:
    """All-to-all over heads takes one part a rank, a balanced exchange of keys two."""
    parts = cp * (1 + (cp_exchange != "all_to_all"))
    return (cp == 1) | (sequence_length % parts == 0)


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} is more than the {max_position_embeddings} positions "
        "of the model"
    ),
    module="attention",
)
def sequence_within_positions(
    sequence_length: Fact, max_position_embeddings: Fact, allows_longer: Fact = False
) -> Fact:
    """The engine builds its rotary table for so many positions and refuses more, unless a server is told
    otherwise."""
    return (allows_longer != 0) | (sequence_length <= max_position_embeddings)


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} is more than the {max_position_embeddings} learned "
        "positions of the model"
    ),
    module="embedding",
)
def sequence_within_learned_positions(
    sequence_length: Fact, max_position_embeddings: Fact, learned_positions: Fact
) -> Fact:
    """A learned position embedding has a row for each position and no more."""
    return (learned_positions <= 0) | (sequence_length <= max_position_embeddings)


@rule(
    subject="cp_method",
    message="{engine} does not run cp_method={cp_method!r}",
    lists_all=True,
)
def cp_method_known(cp_method: Fact, cp_methods: Fact) -> Fact:
    """An engine runs the exchanges it has."""
    return np.isin(cp_method, cp_methods)


@rule(
    subject="cp",
    message=(
        "{num_attention_heads} attention heads cannot be divided by cp={cp} (times tp={tp}), as an "
        "all-to-all over heads does (a hierarchical one: by cp_inner={cp_inner})"
    ),
    module="attention",
    lists_all=True,
    option_key="ulysses",
)
def heads_divisible_by_all_to_all(
    num_attention_heads: Fact, cp: Fact, cp_exchange: Fact, tp: Fact = 1, cp_inner: Fact = 1
) -> Fact:
    """Ulysses (2309.14509) gives each context-parallel rank whole heads of the whole sequence."""
    ranks = _ranks_that_trade_heads(cp, cp_exchange, cp_inner)
    return (ranks == 1) | (num_attention_heads % (ranks * tp) == 0)


def _ranks_that_trade_heads(cp: Fact, cp_exchange: Fact, cp_inner: Fact) -> Fact:
    """All, the inner ones of a hierarchy, or one; in whole numbers of any size."""
    all_, inner = 1 * (cp_exchange == "all_to_all"), 1 * (cp_exchange == "hierarchical")
    return all_ * cp + inner * cp_inner + (1 - all_ - inner)


@rule(
    subject="cp",
    message=(
        "{num_key_value_heads} key/value heads (over tp={tp}) and cp={cp} do not divide one "
        "another, as an all-to-all over heads needs"
    ),
    module="attention",
    lists_all=True,
    option_key="ulysses",
)
def key_value_heads_divide_or_replicate_by_all_to_all(
    num_key_value_heads: Fact, cp: Fact, cp_exchange: Fact, tp: Fact = 1, cp_inner: Fact = 1
) -> Fact:
    """Either each rank gets whole key/value heads, or each head is copied to whole ranks."""
    held = num_key_value_heads // tp
    held = held + (held == 0)
    ranks = _ranks_that_trade_heads(cp, cp_exchange, cp_inner)
    return (ranks == 1) | (held % ranks == 0) | (ranks % held == 0)


@rule(
    subject="cp",
    message=(
        "cp={cp} and a sequence-parallel size of {sequence_parallel_size} both divide the sequence: "
        "{engine} takes one or the other"
    ),
    lists_all=True,
)
def one_way_to_divide_the_sequence(cp: Fact, sequence_parallel_size: Fact) -> Fact:
    """Context parallelism over keys and over heads are alternatives."""
    return (cp == 1) | (sequence_parallel_size <= 1)


@rule(
    subject="cp",
    message="cp={cp} is not the product {hierarchical_cp} of the hierarchical sizes",
    lists_all=True,
)
def hierarchical_sizes_make_cp(cp: Fact, hierarchical_cp: Fact) -> Fact:
    """A hierarchical exchange names the inner and the outer degree of the same ranks."""
    return cp == hierarchical_cp


@rule(
    subject="hierarchical_cp",
    message="the exchange {cp_method} needs the hierarchical sizes, whose product is cp={cp}",
    lists_all=True,
)
def hierarchical_exchange_needs_sizes(cp_method: Fact, cp: Fact, hierarchical_cp: Fact = 0) -> Fact:
    """It exchanges heads inside groups and passes keys between them."""
    return (cp_method != "a2a+p2p") | (hierarchical_cp == cp)


@rule(
    subject="cp",
    message="{engine} has no context parallelism in a layout of this kind (cp={cp})",
    lists_all=True,
)
def context_parallel_unknown(cp: Fact) -> Fact:
    """The engine has no ranks of that kind."""
    return cp == 1


@rule(
    subject="cp_inner",
    message=(
        "cp_inner={cp_inner} does not go with cp={cp} and cp_method={cp_method!r}: a hierarchical "
        "exchange needs a divisor of cp between 1 and cp, any other 1"
    ),
    lists_all=True,
)
def inner_ranks_divide_hierarchical_exchange(cp_inner: Fact, cp: Fact, cp_method: Fact) -> Fact:
    """Its inner ranks trade heads, its outer ones pass keys on; else there are none of one kind."""
    is_inner = (cp_inner > 1) & (cp_inner < cp) & (cp % cp_inner == 0)
    return np.where(cp_method == "hierarchical", is_inner, cp_inner == 1)


@rule(
    subject="cp_method",
    message=(
        "attention over a window of {sliding_window} of {sequence_length} tokens does not go round a "
        "ring of cp={cp} ranks"
    ),
    module="attention",
    lists_all=True,
)
def ring_takes_no_window(
    sliding_window: Fact, sequence_length: Fact, cp: Fact, cp_method: Fact
) -> Fact:
    """The blocks of a balanced ring are causal or whole, and a window cuts through them."""
    is_windowed = (sliding_window > 0) & (sliding_window < sequence_length)
    return (cp == 1) | ((_goes_round(cp_method) & is_windowed) == 0)


@rule(
    subject="cp_method",
    message=(
        "packed documents (data: a .jsonl file) do not go round a ring of cp={cp} ranks "
        "(cp_method={cp_method!r})"
    ),
    module="attention",
    lists_all=True,
)
def ring_takes_no_packed_documents(packed_documents: Fact, cp: Fact, cp_method: Fact) -> Fact:
    """Documents end inside the blocks of a ring, which are causal or whole."""
    return (packed_documents == 0) | (cp == 1) | (_goes_round(cp_method) == 0)


def _goes_round(cp_method: Fact) -> Fact:
    """Whether blocks of keys go from rank to rank."""
    return (cp_method != "all_gather") & (cp_method != "all_to_all")
