"""``meshfit catalogue``."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from meshfit.cli.output import AsJson, print_json, stdout
from meshfit.cluster.catalogue import accelerator_entry, accelerators, node_type, node_types
from meshfit.cluster.document import accelerator_document, node_type_document
from meshfit.engines import engine_profile
from meshfit.engines.abilities import engine_abilities
from meshfit.report.inputs.catalogue import entry_view, list_view
from meshfit.report.inputs.inventory import inventory_view
from meshfit.workload.counts import total_parameters
from meshfit.workload.inventory import inventory
from meshfit.workload.models import catalogue as model_catalogue
from meshfit.workload.models import read_model

Kind = Literal["models", "accelerators", "nodes", "engines"]

_SEQUENCE_LENGTH = 4096


def catalogue(
    kind: Annotated[
        Kind, typer.Argument(metavar="KIND", help="models, accelerators, nodes or engines.")
    ] = "models",
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this one in full.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Models, accelerators and node types that meshfit ships figures of; engines and what is done
    with each."""
    document: Any = _listed(kind) if name is None else _shown(kind, name)
    if as_json:
        print_json(document)
    else:
        stdout.print(list_view(kind, document) if name is None else _view(kind, document))


def _view(kind: Kind, document: Any) -> RenderableType:
    return inventory_view(document) if kind == "models" else entry_view(document)


def _listed(kind: Kind) -> Sequence[dict[str, Any]]:
    match kind:
        case "accelerators":
            return [accelerator_document(entry) for entry in accelerators()]
        case "nodes":
            return [node_type_document(node) for node in node_types()]
        case "engines":
            return [asdict(engine) for engine in engine_abilities()]
        case "models":
            return [_model_line(name) for name in model_catalogue()]


def _model_line(name: str) -> dict[str, Any]:
    model = read_model(name)
    return {
        "name": name,
        "model_type": model.model_type,
        "parameters": total_parameters(model),
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "source": model_catalogue()[name]["source"],
    }


def _shown(kind: Kind, name: str) -> dict[str, Any]:
    match kind:
        case "accelerators":
            return accelerator_document(accelerator_entry(name))
        case "nodes":
            return node_type_document(node_type(name))
        case "engines":
            wanted = engine_profile(name).name
            return next(asdict(one) for one in engine_abilities() if one.name == wanted)
        case "models":
            return inventory(read_model(name), _SEQUENCE_LENGTH)
