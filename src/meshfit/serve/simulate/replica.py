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

from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.serve.simulate.kv_pool import KvPool
from meshfit.serve.simulate.request import Request
from meshfit.serve.simulate.step_log import Entry, Gap
from meshfit.serve.simulate.step_table import StepTable

_LINEAR_GROWTH = 0.25
"""Contexts of a decode run grow by at most this share, so that its step time stays linear."""
_LINEAR_STEPS = 16.0
"""Runs up to this length are not cut for that."""


_Chunk = tuple[Request, int]
"""Tokens of a prompt that go into one step."""


@dataclass(slots=True, eq=False)
class _DecodeRun:
    """``steps`` steps, the first of ``first_s`` and each later one longer by ``slope_s``; ``mean_s``
    of them.

    One object a replica, which each run overwrites; without steps none is under way.
    """

    starts_s: float = 0.0
    steps: float = 0.0
    first_s: float = 0.0
    slope_s: float = 0.0
    mean_s: float = 0.0

    def cut(self, time_s: float) -> float:
        """Takes away the steps that begin at ``time_s`` or later, and returns when the last one left
        ends, a boundary; the first one is always left.

        The number ``n`` with ``n first + n (n - 1) / 2 slope`` not below the time that has passed.
        """
        passed_s, slope_s = time_s - self.starts_s, self.slope_s
        middle_s = self.first_s - slope_s * 0.5
        root_s = math.sqrt(middle_s * middle_s + 2.0 * slope_s * passed_s)
        steps = math.ceil(2.0 * passed_s / (middle_s + root_s)) or 1
        if steps < self.steps:
            self.steps = steps
            self.mean_s = self.first_s + slope_s * (steps - 1) * 0.5
        return self.starts_s + self.steps * self.mean_s


def _fewer_steps(steps: float, growth_tokens: float, room_tokens: float, context: float) -> float:
    """Steps of a run for which there is room, and in which contexts grow by no more than they may."""
    if steps * growth_tokens > room_tokens:
        steps = max(1.0, room_tokens // growth_tokens)
    if steps > _LINEAR_STEPS and steps * growth_tokens > _LINEAR_GROWTH * context:
        steps = max(_LINEAR_STEPS, float(int(_LINEAR_GROWTH * context / growth_tokens)))
    return steps


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
        self._drafted = scheduler.draft_tokens
        self._is_mixed = scheduler.mixed_steps
        self._most_sequences = scheduler.max_sequences
        self._most_growth_tokens = scheduler.max_sequences * scheduler.tokens_per_decode
        self._most_of_chunk = scheduler.token_budget
        self._budget = scheduler.token_budget * scheduler.micro_batches
        self._longest_tokens = scheduler.capacity_blocks * scheduler.block_tokens
        self._pool = KvPool(
            capacity_blocks=scheduler.capacity_blocks, block_tokens=scheduler.block_tokens
        )
        self._waiting: list[tuple[int, float, int, Request]] = []
        self._prefilling: list[Request] = []
        self._decoding: list[tuple[float, int, Request]] = []
        self._steps = 0.0
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
        most = request.prompt_tokens + request.output_tokens - 1 + self._drafted
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
            self.ends_s = self._run.cut(now_s)

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
        may_be_full = self._pool.surely_free_tokens < self._most_growth_tokens
        preempted = may_be_full and self._make_room(now_s)
        if (self._waiting or self._prefilling) and self._begin_prefill(now_s, not preempted):
            return
        if self._decoding:
            self._begin_run(now_s)
        else:
            self.ends_s = math.inf

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

    def _admit(self, request: Request, now_s: float) -> None:
        request.target_tokens = context = request.prompt_tokens + request.generated_tokens
        segments = self._reusable_segments(request) if request.prefix else 0
        self._pool.hold(request, context, segments)
        request.computed_tokens = self._pool.shared_tokens(request) if segments else 0
        if request.admitted_s is None:
            request.admitted_s, request.reused_tokens = now_s, request.computed_tokens
        if request.is_transferred and request.preemptions == 0:
            request.computed_tokens = context - 1  # the rest of its cache comes with it
        self._prefilling.append(request)

    def _reusable_segments(self, request: Request) -> int:
        return self._pool.reusable_segments(request) if self._scheduler.prefix_caching else 0

    # Prefill steps

    def _begin_prefill(self, now_s: float, admits: bool) -> bool:
        """Begins a step with prompts, or parts of them, also of those that it ``admits``; whether
        there is anything to compute."""
        beside = len(self._decoding) if self._is_mixed else 0
        budget = left = self._budget - beside * self._per_decode
        chunks: list[_Chunk] = []
        for request in self._prefilling:
            if left > 0:
                left -= self._take(request, left, chunks)
        while admits and left > 0 and self._waiting and self._can_admit_first():
            request = heappop(self._waiting)[3]
            self._admit(request, now_s)
            left -= self._take(request, left, chunks)
        if not chunks:
            return False
        pairs, largest = 0.0, 0
        for request, tokens in chunks:
            pairs += tokens * (2 * request.computed_tokens + tokens + 1) * 0.5
            largest = tokens if tokens > largest else largest
        context = self._context_tokens if beside else 0.0
        step_s = self._table.mixed_s(budget - left, pairs, beside, context, largest)
        self._chunks, self._step_s, self.ends_s = chunks, step_s, now_s + step_s
        return True

    def _take(self, request: Request, most_tokens: int, chunks: list[_Chunk]) -> int:
        """Puts a chunk of a prompt, of ``most_tokens`` at most, into ``chunks``; its tokens."""
        tokens = request.target_tokens - request.computed_tokens
        tokens = tokens if tokens < most_tokens else most_tokens  # min() takes ten times as long
        tokens = tokens if tokens < self._most_of_chunk else self._most_of_chunk
        chunks.append((request, tokens))
        return tokens

    def _end_prefill(self, now_s: float) -> None:
        decoding = len(self._decoding)
        if not self._is_mixed:
            self._stall_s += self._step_s if decoding else 0.0
            decoding = 0
        elif decoding:
            self._decode(1.0, now_s)
        for request, tokens in self._chunks:
            request.computed_tokens += tokens
            if request.computed_tokens == request.target_tokens:
                self._prefilling.remove(request)
                self._end_prompt(request, now_s)
        entry = (now_s, self._step_s, 1, decoding, self._pool.held_tokens, len(self._waiting))
        self.entries.append(entry)

    def _end_prompt(self, request: Request, now_s: float) -> None:
        """The step that computes the end of a prompt also gives the next token."""
        if request.prefix and self._scheduler.prefix_caching:
            self._pool.publish(request)
        request.generated_tokens += 1
        if request.first_token_s is None:
            request.first_token_s = now_s
        elif request.left_s is not None:
            self.gaps.append(Gap(ends_s=now_s, seconds=now_s - request.left_s))
            request.left_s = None
        if request.generated_tokens == request.output_tokens:
            self._finish(request, request.target_tokens, now_s)
        else:
            self._start_decoding(request)

    # Decode runs

    def _start_decoding(self, request: Request) -> None:
        left_tokens = request.output_tokens - request.generated_tokens
        steps, per_step = left_tokens, 1.0
        if self._drafted and request.output_tokens > 1:
            share = left_tokens / (request.output_tokens - 1)
            steps = max(1, round(share * request.decode_steps))
            per_step = left_tokens / steps
        request.first_step = first_step = self._steps
        request.tokens_per_step = per_step
        self._context_tokens += request.target_tokens
        self._growth_tokens += per_step
        heappush(self._decoding, (first_step + steps, request.number, request))

    def _begin_run(self, now_s: float) -> None:
        """A run ends where a request does, where the cache may be full, or where contexts have grown
        by much."""
        decoding, run, growth = self._decoding, self._run, self._growth_tokens
        count, context = len(decoding), self._context_tokens
        steps = decoding[0][0] - self._steps
        grown = steps * growth
        room = self._pool.surely_free_tokens - count * self._per_decode
        if grown > room or grown > _LINEAR_GROWTH * context:
            steps = _fewer_steps(steps, growth, room, context)
        alone_s, per_token_s = self._table.decode(count, context)
        run.starts_s, run.steps = now_s, steps
        run.first_s = first_s = alone_s + context * per_token_s
        run.slope_s = slope_s = per_token_s * growth
        run.mean_s = mean_s = first_s + slope_s * (steps - 1.0) * 0.5
        self.ends_s = now_s + steps * mean_s

    def _end_run(self, now_s: float) -> None:
        run, count = self._run, len(self._decoding)
        steps, step_s = run.steps, run.mean_s
        run.steps = 0.0
        if self._stall_s:
            self._log_stalled_step(run, count)
            self._decode(steps, now_s)
            steps -= 1.0
        else:
            self._decode(steps, now_s)
        if steps:
            entry = (now_s, step_s, steps, count, self._pool.held_tokens, len(self._waiting))
            self.entries.append(entry)

    def _log_stalled_step(self, run: _DecodeRun, count: int) -> None:
        """The first gap between tokens of a run holds the prefill steps before it."""
        ends_s, gap_s = run.starts_s + run.mean_s, self._stall_s + run.mean_s
        entry = (ends_s, gap_s, 1, count, self._pool.held_tokens, len(self._waiting))
        self.entries.append(entry)
        self._stall_s = 0.0

    def _decode(self, steps: float, now_s: float) -> None:
        """Every decoding request has gone ``steps`` further; some end."""
        self._steps = done = self._steps + steps
        grown = steps * self._growth_tokens
        self._context_tokens += grown
        self._pool.grow(grown)
        if self._decoding[0][0] <= done:
            self._end_outputs(now_s)

    def _end_outputs(self, now_s: float) -> None:
        """Those decoding requests end whose last step has been done."""
        decoding, done = self._decoding, self._steps
        while decoding and decoding[0][0] <= done:
            request = heappop(decoding)[2]
            context = request.held_tokens(done)
            self._context_tokens -= context
            self._growth_tokens -= request.tokens_per_step
            self._finish(request, context, now_s)
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
            self._preempt(max(self._batch(), key=lambda request: request.order), now_s)
            preempted = True
        return preempted

    def _preempt(self, request: Request, now_s: float) -> None:
        context = request.held_tokens(self._steps)
        if request in self._prefilling:
            self._prefilling.remove(request)
        else:
            self._decoding = [entry for entry in self._decoding if entry[2] is not request]
            heapify(self._decoding)
            self._context_tokens -= context
            self._growth_tokens -= request.tokens_per_step
            request.generated_tokens += int(context - request.target_tokens)
            request.tokens_per_step, request.left_s = 0.0, now_s
        self._pool.release(request, context)
        request.preemptions += 1
        self._wait(request)

    def _own_contexts(self, *, decode_tokens: int = 0) -> Iterable[float]:
        """Unshared tokens of everyone in the batch, with so many more of those decoding."""
        for request in self._prefilling:
            yield request.target_tokens - self._pool.shared_tokens(request)
        for _, _, request in self._decoding:
            shared = self._pool.shared_tokens(request)
            yield request.held_tokens(self._steps) - shared + decode_tokens

    def _batch(self) -> list[Request]:
        return [*self._prefilling, *(request for _, _, request in self._decoding)]
