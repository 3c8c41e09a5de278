"""``meshfit scale``."""

from typing import Annotated

import typer

from meshfit.cli.jobs import JobPath, LayoutText, OutFolder
from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.errors import InputError


def scale(
    job: JobPath,
    *,
    strong: Annotated[
        bool, typer.Option("--strong", help="Keep the global batch and the sequence.")
    ] = False,
    weak: Annotated[bool, typer.Option("--weak", help="Keep the work per rank.")] = False,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N,...", help="Numbers of ranks.")
    ] = "1,2,4",
    axis: Annotated[
        str, typer.Option("--axis", metavar="AXIS", help="The axis that grows with the ranks.")
    ] = "dp_shard",
    layout: LayoutText = None,
    out: OutFolder = None,
    as_json: AsJson = False,
) -> None:
    """Run one layout on growing numbers of ranks: what share of its throughput each point keeps."""
    from meshfit.funnel.sweep.scale import scale as run_scale
    from meshfit.report.measured.scaling import scale_view

    if strong == weak:
        raise InputError("give one of --strong (the global batch stays) and --weak (it grows)")
    document = run_scale(
        job,
        kind="strong" if strong else "weak",
        ranks=_whole_numbers(ranks),
        axis=axis,
        layout=layout,
        out=out,
        console=stderr,
    )
    if as_json:
        print_json(document)
    else:
        stdout.print(scale_view(document))


def _whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InputError(f"--ranks takes whole numbers such as 1,2,4, not {text!r}")
    return numbers
