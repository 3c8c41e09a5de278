"""``meshfit lab``."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from meshfit.cli.fit import conclude
from meshfit.cli.jobs import (
    CalibrationFile,
    JobPath,
    LayoutText,
    OutFolder,
    RankOrderText,
    WithoutCalibration,
    calibration_asked,
)
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.cluster.lab import UP_FILE, read_lab_block
from meshfit.cluster.topology import LabSpec
from meshfit.errors import InputError
from meshfit.job.read import read_job
from meshfit.lab.commands import address, host_namespace
from meshfit.lab.machine import lab_down, lab_for, lab_up
from meshfit.units import format_bandwidth

app = typer.Typer(
    help="Several hosts with slow links on this machine, to try placement for real. Needs root.",
    no_args_is_help=True,
)


@app.command()
def up(
    *,
    hosts: Annotated[
        str,
        typer.Option(
            metavar="N|NAME,...", help="How many, or their names in rank order, as in node1,node2."
        ),
    ] = "2",
    ranks_per_host: Annotated[
        int, typer.Option(min=1, metavar="N", help="CPU ranks on each host.")
    ] = 2,
    between: Annotated[
        str,
        typer.Option(
            metavar="RATE", help="What each host can send and be sent, as tc or meshfit write it."
        ),
    ] = "200Mbit",
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Added to what a host sends, as in 1 ms; the kernel needs netem.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the lab, in place of an idle one that is up. `cluster: lab` in a job is this lab."""
    asked = {
        "hosts": int(hosts) if hosts.isdigit() else hosts,
        "ranks_per_host": ranks_per_host,
        "between": between,
        "latency": latency,
    }
    lab = read_lab_block({"lab": asked}, "lab")
    lab_up(lab)
    document = _document(lab)
    if as_json:
        print_json(document)
        return
    for host in document["hosts"]:
        stdout.print(
            f"{host['name']}  {host['address']}  ranks {host['ranks'][0]} to {host['ranks'][-1]}",
            highlight=False,
        )
    stdout.print(
        f"{format_bandwidth(lab.between_bytes_per_s)} to and from each host; in a job: `cluster: "
        f"lab` (or {UP_FILE})",
        highlight=False,
    )


@app.command()
def run(
    job: JobPath,
    *,
    layout: LayoutText = None,
    rank_order: RankOrderText = None,
    out: OutFolder = None,
    calibration: CalibrationFile = None,
    no_calibration: WithoutCalibration = False,
    as_json: AsJson = False,
) -> None:
    """Run a job in its lab, which is made for it unless it is up: one layout, or the whole funnel."""
    from meshfit.funnel.sweep.fit import fit, run_one

    asked = calibration_asked(calibration, no_calibration, remembers=True)
    read = read_job(job, layout=layout, rank_order=rank_order, calibration=asked)
    lab = read.topology.lab
    if lab is None:
        raise InputError(
            "the job's cluster is no lab; write `cluster: lab` for the one that is up, or "
            "`cluster: {lab: {hosts: 2, ranks_per_host: 2, between: 200Mbit}}`"
        )
    run_job = fit if read.layout is None else run_one
    with lab_for(lab):
        end = run_job(read, out=out, console=stderr)
    conclude(end, as_json)


@app.command()
def down(as_json: AsJson = False) -> None:
    """End whatever runs in the lab and remove it, also what a killed command left of one."""
    removed = lab_down()
    if as_json:
        print_json({"removed": removed})
    else:
        stdout.print(
            f"removed {', '.join(removed)}" if removed else "there was no lab", highlight=False
        )


def _document(lab: LabSpec) -> Mapping[str, Any]:
    per_host = lab.ranks_per_host
    return {
        "hosts": [
            {
                "name": host,
                "namespace": host_namespace(host),
                "address": address(index),
                "ranks": list(range(index * per_host, (index + 1) * per_host)),
            }
            for index, host in enumerate(lab.hosts)
        ],
        "between": lab.between_bytes_per_s,
        "latency": lab.latency_s,
        "cluster_file": str(UP_FILE),
    }
