"""Every legal layout of a world, and how many of the others each rule refuses.

The space is a product: the degrees whose product is the world size, then one policy after the
other. Rules are applied as soon as everything they need is known, so a tensor-parallel degree
that cuts a head is dropped once and not once for every policy.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshfit.cluster.topology import Topology
from meshfit.errors import InputError, nearest_name
from meshfit.mesh.candidates import (
    COLUMNS,
    CP_METHOD_NAMES,
    OFFLOAD_NAMES,
    RECOMPUTE,
    SCHEDULES,
    Candidates,
    IntArray,
)
from meshfit.mesh.facts import (
    STAGE_FACTS,
    Facts,
    column_facts,
    engine_facts,
    facts_of,
    with_derived,
)
from meshfit.mesh.rule import Rule
from meshfit.mesh.rules import rules_of
from meshfit.mesh.search import SearchSpec
from meshfit.mesh.spec import AXES, LayoutSpec
from meshfit.mesh.stage_splits import StageSplits, stage_splits
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

Columns = dict[str, IntArray]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Generated:
    """The legal layouts and the account of the rest.

    ``rejected`` counts each refused layout once, under the first rule that refuses it in the
    order degrees, then policies; so ``considered == len(candidates) + sum(rejected.values())``.
    What is refused before its stages are known counts once for all ways to spread layers over them.
    ``examples`` has one of the layouts that each of these rules refuses.
    """

    candidates: Candidates
    rejected: dict[str, int]
    considered: int
    examples: dict[str, LayoutSpec] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """A column with ``options`` where it means something, and its default elsewhere."""

    column: str
    options: IntArray
    otherwise: int
    applies: Callable[[Columns], BoolArray]

    @property
    def decides(self) -> tuple[str, ...]:
        """Facts that are known once it is laid out."""
        return (self.column,)

    def count(self, columns: Columns) -> IntArray:
        """Values this policy takes in each row."""
        return np.where(self.applies(columns), len(self.options), 1)

    def value(self, columns: Columns, position: IntArray) -> IntArray:
        """Its ``position``-th value in each row."""
        values = np.full(len(position), self.otherwise, dtype=np.int64)
        meaningful = self.applies(columns)
        values[meaningful] = self.options[position[meaningful]]
        return values


@dataclass(frozen=True, kw_only=True)
class _StagePolicy:
    """The split of layers over stages: which there are depends on how many stages."""

    splits: StageSplits
    column: str = "stage_split"
    decides: tuple[str, ...] = STAGE_FACTS

    def count(self, columns: Columns) -> IntArray:
        """1 while the number of stages is not known."""
        if "vpp" not in columns:
            return np.ones(_num_rows(columns), dtype=np.int64)
        return self.splits.counts[self._row(columns)]

    def value(self, columns: Columns, position: IntArray) -> IntArray:
        return self.splits.indices[self._row(columns), position]

    def _row(self, columns: Columns) -> IntArray:
        return self.splits.of(columns["pp"] * columns["vpp"])


@dataclass(frozen=True, kw_only=True)
class _RecomputedLayers:
    """Of every stage, under ``block``: one, two, or half of them, where these differ and leave some.

    ``alternate`` recomputes every second layer; ``full`` checkpoints them one by one.
    """

    num_hidden_layers: int
    column: str = "recompute_layers"
    decides: tuple[str, ...] = ("recompute_layers",)

    def count(self, columns: Columns) -> IntArray:
        if "recompute" not in columns:
            return np.ones(_num_rows(columns), dtype=np.int64)
        layers = self._layers_of_stage(columns)
        more = 1 * (layers > 2) + 1 * (layers // 2 > 2)
        return np.where(columns["recompute"] == RECOMPUTE.index("block"), 1 + more, 1)

    def value(self, columns: Columns, position: IntArray) -> IntArray:
        half = self._layers_of_stage(columns) // 2
        blocks = np.choose(position, [np.ones_like(half), np.full_like(half, 2), half])
        alternates = columns["recompute"] == RECOMPUTE.index("alternate")
        return np.where(alternates, 2, blocks)

    def _layers_of_stage(self, columns: Columns) -> IntArray:
        return np.asarray(self.num_hidden_layers // (columns["pp"] * columns["vpp"]))


Policy = _Policy | _StagePolicy | _RecomputedLayers


def generate(
    model: ModelSpec,
    training: TrainingSpec,
    topology: Topology,
    profile: EngineProfile,
    search: SearchSpec | None = None,
) -> Generated:
    """The legal layouts that use every accelerator of ``topology``, each exactly once.

    A policy without meaning keeps its default (no schedule without a pipeline), so no two rows
    run the same program. Layers are spread over stages as evenly as can be and, where that differs,
    with lighter ends (``stage_splits``).

    Raises:
        InputError: the search names a schedule or recompute policy that does not exist.
    """
    search = search or SearchSpec()
    fixed = facts_of(model=model, training=training, topology=topology)
    fixed |= engine_facts(profile) | {"cp_inner": 1}
    if search.cp_method is None:
        fixed["cp_method"] = "none"
    if search.offload is None:
        fixed["offload"] = "none"
    splits = stage_splits(model, profile)
    policies = _policies(fixed, profile, search, splits)
    columns = _degrees(topology.num_accelerators, fixed["num_experts"], search)
    considered = int(_completions(columns, policies).sum())
    sieve = _Sieve(fixed, rules_of(profile), splits)
    columns = sieve.apply(columns, policies)
    for index, policy in enumerate(policies):
        rest = policies[index + 1 :]
        before = int(_completions(columns, policies[index:]).sum())
        columns = _expand(columns, policy)
        considered += int(_completions(columns, rest).sum()) - before
        columns = sieve.apply(columns, rest)
    return Generated(
        candidates=_candidates(columns, splits),
        rejected=sieve.rejected,
        considered=considered,
        examples=sieve.examples,
    )


def _candidates(columns: Columns, splits: StageSplits) -> Candidates:
    """Complete columns as candidates; what was not laid out keeps its default."""
    default = Candidates.from_layouts([LayoutSpec()]).take(np.zeros(_num_rows(columns), np.int64))
    complete: dict[str, Any] = {name: columns.get(name, getattr(default, name)) for name in COLUMNS}
    return Candidates(**complete, stage_splits=splits.splits)


class _Sieve:
    """Drops rows that break a rule, each rule once, and counts the layouts dropped with them."""

    def __init__(self, fixed: Facts, rules: Sequence[Rule], splits: StageSplits) -> None:
        self.rejected: dict[str, int] = {}
        self.examples: dict[str, LayoutSpec] = {}
        self._fixed = fixed
        self._splits = splits
        self._pending = list(rules)

    def apply(self, columns: Columns, remaining: Sequence[Policy]) -> Columns:
        """The rows that keep every rule that can be decided now."""
        facts = with_derived({**self._fixed, **column_facts(columns, self._splits.splits)})
        later = {fact for policy in remaining for fact in policy.decides}
        decided = [
            rule
            for rule in self._pending
            if rule.applies(facts) and later.isdisjoint(rule.defaults)
        ]
        self._pending = [rule for rule in self._pending if rule not in decided]
        completions = _completions(columns, remaining)
        legal = np.ones(_num_rows(columns), dtype=np.bool_)
        for rule in decided:
            broken = legal & ~np.asarray(rule.check(facts), dtype=np.bool_)
            if count := int(completions[broken].sum()):
                self.rejected[rule.name] = self.rejected.get(rule.name, 0) + count
                self.examples[rule.name] = _first(columns, broken, remaining, self._splits)
            legal &= ~broken
        return {name: column[legal] for name, column in columns.items()}


def _first(
    columns: Columns, which: BoolArray, remaining: Sequence[Policy], splits: StageSplits
) -> LayoutSpec:
    """The first of the rows that a mask picks, with the first value of every policy to come."""
    row = int(np.argmax(which))
    one = {name: column[row : row + 1] for name, column in columns.items()}
    for policy in remaining:
        one = {name: column[:1] for name, column in _expand(one, policy).items()}
    return _candidates(one, splits).layout(0)


def _policies(
    facts: Facts, profile: EngineProfile, search: SearchSpec, splits: StageSplits
) -> list[Policy]:
    """The policies in the order in which they are laid out."""

    def everywhere(columns: Columns) -> BoolArray:
        return np.ones(_num_rows(columns), dtype=np.bool_)

    def above_one(degree: str) -> Callable[[Columns], BoolArray]:
        return lambda columns: columns[degree] > 1

    default = LayoutSpec()
    powers = [2**power for power in range(facts["num_hidden_layers"].bit_length())]
    zero_stages = [stage for stage in search.zero_stage or profile.zero_stages if stage != 0]
    own_schedules = [name for name in profile.schedules if name in SCHEDULES]
    own_recompute = [name for name in profile.recompute if name in RECOMPUTE]
    schedules = _codes(
        search.schedule or own_schedules or (default.schedule,), SCHEDULES, "schedule"
    )
    recompute = _codes(search.recompute or own_recompute, RECOMPUTE, "recompute")
    return [
        _Policy(
            column="micro_batch_size",
            options=_values(search.micro_batch_size or divisors(facts["global_batch_size"])),
            otherwise=default.micro_batch_size,
            applies=everywhere,
        ),
        _Policy(
            column="vpp",
            options=_values(search.vpp or powers),
            otherwise=default.vpp,
            applies=above_one("pp"),
        ),
        _StagePolicy(splits=splits),
        _Policy(
            column="schedule",
            options=schedules,
            otherwise=SCHEDULES.index(default.schedule),
            applies=above_one("pp"),
        ),
        _Policy(
            column="zero_stage",
            options=_values(zero_stages),
            otherwise=default.zero_stage,
            applies=above_one("dp_shard"),
        ),
        _Policy(
            column="sp",
            options=_values(search.sp or (profile.sequence_parallel,)),
            otherwise=int(default.sp),
            applies=above_one("tp"),
        ),
        _Policy(
            column="recompute",
            options=recompute,
            otherwise=RECOMPUTE.index(default.recompute),
            applies=everywhere,
        ),
        _RecomputedLayers(num_hidden_layers=facts["num_hidden_layers"]),
        *_asked_for("cp_method", search.cp_method, "cp_method", CP_METHOD_NAMES, above_one("cp")),
        *_asked_for("offload_to", search.offload, "offload", OFFLOAD_NAMES, everywhere),
    ]


def _asked_for(
    column: str,
    values: Sequence[str] | None,
    key: str,
    names: Sequence[str],
    applies: Callable[[Columns], BoolArray],
) -> list[Policy]:
    """A policy that is searched where a search asks for it: else no column need be laid out."""
    if values is None:
        return []
    options = _codes(values, names, key)
    return [_Policy(column=column, options=options, otherwise=0, applies=applies)]


def _degrees(world: int, num_experts: int, search: SearchSpec) -> Columns:
    """Every way to write the world size as a product over the mesh axes, with ep and etp."""
    columns: Columns = {}
    rest = np.array([world], dtype=np.int64)
    for axis in AXES[:-1]:
        options = _values(getattr(search, axis) or divisors(world))
        row, option = np.nonzero(rest[:, None] % options == 0)
        columns = {name: column[row] for name, column in columns.items()}
        columns[axis] = options[option]
        rest = rest[row] // options[option]
    columns[AXES[-1]] = rest
    bound = getattr(search, AXES[-1])
    if bound is not None:
        within = np.isin(rest, bound)
        columns = {name: column[within] for name, column in columns.items()}
    expert = _Policy(
        column="ep",
        options=_values(search.ep or (divisors(num_experts) if num_experts else (1,))),
        otherwise=1,
        applies=lambda columns: np.ones(_num_rows(columns), dtype=np.bool_),
    )
    expert_tensor = _Policy(
        column="etp",
        options=_values(search.etp or (1,)),
        otherwise=1,
        applies=lambda columns: columns["ep"] > 1,
    )
    return _expand(_expand(columns, expert), expert_tensor)


def _expand(columns: Columns, policy: Policy) -> Columns:
    """One row for each value the policy takes in it."""
    counts = policy.count(columns)
    row = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    expanded = {name: column[row] for name, column in columns.items()}
    return {**expanded, policy.column: policy.value(expanded, position)}


def _completions(columns: Columns, policies: Sequence[Policy]) -> IntArray:
    """Layouts that each row would become."""
    counts = [policy.count(columns) for policy in policies]
    return math.prod(counts, start=np.ones(_num_rows(columns), dtype=np.int64))


def _num_rows(columns: Mapping[str, IntArray]) -> int:
    return len(columns[AXES[0]])


def _values(options: Iterable[int]) -> IntArray:
    return np.array(list(dict.fromkeys(options)), dtype=np.int64)


def _codes(names: Iterable[str], known: Sequence[str], key: str) -> IntArray:
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"did you mean {nearest!r}?" if nearest else f"known: {', '.join(known)}"
            raise InputError(f"search.{key}: unknown {key} {name!r}; {hint}")
    return _values(known.index(name) for name in names)


def divisors(number: int) -> tuple[int, ...]:
    """Divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
