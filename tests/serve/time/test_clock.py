"""Steps take longer with more in them, and are bound by what they must move."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.cluster.topology import Level, LevelKind
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.time.step_time import StepLoad, chunk_pairs
from tests.serve.replicas import clock

DENSE = clock("llama-3.1-8b", "8 H100-SXM", tp=2)
EXPERTS = clock("qwen3-235b-a22b-fp8", "8 H100-SXM", tp=8, ep=8)
LATENT = clock("deepseek-v3", "8 B200", attention_dp=8, ep=8)
PIPELINE = clock("llama-3.1-70b", "8 H100-SXM", tp=2, pp=4)
clocks = st.sampled_from([DENSE, EXPERTS, LATENT, PIPELINE])


def decoding(requests, context):
    return StepLoad(decode_requests=requests, decode_context_tokens=requests * context)


def prompt(tokens):
    return StepLoad(
        prefill_tokens=tokens,
        prefill_requests=1.0,
        prefill_pairs=chunk_pairs(tokens, 0.0),
        completed_prefills=1.0,
    )


@settings(max_examples=30)
@given(clocks, st.integers(1, 512), st.integers(1, 32_768))
def test_more_requests_and_longer_contexts_never_take_less(of, requests, context):
    one = of.step_s(decoding(float(requests), float(context)))
    more = of.step_s(decoding(float(2 * requests), float(context)))
    longer = of.step_s(decoding(float(requests), float(2 * context)))
    assert one > 0
    assert more >= 0.999 * one
    assert longer >= 0.999 * one


@settings(max_examples=30)
@given(clocks, st.integers(64, 16_384))
def test_a_longer_prompt_takes_longer(of, tokens):
    assert of.step_s(prompt(float(2 * tokens))) > of.step_s(prompt(float(tokens)))


def test_many_steps_at_once_are_each_as_alone():
    requests = np.array([1.0, 7.0, 64.0])
    together = DENSE.step_s(decoding(requests, 1000.0))
    alone = [float(DENSE.step_s(decoding(float(one), 1000.0))) for one in requests]
    assert together == pytest.approx(alone)


def test_a_single_stream_reads_all_weights_once_a_token():
    """Llama 3.1 8B in 16 bits over two H100: 7.5 GB each less the embedding, at 3.35 TB/s at most."""
    least = (8.03e9 - 128256 * 4096) * 2 / 2 / 3.35e12
    found = float(DENSE.step_s(decoding(1.0, 100.0)))
    assert least < found < 3 * least


def test_a_chunk_behind_cached_tokens_sees_all_pairs():
    whole = chunk_pairs(1000.0, 0.0)
    assert chunk_pairs(400.0, 0.0) + chunk_pairs(600.0, 400.0) == pytest.approx(whole)


def test_a_pipeline_starts_the_next_step_when_its_slowest_stage_is_free():
    load = decoding(32.0, 1000.0)
    assert PIPELINE.interval_s(load) < 0.5 * PIPELINE.step_s(load)
    assert DENSE.interval_s(load) == pytest.approx(DENSE.step_s(load))


def test_each_expert_is_read_once_however_many_tokens_choose_it():
    """At 512 tokens every one of 16 experts of a rank is read; 2,048 tokens read no more."""
    few, many = (EXPERTS.stage_times(decoding(n, 1.0))[0].memory for n in (512.0, 1024.0))
    assert many < 1.2 * few


def test_quantised_weights_take_less_of_a_step():
    sixteen = clock("llama-3.1-70b", "8 H100-SXM", tp=8)
    eight = clock("llama-3.1-70b", "8 H100-SXM", tp=8, weights="fp8")
    load = decoding(1.0, 100.0)
    assert eight.step_s(load) < 0.8 * sixteen.step_s(load)


@pytest.mark.parametrize("requests", [4, 8, 16, 32])
def test_experts_cut_over_more_ranks_decode_no_slower(requests):
    """Every expert that got a row has tiles of its own, which fill the device however few rows there
    are."""
    steps_s = [
        float(clock("qwen3-235b-a22b-fp8", "8 B200", tp=tp).step_s(decoding(requests, 1000.0)))
        for tp in (2, 4, 8)
    ]
    assert steps_s == sorted(steps_s, reverse=True)


def test_without_graphs_a_step_takes_at_least_what_the_host_needs_to_launch_it():
    graphs = clock("gpt-oss-20b", "8 A100-80G", tp=2)
    eager = replace(graphs, eager=True)
    few, many = decoding(1.0, 100.0), decoding(1024.0, 4000.0)
    assert eager.step_s(few) > 1.5 * graphs.step_s(few)
    assert eager.step_s(many) == graphs.step_s(many)


def test_over_pcie_more_than_two_ranks_reduce_by_nccl():
    """The engines' own kernel reads from every other rank, which NVLink joins."""

    def reducing_s(kind: LevelKind, tp: int) -> float:
        level = Level(name="node", size=8, kind=kind, bandwidth_bytes_per_s=25e9, latency_s=5e-6)
        topology = replace(DENSE.topology, levels=(level,))
        of = replace(DENSE, topology=topology, layout=ServingLayout(tp=tp))
        (stage,) = of.stage_times(decoding(1.0, 100.0))
        return float(stage.communication)

    assert reducing_s("bus", 2) == pytest.approx(reducing_s("switch", 2), rel=0.2)
    assert reducing_s("bus", 4) > 1.5 * reducing_s("switch", 4)
