import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.errors import InputError
from meshfit.submit import nodes
from meshfit.submit.errands import HostFiles, errand_prefix
from meshfit.submit.kubernetes.pods import place_of_this_pod, pod_folder, pod_hosts
from meshfit.submit.nodes import nodes_of_job

TWO_PODS = {"PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "job-node-0-0.job"}
TOPOLOGY = read_shorthand("2x8 H100-SXM")


def test_outside_a_pod_of_the_torch_runtime_there_are_no_nodes():
    with pytest.raises(InputError, match="PET_NODE_RANK is not set"):
        place_of_this_pod({})


def test_ranks_of_the_first_pod_are_started_here_and_those_of_others_as_errands(tmp_path):
    first, second = pod_hosts(TOPOLOGY, tmp_path, TWO_PODS)
    assert (first.name, first.prefix, first.place) == ("job-node-0-0.job", (), 0)
    assert (second.ranks, second.place, second.keeps_parent) == (8, 1, False)
    assert second.prefix == errand_prefix(pod_folder(tmp_path, 1), ["MESHFIT_HOST"])
    assert second.environment == {"MESHFIT_HOST": "pod1"}


def test_the_first_pod_lets_the_others_go_when_it_is_done(tmp_path, monkeypatch):
    for name, value in TWO_PODS.items():
        monkeypatch.setenv(name, value)
    with nodes_of_job("Kubernetes", TOPOLOGY, tmp_path) as given:
        assert given is not None
        assert given.names == ("pod0", "pod1")
    assert [errand["leave"] for errand in HostFiles(pod_folder(tmp_path, 1)).errands(0)] == [True]


def test_another_pod_attends_until_it_is_let_go(tmp_path, monkeypatch):
    attended = []
    monkeypatch.setattr(nodes, "attend", attended.append)
    monkeypatch.setenv("PET_NODE_RANK", "1")
    with nodes_of_job("Kubernetes", TOPOLOGY, tmp_path) as given:
        assert given is None
    assert attended == [pod_folder(tmp_path, 1)]
