import numpy as np
import pytest

from meshfit.predict.time.documents import (
    WorkSpread,
    document_length,
    mixing_flops_per_token,
    work_spread,
)
from meshfit.workload.counts import attention_flops
from meshfit.workload.documents import DocumentSpec
from meshfit.workload.model import AttentionSpec
from tests.predict.builders import training

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64}
FULL = AttentionSpec(**HEADS)
WINDOWED = AttentionSpec(**HEADS, sliding_window=128)


def packed(*lengths, sequence_length=1024):
    spec = DocumentSpec(filling="packed", lengths=lengths)
    return training(sequence_length=sequence_length, documents=spec)


def test_whole_documents_cost_what_a_sequence_costs():
    spec = training(sequence_length=1024)
    assert mixing_flops_per_token(FULL, spec) == attention_flops(FULL, [1024]) / 1024
    assert document_length(spec) == 1024


def test_packed_documents_cost_the_sum_of_their_squares():
    spec = packed((64, 1))
    assert mixing_flops_per_token(FULL, spec) == pytest.approx(attention_flops(FULL, [64]) / 64)
    assert document_length(spec) == pytest.approx(64)


def test_a_window_bounds_what_long_documents_cost():
    long, short = packed((1024, 1)), packed((128, 1))
    ratio = mixing_flops_per_token(WINDOWED, long) / mixing_flops_per_token(WINDOWED, short)
    full_ratio = mixing_flops_per_token(FULL, long) / mixing_flops_per_token(FULL, short)
    assert 1 < ratio < 2 < full_ratio


def test_padded_documents_cost_whole_sequences():
    spec = training(
        sequence_length=1024, documents=DocumentSpec(filling="padded", lengths=((10, 1),))
    )
    whole = attention_flops(FULL, [1024]) / 1024
    assert mixing_flops_per_token(FULL, spec) == pytest.approx(whole)


def test_the_expected_largest_of_draws_is_that_of_order_statistics():
    uniform = WorkSpread(work=np.linspace(0, 2, 2001))
    for ranks in (2, 5, 50):
        assert uniform.expected_largest(1, ranks) == pytest.approx(2 * ranks / (ranks + 1), 0.03)
    assert uniform.expected_largest(1, 1) == 1.0


def test_the_fullest_of_more_ranks_is_fuller_and_longer_sums_are_more_alike():
    spread = work_spread(DocumentSpec(filling="packed", lengths=((32, 60), (900, 1))), 1024)
    by_ranks = [spread.expected_largest(1, ranks) for ranks in (2, 8, 64, 512)]
    by_sums = [spread.expected_largest(summed, 64) for summed in (1, 4, 64, 256, 4096)]
    assert by_ranks == sorted(by_ranks)
    assert by_sums == sorted(by_sums, reverse=True)
    assert 1 < by_sums[-1] < 1.1 < by_sums[0]


def test_documents_alike_leave_no_rank_waiting():
    spread = work_spread(DocumentSpec(filling="packed", lengths=((64, 1),)), 1024)
    assert spread.expected_largest(1, 512) == pytest.approx(1.0)
