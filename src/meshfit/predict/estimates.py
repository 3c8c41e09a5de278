"""Predictions of many layouts, row by row, and one of them taken apart."""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import (
    MEMORY_CATEGORIES,
    TIME_TERMS,
    Interval,
    MemoryBreakdown,
    Prediction,
    TimeBreakdown,
)
from meshfit.mesh.candidates import Candidates
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import Calibration
from meshfit.predict.costs.tables.chips import CHIPS
from meshfit.predict.fullest import FullestRank, on_device, rank_memory
from meshfit.predict.grouped import layout_groups
from meshfit.predict.time.spread import (
    drawn_steps,
    is_measured,
    memory_spread,
    step_spread,
    term_spreads,
)
from meshfit.predict.time.terms import EXPOSED_TERMS, OWN_TERMS, TERMS

DRAWS = 400
"""Of what the terms of a step may err by, for what is said of the difference of two layouts."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Predictions for N candidates, row by row.

    Attributes:
        memory_low_bytes, memory_middle_bytes, memory_high_bytes: total of the rank that holds
            most: reserved (allocated on CPU) plus context.
        memory_categories: its allocated bytes by ``MEMORY_CATEGORIES``, [N, categories].
        memory_reserved, memory_context: on CUDA what its allocator holds, and what lies outside;
            allocated bytes and 0 on CPU. memory_host: what it has offloaded.
        worst_rank: which pipeline rank that is.
        step_low_s, step_middle_s, step_high_s: one optimizer step.
        time_terms: its seconds by ``TERMS``, [N, terms].
        tokens_per_s: of the whole job, at ``step_middle_s``.
    """

    basis: Basis
    candidates: Candidates
    memory_low_bytes: FloatArray
    memory_middle_bytes: FloatArray
    memory_high_bytes: FloatArray
    memory_categories: FloatArray
    memory_reserved: FloatArray
    memory_context: FloatArray
    memory_host: FloatArray
    worst_rank: IntArray
    step_low_s: FloatArray
    step_middle_s: FloatArray
    step_high_s: FloatArray
    time_terms: FloatArray
    tokens_per_s: FloatArray

    def __len__(self) -> int:
        return len(self.tokens_per_s)

    def take(self, which: NDArray[np.bool_] | IntArray) -> "Estimates":
        """The rows that a mask or an index array picks."""
        rows = {
            f.name: getattr(self, f.name)[which]
            for f in fields(self)
            if f.name not in ("basis", "candidates")
        }
        return Estimates(basis=self.basis, candidates=self.candidates.take(which), **rows)

    def retimed(self, rows: IntArray, terms: FloatArray) -> "Estimates":
        """The same with other seconds by ``TERMS``, uncorrected, of some rows."""
        corrected = self.basis.calibration.corrected(terms, TERMS)
        step_s, spread = corrected.sum(axis=1), _spread(corrected, self.basis)
        return replace(
            self,
            time_terms=_with_rows(self.time_terms, rows, corrected),
            step_low_s=_with_rows(self.step_low_s, rows, step_s / spread),
            step_middle_s=_with_rows(self.step_middle_s, rows, step_s),
            step_high_s=_with_rows(self.step_high_s, rows, step_s * spread),
            tokens_per_s=_with_rows(
                self.tokens_per_s, rows, self.basis.training.tokens_per_step / step_s
            ),
        )

    def under(self, calibration: Calibration) -> "Estimates":
        """The same with these corrections in place of its own."""
        plain = self.basis.calibration.inverse().corrected(self.time_terms, TERMS)
        fullest = FullestRank(
            categories=self.memory_categories,
            reserved=self.memory_reserved,
            context=self.memory_context,
            host=self.memory_host,
            rank=self.worst_rank,
        )
        basis = replace(self.basis, calibration=calibration)
        return with_intervals(fullest, calibration.corrected(plain, TERMS), self.candidates, basis)

    def drawn_steps(self, rows: IntArray, draws: int = DRAWS) -> FloatArray:
        """Seconds that the steps of some rows may take, beside each other, [rows, draws].

        What errs alike in all of them, as a machine that is faster than believed, is left out (see
        ``spread.drawn_steps``).
        """
        basis = self.basis
        measured = is_measured(basis.topology.accelerator, basis.training.precision)
        spreads = term_spreads(TERMS, basis.constants, measured=measured)
        own = float(np.exp(basis.constants["spread.scale"] * basis.constants["spread.floor"]))
        return drawn_steps(self.time_terms[rows], spreads, own, draws=draws)

    def prediction(self, index: int) -> Prediction:
        """One row, taken apart."""
        calibration = self.basis.calibration
        time = _time_breakdown(self.time_terms[index])
        return Prediction(
            memory=_memory_breakdown(
                self.memory_categories[index],
                self.memory_reserved[index],
                self.memory_context[index],
                self.memory_host[index],
                self.basis,
            ),
            time=time,
            memory_total=Interval(
                low=float(self.memory_low_bytes[index]),
                middle=float(self.memory_middle_bytes[index]),
                high=float(self.memory_high_bytes[index]),
                basis=calibration.memory.basis,
            ),
            step_time=Interval(
                low=float(self.step_low_s[index]),
                middle=float(self.step_middle_s[index]),
                high=float(self.step_high_s[index]),
                basis=calibration.step_time.basis,
            ),
            tokens_per_s=float(self.tokens_per_s[index]),
            binding=self._binding(index),
            profile=f"{self.basis.profile.name} {self.basis.profile.version}",
        )

    def ranks(self, index: int) -> tuple[MemoryBreakdown, ...]:
        """Peak memory of every pipeline rank of one row, the first stage's first."""
        row = self.candidates.take(np.array([index]))
        ((_, group),) = layout_groups(row, self.basis)
        breakdowns = []
        for shape in group.pipeline.ranks:
            rank = rank_memory(shape, group)
            by_category = np.array([rank.categories[name][0] for name in MEMORY_CATEGORIES])
            reserved, context = on_device(rank, self.basis)
            breakdowns.append(
                _memory_breakdown(by_category, reserved[0], context[0], rank.host[0], self.basis)
            )
        return tuple(breakdowns)

    def _binding(self, index: int) -> str:
        """``memory`` when it does not fit, else the largest term."""
        if self.memory_middle_bytes[index] > self.basis.topology.accelerator.memory_bytes:
            return "memory"
        name = TERMS[int(np.argmax(self.time_terms[index]))]
        return f"exposed.{name}" if name in EXPOSED_TERMS else name


def _with_rows(values: FloatArray, rows: IntArray, others: FloatArray) -> FloatArray:
    """A copy with other values in some rows."""
    changed = values.copy()
    changed[rows] = others
    return changed


def with_intervals(
    fullest: FullestRank, terms: FloatArray, candidates: Candidates, basis: Basis
) -> Estimates:
    """Totals and intervals of what was found of each layout: seconds by ``TERMS``, [N, terms]."""
    total_bytes = fullest.reserved * basis.calibration.memory.factor + fullest.context
    held_spread = _memory_spread(fullest, basis)
    step_s, spread = terms.sum(axis=1), _spread(terms, basis)
    return Estimates(
        basis=basis,
        candidates=candidates,
        memory_low_bytes=total_bytes / held_spread,
        memory_middle_bytes=total_bytes,
        memory_high_bytes=total_bytes * held_spread,
        memory_categories=fullest.categories,
        memory_reserved=fullest.reserved,
        memory_context=fullest.context,
        memory_host=fullest.host,
        worst_rank=fullest.rank,
        step_low_s=step_s / spread,
        step_middle_s=step_s,
        step_high_s=step_s * spread,
        time_terms=terms,
        tokens_per_s=basis.training.tokens_per_step / step_s,
    )


def _spread(terms: FloatArray, basis: Basis) -> FloatArray | float:
    """Of the step's interval: what runs here left of it, else by what each step is made of."""
    step, accelerator = basis.calibration.step_time, basis.topology.accelerator
    if step.samples or accelerator.name not in CHIPS:
        return step.spread
    by_term = {name: terms[:, column] for column, name in enumerate(TERMS)}
    measured = is_measured(accelerator, basis.training.precision)
    return step_spread(by_term, basis.constants, measured=measured)


def _memory_spread(fullest: FullestRank, basis: Basis) -> FloatArray | float:
    """Of the interval of memory: what runs here left of it, else by what each figure is made of."""
    memory = basis.calibration.memory
    if memory.samples or not basis.is_cuda:
        return memory.spread
    return memory_spread(
        allocated=fullest.categories.sum(axis=1),
        reserved=fullest.reserved,
        context=fullest.context,
        profile=basis.profile,
        constants=basis.constants,
    )


def _memory_breakdown(
    by_category: FloatArray, reserved: float, context: float, host: float, basis: Basis
) -> MemoryBreakdown:
    categories = {
        name: round(float(value))
        for name, value in zip(MEMORY_CATEGORIES, by_category, strict=True)
    }
    if not basis.is_cuda:
        return MemoryBreakdown(**categories)
    return MemoryBreakdown(
        **categories,
        reserved=round(float(reserved)),
        context=round(float(context)),
        host=round(float(host)) or None,
    )


def _time_breakdown(terms: FloatArray) -> TimeBreakdown:
    seconds = {name: float(value) for name, value in zip(TERMS, terms, strict=True)}
    own = {name: seconds[name] for name in OWN_TERMS if name in TIME_TERMS}
    exposed = {name: seconds[name] for name in EXPOSED_TERMS if seconds[name] > 0}
    return TimeBreakdown(**own, exposed=exposed)
