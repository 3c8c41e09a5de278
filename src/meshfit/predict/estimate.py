"""Tier 1: memory and step time of every candidate, in closed form."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

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
from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import COLUMNS, SCHEDULES, Candidates
from meshfit.mesh.rulebook.pipeline import V_SCHEDULES
from meshfit.mesh.spec import LayoutSpec, even_stages
from meshfit.predict.calibration import Calibration, formula_only
from meshfit.predict.costs.collectives import CollectiveCosts, MeasuredCurves, contended
from meshfit.predict.costs.constants import TimeConstants, shipped_constants
from meshfit.predict.costs.rates import rates
from meshfit.predict.costs.tables.chips import CHIPS
from meshfit.predict.coverage import require_covered
from meshfit.predict.memory.deepspeed import rank_memory as deepspeed_rank_memory
from meshfit.predict.memory.megatron.memory import rank_memory as megatron_rank_memory
from meshfit.predict.memory.pytorch import RankMemory
from meshfit.predict.memory.pytorch import rank_memory as pytorch_rank_memory
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import autocast, cast
from meshfit.predict.shape.pick import alike, largest, picked
from meshfit.predict.shape.schedule import Pipeline, RankShape
from meshfit.predict.time.exchange.machine import Machine, machine_for
from meshfit.predict.time.spread import (
    drawn_steps,
    is_measured,
    memory_spread,
    step_spread,
    term_spreads,
)
from meshfit.predict.time.step import with_idle, worked
from meshfit.predict.time.terms import EXPOSED_TERMS, OWN_TERMS, TERMS
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CHUNK_LAYOUTS = 49_152
"""Layouts computed at once: the fastest of 6k to 128k; beyond, arrays no longer stay in cache."""


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What all candidates of one call share."""

    model: ModelSpec
    training: TrainingSpec
    topology: Topology
    profile: EngineProfile
    calibration: Calibration
    curves: MeasuredCurves | None = None
    constants: TimeConstants = field(default_factory=shipped_constants)

    @property
    def is_cuda(self) -> bool:
        return self.topology.accelerator.device_type == "cuda"


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
        fullest = _Fullest(
            categories=self.memory_categories,
            reserved=self.memory_reserved,
            context=self.memory_context,
            host=self.memory_host,
            rank=self.worst_rank,
        )
        basis = replace(self.basis, calibration=calibration)
        return _with_intervals(fullest, calibration.corrected(plain, TERMS), self.candidates, basis)

    def drawn_steps(self, rows: IntArray, draws: int) -> FloatArray:
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
        ((_, group),) = _groups(row, self.basis)
        breakdowns = []
        for shape in group.pipeline.ranks:
            rank = _rank_memory(shape, group)
            by_category = np.array([rank.categories[name][0] for name in MEMORY_CATEGORIES])
            reserved, context = _on_device(rank, self.basis)
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
    for rows, group, seconds in _timed(candidates, basis):
        fullest = _fullest(group, basis)
        categories[rows], worst_rank[rows] = fullest.categories, fullest.rank
        reserved[rows], context[rows] = fullest.reserved, fullest.context
        host[rows] = fullest.host
        terms[rows] = seconds
    terms = basis.calibration.corrected(terms, TERMS)
    memory = _Fullest(
        categories=categories, reserved=reserved, context=context, host=host, rank=worst_rank
    )
    return _with_intervals(memory, terms, candidates, basis)


def step_seconds(candidates: Candidates, basis: Basis) -> FloatArray:
    """Seconds of one step of every candidate, without memory: what fits of constants repeat."""
    seconds = np.zeros(len(candidates))
    for rows, _, terms in _timed(candidates, basis):
        seconds[rows] = terms.sum(axis=1)
    return seconds


def groups_with_machines(
    candidates: Candidates, basis: Basis
) -> Iterator[tuple[IntArray, LayoutGroup, Machine]]:
    """Rows and layouts that share a pipeline and numerics, each with the machine as they see it."""
    machine_of = _machines(basis)
    for rows, group in _groups(candidates, basis):
        yield rows, group, machine_of(group)


def _machines(basis: Basis) -> Callable[[LayoutGroup], Machine]:
    training, topology = basis.training, basis.topology
    rate = rates(
        topology.accelerator,
        training.precision.name,
        constants=basis.constants,
        fp8_recipe=training.runtime.fp8_recipe,
        kernels=basis.profile.kernels,
    )
    costs = CollectiveCosts(
        topology=contended(topology, training.assume.contention),
        curves=basis.curves,
        constants=basis.constants,
    )
    return lambda group: machine_for(group, rate, costs, basis.constants)


def _timed(
    candidates: Candidates, basis: Basis
) -> Iterator[tuple[IntArray, LayoutGroup, FloatArray]]:
    """Rows and layouts that share stages and where they lie, with seconds by term. What a schedule
    does not change is computed once for layouts that differ in nothing else."""
    machine_of = _machines(basis)
    for rows, group in _groups(candidates, basis, one_schedule=False):
        few, which = _but_for_schedule(group)
        machine = machine_of(few)
        yield rows, group, with_idle(worked(few, machine).take(which), group, machine)


def _but_for_schedule(group: LayoutGroup) -> tuple[LayoutGroup, IntArray]:
    """One layout of each set that differs in the schedule alone, and the set of every layout."""
    others = (getattr(group.candidates, name) for name in COLUMNS if name != "schedule")
    first, which = alike(others)
    if len(first) == len(group):
        return group, np.arange(len(group))
    some = group.candidates.take(first)
    derived = step_columns(some, group.training, group.profile)
    return replace(group, candidates=some, columns=derived), which


def group_of_one(
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    layout: LayoutSpec,
    profile: EngineProfile,
) -> LayoutGroup:
    """One layout as the formulas take it, for whoever asks them one by one."""
    basis = Basis(
        model=model,
        training=training,
        topology=topology,
        profile=profile,
        calibration=formula_only(topology, profile.name),
    )
    ((_, group),) = _groups(Candidates.from_layouts([layout]), basis)
    return group


def _groups(
    candidates: Candidates, basis: Basis, *, one_schedule: bool = True
) -> Iterator[tuple[IntArray, LayoutGroup]]:
    """Rows and layouts that share a pipeline and numerics, at most ``CHUNK_LAYOUTS`` at once."""
    precision = basis.training.precision
    for rows, pipeline, uses_cast in _shared_pipelines(candidates, basis, one_schedule):
        for start in range(0, len(rows), CHUNK_LAYOUTS):
            chunk = rows[start : start + CHUNK_LAYOUTS]
            some = candidates.take(chunk)
            yield (
                chunk,
                LayoutGroup(
                    model=basis.model,
                    training=basis.training,
                    profile=basis.profile,
                    pipeline=pipeline,
                    numerics=cast(precision) if uses_cast else autocast(precision),
                    candidates=some,
                    columns=step_columns(some, basis.training, basis.profile),
                    accelerator=basis.topology.accelerator,
                ),
            )


def _shared_pipelines(
    candidates: Candidates, basis: Basis, one_schedule: bool
) -> Iterator[tuple[IntArray, Pipeline, bool]]:
    if not len(candidates):
        return
    uses_cast = step_columns(candidates, basis.training, basis.profile).casts
    parts = (
        candidates.pp,
        candidates.vpp,
        candidates.schedule if one_schedule else _ALIKE_PLACED[candidates.schedule],
        candidates.stage_split,
        uses_cast.astype(np.int64),
    )
    radices = [int(part.max()) + 1 for part in parts]
    codes, group_of = np.unique(np.ravel_multi_index(parts, radices), return_inverse=True)
    by_group = np.argsort(group_of, kind="stable")
    ends = np.cumsum(np.bincount(group_of, minlength=len(codes)))
    for code, rows in zip(codes, np.split(by_group, ends[:-1]), strict=True):
        pp, vpp, schedule, split, is_cast = (int(part) for part in np.unravel_index(code, radices))
        stage_layers = candidates.stage_splits[split]
        pipeline = Pipeline(
            pp=pp,
            vpp=vpp,
            schedule=SCHEDULES[schedule],
            stage_layers=stage_layers or even_stages(basis.model.num_hidden_layers, pp * vpp),
            model=basis.model,
        )
        yield rows, pipeline, bool(is_cast)


_ALIKE_PLACED = np.array(
    [SCHEDULES.index(V_SCHEDULES[0] if name in V_SCHEDULES else SCHEDULES[0]) for name in SCHEDULES]
)
"""For each schedule one that places stages on ranks in the same way: in a V, or round the ranks."""


def _rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """By the memory model that the engine's profile names."""
    if group.profile.memory_model == "megatron":
        return megatron_rank_memory(shape, group)
    if group.profile.memory_model == "deepspeed":
        return deepspeed_rank_memory(shape, group)
    return pytorch_rank_memory(shape, group)


@dataclass(frozen=True, kw_only=True)
class _Fullest:
    """Memory of the rank that holds most, for every layout: [n, categories], and [n] each."""

    categories: FloatArray
    reserved: FloatArray
    context: FloatArray
    host: FloatArray
    rank: IntArray


def _fullest(group: LayoutGroup, basis: Basis) -> _Fullest:
    shapes = [shape for shape, _ in group.pipeline.distinct_ranks]
    ranks = [_rank_memory(shape, group) for shape in shapes]
    on_device = [_on_device(rank, basis) for rank in ranks]
    worst = largest([reserved + context for reserved, context in on_device])
    categories = [
        picked(worst, [rank.categories[name] for rank in ranks]) for name in MEMORY_CATEGORIES
    ]
    return _Fullest(
        categories=np.stack(categories, axis=1),
        reserved=picked(worst, [reserved for reserved, _ in on_device]),
        context=picked(worst, [context for _, context in on_device]),
        host=picked(worst, [rank.host for rank in ranks]),
        rank=np.array([shape.rank for shape in shapes])[worst],
    )


def _on_device(rank: RankMemory, basis: Basis) -> tuple[FloatArray, FloatArray]:
    """Bytes that the allocator holds, and those outside it; on CPU there is no caching allocator and
    no context."""
    if basis.is_cuda:
        return rank.reserved, rank.context
    return rank.allocated, np.zeros(len(rank.allocated))


def _with_intervals(
    fullest: _Fullest, terms: FloatArray, candidates: Candidates, basis: Basis
) -> Estimates:
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


def _memory_spread(fullest: _Fullest, basis: Basis) -> FloatArray | float:
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
