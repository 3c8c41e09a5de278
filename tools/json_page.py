"""``docs/json.md``, made from the documents' types and builders: ``python -m tools.json_page > docs/json.md``.

A test compares the page with what this writes. A document that is a TypedDict is shown with its
types; of one that a function puts together, the keys in that function's source are listed.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshfit.breakdown import Interval, MemoryBreakdown, TimeBreakdown
from meshfit.cluster.discover.document import discovery_document
from meshfit.cluster.document import accelerator_document, node_type_document, topology_document
from meshfit.compare.scaling import ScalingPoint
from meshfit.compare.stragglers import RankScore
from meshfit.compare.utilisation import Utilisation
from meshfit.dryrun.document import document_of
from meshfit.engines.abilities import EngineAbilities
from meshfit.errors import InputError, NothingFitsError, NotInstalledError, RunError
from meshfit.funnel.check.checking import check_document, engine_documents
from meshfit.funnel.check.dry_run import dry_run_document
from meshfit.funnel.check.engine_file import engine_file_document
from meshfit.funnel.check.logged import compared_document, logged_document
from meshfit.funnel.check.measured import measured_document
from meshfit.funnel.check.server_file import server_file_document
from meshfit.funnel.explain.explaining import explain_document
from meshfit.funnel.plan.left_behind import asked_documents, too_large_documents
from meshfit.funnel.plan.placements import placements_document
from meshfit.funnel.plan.sensitivity import sensitivity_document
from meshfit.funnel.proxy.proxies import proxy_document
from meshfit.funnel.sweep.balance import balance_document
from meshfit.funnel.sweep.scale import scale_document
from meshfit.funnel.sweep.train import train_document
from meshfit.lab.machine import lab_document
from meshfit.record.schema import Parity, PartCost
from meshfit.report.documents.check import ViolationDocument
from meshfit.report.documents.fit import (
    CandidateDocument,
    FitDocument,
    ProfileDocument,
    RankDocument,
    ReferenceDocument,
    SpreadDocument,
    WinnerDocument,
)
from meshfit.report.documents.plan import (
    CampaignDocument,
    DryRunRow,
    MeshDocument,
    NamedDocument,
    PlanCandidateDocument,
    PlanDocument,
    RecommendedDocument,
    SpaceDocument,
)
from meshfit.report.documents.routing import RoutingDocument
from meshfit.report.inputs.probe import probe_document
from meshfit.report.serving.fit import serving_fit_document
from meshfit.report.serving.plan import serving_plan_document
from meshfit.report.serving.simulated_front import simulated_rows
from meshfit.report.serving.simulation import simulation_document
from meshfit.serve.bench import suspicion
from meshfit.serve.bench.document import bench_document
from meshfit.validate.collectives.document import CollectivesDocument
from meshfit.validate.document import BaselinesDocument, TargetDocument, ValidationDocument
from meshfit.validate.serving.document import ServingDocument
from meshfit.workload.inventory import inventory
from tools.markdown import table
from tools.source_keys import keys_of_class, keys_of_document, summary_of

Source = type | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What one command prints.

    Attributes:
        words: on the document as a whole, where its source says nothing.
        document: type or builder of the whole; parts: key -> builder of what stands there, or adds to
            it.
    """

    document: Source | None = None
    parts: Mapping[str, Source] | None = None
    words: str = ""


_FILES = Printed(words="`files`: paths that were written.")
_FIT = Printed(document=FitDocument)

PRINTED: Mapping[str, Printed] = {
    "model": Printed(document=inventory),
    "topo": Printed(
        document=topology_document,
        parts={"of this machine, or of tools' output": discovery_document},
    ),
    "catalogue": Printed(
        parts={
            "one accelerator": accelerator_document,
            "one node type": node_type_document,
            "one engine": EngineAbilities,
        },
        words="A list of entries, or with a name one entry; a model's is that of `model`.",
    ),
    "probe": Printed(document=probe_document),
    "check": Printed(
        document=check_document,
        parts={"engines": engine_documents, "measured": measured_document},
    ),
    "check of an engine's file": Printed(document=engine_file_document),
    "check of a server's file": Printed(document=server_file_document),
    "plan": Printed(
        document=PlanDocument,
        parts={
            "explain": explain_document,
            "asked": asked_documents,
            "too_large": too_large_documents,
            "placements[]": placements_document,
            "sensitivity": sensitivity_document,
        },
    ),
    "dryrun": Printed(document=dry_run_document, parts={"of the step": document_of}),
    "run": Printed(
        document=FitDocument,
        words="As `fit`, of one layout; with `--in-engine` as `compare`, `log` null where there is none.",
    ),
    "compare": Printed(document=compared_document, parts={"without a job": logged_document}),
    "train": Printed(document=train_document),
    "balance": Printed(document=balance_document, parts={"parts[]": PartCost}),
    "scale": Printed(document=scale_document, parts={"points[]": ScalingPoint}),
    "fit": _FIT,
    "fit --proxy": Printed(document=proxy_document),
    "export": _FILES,
    "report": _FILES,
    "init": _FILES,
    "validate training": Printed(document=ValidationDocument),
    "validate collectives": Printed(document=CollectivesDocument),
    "validate serving": Printed(document=ServingDocument),
    "serve plan": Printed(
        document=serving_plan_document, parts={"simulated, with --simulate": simulated_rows}
    ),
    "serve simulate": Printed(
        document=simulation_document, parts={"measured": suspicion.measured_document}
    ),
    "serve bench": Printed(document=bench_document),
    "serve fit": Printed(document=serving_fit_document),
    "lab up": Printed(
        document=lab_document,
        words="`hosts` has each one's `name`, `namespace`, `address`, `ranks`.",
    ),
    "lab run": Printed(words="As `fit`."),
    "lab down": Printed(words="`removed`: names of what was removed."),
}
"""Command -> its document."""

SHARED: Sequence[type] = (
    PlanCandidateDocument,
    MeshDocument,
    RecommendedDocument,
    NamedDocument,
    DryRunRow,
    SpaceDocument,
    CandidateDocument,
    RankDocument,
    ProfileDocument,
    SpreadDocument,
    CampaignDocument,
    WinnerDocument,
    ReferenceDocument,
    ViolationDocument,
    RoutingDocument,
    BaselinesDocument,
    TargetDocument,
    MemoryBreakdown,
    TimeBreakdown,
    Interval,
    Parity,
    RankScore,
    Utilisation,
)
"""Types that stand inside of several documents."""

_HEAD = """\
# JSON documents

What every command prints with `--json`, as one document on stdout. This page is written by
`python -m tools.json_page`; a test keeps it equal to the code.

Sizes are in bytes, times in seconds, rates a second, fractions 0 to 1. What could not be had is null or left
out, and `absent` says why. Keys only ever get added. A `layout` has the keys of
[a job's layout](job.md#layout-and-baseline) that differ from their defaults. `rows[].name` stands in each
item of a list, `pools.*.busy` in each value of a mapping.

## Errors

Where a command ends with an error, stdout has `{"error": {"kind": ..., "message": ...}}`, and stderr the message.
A layout that does not fit or breaks rules is no error of `check`: it prints its document, with the `verdict`.
"""


def json_page() -> str:
    """The whole page as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    errors = (InputError, NothingFitsError, RunError, NotInstalledError)
    yield from table(
        ("kind", "exit code", "meaning"),
        [(f"`{one.kind}`", str(one.exit_code), summary_of(one)) for one in errors],
    )
    yield ""
    for command, printed in PRINTED.items():
        yield f"## {command}"
        yield ""
        yield from _printed(printed)
    yield "## Shared types"
    yield ""
    for kind in SHARED:
        yield f"### {kind.__name__}"
        yield ""
        yield from _described(kind)


def _printed(printed: Printed) -> Iterator[str]:
    if printed.words:
        yield printed.words
        yield ""
    if printed.document is FitDocument and printed is not _FIT:
        return
    if printed.document is not None:
        yield from _described(printed.document)
    for key, source in (printed.parts or {}).items():
        yield f"**{key}**"
        yield ""
        yield from _described(source)


def _described(source: Source) -> Iterator[str]:
    if words := summary_of(source):
        yield words
        yield ""
    yield from _typed(source) if isinstance(source, type) else _built(source)
    yield ""


def _typed(kind: type) -> Iterator[str]:
    """A table of what ``kind`` itself annotates; what it inherits is that of its base."""
    base = next(iter(getattr(kind, "__orig_bases__", ())), None)
    if base in SHARED:
        yield f"The keys of {_link(base.__name__)}, and:"
        yield ""
    keys = keys_of_class(kind)
    rows = [(f"`{key.name}`", _type(key.annotation), key.meaning) for key in keys]
    yield from table(("key", "type", "meaning"), rows)


def _built(builder: Callable[..., Any]) -> Iterator[str]:
    """The top keys, and a table of those that have others in them."""
    below: dict[str, list[str]] = {}
    for path in keys_of_document(builder):
        top, _, rest = path.removeprefix("[].").partition(".")
        inner = below.setdefault(top.removesuffix("[]"), [])
        if rest:
            inner.append(f"`{'[].' if top.endswith('[]') else ''}{rest}`")
    if below:
        yield f"Keys: {', '.join(f'`{top}`' for top in below)}."
    if rows := [(f"`{top}`", ", ".join(inner)) for top, inner in below.items() if inner]:
        yield ""
        yield from table(("key", "has"), rows)


_NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "`true`, `false`",
    "None": "null",
    "Any": "any",
}


def _type(node: ast.expr) -> str:
    """An annotation in JSON's words: ``mapping to number, or null``."""
    match node:
        case ast.BinOp(left=left, right=right):
            return f"{_type(left)} or {_type(right)}"
        case ast.Constant(value=None):
            return "null"
        case ast.Name(id=name):
            return _NAMES.get(name) or _link(name)
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            return _generic(name, inner.elts if isinstance(inner, ast.Tuple) else [inner])
    return f"`{ast.unparse(node)}`"


def _generic(name: str, inner: Sequence[ast.expr]) -> str:
    if name == "NotRequired":
        return f"{_type(inner[0])}; may be left out"
    if name in ("dict", "Mapping"):
        to = _type(inner[1])
        return "mapping" if to == "any" else f"mapping to {to}"
    if name == "Literal":
        return ", ".join(f"`{value.value}`" for value in inner if isinstance(value, ast.Constant))
    return f"list of {_type(inner[0])}"


def _link(name: str) -> str:
    known = {kind.__name__ for kind in SHARED}
    if name in known:
        return f"[{name}](#{name.lower()})"
    return "[plan](#plan)" if name == "PlanDocument" else name


if __name__ == "__main__":
    sys.stdout.write(json_page())
