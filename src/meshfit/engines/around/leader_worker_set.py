"""A LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``): servers over several hosts on Kubernetes.

Fields and variables are those of its Go types (api/leaderworkerset/v1/leaderworkerset_types.go): every
pod is given LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX.
"""

from typing import Any

from meshfit.engines.around.script import HostScript, device_resource, label_name, manifest
from meshfit.engines.around.train_job import CLAIM, FOLDER
from meshfit.errors import InputError

API_VERSION = "leaderworkerset.x-k8s.io/v1"
STATUS = f"names checked: every field is one of {API_VERSION}; this file has not been applied"
NOTE = f"Put this folder on a volume claim (here {CLAIM}), and name an image that has the engine."
_SHARED_MEMORY = {"name": "dshm", "emptyDir": {"medium": "Memory"}}


def leader_worker_set(given: HostScript) -> str:
    """One group of as many pods as the layout has hosts; ``replicas`` starts more such groups.

    Raises:
        InputError: the script does not serve, or Kubernetes' name of the accelerator is not known.
    """
    if not given.serves:
        raise InputError(
            "a LeaderWorkerSet starts its pods again when they end, so that training would never be "
            "over; use --around trainjob"
        )
    document = {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": label_name(given.name)},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {
                "size": given.num_hosts,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": {"spec": _pod(given)},
            },
        },
    }
    return manifest(given.header(STATUS, NOTE), document)


def _pod(given: HostScript) -> dict[str, Any]:
    line = (
        f"cd {FOLDER} && NNODES=$LWS_GROUP_SIZE NODE_RANK=$LWS_WORKER_INDEX "
        f"MASTER_ADDR=$LWS_LEADER_ADDRESS exec bash {given.script}"
    )
    container: dict[str, Any] = {
        "name": "server",
        "image": "IMAGE",
        "command": ["bash", "-c", line],
        "volumeMounts": [
            {"name": "workspace", "mountPath": FOLDER},
            {"name": "dshm", "mountPath": "/dev/shm"},
        ],
    }
    resource = device_resource(given.accelerator)
    if resource is not None:
        container["resources"] = {"limits": {resource: given.devices_per_host}}
    claim = {"name": "workspace", "persistentVolumeClaim": {"claimName": CLAIM}}
    return {"containers": [container], "volumes": [claim, _SHARED_MEMORY]}
