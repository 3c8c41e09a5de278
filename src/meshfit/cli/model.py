"""``meshfit model``: what a model consists of and what a token of it costs."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from meshfit.errors import InputError
from meshfit.report.tables import inventory_table
from meshfit.workload.inventory import inventory
from meshfit.workload.models import read_model

MAX_SEQUENCE_LENGTH = 2**31 - 1


def model(
    config: Annotated[
        str,
        typer.Argument(
            help="A name of the catalogue, a config.json, a folder that holds one,"
            " or ORG/NAME in the local Hub cache.",
            show_default=False,
        ),
    ],
    sequence_length: Annotated[
        int, typer.Option(help="Tokens of a full sequence, for FLOPs and the KV cache.")
    ] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Inventory of a model: parameters by part, FLOPs and KV-cache bytes per token."""
    if not 1 <= sequence_length <= MAX_SEQUENCE_LENGTH:
        raise InputError(
            f"--sequence-length is {sequence_length}; expected 1 to {MAX_SEQUENCE_LENGTH}"
        )
    document = inventory(read_model(config), sequence_length)
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{document['name']}  ({document['model_type']})", style="bold", markup=False)
    console.print(_dimension_line(document["dimensions"]), markup=False)
    console.print(inventory_table(document))
    console.print(f"FLOPs: {document['flops']['formula']}.", style="dim", markup=False)


def _dimension_line(dimensions: dict[str, Any]) -> str:
    line = (
        "{num_hidden_layers} layers, hidden {hidden_size}, FFN {intermediate_size},"
        " {num_attention_heads} heads ({num_key_value_heads} key/value) of {head_dim},"
        " vocabulary {vocab_size}"
    ).format(**dimensions)
    if dimensions["sliding_window_layers"]:
        line += ", window {sliding_window} in {sliding_window_layers} layers".format(**dimensions)
    return line
