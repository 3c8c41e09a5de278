"""The global batch over data-parallel ranks and micro-batches."""

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="global_batch_size",
    message=(
        "global_batch {global_batch_size} is not a multiple of dp*micro_batch = "
        "{sequences_per_micro_batch}"
    ),
    module="batch",
)
def global_batch_divisible(global_batch_size: Fact, sequences_per_micro_batch: Fact) -> Fact:
    """Nothing is dropped and nothing is padded: every step sees exactly the global batch."""
    return global_batch_size % sequences_per_micro_batch == 0


@rule(
    subject="gradient_accumulation_steps",
    message=(
        "global_batch {global_batch_size} is not micro_batch*dp*accumulation = "
        "{sequences_per_micro_batch}*{gradient_accumulation_steps}"
    ),
    module="batch",
)
def batch_matches_accumulation(
    global_batch_size: Fact, sequences_per_micro_batch: Fact, gradient_accumulation_steps: Fact
) -> Fact:
    """An engine that is given all three takes no two for the truth."""
    return global_batch_size == sequences_per_micro_batch * gradient_accumulation_steps


@rule(
    subject="local_batch_size",
    message=(
        "global_batch {global_batch_size} is not a multiple of dp*local_batch = "
        "{data_parallel_size}*{local_batch_size}"
    ),
    module="batch",
)
def global_batch_in_local_batches(
    global_batch_size: Fact, data_parallel_size: Fact, local_batch_size: Fact
) -> Fact:
    """What is left over are whole rounds of gradient accumulation."""
    return global_batch_size % (data_parallel_size * local_batch_size) == 0


@rule(
    subject="local_batch_size",
    message=(
        "local_batch {local_batch_size} cannot be divided into micro-batches of {micro_batch_size} "
        "for pp={pp}"
    ),
    module="batch",
)
def local_batch_in_micro_batches(local_batch_size: Fact, micro_batch_size: Fact, pp: Fact) -> Fact:
    """A pipeline cuts the local batch into equal micro-batches."""
    return (pp == 1) | (local_batch_size % micro_batch_size == 0)
