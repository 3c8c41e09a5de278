"""``meshfit model``: what a model consists of and what a token of it costs."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from meshfit.cli.verify import built_counts, comparison
from meshfit.errors import InputError, RunError
from meshfit.report.inventory import inventory_memory_table, inventory_table
from meshfit.units import format_count
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
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Build the model with transformers and compare counts."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Inventory of a model: parameters by part, weights, FLOPs, KV cache, training state."""
    if not 1 <= sequence_length <= MAX_SEQUENCE_LENGTH:
        raise InputError(
            f"--sequence-length is {sequence_length}; expected 1 to {MAX_SEQUENCE_LENGTH}"
        )
    spec = read_model(config)
    document = inventory(spec, sequence_length)
    if verify:
        document["verified"] = comparison(document["parameters"], built_counts(spec.config))
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document)
    if verify and not document["verified"]["agrees"]:
        raise RunError(f"counts differ from transformers: {document['verified']['difference']}")


def _print(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{document['name']}  ({document['model_type']})", style="bold", markup=False)
    console.print(_dimension_line(document["dimensions"]), markup=False)
    for layers in document["layers"]:
        console.print(_layer_line(layers), style="dim", markup=False)
    console.print(inventory_table(document))
    console.print(inventory_memory_table(document))
    for note in document["notes"]:
        console.print(f"Note: {note}.", markup=False)
    if "verified" in document:
        console.print(_verified_line(document["verified"]), markup=False)
    console.print(f"FLOPs: {document['flops']['formula']}.", style="dim", markup=False)


def _dimension_line(dimensions: dict[str, Any]) -> str:
    words = ["{num_hidden_layers} layers, hidden {hidden_size}"]
    if dimensions["intermediate_size"]:
        words.append("FFN {intermediate_size}")
    if dimensions["num_experts"]:
        words.append(
            "{num_experts} experts of {moe_intermediate_size}, {experts_per_token} a token"
        )
    if dimensions["num_key_value_heads"]:
        words.append("{num_attention_heads} heads ({num_key_value_heads} key/value) of {head_dim}")
    elif dimensions["num_attention_heads"]:
        words.append("{num_attention_heads} heads")
    words.append("vocabulary {vocab_size}")
    if dimensions["sliding_window_layers"]:
        words.append("window {sliding_window} in {sliding_window_layers} layers")
    return ", ".join(words).format(**dimensions)


def _layer_line(layers: dict[str, Any]) -> str:
    """``58 x self_attn LatentAttention, mlp Moe``."""
    blocks = ", ".join(f"{name} {block['kind']}" for name, block in layers["blocks"].items())
    stack = "" if layers["stack"] == "decoder" else f"{layers['stack']}: "
    return f"  {stack}{layers['count']} x {blocks}"


def _verified_line(verified: dict[str, Any]) -> str:
    words = "agrees with" if verified["agrees"] else "differs from"
    return (
        f"Verified: {words} {verified['class']} of transformers {verified['transformers']}"
        f" ({format_count(verified['total'])} parameters)."
    )
