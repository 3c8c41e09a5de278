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
