import pytest
from rich.console import Console

from meshfit.errors import InputError
from meshfit.funnel.submit.allocated import Allocated
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.record.files import write_json_atomically
from meshfit.record.submission import SubmittedPart, next_part_folder
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


def test_a_sweep_that_jobs_of_a_scheduler_are_at_is_not_run_beside_them(tmp_path):
    open_part = SubmittedPart(
        mark="m",
        scheduler="Slurm",
        plan_hash="h",
        job="job.yaml",
        rank_order=None,
        given_layouts=False,
        folder=str(tmp_path),
        tasks=(),
    )
    write_json_atomically(next_part_folder(tmp_path).part, open_part)
    with pytest.raises(InputError, match="has not ended: go on with it by --submit slurm"):
        Allocated().run(
            read_small_cluster_job(tmp_path), [], folder=RunFolder(tmp_path), console=Console()
        )


def test_outside_a_job_and_for_this_machine_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(InputError, match="runs in no Slurm job"):
        Allocated().placed(read_small_cluster_job(tmp_path))
    with pytest.raises(InputError, match="as in `cluster: 2x8 H100-SXM`"):
        Allocated().placed(read_small_job(tmp_path / "here"))
