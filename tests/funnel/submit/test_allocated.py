import pytest

from meshfit.errors import InputError
from meshfit.funnel.submit.allocated import Allocated
from tests.funnel.small_job import read_small_cluster_job, read_small_job


def in_job(monkeypatch, nodes):
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)


def test_ranks_are_planned_on_the_nodes_of_the_job_this_runs_in(tmp_path, monkeypatch):
    in_job(monkeypatch, "n[2,7,10]")
    job = Allocated().placed(read_small_cluster_job(tmp_path))
    assert [job.topology.host_of(rank) for rank in range(2)] == ["n2", "n7"]


def test_fewer_nodes_than_the_cluster_has_are_refused(tmp_path, monkeypatch):
    in_job(monkeypatch, "n2")
    with pytest.raises(InputError, match=r"has 1 nodes \(n2\), and the cluster .* 2: ask for as"):
        Allocated().placed(read_small_cluster_job(tmp_path))


def test_outside_a_job_and_for_this_machine_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(InputError, match="runs in no Slurm job"):
        Allocated().placed(read_small_cluster_job(tmp_path))
    with pytest.raises(InputError, match="as in `cluster: 2x8 H100-SXM`"):
        Allocated().placed(read_small_job(tmp_path / "here"))
