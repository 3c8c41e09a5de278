"""Kubernetes' answers, through a stand-in for kubectl."""

from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from meshfit.cluster.catalogue import accelerator
from meshfit.errors import InputError, RunError
from meshfit.submit.batch_job import BatchJob
from meshfit.submit.kubernetes.kubectl import DELETED, Kubernetes, job_id, state_of
from tests.engines.around.kubernetes_schemas import TRAIN_JOB

VOLUME = {"volume": "runs:/mnt/runs"}
JOB = BatchJob(
    name="meshfit tiny all launches",
    mark="0123456789abcdef0123",
    command=("/a/venv/bin/python", "-m", "module", "out/jobs/1"),
    folder=Path("/mnt/runs/me"),
    log=Path("out/jobs/1/job.log"),
    num_nodes=2,
    devices_per_node=8,
    accelerator=accelerator("H100-SXM"),
    time_limit_s=3600.5,
)


def written(job: BatchJob = JOB, **options: str):
    name, text = Kubernetes(VOLUME | options).script(job)
    assert name == "trainjob.yaml"
    return yaml.safe_load(text)


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(body: str) -> None:
        (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "kubectl").chmod(0o755)

    return write


def condition(kind: str, reason: str = "") -> dict:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": reason}]}}


def test_a_manifest_has_the_fields_of_a_train_job():
    document = written(image="team/meshfit:1", namespace="ml", runtime="torch-lab")
    jsonschema.validate(document, TRAIN_JOB)
    assert document["metadata"]["name"] == "meshfit-0123456789abcdef"
    assert document["metadata"]["namespace"] == "ml"
    spec = document["spec"]
    assert spec["runtimeRef"] == {"name": "torch-lab"}
    assert spec["activeDeadlineSeconds"] == 3600
    assert spec["trainer"]["image"] == "team/meshfit:1"
    assert spec["trainer"]["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 8}}
    assert "/mnt/runs" in yaml.safe_dump(spec["runtimePatches"])


def test_every_pod_runs_the_command_with_its_own_python_and_the_first_keeps_the_log():
    line = written()["spec"]["trainer"]["command"][-1]
    assert line.startswith("cd /mnt/runs/me && ")
    assert ">> out/jobs/1/job.log" in line
    assert line.endswith("exec python -m module out/jobs/1")


def test_ranks_of_a_processor_ask_for_no_devices():
    core = replace(JOB.accelerator, device_type="cpu")
    document = written(replace(JOB, accelerator=core))
    jsonschema.validate(document, TRAIN_JOB)
    assert "resourcesPerNode" not in document["spec"]["trainer"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs --with volume=CLAIM:/path"),
        ({"volume": "runs"}, "needs --with volume=CLAIM:/path"),
        (VOLUME | {"imag": "x"}, "try image"),
    ],
)
def test_options_that_are_none_are_refused(options, why):
    with pytest.raises(InputError, match=why):
        Kubernetes(options)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"after": ("x",)}, "--one-job-each goes with --submit slurm alone"),
        ({"hosts": ("n1", "n2")}, "leave hosts out"),
        ({"folder": Path("/home/me")}, "/home/me is not below it"),
    ],
)
def test_what_train_jobs_cannot_say_is_refused(change, why):
    with pytest.raises(InputError, match=why):
        written(replace(JOB, **change))


@pytest.mark.parametrize(
    ("document", "shown", "phase", "outcome"),
    [
        ({}, "created", "waiting", None),
        (condition("Suspended", "Suspended"), "Suspended (Suspended)", "waiting", None),
        ({"status": {"jobsStatus": [{"name": "node", "active": 1}]}}, "active", "running", None),
        (condition("Failed", "JobsFailed"), "Failed (JobsFailed)", "ended", "crash"),
        (
            condition("Failed", "DeadlineExceeded"),
            "Failed (DeadlineExceeded)",
            "ended",
            "interrupted",
        ),
    ],
)
def test_states(document, shown, phase, outcome):
    state = state_of(document)
    assert (str(state), state.phase, state.ended_well) == (shown, phase, False)
    assert outcome in (None, state.outcome)


def test_only_a_complete_job_has_ended_well():
    assert state_of(condition("Complete")).ended_well


def test_one_job_and_several_are_read_and_a_deleted_one_has_ended(kubectl):
    kubectl("""echo '{"metadata": {"name": "a"}, "status": {}}'""")
    assert Kubernetes(VOLUME).states(["a", "b"])["b"] == DELETED
    kubectl("""echo '{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}'""")
    assert {s.word for s in Kubernetes(VOLUME).states(["a", "b"]).values()} == {"created"}
    kubectl("true")
    assert Kubernetes(VOLUME).states(["a"]) == {"a": DELETED}


def test_a_cluster_that_does_not_answer_says_nothing_of_any_job(kubectl):
    kubectl("exit 1")
    assert Kubernetes(VOLUME).states(["a"]) == {}
    with pytest.raises(RunError, match="does not say whether"):
        Kubernetes(VOLUME).find(JOB.mark)


def test_a_manifest_is_applied_in_the_namespace(kubectl):
    kubectl('echo "trainjob.trainer.kubeflow.org/$1"')
    submitted = Kubernetes(VOLUME | {"namespace": "ml"}).submit(Path("trainjob.yaml"))
    assert submitted == "--namespace=ml"
    kubectl("echo 'no matches for kind' >&2; exit 1")
    with pytest.raises(RunError, match=r"refused trainjob\.yaml: no matches for kind"):
        Kubernetes(VOLUME).submit(Path("trainjob.yaml"))


def test_without_kubectl_the_manifest_waits_for_who_has_it_and_is_then_taken_for_applied(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    kubernetes = Kubernetes(VOLUME)
    with pytest.raises(RunError, match=r"`kubectl apply -f jobs/1/trainjob\.yaml` where it is"):
        kubernetes.submit(Path("jobs/1/trainjob.yaml"))
    assert kubernetes.find(JOB.mark) == job_id(JOB.mark)
    assert kubernetes.states([job_id(JOB.mark)]) == {}
