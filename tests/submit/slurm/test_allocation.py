import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.errors import InputError
from meshfit.submit.slurm import allocation
from meshfit.submit.slurm.allocation import allocated_hosts, allocated_nodes, srun

TWO_NODES = {"SLURM_JOB_NODELIST": "n[2,10]", "SLURMD_NODENAME": "n10"}


def test_outside_a_job_there_are_no_nodes():
    with pytest.raises(InputError, match="runs in no Slurm job"):
        allocated_nodes(environment={})


def test_nodes_come_in_the_order_of_the_cluster_where_it_names_them():
    assert allocated_nodes(environment=TWO_NODES) == ("n2", "n10")
    wanted = ("n10", "n3", "n2")
    assert allocated_nodes(wanted, TWO_NODES) == ("n10", "n2")


def test_a_node_that_the_cluster_does_not_name_is_refused():
    with pytest.raises(InputError, match="the job has n10, but the cluster's hosts are n1, n2"):
        allocated_nodes(("n1", "n2"), TWO_NODES)


def test_ranks_of_this_node_are_started_here_and_those_of_others_by_srun(monkeypatch):
    monkeypatch.setattr(allocation, "address_of", lambda node: f"{node}.cluster")
    topology = read_shorthand("2x8 H100-SXM")
    first, second = allocated_hosts(("n2", "n10"), topology, TWO_NODES)
    assert (first.name, first.ranks, first.place) == ("n2.cluster", 8, 0)
    assert (first.prefix, first.keeps_parent) == (srun("n2"), False)
    assert (second.prefix, second.keeps_parent, second.place) == ((), True, 1)
    assert second.environment == {"MESHFIT_HOST": "n10"}
