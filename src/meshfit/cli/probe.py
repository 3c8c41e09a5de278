"""``meshfit probe``."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.cluster.files import read_topology
from meshfit.cluster.topology import Topology
from meshfit.compare.fabric import broken_links, uneven_hosts
from meshfit.errors import InputError
from meshfit.funnel.space.curves import curves_of_logs
from meshfit.job.budget import positive_duration
from meshfit.lab.hosts import launch_hosts
from meshfit.launch.probe import launch_probe
from meshfit.record.files import write_json_atomically
from meshfit.record.probe import ProbeRecord, ProbeRequest, default_curves_path
from meshfit.report.inputs.probe import probe_document, probe_view
from meshfit.units import parse_bytes

BROKEN = 1
STARTING_S = 120.0
"""What starting ranks, links, kernels and storage may take beside the collectives."""


def probe(
    cluster: Annotated[
        str,
        typer.Argument(metavar="CLUSTER", help="What is measured, as under `cluster:` in a job."),
    ] = "here",
    *,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="CPU ranks on this machine, in place of GPUs.",
            show_default=False,
        ),
    ] = None,
    read: Annotated[
        list[Path] | None,
        typer.Option(
            "--read",
            metavar="FILE",
            help="Take curves from a log of nccl-tests instead (may be repeated).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The curves file (default: curves.json beside your catalogue).",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="For all collectives together.")
    ] = "120 s",
    largest: Annotated[str, typer.Option(metavar="SIZE", help="Of a message.")] = "1 GiB",
    storage: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder on the storage to be written to.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure every collective on every domain here, and what contention costs.

    Writes a curves file that plan, check and fit use. Exit code 1 where a link is far below its
    kind."""
    cpu_ranks = {"here": {"ranks": ranks, "oversubscribe": True, "device": "cpu"}}
    topology = read_topology(cluster if ranks is None else cpu_ranks, Path())
    record = (
        curves_of_logs(read, topology, _now())
        if read
        else _measured(topology, budget=budget, largest=largest, storage=storage)
    )
    path = out or default_curves_path()
    write_json_atomically(path, record)
    broken = broken_links(record, topology.levels)
    document = probe_document(record, path, broken=broken, uneven=uneven_hosts(record))
    if as_json:
        print_json(document)
    else:
        stdout.print(probe_view(document))
    if broken:
        raise typer.Exit(BROKEN)


def _measured(
    topology: Topology, *, budget: str, largest: str, storage: Path | None
) -> ProbeRecord:
    if not topology.is_here and topology.lab is None:
        raise InputError(
            "cluster: this machine and a lab are measured by `meshfit probe`; on other hosts run "
            "torchrun ... -m meshfit.measure.probe REQUEST.json FOLDER, or read logs of nccl-tests "
            "with --read"
        )
    device = topology.accelerator.device_type
    if device not in ("cpu", "cuda"):
        raise InputError(f"device {device} cannot be probed; meshfit runs on cpu and cuda")
    if topology.num_accelerators == 1 and device == "cpu":
        raise InputError("one CPU rank has nobody to send to; --ranks 2 takes two CPU ranks")
    budget_s = positive_duration(budget, "--budget")
    largest_bytes = parse_bytes(largest)
    if largest_bytes < 1:
        raise InputError(f"--largest {largest!r} must be greater than 0")
    if storage is not None and not storage.is_dir():
        raise InputError(f"--storage {storage} is no folder that is there")
    request = ProbeRequest(
        accelerator=topology.accelerator.name,
        device_type="cuda" if device == "cuda" else "cpu",
        level_names=tuple(level.name for level in topology.levels),
        level_sizes=tuple(level.size for level in topology.levels),
        gpus_per_host=topology.gpus_per_host,
        hosts=tuple(map(topology.host_of, range(topology.num_accelerators)))
        if topology.hosts
        else (),
        largest_bytes=largest_bytes,
        budget_s=budget_s,
        storage=None if storage is None else str(storage.resolve()),
    )
    stderr.print(
        f"probing {topology.num_accelerators} ranks for about {budget_s:.0f} s", style="dim"
    )
    with tempfile.TemporaryDirectory(prefix="meshfit-probe-") as folder:
        return launch_probe(
            request,
            Path(folder) / "launch",
            deadline_s=2 * budget_s + STARTING_S,
            hosts=launch_hosts(topology),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
