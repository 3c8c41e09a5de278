"""Properties that hold for any layout."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.memory.megatron.kernels import attention_kernel, workspace_bytes
from meshfit.predict.memory.megatron.memory import MOMENTS, rank_memory
from meshfit.workload.model import MtpSpec
from meshfit.workload.training import RuntimeSpec
from tests.predict.memory.megatron.builders import MIB, gpt, group

SELECTIVE = {"dp_shard": 2, "recompute": "selective"}


def peaks(*layouts: dict[str, Any], rank: int = -1, **keys: Any) -> list[float]:
    of = group(keys.pop("model", gpt()), *layouts, **keys)
    return rank_memory(of.pipeline.ranks[rank], of).allocated.tolist()


LAYOUT = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4, 8]),
        "dp_shard": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "micro_batch_size": st.sampled_from([1, 2, 4]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
    }
)


@settings(max_examples=30)
@given(LAYOUT)
def test_a_larger_micro_batch_takes_more(layout: dict[str, Any]) -> None:
    twice = layout | {"micro_batch_size": 2 * layout["micro_batch_size"]}
    one, two = peaks(layout, twice, global_batch_size=64)
    assert two > one


@settings(max_examples=30)
@given(LAYOUT)
def test_sequence_parallelism_and_recomputation_never_take_more(layout: dict[str, Any]) -> None:
    options = {"global_buffers": False}
    plain = {**layout, "recompute": "none"}
    both = [plain, plain | {"sp": layout["tp"] > 1}, layout]
    without, with_sp, recomputed = peaks(*both, global_batch_size=64, **options)
    assert with_sp <= without
    assert recomputed <= without + 1


@settings(max_examples=20)
@given(LAYOUT, LAYOUT)
def test_a_layout_does_not_depend_on_its_neighbours(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    together = peaks(one, other, global_batch_size=64)
    assert together == peaks(one, global_batch_size=64) + peaks(other, global_batch_size=64)


def test_every_category_is_there_and_none_is_negative() -> None:
    of = group(gpt(), {"tp": 2, "pp": 2, "dp_shard": 2}, {"tp": 4, "pp": 2})
    for shape in of.pipeline.ranks:
        categories = rank_memory(shape, of).categories
        assert set(categories) == set(MEMORY_CATEGORIES)
        assert all(np.all(bytes_ >= 0) for bytes_ in categories.values())


def test_the_first_of_many_stages_holds_more_activations_than_the_last() -> None:
    of = group(gpt(), {"pp": 4, "dp_replicate": 2})
    first, last = (rank_memory(of.pipeline.ranks[i], of).categories for i in (0, -1))
    assert first["activations"][0] > last["activations"][0]
    assert first["logits_and_loss"][0] == 0 < last["logits_and_loss"][0]


def test_recomputing_the_first_layers_lies_between_none_and_all() -> None:
    none, some, all_ = peaks(
        {"dp_shard": 2},
        {"dp_shard": 2, "recompute": "block", "recompute_layers": 4},
        {"dp_shard": 2, "recompute": "full"},
    )
    assert all_ < some < none


def test_checkpoints_of_several_layers_keep_fewer_inputs() -> None:
    of = group(
        gpt(), *({"dp_shard": 2, "recompute": "full", "recompute_layers": n} for n in (1, 2))
    )
    at_loss = rank_memory(of.pipeline.ranks[0], of)
    assert [MOMENTS[moment] for moment in at_loss.moment] == ["loss", "loss"]
    one, two = at_loss.categories["activations"]
    assert one - two == 6 * 4 * 1024 * 512 * 2


def test_selective_recomputation_saves_the_scores_of_every_layer_but_one_at_most() -> None:
    runtime = RuntimeSpec(attention="unfused", fused_gradient_accumulation=False)
    none, selective = peaks({"dp_shard": 2}, SELECTIVE, runtime=runtime)
    scores = 5 * 4 * 8 * 1024 * 1024
    assert none - selective == pytest.approx(12 * scores)


def test_a_head_for_multi_token_prediction_adds_a_layer_and_a_loss() -> None:
    model = gpt()
    mtp = replace(model, mtp=MtpSpec(depth=1, layers=model.layers[-1:]))
    without, with_head = (peaks({"dp_shard": 2}, model=one)[0] for one in (model, mtp))
    entries = 4 * 1024 * 50_304
    assert with_head - without > 4 * entries


def test_head_gradients_that_wait_hold_the_logits_gradient() -> None:
    now, later = (
        peaks({"pp": 2, "dp_replicate": 4}, deferred_head_gradients=n, runtime=RuntimeSpec())[0]
        for n in (0, 2)
    )
    assert later - now == 2 * 4 * 1024 * (50_304 + 512) * 2


def test_an_offloaded_optimizer_is_on_the_host() -> None:
    of = group(gpt(), {"dp_shard": 8}, {"dp_shard": 8, "offload": "cpu"})
    found = rank_memory(of.pipeline.ranks[0], of)
    here, away = found.categories["optimizer"]
    assert found.host is not None
    assert away == 0 < here
    assert found.host.tolist() == [0, here]


@pytest.mark.parametrize(
    ("gpu", "kernel"),
    [("V100-SXM2-32", "unfused"), ("A100-SXM4-80", "flash"), ("H100-SXM5-80", "cudnn")],
)
def test_the_kernel_of_attention_follows_the_gpu(gpu: str, kernel: str) -> None:
    assert attention_kernel(group(gpt(), {}, gpu=gpu)) == kernel


def test_its_own_layers_compute_attention_unfused_unless_flash_is_asked_for() -> None:
    asked = RuntimeSpec(attention="flash")
    assert attention_kernel(group(gpt(), {}, transformer_engine=False)) == "unfused"
    of = group(gpt(), {}, transformer_engine=False, runtime=asked)
    assert attention_kernel(of) == "flash"


def test_workspaces_follow_the_gpu_and_deterministic_mode() -> None:
    def mebibytes(gpu: str, **options: Any) -> float:
        return workspace_bytes(group(gpt(), {}, gpu=gpu, **options), has_experts=False) / MIB

    assert mebibytes("A100-SXM4-80") == 2 * 32 + 4
    assert mebibytes("H100-SXM5-80") == 2 * 32 + 32
    assert mebibytes("A100-SXM4-80", deterministic=False) == 2 * 8.125 + 4
    assert mebibytes("H100-SXM5-80", transformer_engine=False) == 2 * 32
