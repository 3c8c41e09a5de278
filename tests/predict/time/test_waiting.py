"""Stragglers, contention and unequal documents, in closed form and on the timeline."""

import numpy as np
import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.estimate import estimate
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.time.terms import TERMS
from meshfit.workload.documents import DocumentSpec
from meshfit.workload.training import AssumptionSpec
from tests.predict.builders import BF16, cluster, layouts, llama_8b, training

MIXED = DocumentSpec(filling="packed", lengths=((256, 100), (2048, 10), (16384, 1)))
SHORT = DocumentSpec(filling="packed", lengths=((256, 1),))
PADDED = DocumentSpec(filling="padded", lengths=((256, 1),))


def steps(*keys, nodes=2, tier=1, batch=64, **options):
    spec = training(sequence_length=16384, global_batch_size=batch, precision=BF16, **options)
    found = estimate(llama_8b(), spec, cluster(nodes=nodes), layouts(*keys), NATIVE)
    return simulated(found, np.arange(len(found))) if tier == 2 else found


def term(found, name):
    return found.time_terms[:, TERMS.index(name)]


@pytest.mark.parametrize("tier", [1, 2])
def test_a_straggler_slows_computation_and_what_idles_with_it(tier):
    keys = ({"dp_shard": 16}, {"pp": 4, "dp_replicate": 4})
    plain = steps(*keys, tier=tier)
    slow = steps(*keys, tier=tier, assume=AssumptionSpec(straggler=1.1))
    computed = sum(term(plain, name) for name in ("compute", "recompute", "optimizer", "bubble"))
    assert slow.step_middle_s - plain.step_middle_s == pytest.approx(0.1 * computed)


@pytest.mark.parametrize("tier", [1, 2])
def test_contention_slows_what_crosses_hosts_alone(tier):
    inside, across = {"tp": 8, "dp_replicate": 2}, {"dp_replicate": 2, "tp": 8, "pp": 1}
    crowded = AssumptionSpec(contention=4.0)
    one_node = [
        steps({"tp": 8}, nodes=1, tier=tier, **options).step_middle_s
        for options in ({}, {"assume": crowded})
    ]
    assert one_node[0] == one_node[1]
    plain, slow = (
        steps({"dp_shard": 16}, inside, across, tier=tier, **options)
        for options in ({}, {"assume": crowded})
    )
    assert np.all(slow.step_middle_s > plain.step_middle_s)
    assert np.allclose(term(slow, "all_gather.tp"), term(plain, "all_gather.tp"))
    assert np.array_equal(slow.memory_middle_bytes, plain.memory_middle_bytes)


@pytest.mark.parametrize("tier", [1, 2])
def test_short_documents_take_less_than_one_long_one_and_padding_takes_as_long(tier):
    whole, short, padded = (
        steps({"dp_replicate": 16}, tier=tier, **options).step_middle_s[0]
        for options in ({}, {"documents": SHORT}, {"documents": PADDED})
    )
    assert short < 0.9 * whole
    assert padded == pytest.approx(whole)


@pytest.mark.parametrize("tier", [1, 2])
def test_ranks_wait_for_longer_documents(tier):
    one = steps({"tp": 8}, nodes=1, tier=tier, documents=MIXED, batch=8)
    assert term(one, "other")[0] == 0.0
    meets_often, meets_once = ({"dp_shard": 16}, {"dp_replicate": 16})
    found = steps(meets_often, meets_once, tier=tier, documents=MIXED)
    waited = term(found, "other")
    assert waited[0] > waited[1] > 0


def test_a_pipeline_idles_for_its_longest_micro_batch():
    found = steps({"pp": 8}, {"pp": 2}, nodes=1, documents=MIXED)
    attention_of_a_stage = [1 / 8, 1 / 2]
    waited = term(found, "other") / attention_of_a_stage
    assert waited[0] / waited[1] == pytest.approx(7 / 1, rel=0.05)


def test_an_assumed_imbalance_goes_before_the_documents():
    assumed = steps(
        {"dp_replicate": 16}, documents=MIXED, assume=AssumptionSpec(length_imbalance=1.0)
    )
    assert term(assumed, "other")[0] == 0.0
    more = steps({"dp_replicate": 16}, assume=AssumptionSpec(length_imbalance=1.5))
    assert term(more, "other")[0] > 0
