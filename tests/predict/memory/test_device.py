"""From allocated to reserved bytes, and what lies outside the allocator."""

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.engines.torchtitan.profile import TORCHTITAN_2024
from meshfit.predict.memory.device import COMMUNICATOR_BYTES, CONTEXT_BYTES, context_bytes
from meshfit.predict.memory.pytorch import rank_memory
from meshfit.workload.training import PRECISIONS, RuntimeSpec
from tests.predict.builders import BF16, group, llama_8b, training

GIB = 2**30


def memory(keys, *, profile=TORCHTITAN_2024, model=None, **spec):
    found = group(model or llama_8b(), training(precision=BF16, **spec), keys, profile=profile)
    return rank_memory(found.pipeline.ranks[0], found)


@pytest.mark.parametrize(
    ("compiled", "ranks", "printed_gib"),
    [(False, 8, 82.4), (True, 8, 77.0), (False, 128, 67.0), (True, 128, 62.0)],
)
def test_torchtitans_reserved_peaks_of_llama_8b(compiled, ranks, printed_gib):
    """Its performance notes of December 2024: local batch 2, sequence 8192, recomputation by
    operation, with and without ``torch.compile``."""
    found = memory(
        {"dp_shard": ranks, "micro_batch_size": 2, "recompute": "operations"},
        sequence_length=8192,
        global_batch_size=2 * ranks,
        runtime=RuntimeSpec(compile=compiled),
    )
    assert found.reserved[0] == pytest.approx(printed_gib * GIB, rel=0.05)


def test_what_streams_of_collectives_hold_is_reserved_all_the_time():
    found = memory({"dp_shard": 8, "recompute": "full"}, sequence_length=8192)
    gradients = 4 * 8_030_261_248 / 8
    assert found.reserved[0] - found.allocated[0] > gradients


def test_fixed_segments_leave_larger_holes_than_expandable_ones():
    fixed, expandable = (
        memory({}, profile=NATIVE, runtime=RuntimeSpec(allocator=allocator)).reserved[0]
        for allocator in ("default", "expandable")
    )
    assert fixed / expandable == pytest.approx(1.064 / 1.005)


def test_every_group_has_a_communicator_and_one_of_all_ranks_is_the_worlds():
    of = group(
        llama_8b(),
        training(),
        {},
        {"dp_shard": 8},
        {"dp_shard": 8, "tp": 2},
        {"dp_shard": 4, "dp_replicate": 2, "tp": 2},
    )
    communicators = (context_bytes(of) - CONTEXT_BYTES) / COMMUNICATOR_BYTES
    assert list(communicators) == [0, 1, 3, 4]


def test_fp8_never_reserves_less_than_bf16():
    keys = {"dp_shard": 8, "recompute": "full"}
    spec = {"sequence_length": 1024}
    of = [
        group(llama_8b(), training(precision=PRECISIONS[name], **spec), keys)
        for name in ("bf16_mixed", "fp8_mixed")
    ]
    bf16, fp8 = (rank_memory(one.pipeline.ranks[0], one).reserved[0] for one in of)
    assert fp8 >= bf16
