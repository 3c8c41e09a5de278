"""Budgets of engines, and what they leave to the cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.catalogue import accelerator
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.serve.memory.replica import pool_bytes
from meshfit.serve.setting.budget import MOST_OF_DEVICE, serving_budget
from tests.serve.replicas import memory

GIB = 2**30
ENGINES = ("vllm", "sglang", "tensorrt_llm")


def budget(engine, fraction):
    return serving_budget(engine_profile(engine), accelerator("H100"), memory_fraction=fraction)


def test_the_fraction_is_of_what_the_engine_says():
    total, weights, others = 80 * GIB, 40 * GIB, 4 * GIB
    pools = {e: pool_bytes(budget(e, 0.8), total, weights, others) / GIB for e in ENGINES}
    assert pools == pytest.approx({"vllm": 20.0, "sglang": 24.0, "tensorrt_llm": 28.8})


@given(
    st.sampled_from(ENGINES),
    st.floats(0.1, 1.0),
    st.integers(0, 80 * GIB),
    st.integers(0, 8 * GIB),
)
def test_no_engine_is_given_more_than_95_percent(engine, fraction, weights, others):
    total = 80 * GIB
    pool = pool_bytes(budget(engine, fraction), total, weights, others)
    assert pool <= 0 or weights + others + pool <= MOST_OF_DEVICE * total + 1


@pytest.mark.parametrize("engine", ENGINES)
def test_categories_add_up_to_no_more_than_the_device(engine):
    found = memory("llama-3.1-70b", "H100", tokens=8192, engine=engine, tp=4).memory
    assert found.total <= MOST_OF_DEVICE * accelerator("H100").memory_bytes
    assert min(found.as_json().values()) >= 0


def test_attention_groups_multiply_requests_and_tokens():
    one = memory("deepseek-v3", "H200", tokens=8192, tp=8)
    many = memory("deepseek-v3", "H200", tokens=8192, attention_dp=8, ep=8)
    assert many.kv_tokens > 5 * one.kv_tokens
    assert many.concurrency > 5 * one.concurrency


def test_an_engine_batches_by_the_device():
    """vLLM 0.32, ``arg_utils.py``: an A100 counts as a small one."""
    profile = engine_profile("vllm")
    tokens = {
        name: serving_budget(profile, accelerator(name)).step_tokens
        for name in ("RTX3090", "A100-80G", "H100", "B200")
    }
    assert tokens == {"RTX3090": 2048, "A100-80G": 2048, "H100": 8192, "B200": 16384}


def test_an_engine_that_trains_does_not_serve():
    with pytest.raises(InputError, match="torchtitan trains and does not serve; vllm, sglang"):
        serving_budget(engine_profile("torchtitan"), accelerator("H100"))


def test_a_step_holds_a_token_of_each_sequence_where_the_engine_asks_for_it():
    profile, h100 = engine_profile("vllm"), accelerator("H100")
    assert serving_budget(profile, h100, step_tokens=128).max_sequences == 128
    with pytest.raises(InputError, match=r"vllm: a step of 128 tokens .* max_sequences up to 128"):
        serving_budget(profile, h100, step_tokens=128, max_sequences=129)
    sglang = serving_budget(engine_profile("sglang"), h100, step_tokens=128)
    assert sglang.max_sequences == serving_budget(engine_profile("sglang"), h100).max_sequences
