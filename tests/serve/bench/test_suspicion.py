"""What is said of a server far below its layout."""

import pytest
from rich.console import Console

from meshfit.cluster.catalogue import accelerator
from meshfit.cluster.shorthand import network_level
from meshfit.cluster.topology import Level, Topology
from meshfit.errors import InputError
from meshfit.report.serving.simulation import suspicion_view
from meshfit.serve.bench.suspicion import FAR_BEYOND, links_of, read_tokens_per_s, slow_path
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.serve.time.device import likely_range

TWO_HOSTS = Topology(
    accelerator=accelerator("H100-SXM"),
    levels=(
        Level(name="node", size=2, kind="switch", bandwidth_bytes_per_s=450e9, latency_s=1e-6),
        network_level(2, 50e9),
    ),
    gpus_per_host=2,
)


def test_what_a_prediction_may_err_by_is_no_slow_path():
    _, slow_s = likely_range("tpot", 0.01)
    assert slow_path(0.99 * FAR_BEYOND * slow_s, 0.01) is None
    assert "no scaling loss" in slow_path(1.01 * FAR_BEYOND * slow_s, 0.01)


def test_links_are_those_of_the_innermost_level_that_joins_two_ranks():
    links = links_of(ServingLayout(tp=4), TWO_HOSTS)
    assert [link[0] for link in links] == [None, 450e9, 50e9, 50e9]
    assert links[2][3] == 450e9


def test_the_widest_replica_of_two_pools_is_shown():
    layout = DisaggregatedLayout(prefill=ServingLayout(), decode=ServingLayout(tp=2))
    assert len(links_of(layout, TWO_HOSTS)) == 2


def test_the_matrix_is_printed_in_gb_per_s():
    console = Console(width=120, record=True)
    for part in suspicion_view("a reason", links_of(ServingLayout(tp=2), TWO_HOSTS)):
        console.print(part)
    text = console.export_text()
    assert "slow path   a reason" in text
    assert "450" in text
    assert suspicion_view(None, []) == []


@pytest.mark.parametrize("text", ["700", "0 tokens/s", "fast", "7 samples/s", "1.2.3 tokens/s"])
def test_a_throughput_has_a_number_and_its_unit(text):
    with pytest.raises(InputError, match="write it like '700 tokens/s'"):
        read_tokens_per_s(text)


def test_thousands_may_be_grouped():
    assert read_tokens_per_s("1,700 tokens/s") == 1700
    assert read_tokens_per_s("0.2 tokens/s") == 0.2
