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

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from meshfit.serve.simulate.kv_pool import KvPool
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.scheduler import SchedulerSpec
from meshfit.serve.simulate.step_log import Entry, Gap
from meshfit.serve.simulate.step_table import StepTable

_LINEAR_GROWTH = 0.25
"""Contexts of a decode run grow by at most this share, so that its step time stays linear."""
_LINEAR_STEPS = 16
"""Runs up to this length are not cut for that."""


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request in the batch.

    Attributes:
        target_tokens: of its context when its prompt (and output before a preemption) is computed.
        computed_tokens: of them, those in the cache; all are reserved.
        left_s: when it was preempted while it decoded, None where it was not.
        is_decoding: whether its prompt is computed.
        first_step, last_step: counts of the replica's decoding steps before the first and with the
            last one of it.
        tokens_per_step: of output, in one of them.
    """

    request: Request
    target_tokens: int
    computed_tokens: int
    left_s: float | None = None
    is_decoding: bool = False
    first_step: int = 0
    last_step: int = 0
    tokens_per_step: float = 1.0


_Chunk = tuple[_Sequence, int]
"""Tokens of a prompt that go into one step."""


@dataclass(slots=True, eq=False)
class _DecodeRun:
    """``steps`` steps, the first of ``first_s`` and each later one longer by ``slope_s``.

    One object a replica, which each run overwrites; without steps none is under way.
    """

    starts_s: float = 0.0
    steps: int = 0
    first_s: float = 0.0
    slope_s: float = 0.0

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
        self._per_decode = scheduler.tokens_per_decode
        self._is_mixed = scheduler.mixed_steps
        self._most_sequences = scheduler.max_sequences
        self._most_of_chunk = scheduler.token_budget
        self._budget = scheduler.token_budget * scheduler.micro_batches
        self._longest_tokens = scheduler.capacity_blocks * scheduler.block_tokens
        self._pool = KvPool(
            capacity_blocks=scheduler.capacity_blocks, block_tokens=scheduler.block_tokens
        )
        self._waiting: list[tuple[int, float, int, Request]] = []
        self._prefilling: list[_Sequence] = []
        self._decoding: list[tuple[int, int, _Sequence]] = []
        self._left_s: dict[int, float] = {}
        self._steps = 0
        self._context_tokens = 0.0
        self._growth_tokens = 0.0
        self._stall_s = 0.0
        self._run = _DecodeRun()
        self._chunks: list[_Chunk] = []
        self._step_s = 0.0
        self.ends_s = math.inf
        self.outstanding = 0
        self.finished: list[Request] = []
        self.entries: list[Entry] = []
        self.gaps: list[Gap] = []

    def receive(self, request: Request, now_s: float) -> None:
        """A request arrives. ``advance(now_s)`` has been called."""
        most = request.prompt_tokens + request.output_tokens - 1 + self._scheduler.draft_tokens
        if most > self._longest_tokens:
            request.refused = (
                f"{most} tokens of context exceed the KV cache of "
                f"{self._scheduler.kv_capacity_tokens}"
            )
            return
        self.outstanding += 1
        self._wait(request)
        if self.ends_s == math.inf:
            self._begin(now_s)
        elif self._run.steps and self._can_admit_first():
            self._cut(now_s)

    def advance(self, until_s: float) -> None:
        """Does everything that ends at or before ``until_s``."""
        while (now_s := self.ends_s) <= until_s:
            if self._run.steps:
                self._end_run(now_s)
            else:
                self._end_prefill(now_s)
            self._begin(now_s)

    def kv_blocks(self) -> int:
        """Blocks of the KV cache that requests hold, counted one by one."""
        own_blocks = sum(map(self._pool.blocks_of, self._own_contexts()))
        return own_blocks + self._pool.prefixes.used_blocks

    # What comes next

    def _begin(self, now_s: float) -> None:
        """At a boundary: chooses the next activity."""
        growth_tokens = len(self._decoding) * self._per_decode
        preempted = growth_tokens > self._pool.surely_free_tokens and self._make_room(now_s)
        if self._waiting or self._prefilling:
            self._chunks = self._next_chunks(now_s, admits=not preempted)
            if self._chunks:
                self._begin_prefill(now_s)
                return
        if self._decoding:
            self._begin_run(now_s)
        else:
            self.ends_s = math.inf

    def _next_chunks(self, now_s: float, *, admits: bool) -> list[_Chunk]:
        """Prompts, or parts of them, that go into the next step, also of those that it ``admits``."""
        budget = self._budget
        if self._is_mixed:
            budget -= len(self._decoding) * self._per_decode
        chunks = []
        for sequence in self._prefilling:
            left = sequence.target_tokens - sequence.computed_tokens
            if (taken := min(left, self._most_of_chunk, budget)) > 0:
                chunks.append((sequence, taken))
                budget -= taken
        while admits and budget > 0 and self._waiting and self._can_admit_first():
            sequence = self._admit(heappop(self._waiting)[3], now_s)
            self._prefilling.append(sequence)
            left = sequence.target_tokens - sequence.computed_tokens
            taken = min(left, self._most_of_chunk, budget)
            chunks.append((sequence, taken))
            budget -= taken
        return chunks

    def _wait(self, request: Request) -> None:
        """Into the queue: by priority, then by arrival."""
        heappush(self._waiting, (request.priority, request.ready_s, request.number, request))

    def _can_admit_first(self) -> bool:
        """Whether the first in the queue may join: a free place, and blocks for its prompt."""
        if len(self._decoding) + len(self._prefilling) >= self._most_sequences:
            return False
        pool, request = self._pool, self._waiting[0][3]
        context = request.prompt_tokens + request.generated_tokens
        if context + pool.block_tokens <= pool.surely_free_tokens:
            return True
        segments = self._reusable_segments(request)
        shared = segments * request.segment_tokens
        own = [*self._own_contexts(), context - shared]
        return pool.fits(own, more_shared_blocks=pool.idle_blocks_of(request, segments))

    def _admit(self, request: Request, now_s: float) -> _Sequence:
        context = request.prompt_tokens + request.generated_tokens
        segments = self._reusable_segments(request) if request.prefix else 0
        self._pool.hold(request, context, segments=segments)
        reused = self._pool.shared_tokens(request) if segments else 0
        if request.admitted_s is None:
            request.admitted_s, request.reused_tokens = now_s, reused
        if request.is_transferred and request.preemptions == 0:
            reused = context - 1  # the rest of its cache comes with it
        left_s = self._left_s.pop(request.number, None) if self._left_s else None
        return _Sequence(request, context, reused, left_s)

    def _reusable_segments(self, request: Request) -> int:
        return self._pool.reusable_segments(request) if self._scheduler.prefix_caching else 0

    # Prefill steps

    def _begin_prefill(self, now_s: float) -> None:
        tokens, pairs = 0, 0.0
        for sequence, taken in self._chunks:
            tokens += taken
            pairs += taken * (sequence.computed_tokens + (taken + 1) / 2)
        largest = tokens if len(self._chunks) == 1 else max(taken for _, taken in self._chunks)
        requests, context = 0, 0.0
        if self._is_mixed:
            requests, context = len(self._decoding), self._context_tokens
        self._step_s = step_s = self._table.mixed_s(tokens, pairs, requests, context, largest)
        self.ends_s = now_s + step_s

    def _end_prefill(self, now_s: float) -> None:
        decoding = len(self._decoding)
        if not self._is_mixed:
            self._stall_s += self._step_s if decoding else 0.0
            decoding = 0
        elif decoding:
            self._decode(1, now_s)
        for sequence, taken in self._chunks:
            sequence.computed_tokens += taken
            if sequence.computed_tokens == sequence.target_tokens:
                self._prefilling.remove(sequence)
                self._end_prompt(sequence, now_s)
        entry = (now_s, self._step_s, 1, decoding, self._pool.held_tokens, len(self._waiting))
        self.entries.append(entry)

    def _end_prompt(self, sequence: _Sequence, now_s: float) -> None:
        """The step that computes the end of a prompt also gives the next token."""
        request = sequence.request
        if request.prefix and self._scheduler.prefix_caching:
            self._pool.publish(request)
        request.generated_tokens += 1
        if request.first_token_s is None:
            request.first_token_s = now_s
        elif sequence.left_s is not None:
            self.gaps.append(Gap(ends_s=now_s, seconds=now_s - sequence.left_s))
        if request.generated_tokens == request.output_tokens:
            self._finish(request, sequence.target_tokens, now_s)
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
        sequence.last_step = last_step = self._steps + steps
        self._context_tokens += sequence.target_tokens
        self._growth_tokens += sequence.tokens_per_step
        heappush(self._decoding, (last_step, request.number, sequence))

    def _begin_run(self, now_s: float) -> None:
        """A run ends where a request does, where the cache may be full, or where contexts have grown
        by much."""
        decoding, run, growth = self._decoding, self._run, self._growth_tokens
        count, context = len(decoding), self._context_tokens
        steps = decoding[0][0] - self._steps
        room = self._pool.surely_free_tokens - count * self._per_decode
        if steps * growth > room:
            steps = int(room // growth)
        if steps > _LINEAR_STEPS and steps * growth > _LINEAR_GROWTH * context:
            steps = max(_LINEAR_STEPS, int(_LINEAR_GROWTH * context / growth))
        alone_s, per_token_s = self._table.decode(count, context)
        first_s, slope_s = alone_s + context * per_token_s, per_token_s * growth
        run.starts_s, run.steps = now_s, (steps := max(1, steps))
        run.first_s, run.slope_s = first_s, slope_s
        self.ends_s = now_s + steps * (first_s + slope_s * (steps - 1) / 2)

    def _cut(self, now_s: float) -> None:
        """Ends the run at the first boundary from ``now_s`` on."""
        run = self._run
        steps = run.steps_until(now_s)
        if steps < run.steps:
            run.steps = steps
            self.ends_s = run.starts_s + steps * (run.first_s + run.slope_s * (steps - 1) / 2)

    def _end_run(self, now_s: float) -> None:
        run, decoding = self._run, len(self._decoding)
        steps = logged = run.steps
        mean_s = run.first_s + run.slope_s * (steps - 1) / 2
        run.steps = 0
        held, waiting = self._pool.held_tokens, len(self._waiting)
        if self._stall_s:  # the first gap holds the prefill steps before it
            ends_s, step_s = run.starts_s + mean_s, self._stall_s + mean_s
            self.entries.append((ends_s, step_s, 1, decoding, held, waiting))
            logged, self._stall_s = steps - 1, 0.0
        self._decode(steps, now_s)
        if logged:
            held = self._pool.held_tokens
            self.entries.append((now_s, mean_s, logged, decoding, held, waiting))

    def _decode(self, steps: int, now_s: float) -> None:
        """Every decoding request has gone ``steps`` further; some end."""
        decoding = self._decoding
        self._steps = done = self._steps + steps
        grown = steps * self._growth_tokens
        self._context_tokens += grown
        self._pool.grow(grown)
        while decoding and decoding[0][0] <= done:
            sequence = heappop(decoding)[2]
            per_step = sequence.tokens_per_step
            context = sequence.target_tokens + (done - sequence.first_step) * per_step
            self._context_tokens -= context
            self._growth_tokens -= per_step
            self._finish(sequence.request, context, now_s)
        if not decoding:
            self._context_tokens = self._growth_tokens = 0.0

    def _finish(self, request: Request, context_tokens: float, now_s: float) -> None:
        self._pool.release(request, context_tokens)
        request.generated_tokens = request.output_tokens
        request.finished_s = now_s
        self.outstanding -= 1
        self.finished.append(request)

    # The KV cache

    def _make_room(self, now_s: float) -> bool:
        """Preempts until the next step of the others fits; whether it had to."""
        preempted = False
        while not self._pool.fits(self._own_contexts(decode_tokens=self._per_decode)):
            self._preempt(max(self._batch(), key=lambda sequence: sequence.request.order), now_s)
            preempted = True
        return preempted

    def _preempt(self, sequence: _Sequence, now_s: float) -> None:
        request = sequence.request
        context = self._context(sequence)
        if sequence.is_decoding:
            self._decoding.remove((sequence.last_step, request.number, sequence))
            heapify(self._decoding)
            self._context_tokens -= context
            self._growth_tokens -= sequence.tokens_per_step
            steps = self._steps - sequence.first_step
            request.generated_tokens += int(steps * sequence.tokens_per_step)
            self._left_s[request.number] = now_s
        else:
            self._prefilling.remove(sequence)
        self._pool.release(request, context)
        request.preemptions += 1
        self._wait(request)

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
