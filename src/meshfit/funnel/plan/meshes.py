"""The best layout of each mesh: what ``plan`` shows, since most of a raw list are variants of one.

A mesh is what decides a program: tp, cp, pp, ep and etp. How data parallelism is split into replicas
and shards, micro-batches, virtual stages and recomputation are its variants.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.compare.terms import term_in_words
from meshfit.funnel.plan.plan_rows import plan_row, row_of
from meshfit.funnel.space.planning import Plan, estimate_candidates, ranking, would_be_rank
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.predict.estimates import Estimates
from meshfit.predict.simulate.tier2 import simulated
from meshfit.predict.time.terms import EXPOSED_TERMS, TERMS
from meshfit.predict.verdict import FITS, TIGHT, VERDICTS
from meshfit.report.documents.plan import MeshDocument, NamedDocument
from meshfit.units import format_duration

AXES_OF_MESH: tuple[str, ...] = ("tp", "cp", "pp", "ep", "etp")
MOST_MESHES = 40
"""Meshes whose best layout is simulated and ranked."""
TERMS_SHOWN = 3
MINUS = "\N{MINUS SIGN}"
MATTERS = 0.01
"""Share of a step from which on a difference in one term is said."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Leaders:
    """The best layout of each mesh, ranked as all layouts are.

    Attributes:
        rows: of the plan; places: theirs in its order, from 0.
        meshes: a number for the mesh of every layout of the plan.
        estimates: the plan's, with all of ``rows`` simulated.
    """

    rows: IntArray
    places: IntArray
    meshes: IntArray
    estimates: Estimates


def mesh_documents(plan: Plan, leaders: Leaders, tied: Collection[int] = ()) -> list[MeshDocument]:
    """``meshes`` of ``plan --json``: the best layout of each mesh, ranked as all layouts are.

    ``rank`` is the layout's place among all, ``variants`` how many others of its mesh lie within its
    interval and fit as well, ``tight`` a faster one that fits tightly, ``why`` the terms that take its
    step apart from the first one's, ``tied`` whether it is one of these rows of the plan.
    """
    first = int(leaders.rows[0])
    return [
        MeshDocument(
            **plan_row(plan, row, leaders.estimates, tied=row in tied),
            rank=place + 1,
            mesh={
                axis: int(getattr(plan.generated.candidates, axis)[row]) for axis in AXES_OF_MESH
            },
            variants=_variants(plan, leaders, row),
            tight=_tight(plan, leaders.meshes, row),
            why=_why(leaders.estimates, row, first),
        )
        for row, place in zip(leaders.rows.tolist(), leaders.places.tolist(), strict=True)
    ]


def leaders_of(plan: Plan) -> Leaders:
    """Of the first ``MOST_MESHES``."""
    meshes = _meshes(plan.generated.candidates)
    places = np.sort(np.unique(meshes[plan.order], return_index=True)[1])[:MOST_MESHES]
    rows = plan.order[places]
    estimates = simulated(plan.estimates, rows[places >= plan.num_simulated])
    best = ranking(estimates.take(rows), plan.verdicts[rows])
    return Leaders(rows=rows[best], places=places[best], meshes=meshes, estimates=estimates)


def named_documents(plan: Plan) -> list[NamedDocument]:
    """The job's ``layout`` and ``baseline`` as rows, where they can be predicted; ``rank`` is their
    place in the plan, or the one that they would have."""
    found = []
    for name, layout in (("layout", plan.job.layout), ("baseline", plan.job.baseline)):
        if layout is not None and layout.world_size == plan.job.topology.num_accelerators:
            found.append(_named(plan, name, layout))
    return found


def _named(plan: Plan, name: str, layout: LayoutSpec) -> NamedDocument:
    estimates, verdicts = estimate_candidates(plan.job, Candidates.from_layouts([layout]))
    row = row_of(plan.job, layout, estimates, 0, verdict=VERDICTS[int(verdicts[0])])
    rank = plan.rank_of(layout) or would_be_rank(plan, estimates, verdicts)
    return NamedDocument(**row, name=name, rank=rank)


def _meshes(candidates: Candidates) -> IntArray:
    """A number for the mesh of each layout."""
    code = np.zeros(len(candidates), dtype=np.int64)
    for axis in AXES_OF_MESH:
        column = getattr(candidates, axis)
        code = code * (int(column.max()) + 1) + column
    return code


def _variants(plan: Plan, leaders: Leaders, row: int) -> int:
    same_mesh = leaders.meshes == leaders.meshes[row]
    alike = same_mesh & (plan.verdicts <= plan.verdicts[row])
    within = plan.estimates.step_middle_s <= leaders.estimates.step_high_s[row]
    return int(np.count_nonzero(alike & within)) - 1


def _tight(plan: Plan, meshes: IntArray, row: int) -> dict[str, Any] | None:
    """The fastest layout of the mesh that fits tightly, where it is faster than the best that fits."""
    if plan.verdicts[row] != FITS:
        return None
    tight = np.flatnonzero((meshes == meshes[row]) & (plan.verdicts == TIGHT))
    speed = plan.estimates.tokens_per_s
    if not len(tight):
        return None
    best = int(tight[np.argmax(speed[tight])])
    if speed[best] <= speed[row]:
        return None
    return {
        "layout": plan.layout(best).as_json(),
        "label": plan.layout(best).label,
        "step_time": float(plan.estimates.step_middle_s[best]),
        "memory": float(plan.estimates.memory_middle_bytes[best]),
    }


def _why(estimates: Estimates, row: int, first: int) -> str:
    """The largest terms of the first; of another, those that differ from the first's."""
    terms = estimates.time_terms[row]
    if row == first:
        largest = np.argsort(-terms)[:TERMS_SHOWN]
        return ", ".join(
            f"{_words(k)} {format_duration(float(terms[k]))}" for k in largest if terms[k] > 0
        )
    apart = terms - estimates.time_terms[first]
    largest = np.argsort(-np.abs(apart))[:TERMS_SHOWN]
    step_s = float(estimates.step_middle_s[first])
    return ", ".join(
        f"{_words(k)} {'+' if apart[k] > 0 else MINUS}{format_duration(abs(float(apart[k])))}"
        for k in largest
        if abs(apart[k]) > MATTERS * step_s
    )


def _words(term: int) -> str:
    name = TERMS[term]
    words = term_in_words(f"exposed.{name}" if name in EXPOSED_TERMS else name)
    return words.removeprefix("exposed ")
