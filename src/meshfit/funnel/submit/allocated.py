"""A sweep on the nodes of the Slurm job that this process runs in (``salloc``, or a script of one's own)."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from meshfit.errors import InputError
from meshfit.funnel.submit.submitting import jobs_have_not_ended
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.runner import require_packages, require_runnable_model
from meshfit.funnel.sweep.sweep import SweepEnd, run_sweep
from meshfit.funnel.sweep.tasks import Task
from meshfit.job.spec import Job
from meshfit.record.files import read_document
from meshfit.record.submission import SubmittedPart, open_part_folders
from meshfit.submit.slurm.allocation import allocated_hosts, allocated_nodes


class Allocated:
    """Launches one after another on the nodes that are there, all candidates on the same ones."""

    def placed(self, job: Job) -> Job:
        """On the nodes of this process's job, as many as the cluster has hosts."""
        require_runnable_model(job)
        require_packages()
        if job.topology.is_here or job.topology.lab is not None:
            raise InputError(
                "--submit allocation takes nodes of a cluster, but the job's cluster is this machine: "
                "write what the nodes are, as in `cluster: 2x8 H100-SXM`"
            )
        nodes = allocated_nodes(job.topology.hosts)
        if len(nodes) < job.topology.num_hosts:
            raise InputError(
                f"this Slurm job has {len(nodes)} nodes ({', '.join(nodes)}), and the cluster of the "
                f"meshfit job {job.topology.num_hosts}: ask for as many, or make the cluster smaller"
            )
        hosts = nodes[: job.topology.num_hosts]
        return replace(job, topology=replace(job.topology, hosts=hosts))

    def run(
        self, job: Job, tasks: Sequence[Task], *, folder: RunFolder, console: Console
    ) -> SweepEnd:
        """On the hosts of ``job``, which ``placed`` has put there.

        Raises:
            InputError: a scheduler's job of the same sweep has not ended.
        """
        for files in open_part_folders(folder.root):
            raise jobs_have_not_ended(files, read_document(SubmittedPart, files.part))
        return run_sweep(
            tasks,
            run=job.run,
            folder=folder,
            progress=Progress(console),
            hosts=allocated_hosts(job.topology.hosts, job.topology),
        )
