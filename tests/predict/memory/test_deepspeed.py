"""DeepSpeed's ZeRO: bytes a parameter by stage, the bucket, and what stage 3 gathers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.deepspeed.profile import DEEPSPEED
from meshfit.predict.memory.deepspeed import rank_memory
from meshfit.predict.memory.moments import MOMENTS
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.shape.held import rank_held
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import RuntimeSpec
from tests.predict.builders import BF16, group, llama, llama_8b, training


def memory(
    *layouts: dict[str, Any], model: ModelSpec | None = None, **keys: Any
) -> tuple[RankMemory, float]:
    """Of the first rank, and the parameters it holds whole."""
    spec = training(precision=BF16, global_batch_size=64, **keys)
    of = group(model or llama(num_layers=2), spec, *layouts, profile=DEEPSPEED)
    shape = of.pipeline.ranks[0]
    return rank_memory(shape, of), rank_held(shape, of.model, None).trained.total


@pytest.mark.parametrize(
    ("stage", "weights", "optimizer"), [(0, 2, 12), (1, 2, 1.5), (2, 2, 1.5), (3, 0.25, 1.5)]
)
def test_bytes_a_parameter_between_steps(stage: int, weights: float, optimizer: float) -> None:
    layout = {"dp_shard": 8, "zero_stage": stage} if stage else {"dp_replicate": 8}
    found, parameters = memory(layout)
    assert found.categories["parameters"][0] == pytest.approx(weights * parameters)
    assert found.categories["optimizer"][0] == pytest.approx(optimizer * parameters)


def test_gradients_are_16_bits_and_stage_2_divides_them() -> None:
    """While the optimizer steps, where short sequences have their peak."""
    layouts = ({"dp_shard": 8, "zero_stage": 1}, {"dp_shard": 8, "zero_stage": 2})
    found, parameters = memory(*layouts, model=llama_8b())
    assert [MOMENTS[moment] for moment in found.moment] == ["optimizer", "optimizer"]
    expected = [2 * parameters, 2 * parameters / 8]
    assert found.categories["gradients"].tolist() == pytest.approx(expected)


SMALL_HEAD = replace(llama_8b(), vocab_size=512)
LONG = {"dp_shard": 8, "zero_stage": 2, "micro_batch_size": 8}
"""A layout whose peak, at 8192 tokens, is in backward."""


def test_one_bucket_of_half_a_billion_gradients_waits_to_be_reduced() -> None:
    found, _ = memory(LONG, model=SMALL_HEAD, sequence_length=8192)
    assert MOMENTS[found.moment[0]] == "backward_start"
    assert found.categories["communication"][0] == 1_000_000_000


def test_a_smaller_bucket_takes_less() -> None:
    small = RuntimeSpec(bucket_bytes=100_000_000)
    found, _ = memory(LONG, model=SMALL_HEAD, sequence_length=8192, runtime=small)
    assert found.categories["communication"][0] == 100_000_000


def test_stage_3_gathers_a_billion_parameters_ahead_and_no_more_than_there_are() -> None:
    layout = {"dp_shard": 8, "zero_stage": 3}
    large, _ = memory(layout, model=llama_8b())
    small, parameters = memory(layout)
    bucket = 1_000_000_000
    root_and_layers = 2 * (2 * 128_256 * 4096 + 4096) + 2 * 2 * 218_112_000
    assert large.categories["communication"][0] == pytest.approx(root_and_layers + bucket, rel=1e-3)
    assert small.categories["communication"][0] <= 2 * 2 * parameters


def test_offloaded_states_are_on_the_host() -> None:
    layout = {"dp_shard": 8, "zero_stage": 3}
    found, whole = memory(layout, layout | {"offload": "cpu"})
    assert found.host is not None
    assert found.categories["optimizer"][1] == found.categories["parameters"][1] == 0
    assert found.host.tolist() == pytest.approx([0, (2 + 2 + 12) * whole / 8])


@given(stage=st.sampled_from([1, 2, 3]), shard=st.sampled_from([2, 4, 8, 16]))
def test_more_ranks_never_take_more(stage: int, shard: int) -> None:
    fewer = {"dp_shard": shard, "zero_stage": stage}
    found, _ = memory(fewer, fewer | {"dp_shard": 2 * shard}, model=llama_8b())
    assert found.allocated[1] <= found.allocated[0]
    assert all(np.all(bytes_ >= 0) for bytes_ in found.categories.values())


def test_the_residual_stream_is_16_bits_wide_without_sharded_parameters() -> None:
    plain = {"dp_shard": 8, "zero_stage": 1}
    found, _ = memory(plain, plain | {"zero_stage": 3}, sequence_length=4096)
    one, three = found.categories["activations"]
    assert one == three
