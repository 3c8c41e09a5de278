"""One replica under continuous batching: a queue, a batch, a KV cache, a step at a time.

At every boundary between steps the scheduler decides what comes next::

    boundary ──(prompts to compute)──> prefill step ──┐
        │                                             ├──> boundary
        ├────(only decoding requests)──> decode run ──┘
        └────(nothing)──> idle ──(a request arrives)──> boundary

A decode run is many steps in one: nothing changes in the batch until a request ends, an arrival can
be admitted, or the KV cache fills up. Its step times grow linearly with the contexts, so its end is
known in advance; an arrival that can be admitted cuts it at the next boundary.

Requests are admitted in order (priority, then arrival) and only where the blocks of their whole
prompt are free (vLLM's ``scheduler_reserve_full_isl``). A batch that outgrows the cache preempts the
last in order, which computes its prompt and its output so far anew when it is admitted again; nobody
is admitted at the boundary of a preemption.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshfit.serve.simulate.kv_pool import KvPool
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.scheduler import SchedulerSpec
from meshfit.serve.simulate.step_log import Entry, Gap
from meshfit.serve.simulate.step_table import StepTable

_LINEAR_GROWTH = 0.25
"""Contexts of a decode run grow by at most this share, so that its step time stays linear."""
_LINEAR_STEPS = 16
"""Runs up to this length are not cut for that."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Sequence:
    """A request in the batch.

    Attributes:
        target_tokens: of its context when its prompt (and output before a preemption) is computed.
        computed_tokens: of them, those in the cache; all are reserved.
        first_step, last_step: counts of the replica's decoding steps before the first and with the
            last one of it.
        tokens_per_step: of output, in one of them.
        is_decoding: whether its prompt is computed.
        left_s: when it was preempted while it decoded, None where it was not.
    """

    request: Request
    target_tokens: int
    computed_tokens: int
    first_step: int = 0
    last_step: int = 0
    tokens_per_step: float = 1.0
    is_decoding: bool = False
    left_s: float | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class _PrefillStep:
    chunks: Sequence[tuple[_Sequence, int]]
    seconds: float


@dataclass(kw_only=True, slots=True, eq=False)
class _DecodeRun:
    """``steps`` steps, the first of ``first_s`` and each later one longer by ``slope_s``."""

    starts_s: float
    steps: int
    first_s: float
    slope_s: float

    @property
    def mean_s(self) -> float:
        """Of one step."""
        return self.first_s + self.slope_s * (self.steps - 1) / 2

    def steps_until(self, time_s: float) -> int:
        """Steps that begin before ``time_s``, at least one: at the end of the last is a boundary.

        The number ``n`` with ``n first + n (n - 1) / 2 slope`` not below the time that has passed.
        """
        passed_s = time_s - self.starts_s
        middle_s = self.first_s - self.slope_s / 2
        root_s = math.sqrt(middle_s * middle_s + 2 * self.slope_s * passed_s)
        return max(1, math.ceil(2 * passed_s / (middle_s + root_s)))


class Replica:
    """One replica and everything that it has done.

    Attributes:
        ends_s: when its activity in progress ends; infinite while it is idle.
        outstanding: requests received and not finished.
        finished: in the order in which they ended.
        entries, gaps: what its steps were, and the gaps between tokens that they do not show.
    """

    def __init__(self, scheduler: SchedulerSpec, table: StepTable) -> None:
        self._scheduler = scheduler
        self._table = table
        self._pool = KvPool(
            capacity_blocks=scheduler.capacity_blocks, block_tokens=scheduler.block_tokens
        )
        self._waiting: list[tuple[tuple[int, float, int], Request]] = []
        self._prefilling: list[_Sequence] = []
        self._decoding: list[tuple[int, int, _Sequence]] = []
        self._left_s: dict[int, float] = {}
        self._steps = 0
        self._context_tokens = 0.0
        self._growth_tokens = 0.0
        self._stall_s = 0.0
        self._activity: _PrefillStep | _DecodeRun | None = None
        self.ends_s = math.inf
        self.outstanding = 0
        self.finished: list[Request] = []
        self.entries: list[Entry] = []
        self.gaps: list[Gap] = []

    def receive(self, request: Request, now_s: float) -> None:
        """A request arrives. ``advance(now_s)`` has been called."""
        most = request.largest_context + self._scheduler.draft_tokens
        if self._pool.blocks_of(most) > self._pool.capacity_blocks:
            request.refused = (
                f"{most} tokens of context exceed the KV cache of "
                f"{self._scheduler.kv_capacity_tokens}"
            )
            return
        self.outstanding += 1
        heapq.heappush(self._waiting, (request.order, request))
        if self._activity is None:
            self._begin(now_s)
        elif isinstance(self._activity, _DecodeRun) and self._can_admit_first():
            self._cut(self._activity, now_s)

    def advance(self, until_s: float) -> None:
        """Does everything that ends at or before ``until_s``."""
        while self.ends_s <= until_s:
            self.end_activity()

    def end_activity(self) -> None:
        """Ends what is in progress and begins what comes next."""
        now_s, activity = self.ends_s, self._activity
        if isinstance(activity, _DecodeRun):
            self._end_run(activity, now_s)
        elif activity is not None:
            self._end_prefill(activity, now_s)
        self._begin(now_s)

    def kv_blocks(self) -> int:
        """Blocks of the KV cache that requests hold, counted one by one."""
        own_blocks = sum(map(self._pool.blocks_of, self._own_contexts()))
        return own_blocks + self._pool.prefixes.used_blocks

    # What comes next

    def _begin(self, now_s: float) -> None:
        """At a boundary: chooses the next activity."""
        growth_tokens = len(self._decoding) * self._scheduler.tokens_per_decode
        preempted = growth_tokens > self._pool.surely_free_tokens and self._make_room(now_s)
        chunks = None
        if self._waiting or self._prefilling:
            chunks = self._chunks(now_s, admits=not preempted)
        if chunks:
            self._begin_prefill(chunks, now_s)
        elif self._decoding:
            self._begin_run(now_s)
        else:
            self._activity, self.ends_s = None, math.inf

    def _chunks(self, now_s: float, *, admits: bool) -> list[tuple[_Sequence, int]]:
        """Prompts, or parts of them, that go into the next step, also of those that it ``admits``."""
        scheduler = self._scheduler
        budget = scheduler.token_budget * scheduler.micro_batches
        if scheduler.mixed_steps:
            budget -= len(self._decoding) * scheduler.tokens_per_decode
        chunks = []
        for sequence in self._prefilling:
            left = sequence.target_tokens - sequence.computed_tokens
            if (taken := min(left, scheduler.token_budget, budget)) > 0:
                chunks.append((sequence, taken))
                budget -= taken
        while admits and budget > 0 and self._waiting and self._can_admit_first():
            sequence = self._admit(heapq.heappop(self._waiting)[1], now_s)
            self._prefilling.append(sequence)
            left = sequence.target_tokens - sequence.computed_tokens
            taken = min(left, scheduler.token_budget, budget)
            chunks.append((sequence, taken))
            budget -= taken
        return chunks

    def _can_admit_first(self) -> bool:
        """Whether the first in the queue may join: a free place, and blocks for its prompt."""
        if len(self._decoding) + len(self._prefilling) >= self._scheduler.max_sequences:
            return False
        pool, request = self._pool, self._waiting[0][1]
        context = request.prompt_tokens + request.generated_tokens
        if context + pool.block_tokens <= pool.surely_free_tokens:
            return True
        segments = self._reusable_segments(request)
        shared = segments * request.segment_tokens
        own = [*self._own_contexts(), context - shared]
        return pool.fits(own, more_shared_blocks=pool.idle_blocks_of(request, segments))

    def _admit(self, request: Request, now_s: float) -> _Sequence:
        context = request.prompt_tokens + request.generated_tokens
        segments = self._reusable_segments(request)
        self._pool.hold(request, context, segments=segments)
        reused = self._pool.shared_tokens(request)
        if request.admitted_s is None:
            request.admitted_s, request.reused_tokens = now_s, reused
        comes_with_it = request.is_transferred and request.preemptions == 0
        return _Sequence(
            request=request,
            target_tokens=context,
            computed_tokens=context - 1 if comes_with_it else reused,
            left_s=self._left_s.pop(request.number, None),
        )

    def _reusable_segments(self, request: Request) -> int:
        return self._pool.reusable_segments(request) if self._scheduler.prefix_caching else 0

    # Prefill steps

    def _begin_prefill(self, chunks: list[tuple[_Sequence, int]], now_s: float) -> None:
        tokens, pairs, largest = 0, 0.0, 0
        for sequence, taken in chunks:
            tokens += taken
            pairs += taken * (sequence.computed_tokens + (taken + 1) / 2)
            largest = max(largest, taken)
        mixed = self._scheduler.mixed_steps
        seconds = self._table.mixed_s(
            largest_chunk=largest,
            tokens=tokens,
            pairs=pairs,
            requests=len(self._decoding) if mixed else 0,
            context_tokens=self._context_tokens if mixed else 0.0,
        )
        self._activity = _PrefillStep(chunks=chunks, seconds=seconds)
        self.ends_s = now_s + seconds

    def _end_prefill(self, step: _PrefillStep, now_s: float) -> None:
        decoding = len(self._decoding) if self._scheduler.mixed_steps else 0
        if decoding:
            self._decode(1, now_s)
        elif self._decoding:
            self._stall_s += step.seconds
        for sequence, taken in step.chunks:
            sequence.computed_tokens += taken
            if sequence.computed_tokens == sequence.target_tokens:
                self._prefilling.remove(sequence)
                self._end_prompt(sequence, now_s)
        self._log(now_s, step.seconds, 1, decoding)

    def _end_prompt(self, sequence: _Sequence, now_s: float) -> None:
        """The step that computes the end of a prompt also gives the next token."""
        request = sequence.request
        if self._scheduler.prefix_caching:
            self._pool.publish(request)
        request.generated_tokens += 1
        if request.first_token_s is None:
            request.first_token_s = now_s
        elif sequence.left_s is not None:
            self.gaps.append(Gap(ends_s=now_s, seconds=now_s - sequence.left_s))
        if request.generated_tokens == request.output_tokens:
            self._finish(sequence, sequence.target_tokens, now_s)
        else:
            self._start_decoding(sequence)

    # Decode runs

    def _start_decoding(self, sequence: _Sequence) -> None:
        request = sequence.request
        left_tokens = request.output_tokens - request.generated_tokens
        steps = left_tokens  # one token a step
        if self._scheduler.draft_tokens and request.output_tokens > 1:
            share = left_tokens / (request.output_tokens - 1)
            steps = max(1, round(share * request.decode_steps))
            sequence.tokens_per_step = left_tokens / steps
        sequence.is_decoding = True
        sequence.first_step = self._steps
        sequence.last_step = self._steps + steps
        self._context_tokens += sequence.target_tokens
        self._growth_tokens += sequence.tokens_per_step
        heapq.heappush(self._decoding, (sequence.last_step, request.number, sequence))

    def _begin_run(self, now_s: float) -> None:
        first_s, per_token_s = self._table.decode(len(self._decoding), self._context_tokens)
        run = _DecodeRun(
            starts_s=now_s,
            steps=self._steps_alike(),
            first_s=first_s,
            slope_s=per_token_s * self._growth_tokens,
        )
        self._activity = run
        self.ends_s = now_s + run.steps * run.mean_s

    def _steps_alike(self) -> int:
        """Steps until a request ends, the cache may be full, or contexts have grown by much."""
        growth = self._growth_tokens
        until_end = self._decoding[0][0] - self._steps
        per_step = len(self._decoding) * self._scheduler.tokens_per_decode
        until_full = int((self._pool.surely_free_tokens - per_step) // growth)
        while_linear = max(_LINEAR_STEPS, int(_LINEAR_GROWTH * self._context_tokens / growth))
        return max(1, min(until_end, until_full, while_linear))

    def _cut(self, run: _DecodeRun, now_s: float) -> None:
        """Ends a run at the first boundary from ``now_s`` on."""
        steps = run.steps_until(now_s)
        if steps < run.steps:
            run.steps = steps
            self.ends_s = run.starts_s + steps * run.mean_s

    def _end_run(self, run: _DecodeRun, now_s: float) -> None:
        decoding, steps, mean_s = len(self._decoding), run.steps, run.mean_s
        if self._stall_s:  # the first gap holds the prefill steps before it
            self._log(run.starts_s + mean_s, self._stall_s + mean_s, 1, decoding)
            steps, self._stall_s = steps - 1, 0.0
        self._decode(run.steps, now_s)
        if steps:
            self._log(now_s, mean_s, steps, decoding)

    def _decode(self, steps: int, now_s: float) -> None:
        """Every decoding request has gone ``steps`` further; some end."""
        self._steps += steps
        grown = steps * self._growth_tokens
        self._context_tokens += grown
        self._pool.grow(grown)
        decoding = self._decoding
        while decoding and decoding[0][0] <= self._steps:
            sequence = heapq.heappop(decoding)[2]
            context = self._context(sequence)
            self._context_tokens -= context
            self._growth_tokens -= sequence.tokens_per_step
            self._finish(sequence, context, now_s)
        if not decoding:
            self._context_tokens = self._growth_tokens = 0.0

    def _finish(self, sequence: _Sequence, context_tokens: float, now_s: float) -> None:
        request = sequence.request
        self._pool.release(request, context_tokens)
        request.generated_tokens = request.output_tokens
        request.finished_s = now_s
        self.outstanding -= 1
        self.finished.append(request)

    # The KV cache

    def _make_room(self, now_s: float) -> bool:
        """Preempts until the next step of the others fits; whether it had to."""
        per_request, preempted = self._scheduler.tokens_per_decode, False
        while not self._pool.fits(self._own_contexts(decode_tokens=per_request)):
            self._preempt(max(self._batch(), key=lambda sequence: sequence.request.order), now_s)
            preempted = True
        return preempted

    def _preempt(self, sequence: _Sequence, now_s: float) -> None:
        request = sequence.request
        context = self._context(sequence)
        if sequence.is_decoding:
            self._decoding.remove((sequence.last_step, request.number, sequence))
            heapq.heapify(self._decoding)
            self._context_tokens -= context
            self._growth_tokens -= sequence.tokens_per_step
            steps = self._steps - sequence.first_step
            request.generated_tokens += int(steps * sequence.tokens_per_step)
            self._left_s[request.number] = now_s
        else:
            self._prefilling.remove(sequence)
        self._pool.release(request, context)
        request.preemptions += 1
        heapq.heappush(self._waiting, (request.order, request))

    def _context(self, sequence: _Sequence) -> float:
        """Tokens that a sequence of the batch holds in the cache, reserved ones included."""
        if not sequence.is_decoding:
            return sequence.target_tokens
        steps = self._steps - sequence.first_step
        return sequence.target_tokens + steps * sequence.tokens_per_step

    def _own_contexts(self, *, decode_tokens: int = 0) -> Iterable[float]:
        """Unshared tokens of everyone in the batch, with so many more of those decoding."""
        for sequence in self._prefilling:
            yield sequence.target_tokens - self._pool.shared_tokens(sequence.request)
        for _, _, sequence in self._decoding:
            shared = self._pool.shared_tokens(sequence.request)
            yield self._context(sequence) - shared + decode_tokens

    def _batch(self) -> list[_Sequence]:
        return [*self._prefilling, *(sequence for _, _, sequence in self._decoding)]

    def _log(self, now_s: float, step_s: float, steps: int, decoding: int) -> None:
        entry = (now_s, step_s, steps, decoding, self._pool.held_tokens, len(self._waiting))
        self.entries.append(entry)
