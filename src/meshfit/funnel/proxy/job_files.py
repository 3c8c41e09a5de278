"""The job of a proxy, as files: an ordinary job that `meshfit run` takes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from meshfit.cluster.files import read_topology
from meshfit.cluster.smaller import smaller_cluster
from meshfit.errors import InputError
from meshfit.files import read_yaml_mapping
from meshfit.funnel.proxy.shrink import Proxy
from meshfit.job.found import FoundJob
from meshfit.job.spec import Job
from meshfit.workload.reduce import reductions

_DROPPED = ("layout", "baseline", "search", "budget", "calibration")
_RELATIVE = {("workload", "lengths"), ("workload", "data", "path"), ("curves",)}
_NAMES = ("none",)
"""What may stand where a path does."""


def proxy_cluster(job: Job, num_hosts: int, *, here: bool) -> dict[str, Any]:
    """``cluster:`` of the proxies: as many hosts of the job's, or this machine.

    Raises:
        InputError: the cluster has no more hosts, or this machine is none of it.
    """
    cut = smaller_cluster(job.topology, num_hosts)
    if not here:
        return cut
    topology = job.topology
    block: dict[str, Any] = {"here": {"ranks": num_hosts * topology.gpus_per_host}}
    if num_hosts > 1:
        raise InputError(
            f"--proxy {num_hosts} takes {num_hosts} nodes: with --submit, on those of the cluster's "
            f"scheduler; on this machine give --proxy 1"
        )
    mine = read_topology(block, Path()).accelerator.name
    if mine != topology.accelerator.name:
        raise InputError(
            f"a proxy runs on the accelerators of the job, {topology.accelerator.name}, and this "
            f"machine has {mine}: run it on one of the cluster's nodes, or with --submit"
        )
    return block


def write_proxy_job(
    source: Path, job: Job, proxy: Proxy, cluster: Mapping[str, Any], folder: Path
) -> Path:
    """``job.yaml`` of ``proxy`` in ``folder``, with the cut model's ``config.json`` beside it.

    ``source`` is the whole job's file. Weights are drawn anew: those that are given are of the whole
    model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cut = next(reductions(job.model.config, fewest_layers=proxy.layers, multiple=1))
    (folder / "config.json").write_text(json.dumps(cut.config, indent=2) + "\n", encoding="utf-8")
    found = FoundJob.at(source)
    document = dict(_absolute(read_yaml_mapping(found.path), found.base))
    for key in _DROPPED:
        document.pop(key, None)
    document["name"] = f"proxy of {job.name}"
    document["model"] = "config.json"
    document["workload"] = document["workload"] | {
        "global_batch": f"{proxy.global_batch_size} sequences"
    }
    document["cluster"] = dict(cluster)
    document["rank_order"] = list(job.profile.rank_order)
    document["layout"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in proxy.layout.as_json().items()
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _absolute(
    document: Mapping[str, Any], base: Path, place: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The job's document with paths that do not depend on where it lies."""
    return {
        key: _absolute_value(value, base, (*place, str(key))) for key, value in document.items()
    }


def _absolute_value(value: Any, base: Path, place: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return _absolute(value, base, place)
    is_path = place in _RELATIVE and isinstance(value, str) and value not in _NAMES
    if not is_path or value.startswith(("$", "~", "/")):
        return value
    return str(base / value)
