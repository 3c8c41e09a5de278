"""Parameters that ranks hold, and how experts are divided."""

import numpy as np
import pytest

from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.predict.coverage import why_not_covered
from meshfit.predict.memory.states import state_bytes
from meshfit.predict.shape.held import rank_held
from meshfit.workload.counts import total_parameters
from meshfit.workload.models import catalogue, read_model
from tests.predict.builders import BF16, group, training


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_a_rank_alone_holds_every_parameter_that_published_counts_have(name):
    model = read_model(name)
    assert why_not_covered(model) is None
    of = group(model, training(), {})
    assert rank_held(of.pipeline.ranks[0], model, None).all.total == total_parameters(model)


def states(name, *layouts):
    of = group(read_model(name), training(precision=BF16), *layouts, profile=TORCHTITAN)
    found = state_bytes(of.pipeline.ranks[0], of)
    return found.parameters + found.gradients + found.optimizer


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"])
def test_shards_of_all_ranks_are_the_whole_whatever_expert_parallelism_does(name):
    whole = 16 * total_parameters(read_model(name))
    held = states(name, {"dp_shard": 8}, {"dp_shard": 8, "ep": 2}, {"dp_shard": 8, "ep": 8})
    assert held * 8 == pytest.approx(np.full(3, float(whole)))


def test_unsharded_experts_are_divided_by_ep_alone():
    model = read_model("mixtral-8x7b")
    experts = sum(
        tensor.elements
        for tensor in model.moe.tensors(model.hidden_size)
        if "experts" in tensor.name
    )
    alone, divided = states(
        "mixtral-8x7b", {"dp_replicate": 8}, {"dp_replicate": 1, "dp_shard": 1, "tp": 8, "ep": 8}
    )
    assert alone == 16 * total_parameters(model)
    dense = total_parameters(model) - 32 * experts
    assert divided < 16 * (dense + 32 * experts / 8)
