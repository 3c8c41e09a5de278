"""A TrainJob of Kubeflow Trainer (``trainer.kubeflow.org/v1alpha1``).

Fields are those of its Go types (pkg/apis/trainer/v1alpha1/trainjob_types.go, with runtimePatches, as of
Trainer 2.2); the runtime ``torch-distributed`` gives every pod PET_NODE_RANK, PET_MASTER_ADDR and
PET_MASTER_PORT.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.engines.around.script import HostScript, device_resource, label_name, manifest
from meshfit.errors import InputError

API_VERSION = "trainer.kubeflow.org/v1alpha1"
RUNTIME = "torch-distributed"
FOLDER = "/workspace"
CLAIM = "workspace"
STATUS = f"names checked: every field is one of {API_VERSION}; this file has not been applied"
NOTE = (
    f"Put this folder on a volume claim (here {CLAIM}), and name an image that has the engine "
    f"(spec.trainer.image) where the runtime's own has not."
)
_NODE = "node"  # the runtime's job, and the container in it


@dataclass(frozen=True, kw_only=True)
class Pods:
    """What the pods of a TrainJob are.

    Attributes:
        claim: persistent volume claim that all pods share, mounted at ``mount_path``.
        image: None: the runtime's own.
        deadline_s: after which they are ended.
    """

    num_nodes: int
    devices_per_node: int
    accelerator: AcceleratorSpec
    claim: str
    mount_path: str
    image: str | None = None
    runtime: str = RUNTIME
    deadline_s: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def train_job(name: str, command: Sequence[str], pods: Pods) -> dict[str, Any]:
    """The manifest of a job that runs ``command`` in every pod.

    Raises:
        InputError: Kubernetes' name of the accelerator is not known.
    """
    resource = device_resource(pods.accelerator)
    trainer: dict[str, Any] = {
        "command": list(command),
        "numNodes": pods.num_nodes,
        "numProcPerNode": pods.devices_per_node,
    }
    if pods.image is not None:
        trainer["image"] = pods.image
    if resource is not None:
        trainer["resourcesPerNode"] = {"limits": {resource: pods.devices_per_node}}
    spec: dict[str, Any] = {
        "runtimeRef": {"name": pods.runtime},
        "trainer": trainer,
        "runtimePatches": [_mounted(pods)],
    }
    if pods.deadline_s is not None:
        spec["activeDeadlineSeconds"] = pods.deadline_s
    metadata: dict[str, Any] = {"name": label_name(name)}
    if pods.labels:
        metadata["labels"] = dict(pods.labels)
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _mounted(pods: Pods) -> dict[str, Any]:
    """The patch of the runtime that mounts the claim."""
    volume = {"name": "workspace", "persistentVolumeClaim": {"claimName": pods.claim}}
    mount = {"name": "workspace", "mountPath": pods.mount_path}
    pod = {"volumes": [volume], "containers": [{"name": _NODE, "volumeMounts": [mount]}]}
    job = {"name": _NODE, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "manager": "meshfit",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


def exported_train_job(given: HostScript) -> str:
    """The job around an exported script.

    Raises:
        InputError: the script serves, or Kubernetes' name of the accelerator is not known.
    """
    if given.serves:
        raise InputError(
            "a TrainJob ends when its pods do, and servers do not; use --around leaderworkerset"
        )
    pods = Pods(
        num_nodes=given.num_hosts,
        devices_per_node=given.devices_per_host,
        accelerator=given.accelerator,
        claim=CLAIM,
        mount_path=FOLDER,
    )
    line = (
        f"cd {FOLDER} && NNODES={given.num_hosts} NODE_RANK=$PET_NODE_RANK RDZV_BACKEND=static "
        f"MASTER_ADDR=$PET_MASTER_ADDR RDZV_ENDPOINT=$PET_MASTER_ADDR:$PET_MASTER_PORT "
        f"exec bash {given.script}"
    )
    return manifest(given.header(STATUS, NOTE), train_job(given.name, ["bash", "-c", line], pods))
