"""Pairs of prefill and decode pools: all that could be, and the ones that are shown."""

import pytest

from meshfit.serve.job.read import read_serving_job
from meshfit.serve.load.served import served_replica
from meshfit.serve.load.two_pools import PoolPair, decode_pool, prefill_pool
from meshfit.serve.plan.pairs import pool_pairs
from meshfit.serve.setting.layout import ServingLayout

JOB = """
schema_version: 1
model: llama-3.1-8b
workload:
  kind: serving
  traffic: {rate: 20/s, prompt: 2000, output: 300}
cluster: 8 H100-SXM
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(JOB)
    return read_serving_job(path)


def replica(job, layout, *, request_tokens):
    return served_replica(
        job.model,
        layout,
        job.profiles[0],
        job.topology,
        budget=job.budget(job.profiles[0], job.topology.accelerator),
        request_tokens=request_tokens,
    )


def replicas(job, *layouts):
    return [replica(job, one, request_tokens=2300) for one in layouts]


def test_a_pair_has_the_numbers_of_replicas_that_end_most_requests(job):
    (one,) = replicas(job, ServingLayout())
    (pair,) = pool_pairs([one], job.traffic, 8)
    prefill, decode = prefill_pool(one, 2000), decode_pool(one, 2000, 300)
    every = [
        PoolPair(prefill=prefill, decode=decode, prefill_replicas=n, decode_replicas=8 - n)
        for n in range(1, 8)
    ]
    assert pair.layout.num_accelerators == 8
    assert pair.most_per_s == max(other.most_per_s for other in every)
    assert pair.most_per_s == min(
        pair.prefill_replicas * prefill.requests_per_s, pair.decode_replicas * decode.most_per_s
    )


def test_every_pair_shares_out_all_accelerators(job):
    kinds = replicas(job, ServingLayout(), ServingLayout(tp=2), ServingLayout(tp=4))
    pairs = pool_pairs(kinds, job.traffic, 8)
    assert {(p.layout.prefill.tp, p.layout.decode.tp) for p in pairs} == {
        (first, second) for first in (1, 2, 4) for second in (1, 2, 4)
    }
    assert all(pair.layout.num_accelerators == 8 for pair in pairs)


def test_kinds_that_another_of_their_size_beats_are_left_out(job):
    """A pipeline of two computes a prompt later than tp 2 does, and decodes later."""
    kinds = replicas(job, ServingLayout(tp=2), ServingLayout(pp=2))
    decoding = {pair.layout.decode.pp for pair in pool_pairs(kinds, job.traffic, 8)}
    assert 1 in decoding
    for pair in pool_pairs(kinds, job.traffic, 8):
        if pair.layout.decode.pp == 2:
            faster = next(p for p in pool_pairs(kinds, job.traffic, 8) if p.layout.decode.pp == 1)
            assert pair.decode.most_per_s > faster.decode.most_per_s


def test_what_does_not_fit_is_in_no_pair(job):
    large = replicas(job, ServingLayout())[0]
    (too_long,) = [replica(job, large.layout, request_tokens=10**7)]
    assert not too_long.fits
    assert pool_pairs([too_long], job.traffic, 8) == []


def test_one_accelerator_has_no_two_pools(job):
    assert pool_pairs(replicas(job, ServingLayout()), job.traffic, 1) == []
