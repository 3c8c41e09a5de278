"""What all ranks wait for the slowest of them: stragglers, and longer documents than others have."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.columns import StepColumns
from meshfit.predict.time.documents import work_spread
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def straggling_s(
    step_s: FloatArray, computed_s: FloatArray, shipped_share: FloatArray, training: TrainingSpec
) -> FloatArray:
    """Seconds of a step that ranks wait for stragglers.

    Where a job assumes that its slowest rank computes so many times as long as the others, all
    computation and the idle time it causes grow by that; else the shipped share of the step.
    """
    slowdown = training.assume.straggler
    if slowdown is None:
        return step_s * shipped_share
    return (slowdown - 1) * computed_s


def has_unequal_documents(training: TrainingSpec) -> bool:
    """Whether ranks have different amounts of attention to compute."""
    packed = training.documents is not None and training.documents.filling == "packed"
    return packed or training.assume.length_imbalance is not None


def documents_s(
    attention_s: FloatArray, columns: StepColumns, vpp: int, training: TrainingSpec
) -> FloatArray:
    """Seconds of a step that ranks wait for those with the longest documents.

    Data-parallel ranks meet in every micro-batch where they gather parameters or exchange tokens of
    experts, else once a step. In a pipeline every stage takes as long over a micro-batch as the
    others, so that ``(pp - 1) / vpp`` of the longest one are idle instead of an average one
    (makespan of a proportionate flow shop: the sum of all jobs and ``m - 1`` of the longest).

    Args:
        attention_s: of one micro-batch on the slowest pipeline rank, all its passes.
    """
    micro_batches = columns.micro_batches
    each = np.maximum(1, np.rint(columns.tokens * columns.cp / training.sequence_length))
    sequences = each.astype(np.int64)
    data = columns.state_shard * columns.replicas // columns.cp
    meets_often = columns.frees_after_forward | (columns.expert_split > columns.tp)
    summed = np.where(meets_often, sequences, sequences * micro_batches)
    over_ranks = imbalance(training, summed, data) - 1
    in_pipeline = imbalance(training, sequences, micro_batches) - 1
    idle = (columns.pp - 1) / vpp * in_pipeline
    return np.asarray(attention_s * (micro_batches * over_ranks + idle))


def imbalance(training: TrainingSpec, summed: IntArray, ranks: IntArray) -> FloatArray:
    """Attention of the fullest of ``ranks`` over their mean, each with ``summed`` sequences: as the
    job assumes, else expected from its documents; 1 for one rank."""
    assumed = training.assume.length_imbalance
    if assumed is not None:
        return np.where(ranks > 1, assumed, 1.0)
    assert training.documents is not None
    spread = work_spread(training.documents, training.sequence_length)
    pairs, which = np.unique(np.stack([summed, ranks]), axis=1, return_inverse=True)
    found = [spread.expected_largest(int(k), int(n)) for k, n in pairs.T]
    return np.asarray(np.array(found)[which.reshape(-1)])
