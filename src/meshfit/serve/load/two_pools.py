"""Prefill and decode in pools of their own: what either does, and what both do under traffic.

Closed forms, as in ``load.steady``; ``meshfit serve simulate`` follows requests one by one. A prompt
waits for a prefill replica, is computed there beside nothing else, and its KV cache moves to a decode
replica, which gives the first token after a step of its own. Nothing interrupts decoding.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.load.loading import POINTS, TrafficLoad
from meshfit.serve.load.served import ServedReplica
from meshfit.serve.load.steady import waiting_steps
from meshfit.serve.setting.layout import DisaggregatedLayout
from meshfit.serve.time.bounds import Bounds, StepTerms, step_terms
from meshfit.serve.time.step_time import StepLoad, chunk_pairs

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PrefillPool:
    """One replica that computes prompts of ``tokens`` and nothing else.

    Attributes:
        prompt_s: of one prompt in each attention group, and what it waits for.
        requests_per_s: at most, as many prompts in a step as its budget takes.
    """

    replica: ServedReplica
    tokens: float
    prompt_s: float
    bounds: Bounds
    requests_per_s: float

    @property
    def before_first_token_s(self) -> float:
        """A request outside steps, its own prompt and the transfer of its cache, waits left out."""
        clock = self.replica.clock
        return clock.request_s + self.prompt_s + self.replica.transfer_s(self.tokens)


def prefill_pool(replica: ServedReplica, tokens: float) -> PrefillPool:
    """What one replica does with prompts of ``tokens``."""
    groups, budget = replica.layout.attention_dp, replica.budget.step_tokens
    chunks = math.ceil(tokens / budget)
    together = max(groups, min(budget // tokens * groups, replica.capacity(tokens)))
    prompts = np.array([groups, together], dtype=np.float64)
    terms = step_terms(
        replica.clock,
        StepLoad(
            prefill_tokens=prompts * tokens / chunks,
            prefill_requests=prompts,
            prefill_pairs=prompts * chunk_pairs(tokens, 0.0) / chunks,
            completed_prefills=prompts,
        ),
    )
    alone_s, full_s = (float(seconds) * chunks for seconds in terms.total)
    return PrefillPool(
        replica=replica,
        tokens=tokens,
        prompt_s=alone_s,
        bounds=terms.bounds(0),
        requests_per_s=together / full_s,
    )


@dataclass(frozen=True, kw_only=True)
class DecodePool:
    """One replica that decodes ``output_tokens`` behind prompts of ``prompt_tokens``.

    Attributes:
        in_flight: requests that decode, from one to all that fit; the other arrays are by it.
        terms: of a step.
    """

    replica: ServedReplica
    prompt_tokens: float
    output_tokens: float
    in_flight: FloatArray
    terms: StepTerms

    @cached_property
    def step_s(self) -> FloatArray:
        return self.terms.total

    @cached_property
    def tpot_s(self) -> FloatArray:
        return self.step_s * self.replica.clock.pace

    @cached_property
    def requests_per_s(self) -> FloatArray:
        """That end; more requests in flight never end fewer (they need not all be let in)."""
        return np.maximum.accumulate(self.in_flight / (self.output_tokens * self.tpot_s))

    @property
    def most_per_s(self) -> float:
        return float(self.requests_per_s[-1])

    def at_rate(self, requests_per_s: float) -> float:
        """Where in ``in_flight`` so many requests end as come: an index, between two points."""
        index = np.arange(len(self.in_flight), dtype=np.float64)
        return float(np.interp(requests_per_s, self.requests_per_s, index))

    def between(self, values: FloatArray, index: float) -> float:
        """A figure between two points."""
        return float(np.interp(index, np.arange(len(values), dtype=np.float64), values))


def decode_pool(replica: ServedReplica, prompt_tokens: float, output_tokens: float) -> DecodePool:
    """What one replica does that only decodes."""
    context = prompt_tokens + output_tokens / 2
    in_flight = np.unique(np.geomspace(1.0, max(1, replica.capacity(context)), POINTS))
    decoding = in_flight / replica.layout.pp
    terms = step_terms(
        replica.clock,
        StepLoad(decode_requests=decoding, decode_context_tokens=decoding * context),
    )
    return DecodePool(
        replica=replica,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        in_flight=in_flight,
        terms=terms,
    )


@dataclass(frozen=True, kw_only=True)
class TwoPoolsLoad(TrafficLoad):
    """Both pools under the whole of the traffic.

    In flight are requests that decode; ``load`` is of the slower pool, and 0 in a closed loop;
    ``prompt_s`` is what one prompt takes of a prefill replica in full steps.

    Attributes:
        prefill_busy: share of time in which prefill replicas compute.
        decode_bounds: what a step of decoding waits for.
    """

    prefill_busy: float
    decode_bounds: Bounds

    @property
    def prompts_busy(self) -> float:
        return self.prefill_busy

    def gap_s(self, fraction: float) -> float:
        """A step of decoding: no prompt comes between."""
        return self.decode_s


@dataclass(frozen=True, kw_only=True)
class PoolPair:
    """So many prefill replicas before so many decode replicas."""

    prefill: PrefillPool
    decode: DecodePool
    prefill_replicas: int
    decode_replicas: int

    @property
    def layout(self) -> DisaggregatedLayout:
        prefill, decode = self.prefill.replica.layout, self.decode.replica.layout
        return DisaggregatedLayout(
            prefill=replace(prefill, replicas=self.prefill_replicas),
            decode=replace(decode, replicas=self.decode_replicas),
        )

    @property
    def prompts_per_s(self) -> float:
        return self.prefill_replicas * self.prefill.requests_per_s

    @property
    def most_per_s(self) -> float:
        """Requests a second that the slower pool ends at most."""
        return min(self.prompts_per_s, self.decode_replicas * self.decode.most_per_s)

    def burst_s(self, requests: float) -> float:
        """A first token's mean wait for prompts where so many requests are sent at once."""
        return requests / self.prompts_per_s / 2

    def under(self, traffic: TrafficSpec) -> TwoPoolsLoad:
        """Both pools under the whole of ``traffic``."""
        if traffic.concurrency is not None:
            return self._closed(traffic, traffic.concurrency)
        assert traffic.rate_per_s is not None
        ending = min(traffic.rate_per_s, self.most_per_s)
        return self._load(
            traffic,
            ending,
            before_s=self._before_decoding_s(ending),
            load=traffic.rate_per_s / self.most_per_s,
        )

    def _closed(self, traffic: TrafficSpec, concurrency: int) -> TwoPoolsLoad:
        """``concurrency`` requests in both pools together: as many decode as the rate at which they
        end needs, the others are prompts (Little's law)."""
        rates = self.decode_replicas * self.decode.requests_per_s
        rates = np.append(rates[rates < self.most_per_s], self.most_per_s)
        decoding = np.array([self._decoding(rate) for rate in rates])
        sent = decoding + rates * [self._before_decoding_s(rate) for rate in rates]
        ending = float(np.interp(concurrency, [0.0, *sent], [0.0, *rates]))
        prompts = max(concurrency - self._decoding(ending), 0.0)
        before_s = max(prompts / ending, self.prefill.before_first_token_s)
        return self._load(traffic, ending, before_s=before_s, load=0.0)

    def _load(
        self, traffic: TrafficSpec, ending: float, *, before_s: float, load: float
    ) -> TwoPoolsLoad:
        decode, index = self.decode, self._index(ending)
        decode_s = decode.between(decode.step_s, index)
        return TwoPoolsLoad(
            in_flight=self._decoding(ending),
            load=load,
            prefill_busy=ending / self.prompts_per_s,
            prompt_s=1 / self.prefill.requests_per_s,
            ttft_s=before_s + waiting_steps(decode.replica.clock) * decode_s,
            tpot_s=decode.between(decode.tpot_s, index),
            decode_s=decode_s,
            decode_bounds=decode.terms.bounds(index),
            requests_per_s=ending,
            output_tokens_per_s=ending * decode.output_tokens,
            traffic=traffic,
        )

    def _index(self, ending: float) -> float:
        return self.decode.at_rate(ending / self.decode_replicas)

    def _decoding(self, ending: float) -> float:
        """Requests that decode where so many end."""
        return self.decode_replicas * self.decode.between(
            self.decode.in_flight, self._index(ending)
        )

    def _before_decoding_s(self, ending: float) -> float:
        """Mean until the cache has arrived: with the wait of a queue whose prompts all take as long
        (M/D/1: ``busy / (2 (1 - busy))`` of one)."""
        busy = min(ending / self.prompts_per_s, 0.999)
        wait_s = busy / (2 * (1 - busy)) / self.prefill.requests_per_s
        return self.prefill.before_first_token_s + wait_s
