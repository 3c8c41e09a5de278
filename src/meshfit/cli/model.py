"""``meshfit model``: what a model consists of and what a token of it costs."""

from typing import Annotated

import typer

from meshfit.cli.output import AsJson, print_json, stderr, stdout
from meshfit.cli.verify import built_counts, comparison
from meshfit.errors import RunError
from meshfit.report.inputs.inventory import inventory_view
from meshfit.workload.inventory import inventory
from meshfit.workload.models import read_model

MAX_SEQUENCE_LENGTH = 2**31 - 1


def model(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="A name of the catalogue, a config.json, a folder that holds one,"
            " or ORG/NAME in the local Hub cache.",
            show_default=False,
        ),
    ],
    sequence_length: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_SEQUENCE_LENGTH,
            metavar="TOKENS",
            help="Of a full sequence, for FLOPs and the KV cache.",
        ),
    ] = 4096,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Build the model with transformers and compare counts."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Inventory of a model: parameters by part, weights, FLOPs, KV cache, training state."""
    spec = read_model(config)
    document = inventory(spec, sequence_length)
    if verify:
        document["verified"] = comparison(document["parameters"], built_counts(spec.config))
    if as_json:
        print_json(document)
    else:
        stdout.print(inventory_view(document))
    if verify and not document["verified"]["agrees"]:
        difference = document["verified"]["difference"]
        stderr.print(f"counts differ from transformers: {difference}", markup=False)
        raise typer.Exit(RunError.exit_code)
