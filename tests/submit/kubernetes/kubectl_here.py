#!/usr/bin/env python
"""A kubectl whose cluster is this machine: a pod of a TrainJob is a process, its volume the file system.

``apply --filename FILE --output=name``, ``get trainjobs NAME ... --output=json`` and ``delete``, as far as
``meshfit.submit.kubernetes.kubectl`` uses them. State lies beside this file, in ``pods/NAME/``.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

PODS = Path(__file__).parent / "pods"


def apply(path: str) -> None:
    document = yaml.safe_load(Path(path).read_text())
    name, trainer = document["metadata"]["name"], document["spec"]["trainer"]
    folder = PODS / name
    folder.mkdir(parents=True)
    for place in range(trainer["numNodes"]):
        variables = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NODE_RANK": str(place),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": "29400",
        }
        # The shell stays, to leave the exit code of what it ran.
        line = f"({trainer['command'][-1]}); echo $? > {folder}/{place}.exit"
        with (folder / f"{place}.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", line],
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (folder / f"{place}.pid").write_text(str(process.pid))
    print(f"trainjob.trainer.kubeflow.org/{name}")


def status(folder: Path) -> dict:
    pods = sorted(folder.glob("*.pid"))
    exits = [int(path.read_text()) for path in folder.glob("*.exit")]
    if any(exits):
        return {"conditions": [{"type": "Failed", "status": "True", "reason": "JobsFailed"}]}
    if len(exits) == len(pods):
        return {"conditions": [{"type": "Complete", "status": "True", "reason": "JobsCompleted"}]}
    return {"jobsStatus": [{"name": "node", "active": len(pods) - len(exits)}]}


def get(names: list[str]) -> None:
    found = [PODS / name for name in names if (PODS / name).is_dir()]
    items = [{"metadata": {"name": f.name}, "status": status(f)} for f in found]
    if items:
        print(json.dumps(items[0] if len(items) == 1 else {"items": items}))


def delete(names: list[str]) -> None:
    for name in names:
        for path in (PODS / name).glob("*.pid"):
            os.killpg(int(path.read_text()), signal.SIGTERM)


def main() -> None:
    verb, *words = sys.argv[1:]
    names = [word for word in words if not word.startswith("-")]
    match verb:
        case "apply":
            apply(names[0])
        case "get":
            get(names[1:])
        case "delete":
            delete(names[1:])


if __name__ == "__main__":
    main()
