from dataclasses import replace

import numpy as np
import pytest

from meshfit.predict.costs.collectives import SHARED_CORE_WAIT_S
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.simulate.play_step import play_step
from meshfit.predict.time.exchange.pipeline import boundaries_s, pipeline_exchange
from tests.predict.builders import FP32, cluster, group, llama, training
from tests.predict.simulate.builders import machine

SPEC = training(sequence_length=1024, precision=FP32)
BYTES = 1024 * 128 * 4
INSIDE = BYTES / 400e9 + 2e-6 + SHARED_CORE_WAIT_S
"""Over the link of one rank, inside a host."""


def hosts(*, shared_cores, nodes=2):
    """Hosts of two ranks: 400 GB/s a rank inside, 50 GB/s a rank between."""
    many = cluster(nodes=nodes, device_type="cpu")
    host, between = many.levels
    return replace(
        many,
        levels=(replace(host, size=2), between),
        gpus_per_host=2,
        oversubscribed=True,
        shared_cores=shared_cores,
    )


def between_hosts(senders):
    """Two ranks of a host share 100 GB/s."""
    return BYTES / (100e9 / senders) + 10e-6 + SHARED_CORE_WAIT_S


def boundaries(keys, topology):
    of = group(llama(), SPEC, keys)
    return boundaries_s(of, machine(of, topology))[:, 0]


def test_each_boundary_counts_as_the_link_that_it_lies_on():
    """Of four stages the second alone sends to the other host, the last to the first where a schedule
    goes round."""
    found = boundaries({"pp": 4}, hosts(shared_cores=2))
    assert found == pytest.approx([INSIDE, between_hosts(1), INSIDE, between_hosts(1)])


def test_ranks_of_one_stage_that_send_at_once_share_their_hosts_link():
    found = boundaries({"pp": 2, "dp_replicate": 2}, hosts(shared_cores=2))
    assert found == pytest.approx([between_hosts(2)] * 2)


def test_on_devices_of_their_own_the_slowest_boundary_counts_for_all():
    of = group(llama(), SPEC, {"pp": 4})
    on = machine(of, hosts(shared_cores=None))
    terms = pipeline_exchange(of.pipeline.ranks[1], of, on)
    assert terms["send_recv.pp"] == pytest.approx([2 * between_hosts(2)])
    transfer = play_step(of, on).transfer
    assert transfer[transfer > 0] == pytest.approx(between_hosts(2))


def test_layouts_are_told_apart_by_where_their_stages_lie():
    of = group(llama(), SPEC, {"pp": 4}, {"pp": 4, "dp_replicate": 2})
    found = boundaries_s(of, machine(of, hosts(shared_cores=2, nodes=4)))
    assert found[:3, 0] == pytest.approx([INSIDE, between_hosts(1), INSIDE])
    assert found[:3, 1] == pytest.approx([between_hosts(2)] * 3)


def test_the_closed_form_takes_the_mean_of_the_boundaries():
    of = group(llama(), SPEC, {"pp": 4})
    middle: RankShape = of.pipeline.ranks[1]
    terms = pipeline_exchange(middle, of, machine(of, hosts(shared_cores=2)))
    mean = np.mean([INSIDE, between_hosts(1), INSIDE])
    assert terms["send_recv.pp"] == pytest.approx([2 * mean])
