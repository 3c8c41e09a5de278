"""Jobs around a script: their form, and what the script is told in them."""

import os
import subprocess
from dataclasses import replace

import jsonschema
import pytest
import yaml

from meshfit.cluster.catalogue import accelerator
from meshfit.engines.around.kinds import KINDS, job_files, jobs_around
from meshfit.engines.around.script import HostScript, device_resource, label_name
from meshfit.errors import InputError
from tests.engines.around.kubernetes_schemas import LEADER_WORKER_SET, TRAIN_JOB

TRAINS = HostScript(
    name="My Job",
    script="launch.sh",
    about=("tp=8,dp_shard=2 on 16 ranks.", "Written for an engine.", "Predicted: much."),
    num_hosts=2,
    devices_per_host=8,
    accelerator=accelerator("H100-SXM"),
)
SERVES = replace(TRAINS, script="serve.sh", serves=True)
SCHEMAS = {"trainjob": TRAIN_JOB, "leaderworkerset": LEADER_WORKER_SET}

OF_TRAINING = ("slurm", "trainjob", "skypilot")
OF_SERVERS = ("slurm", "leaderworkerset", "skypilot")
BOTH = [*((TRAINS, kind) for kind in OF_TRAINING), *((SERVES, kind) for kind in OF_SERVERS)]

SHOW = 'echo "$NNODES $NODE_RANK $MASTER_ADDR ${RDZV_BACKEND:-} ${RDZV_ENDPOINT:-}"\n'


def written(given: HostScript, kind: str) -> str:
    [text] = job_files(given, [kind]).values()
    return text


def run(line: str, folder, **variables: str) -> str:
    """What the script prints that ``line`` starts in ``folder``."""
    for name in ("launch.sh", "serve.sh"):
        (folder / name).write_text(SHOW)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    command = ["bash", "-c", line]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("given", "kind"), BOTH)
def test_every_file_begins_with_layout_release_prediction_and_status(given, kind):
    lines = [line for line in written(given, kind).splitlines() if line.startswith("# ")]
    assert lines[:3] == [f"# {line}" for line in given.about]
    assert lines[3].startswith(("# Status: unverified", "# Status: names checked"))


@pytest.mark.parametrize(("given", "kind"), BOTH)
def test_no_name_gets_out_of_its_place(given, kind, tmp_path):
    odd = "a \"b\" $(touch pwned)`touch pwned`\n#SBATCH --wrap=x\ntouch pwned; é 'c' \\"
    text = written(replace(given, name=odd, about=(odd, *given.about)), kind)
    assert len(text.splitlines()) == len(written(given, kind).splitlines()) + 1
    for line in text.splitlines():
        assert line.startswith("# ") or "pwned" not in line or "$" not in line
    if kind == "slurm":
        assert "#SBATCH --job-name=a_b_touch_pwned_touch_pwned_SBATCH" in text
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    else:
        yaml.safe_load(text)


def test_a_slurm_job_comes_along_by_itself_where_there_are_several_hosts():
    assert list(jobs_around(TRAINS)) == ["launch.sbatch"]
    assert list(jobs_around(TRAINS, ["skypilot"])) == ["skypilot.yaml"]
    assert jobs_around(replace(TRAINS, num_hosts=1)) == {}


def test_files_are_named_after_the_script_or_the_kind():
    assert list(job_files(TRAINS, OF_TRAINING)) == [
        "launch.sbatch",
        "trainjob.yaml",
        "skypilot.yaml",
    ]
    assert set(OF_TRAINING) | set(OF_SERVERS) == set(KINDS)


@pytest.mark.parametrize(("given", "kind"), [(TRAINS, "trainjob"), (SERVES, "leaderworkerset")])
def test_manifests_have_the_fields_of_their_types_and_no_others(given, kind):
    document = yaml.safe_load(written(given, kind))
    jsonschema.validate(document, SCHEMAS[kind])
    text = yaml.safe_dump(document)
    assert "nvidia.com/gpu: 8" in text
    misspelt = yaml.safe_load(text.replace("volumeMounts", "volumeMount"))
    with pytest.raises(jsonschema.ValidationError, match="volumeMount"):
        jsonschema.validate(misspelt, SCHEMAS[kind])


def test_slurm_numbers_hosts_in_rank_order_whatever_order_it_gives_them_in(tmp_path):
    given = replace(TRAINS, hosts=("n2", "n10"))
    text = written(given, "slurm")
    assert "#SBATCH --nodelist=n2,n10" in text
    assert "#SBATCH --gpus-per-node=8" in text
    (tmp_path / "srun").write_text('#!/bin/bash\nshift\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    ended = {host: run(text, tmp_path, SLURMD_NODENAME=host) for host in ("n10", "n2")}
    assert ended == {
        "n2": "2 0 n2 static n2:29500",
        "n10": "2 1 n2 static n2:29500",
    }


def test_slurm_asks_for_the_hosts_where_the_cluster_does_not_name_them(tmp_path):
    text = written(TRAINS, "slurm")
    assert "nodelist" not in text
    for name, body in {"srun": 'shift\nexec "$@"', "scontrol": "printf 'a\\nb\\n'"}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    assert run(text, tmp_path, SLURMD_NODENAME="b") == "2 1 a static a:29500"


def test_a_train_jobs_pods_tell_torchrun_their_place(tmp_path):
    trainer = yaml.safe_load(written(TRAINS, "trainjob"))["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    line = trainer["command"][-1].replace("cd /workspace && ", "")
    of_runtime = {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "first", "PET_MASTER_PORT": "29400"}
    assert run(line, tmp_path, **of_runtime) == "2 1 first static first:29400"


def test_a_group_of_servers_is_told_its_leader(tmp_path):
    template = yaml.safe_load(written(SERVES, "leaderworkerset"))["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    [container] = template["workerTemplate"]["spec"]["containers"]
    line = container["command"][-1].replace("cd /workspace && ", "")
    of_group = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "leader"}
    assert run(line, tmp_path, **of_group) == "2 1 leader"


def test_a_task_of_skypilot_takes_the_first_address_as_the_meeting_point(tmp_path):
    task = yaml.safe_load(written(TRAINS, "skypilot"))
    assert task["resources"]["accelerators"] == {"H100": 8}
    assert task["num_nodes"] == 2
    nodes = {
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.3",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "2",
    }
    assert run(task["run"], tmp_path, **nodes) == "2 1 10.0.0.7 static 10.0.0.7:29500"


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (SERVES, "trainjob", "servers do not; use --around leaderworkerset"),
        (TRAINS, "leaderworkerset", "never be over; use --around trainjob"),
        (TRAINS, "slrm", "try slurm"),
    ],
)
def test_what_a_kind_cannot_do_is_refused(given, kind, why):
    with pytest.raises(InputError, match=why):
        job_files(given, [kind])


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("A100", "nvidia.com/gpu"),
        ("MI300X", "amd.com/gpu"),
        ("Gaudi2", "habana.ai/gaudi"),
        ("TPU-v5e", "google.com/tpu"),
    ],
)
def test_accelerators_are_called_as_their_device_plugins_do(name, resource):
    assert device_resource(accelerator(name)) == resource


@pytest.mark.parametrize(
    ("text", "name"),
    [("My Job", "my-job"), ("8x", "job-8x"), ("a" * 80, "a" * 63), ("..", "job")],
)
def test_names_are_labels(text, name):
    assert label_name(text) == name
