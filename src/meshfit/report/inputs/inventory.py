"""What ``model`` counts, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from meshfit.report.parts import words
from meshfit.report.parts.titled import titled_table
from meshfit.units import format_count, format_percent


def inventory_view(document: Mapping[str, Any]) -> Group:
    """What ``model --json`` prints: sizes, layers, counts, memory, and what the figures rest on."""
    lines: list[RenderableType] = [
        Text(f"{document['name']}  ({document['model_type']})", style="bold"),
        Text(_dimension_line(document["dimensions"])),
        *(Text(_layer_line(layers), style="dim") for layers in document["layers"]),
        inventory_table(document),
        inventory_memory_table(document),
        *(Text(f"Note: {note}.") for note in document["notes"]),
    ]
    if "verified" in document:
        lines.append(Text(_verified_line(document["verified"])))
    return Group(*lines, Text(f"FLOPs: {document['flops']['formula']}.", style="dim"))


def inventory_table(document: Mapping[str, Any]) -> Table:
    """What ``model --json`` prints: parameters by part, FLOPs and KV bytes per token."""
    parameters = document["parameters"]
    table = titled_table("Parameters by part")
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("share", justify="right")
    for part, count in parameters["by_part"].items():
        if count:
            share = format_percent(count / parameters["total"])
            table.add_row(part.replace("_", " "), f"{count:,}", share)
    table.add_section()
    table.add_row("total", f"{parameters['total']:,}", format_count(parameters["total"]))
    if parameters.get("active") not in (None, parameters["total"]):
        table.add_row(
            "active per token", f"{parameters['active']:,}", format_count(parameters["active"])
        )
    for name, figure in _inventory_figures(document):
        table.add_row(name, figure, "")
    return table


def _inventory_figures(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    flops, kv_cache = document.get("flops") or {}, document.get("kv_cache") or {}
    figures = []
    if flops.get("training_per_token") is not None:
        name = f"training FLOPs per token at {flops.get('sequence_length', '?')} tokens"
        figures.append((name, format_count(flops["training_per_token"])))
    if kv_cache.get("bytes_per_token") is not None:
        figures.append(("KV cache per token, 16 bit", words.size(kv_cache["bytes_per_token"])))
    return figures


def inventory_memory_table(document: Mapping[str, Any]) -> Table:
    """Weights, caches and training state of what ``model --json`` prints, undivided by a layout."""
    table = titled_table("Memory, undivided")
    table.add_column("what")
    table.add_column("bytes", justify="right")
    for name, figure in _inventory_memory(document):
        table.add_row(name, words.size(figure))
    return table


def _inventory_memory(document: Mapping[str, Any]) -> list[tuple[str, int]]:
    weights, cache = document["weights"], document["kv_cache"]
    length = document["flops"]["sequence_length"]
    in_full = length * cache["bytes_per_token"]
    figures = []
    if "checkpoint" in weights:
        stored = weights["checkpoint"]
        figures.append((f"weights as stored: {stored['format']}", stored["bytes"]))
    figures += [(f"weights in {name}", weights[name]) for name in ("bf16", "fp8", "int4")]
    figures.append((f"KV cache of {length} tokens, every layer in full", in_full))
    if cache["windowed_bytes_per_sequence"] != in_full:
        windowed = cache["windowed_bytes_per_sequence"]
        figures.append(("  windowed layers up to their window", windowed))
    names = {
        "indexer_bytes_per_token": "indexer keys per token",
        "cross_attention_bytes_per_source_token": "cross-attention cache per source token",
        "state_bytes_per_sequence": "recurrent state per sequence",
    }
    figures += [(name, cache[key]) for key, name in names.items() if key in cache]
    for precision, optimizer in (("bf16_mixed", "adamw"), ("bf16", "adamw_8bit")):
        state = document["training_state"][precision][optimizer]["total"]
        figures.append((f"training state, {precision}, {optimizer}", state))
    return figures


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
