"""Tensor parallelism: what its collectives expose around blocks, embedding, head and loss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.compute import PartTime
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.messages.latent import (
    gathered_latents,
    latent_passes,
    latents,
    projection_gradients,
    projection_sums,
)
from meshfit.predict.time.messages.message import PassCounts
from meshfit.predict.time.messages.tensor import (
    block_gathers,
    block_sums,
    gathered_hidden,
    hidden_inputs,
    input_gathers,
    is_sequence_parallel,
    logits,
    loss_exchanges,
    loss_sums,
    summed_hidden,
    tensor_exchanges,
)
from meshfit.predict.time.terms import Terms, merged
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]

COLUMN_PARALLEL = 0.5
"""Share of a layer's weights that are divided by output: those that a gather stands before."""


@dataclass(frozen=True, kw_only=True)
class PassTerms:
    """Exposed seconds by term of one layer in one micro-batch, in each of its passes."""

    forward: Terms
    backward: Terms
    again: Terms


@dataclass(frozen=True, kw_only=True)
class Single:
    """Seconds of one sum (``all_reduce`` without sequence parallelism, ``reduce_scatter`` with) and
    of one gather of hidden states; 0 of what a layout does not have."""

    all_reduce: FloatArray
    reduce_scatter: FloatArray
    gather: FloatArray

    def sums(self, times: FloatArray | float) -> Terms:
        return {
            "all_reduce.tp": times * self.all_reduce,
            "reduce_scatter.tp": times * self.reduce_scatter,
        }

    def gathers(self, times: FloatArray | float) -> Terms:
        return {"all_gather.tp": times * self.gather}


def single_exchange(group: LayoutGroup, machine: Machine) -> Single:
    """What one exchange around a block takes (2205.05198, section 4.2)."""
    is_sequence, tp = is_sequence_parallel(group), machine.axes.tp
    reduced, gathered = summed_hidden(group), gathered_hidden(group)
    return Single(
        all_reduce=np.where(is_sequence, 0.0, machine.seconds("all_reduce", reduced, tp)),
        reduce_scatter=np.where(is_sequence, machine.seconds("reduce_scatter", reduced, tp), 0.0),
        gather=np.where(is_sequence, machine.seconds("all_gather", gathered, tp), 0.0),
    )


def block_exchange(
    kind: LayerSpec, group: LayoutGroup, machine: Machine, time: PartTime
) -> PassTerms:
    """Around the blocks of a layer. What follows a collective needs its result, so that all of it
    shows but for what the engine hides: pieces under matmuls (async tensor parallelism), and in
    backward what runs beside gradients of weights."""
    if machine.axes.tp.is_single:
        return PassTerms(forward={}, backward={}, again={})
    one, exchanges = single_exchange(group, machine), tensor_exchanges(kind, group)
    inputs = hidden_inputs(exchanges, kind, group)
    sums, gathers = block_sums(exchanges, group, inputs), block_gathers(exchanges, group, inputs)
    left = _in_pieces(group, machine)
    around = PassTerms(
        forward=one.sums(left * sums.forward) | one.gathers(left * gathers.forward),
        backward=_backward(one, sums, gathers, input_gathers(inputs, group), time, group, machine),
        again=one.sums(left * sums.again) | one.gathers(left * gathers.again),
    )
    block = gathered_latents(kind, group)
    return around if block is None else _with_latents(around, block, group, machine)


def _with_latents(
    around: PassTerms, block: LatentAttentionSpec, group: LayoutGroup, machine: Machine
) -> PassTerms:
    """What latents and the gradients of what makes them take on top, all of it exposed."""
    is_sequence, tp, passes = is_sequence_parallel(group), machine.axes.tp, latent_passes(group)
    size, gradients = latents(block, group), projection_gradients(block, group)
    gather = np.where(is_sequence, machine.seconds("all_gather", size, tp), 0.0)
    scatter = np.where(is_sequence, machine.seconds("reduce_scatter", size, tp), 0.0)
    reduced = np.where(is_sequence, 0.0, machine.seconds("all_reduce", size, tp))
    per_micro_batch = projection_sums(group) / group.columns.micro_batches
    of_weights = machine.seconds("all_reduce", gradients, tp) * per_micro_batch
    return PassTerms(
        forward=merged(around.forward, {"all_gather.tp": gather * passes.forward}),
        backward=merged(
            around.backward,
            {"reduce_scatter.tp": scatter, "all_reduce.tp": reduced + of_weights},
        ),
        again=merged(around.again, {"all_gather.tp": gather * passes.again}),
    )


def _in_pieces(group: LayoutGroup, machine: Machine) -> float:
    """What is left exposed of a collective that matmuls take piece by piece."""
    is_cut = group.training.runtime.overlap_tensor_parallel
    return 1.0 - machine.tensor_overlap if is_cut else 1.0


def _backward(  # noqa: PLR0917  (one argument a thing that hides or is hidden)
    one: Single,
    sums: PassCounts,
    gathers: PassCounts,
    inputs: FloatArray,
    time: PartTime,
    group: LayoutGroup,
    machine: Machine,
) -> Terms:
    """A column-parallel linear sends the gradient of its input while it computes that of its weight,
    and gathers its input again while it computes the former (Megatron-Core,
    ``tensor_parallel/layers.py``); the gather before a row-parallel one has nothing to hide under.
    """
    left = _in_pieces(group, machine)
    again = one.gather * inputs
    if not group.profile.hides_tensor_parallel_backward:
        shown = left * (one.gather * gathers.backward + again)
        return one.sums(left * sums.backward) | {"all_gather.tp": shown}
    room = machine.overlap * COLUMN_PARALLEL * time.weight
    summed = one.sums(sums.backward)
    return {
        **{name: machine.shown(seconds, room) for name, seconds in summed.items()},
        "all_gather.tp": left * one.gather * gathers.backward + machine.shown(again, room),
    }


def embedding_exchange(group: LayoutGroup, machine: Machine) -> tuple[Terms, Terms]:
    """Of an embedding whose vocabulary is divided, forward and backward: its rows are summed, and
    under sequence parallelism their gradients gathered."""
    if machine.axes.tp.is_single:
        return {}, {}
    one = single_exchange(group, machine)
    return one.sums(1.0), one.gathers(1.0)


def head_exchange(group: LayoutGroup, machine: Machine) -> tuple[Terms, Terms]:
    """Of a head whose vocabulary is divided, forward with the loss, and backward: the sequence is
    gathered and gradients of it summed; logits are gathered, or the loss summed over its parts."""
    if machine.axes.tp.is_single:
        return {}, {}
    one, tp = single_exchange(group, machine), machine.axes.tp
    forward = one.gathers(1.0)
    if group.profile.gathers_logits:
        gathered = machine.seconds("all_gather", logits(group), tp)
        forward["all_gather.tp"] = forward["all_gather.tp"] + gathered
    else:
        summed = machine.seconds("all_reduce", loss_sums(group), tp)
        forward["all_reduce.tp"] = loss_exchanges(group) * summed
    return forward, one.sums(1.0) | one.gathers(input_gathers(np.ones(len(group)), group))
