"""Curves files: from logs, and as what predictions rest on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshfit.cluster.topology import Topology
from meshfit.compare.fabric import broken_links
from meshfit.errors import InputError
from meshfit.job.spec import Job
from meshfit.predict.costs.measured import ClusterCurves, cluster_curve
from meshfit.record.files import read_document
from meshfit.record.nccl_log import NcclLog, read_nccl_log
from meshfit.record.probe import CollectiveCurve, ProbeRecord


def curves_of_logs(paths: Sequence[Path], topology: Topology, now: str) -> ProbeRecord:
    """One curves file of several logs of nccl-tests that ran on ``topology``.

    Raises:
        InputError: no such log, or one of other ranks than the topology has.
    """
    logs = [read_nccl_log(path) for path in paths]
    for path, log in zip(paths, logs, strict=True):
        per_host = log.ranks_per_host
        if per_host > topology.gpus_per_host or len(log.hosts) > topology.num_accelerators:
            raise InputError(
                f"{path}: {len(log.hosts)} ranks, {per_host} a host, but the cluster has "
                f"{topology.num_accelerators}, {topology.gpus_per_host} a host"
            )
    return ProbeRecord(
        measured_at=now,
        source=", ".join(path.name for path in paths),
        accelerator=topology.accelerator.name,
        library=logs[0].library,
        level_names=tuple(level.name for level in topology.levels),
        level_sizes=tuple(level.size for level in topology.levels),
        gpus_per_host=topology.gpus_per_host,
        hosts=logs[0].hosts,
        curves=tuple(_on_levels(log, topology) for log in logs),
        absent={"links": "a log of nccl-tests has none", "kernels": "a log of nccl-tests has none"},
    )


def _on_levels(log: NcclLog, topology: Topology) -> CollectiveCurve:
    """The curve with its members counted on every level, ranks filling domains in order."""
    per_host, num_hosts = log.ranks_per_host, len(set(log.hosts))
    members, met_before = [], 1
    for size in topology.domain_sizes():
        hosts = min(num_hosts, max(1, size // topology.gpus_per_host))
        met = min(size, per_host) * hosts if hosts == 1 else per_host * hosts
        members.append(met // met_before)
        met_before = met
    return replace(log.curve, members=tuple(members))


def measured_curves(path: Path | None, topology: Topology) -> ClusterCurves | None:
    """The curves of a file that was measured on ``topology``; None where there is none of it.

    Raises:
        InputError: the file is broken, or says that the fabric is.
    """
    if path is None or not path.exists():
        return None
    record = read_document(ProbeRecord, path)
    if not is_of(record, topology):
        return None
    if broken := broken_links(record, topology.levels):
        raise InputError(
            f"nothing can be ranked on this fabric ({path}): {'; '.join(broken)}. Mend it and run "
            f"`meshfit probe` again, or write `curves: none`"
        )
    curves = sorted(record.curves, key=lambda curve: curve.groups)
    return ClusterCurves(
        {
            (curve.collective, curve.members): cluster_curve(
                [point.size_bytes for point in curve.points],
                [point.seconds for point in curve.points],
            )
            for curve in curves
            if len(curve.points) > 1
        }
    )


def curves_notes(job: Job) -> list[str]:
    """Which curves the collectives of a job's predictions rest on; empty where on none."""
    if job.curves is None or measured_curves(job.curves, job.topology) is None:
        return []
    record = read_document(ProbeRecord, job.curves)
    return [
        f"collectives as measured here on {record.measured_at[:10]} ({job.curves}, {record.source}, "
        f"{record.library})"
    ]


def is_of(record: ProbeRecord, topology: Topology) -> bool:
    """Whether a file was measured on the same accelerators behind the same levels, and where hosts
    are named on the same hosts."""
    sizes = tuple(level.size for level in topology.levels)
    names = tuple(level.name for level in topology.levels)
    planned = {topology.host_of(rank) for rank in range(topology.num_accelerators)}
    return (
        record.accelerator == topology.accelerator.name
        and record.level_sizes == sizes
        and record.level_names == names
        and record.gpus_per_host == topology.gpus_per_host
        and (not topology.hosts or set(record.hosts) <= planned)
    )
