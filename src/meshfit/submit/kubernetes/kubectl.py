"""Kubernetes by kubectl: every job is a TrainJob of Kubeflow Trainer."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshfit import __version__
from meshfit.engines.around.script import manifest
from meshfit.engines.around.train_job import API_VERSION, RUNTIME, Pods, train_job
from meshfit.errors import InputError, RunError, nearest_name
from meshfit.submit.batch_job import BatchJob, JobState

NAME = "Kubernetes"
OPTIONS = ("volume", "image", "namespace", "runtime")

_KIND = "trainjobs.trainer.kubeflow.org"
_PATIENCE_S = 60
DELETED = JobState(phase="ended", word="deleted")
WAITING = JobState(phase="waiting", word="created")


class Kubernetes:
    """The cluster of kubectl's current context. Without kubectl manifests are written, and whoever has
    it applies them."""

    name = NAME

    def __init__(self, options: Mapping[str, str]) -> None:
        require_options(options)
        self._options = options
        self._namespace = [f"--namespace={name}"] if (name := options.get("namespace")) else []
        self._has_kubectl = shutil.which("kubectl") is not None

    def script(self, job: BatchJob) -> tuple[str, str]:
        """``trainjob.yaml``: every pod runs the command; the first leads, the others attend it."""
        options = self._options
        claim, _, mount_path = options["volume"].partition(":")
        _require_expressible(job, mount_path)
        pods = Pods(
            num_nodes=job.num_nodes,
            devices_per_node=job.devices_per_node,
            accelerator=job.accelerator,
            claim=claim,
            mount_path=mount_path,
            image=options.get("image"),
            runtime=options.get("runtime", RUNTIME),
            deadline_s=None if job.time_limit_s is None else int(job.time_limit_s),
            labels={"app.kubernetes.io/created-by": "meshfit"},
        )
        document = train_job(job_id(job.mark), ["bash", "-c", _line(job)], pods)
        if "namespace" in options:
            document["metadata"]["namespace"] = options["namespace"]
        return "trainjob.yaml", manifest(_header(job), document)

    def submit(self, script: Path) -> str:
        """By ``kubectl apply``."""
        if not self._has_kubectl:
            raise RunError(
                f"kubectl is not on the PATH: `kubectl apply -f {script}` where it is, and then this "
                f"same command here, which gathers rows as they come"
            )
        done = self._run("apply", "--filename", str(script), "--output=name")
        if done.returncode != 0:
            raise RunError(f"kubectl refused {script}: {' '.join(done.stderr.split())}")
        return done.stdout.strip().rpartition("/")[2]

    def find(self, mark: str) -> str | None:
        """By its name, which follows from the mark; without kubectl it is taken to be applied."""
        name = job_id(mark)
        if not self._has_kubectl:
            return name
        documents = self._documents([name])
        if documents is None:
            raise RunError(f"kubectl does not say whether {name} is there: try again")
        return name if name in documents else None

    def states(self, ids: Sequence[str]) -> dict[str, JobState]:
        """What the conditions of each TrainJob say."""
        if not self._has_kubectl:
            return {}
        documents = self._documents(ids)
        if documents is None:
            return {}
        return {name: state_of(documents[name]) if name in documents else DELETED for name in ids}

    def cancel(self, ids: Sequence[str]) -> None:
        """By ``kubectl delete``."""
        self._run("delete", _KIND, *ids, "--ignore-not-found", "--wait=false")

    def cancel_line(self, ids: Sequence[str]) -> str:
        """kubectl delete."""
        return " ".join(["kubectl", *self._namespace, "delete", "trainjob", *ids])

    def _documents(self, ids: Sequence[str]) -> dict[str, Any] | None:
        """Name -> TrainJob, of those that there are; None where nothing answers."""
        done = self._run("get", _KIND, *ids, "--ignore-not-found", "--output=json")
        if done.returncode != 0:
            return None
        found = json.loads(done.stdout) if done.stdout.strip() else {"items": []}
        items = found.get("items", [found])
        return {item["metadata"]["name"]: item for item in items}

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = ["kubectl", *self._namespace, *words]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"no answer for {_PATIENCE_S} s")


def require_options(options: Mapping[str, str]) -> None:
    """That options are those of a TrainJob, with a volume.

    Raises:
        InputError: one is not, or the volume is missing or has no path.
    """
    for name in options:
        if name not in OPTIONS:
            nearest = nearest_name(name, OPTIONS) or OPTIONS[0]
            raise InputError(f"--with {name}: for kubernetes {', '.join(OPTIONS)}; try {nearest}")
    claim, _, path = options.get("volume", "").partition(":")
    if not claim or not path.startswith("/"):
        raise InputError(
            "--submit kubernetes needs --with volume=CLAIM:/path: a claim that all pods can write, "
            "mounted here at the same path, with the job file below it"
        )


def state_of(document: Mapping[str, Any]) -> JobState:
    """Where a TrainJob stands, by its conditions (``Complete``, ``Failed``, ``Suspended``)."""
    status = document.get("status") or {}
    true = {c["type"]: c for c in status.get("conditions", ()) if c["status"] == "True"}
    if "Complete" in true:
        return JobState(phase="ended", word="Complete", ended_well=True)
    if "Failed" in true:
        why = true["Failed"].get("reason", "")
        late = why == "DeadlineExceeded"
        return JobState(
            phase="ended", word="Failed", why=why, outcome="interrupted" if late else "crash"
        )
    if "Suspended" in true:
        return JobState(phase="waiting", word="Suspended", why=true["Suspended"].get("reason", ""))
    active = any(job.get("active") for job in status.get("jobsStatus", ()))
    return JobState(phase="running", word="active") if active else WAITING


def job_id(mark: str) -> str:
    """The name of the job with this mark."""
    return f"meshfit-{mark[:16]}"


def _require_expressible(job: BatchJob, mount_path: str) -> None:
    if job.after or job.lane:
        raise InputError(
            "TrainJobs do not wait for each other, so --one-job-each goes with --submit slurm alone; "
            "without it one job does all launches, on the same nodes"
        )
    if job.hosts:
        raise InputError(
            f"Kubernetes places pods itself, and the cluster names its hosts "
            f"({', '.join(job.hosts)}): leave hosts out"
        )
    if not job.folder.resolve().is_relative_to(mount_path):
        raise InputError(
            f"pods see {mount_path} alone, and {job.folder} is not below it: start the command there"
        )


def _line(job: BatchJob) -> str:
    """What every pod runs: the image's own Python; what the first prints is the log."""
    _, *words = job.command
    log = shlex.quote(str(job.log))
    return (
        f"cd {shlex.quote(str(job.folder))} && {{ [ $PET_NODE_RANK -gt 0 ] || exec >> {log} 2>&1; }} "
        f"&& exec python {shlex.join(words)}"
    )


def _header(job: BatchJob) -> list[str]:
    return [f"# {job.name}", f"# Written by meshfit {__version__} for {API_VERSION}."]
