"""Schemas of what Kubernetes' kinds take, as far as our manifests go, every other field refused.

Fields from kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go, and kubernetes-sigs/lws,
api/leaderworkerset/v1/leaderworkerset_types.go; those of pods from Kubernetes' core/v1.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 65536}
COUNT: Schema = {"type": "integer", "minimum": 1}
LABEL: Schema = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}


def fields(*required: str, **all_fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": all_fields,
        "required": list(required),
        "additionalProperties": False,
    }


def listed(item: Schema, most: int = 128) -> Schema:
    return {"type": "array", "items": item, "maxItems": most}


QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["integer", "string"]}}
RESOURCES = fields(limits=QUANTITIES, requests=QUANTITIES)
ENVIRONMENT = listed(fields("name", name=TEXT, value={"type": "string"}))
METADATA = fields(
    "name",
    name=LABEL,
    namespace=LABEL,
    labels={"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
)
MOUNTS = listed(
    fields("name", "mountPath", name=LABEL, mountPath=TEXT, readOnly={"type": "boolean"})
)
VOLUMES = listed(
    fields(
        "name",
        name=LABEL,
        persistentVolumeClaim=fields("claimName", claimName=TEXT),
        emptyDir=fields(medium={"enum": ["", "Memory"]}),
    )
)

_PATCHED_POD = fields(
    serviceAccountName=TEXT,
    volumes=VOLUMES,
    containers=listed(fields("name", name=LABEL, env=ENVIRONMENT, volumeMounts=MOUNTS), 64),
    nodeSelector={"type": "object"},
)
_PATCHED_JOB = fields(
    "name", name=LABEL, template=fields(spec=fields(template=fields(spec=_PATCHED_POD)))
)

TRAIN_JOB = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "trainer.kubeflow.org/v1alpha1"},
    kind={"const": "TrainJob"},
    metadata=METADATA,
    spec=fields(
        "runtimeRef",
        runtimeRef=fields("name", name=TEXT, apiGroup=TEXT, kind=TEXT),
        trainer=fields(
            image={"type": "string", "maxLength": 500},
            command=listed(TEXT),
            args=listed(TEXT),
            env=ENVIRONMENT,
            numNodes=COUNT,
            numProcPerNode=COUNT,
            resourcesPerNode=RESOURCES,
        ),
        runtimePatches=listed(
            fields(
                "manager",
                manager=TEXT,
                trainingRuntimeSpec=fields(
                    template=fields(spec=fields(replicatedJobs=listed(_PATCHED_JOB, 100)))
                ),
            ),
            16,
        ),
        suspend={"type": "boolean"},
        activeDeadlineSeconds=COUNT,
    ),
)

_POD = fields(
    "containers",
    containers=listed(
        fields(
            "name",
            "image",
            name=LABEL,
            image=TEXT,
            command=listed(TEXT),
            env=ENVIRONMENT,
            resources=RESOURCES,
            volumeMounts=MOUNTS,
        )
    ),
    volumes=VOLUMES,
)

LEADER_WORKER_SET = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "leaderworkerset.x-k8s.io/v1"},
    kind={"const": "LeaderWorkerSet"},
    metadata=METADATA,
    spec=fields(
        "leaderWorkerTemplate",
        replicas=COUNT,
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        leaderWorkerTemplate=fields(
            "workerTemplate",
            size=COUNT,
            restartPolicy={
                "enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None", "Default"]
            },
            workerTemplate=fields("spec", spec=_POD),
        ),
    ),
)
