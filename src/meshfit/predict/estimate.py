"""Tier 1: memory and step time of every candidate, in closed form."""

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import Candidates
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import Calibration, formula_only
from meshfit.predict.costs.collectives import MeasuredCurves
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.coverage import require_covered
from meshfit.predict.estimates import Estimates, with_intervals
from meshfit.predict.fullest import FullestRank, fullest_rank
from meshfit.predict.grouped import timed
from meshfit.predict.time.terms import TERMS
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]


def estimate(
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    candidates: Candidates,
    profile: EngineProfile,
    *,
    calibration: Calibration | None = None,
    curves: MeasuredCurves | None = None,
    constants: TimeConstants | None = None,
) -> Estimates:
    """Memory and step time of every candidate; legality is the rules' business.

    Args:
        calibration: corrections and intervals; default: none, and those of the formulas alone.
        curves: measured collectives that go before the formula.
        constants: of the time model; default: the shipped ones.

    Raises:
        InputError: the accelerator has no rate for the precision asked for, or the model has blocks
            that are not covered.
    """
    basis = Basis(
        model=model,
        training=training,
        topology=topology,
        profile=profile,
        calibration=calibration or formula_only(topology, profile.name),
        curves=curves,
        constants=constants or shipped_constants(),
    )
    return estimate_on(basis, candidates)


def estimate_on(basis: Basis, candidates: Candidates) -> Estimates:
    """``estimate`` of what is put together already.

    Raises:
        InputError: as ``estimate``.
    """
    require_covered(basis.model)
    count = len(candidates)
    categories = np.zeros((count, len(MEMORY_CATEGORIES)))
    reserved, context, host = np.zeros(count), np.zeros(count), np.zeros(count)
    worst_rank = np.zeros(count, dtype=np.int64)
    terms = np.zeros((count, len(TERMS)))
    for rows, group, seconds in timed(candidates, basis):
        fullest = fullest_rank(group, basis)
        categories[rows], worst_rank[rows] = fullest.categories, fullest.rank
        reserved[rows], context[rows] = fullest.reserved, fullest.context
        host[rows] = fullest.host
        terms[rows] = seconds
    terms = basis.calibration.corrected(terms, TERMS)
    memory = FullestRank(
        categories=categories, reserved=reserved, context=context, host=host, rank=worst_rank
    )
    return with_intervals(memory, terms, candidates, basis)


def step_seconds(candidates: Candidates, basis: Basis) -> FloatArray:
    """Seconds of one step of every candidate, without memory: what fits of constants repeat."""
    seconds = np.zeros(len(candidates))
    for rows, _, terms in timed(candidates, basis):
        seconds[rows] = terms.sum(axis=1)
    return seconds
