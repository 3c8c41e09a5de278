"""What a probe found, as a document and for the terminal."""

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.record.probe import CollectiveCurve, ProbeRecord
from meshfit.units import format_bandwidth, format_bytes, format_duration


def probe_document(
    record: ProbeRecord, path: Path, *, broken: list[str], uneven: list[str]
) -> dict[str, Any]:
    """The curves file's keys in bytes and seconds, ``file`` it is in, ``broken`` links and
    ``uneven`` hosts."""
    return {
        "file": str(path),
        "measured_at": record.measured_at,
        "source": record.source,
        "accelerator": record.accelerator,
        "library": record.library,
        "levels": [
            {"name": name, "size": size}
            for name, size in zip(record.level_names, record.level_sizes, strict=True)
        ],
        "curves": [_curve(curve) for curve in record.curves],
        "links": [
            {
                "ranks": [one.first_rank, one.second_rank],
                "level": one.level,
                "bandwidth": one.bytes_per_s,
            }
            for one in record.links
        ],
        "kernels": [
            {
                "kernel": k.kernel,
                "dtype": k.dtype,
                "dims": list(k.dims),
                "flops_per_s": k.flops_per_s,
            }
            for k in record.kernels
        ],
        "host_to_device": record.host_to_device_bytes_per_s,
        "storage_write": record.storage_write_bytes_per_s,
        "absent": dict(record.absent or {}),
        "cards": dict(record.cards or {}),
        "broken": broken,
        "uneven": uneven,
    }


def _curve(curve: CollectiveCurve) -> dict[str, Any]:
    return {
        "collective": curve.collective,
        "members": list(curve.members),
        "groups": curve.groups,
        "points": [
            {
                "size": point.size_bytes,
                "time": point.seconds,
                "algorithm_bandwidth": point.algorithm_bytes_per_s,
                "bus_bandwidth": point.bus_bytes_per_s,
            }
            for point in curve.points
        ],
    }


def probe_view(document: dict[str, Any]) -> RenderableType:
    """One line a curve: latency, and bus bandwidth of its largest message."""
    levels = " x ".join(f"{level['size']} ({level['name']})" for level in document["levels"])
    table = Table(
        title=f"{document['accelerator']}, {levels}, {document['library']}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for name in ("collective", "members", "groups at once", "latency", "largest", "bus bandwidth"):
        table.add_column(name, justify="left" if name == "collective" else "right")
    for curve in document["curves"]:
        if curve["points"]:
            first, last = curve["points"][0], curve["points"][-1]
            table.add_row(
                curve["collective"],
                " x ".join(map(str, curve["members"])),
                str(curve["groups"]),
                format_duration(first["time"]),
                format_bytes(last["size"]),
                format_bandwidth(last["bus_bandwidth"]),
            )
    words = [Text(f"broken: {what}", style="bold red") for what in document["broken"]]
    words += [Text(f"uneven: {what}", style="yellow") for what in document["uneven"]]
    return Group(table, *words, Text(f"curves: {document['file']}"))
