"""Peak memory of one pipeline rank by category, under PyTorch's own wrappers (FSDP2, DDP).

Categories are those of ``meshfit.breakdown.MemoryBreakdown``, filled the way ``meshfit.measure``
fills them:

- ``parameters``, ``gradients``, ``optimizer``: what the rank holds between steps, its own shards.
- ``activations``: what autograd keeps (``activations.layer_tensors``) for the micro-batches in
  flight, the layer being recomputed, and autocast's copies of weights.
- ``logits_and_loss``: logits, log-probabilities and their gradients, and the head's gradient of
  the micro-batch at hand.
- ``communication``: gathered parameters and whole gradients under FSDP2's hooks, gather and
  scatter buffers, pipeline receive buffers.
- ``temporary``: gradients of activations in backward, gradients that DDP has not yet taken into
  its buckets, temporaries of the optimizer.

The peak is the largest of the moments in ``predict.memory.moments``.

Ignored: kernel workspaces, the few bytes a token of ids, masks and rotary tables, padding of
uneven shards.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.predict.memory.device import context_bytes, reserved_bytes
from meshfit.predict.memory.kept import activation_moments, offloaded_activations
from meshfit.predict.memory.logits import logit_moments
from meshfit.predict.memory.moments import Moments, at_peak
from meshfit.predict.memory.states import (
    StateBytes,
    in_buckets,
    on_device,
    state_bytes,
    waits_for_replicas,
)
from meshfit.predict.memory.temporaries import temporary_moments
from meshfit.predict.memory.unsharded import communication_moments
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import InFlight, RankShape, in_flight

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes at the peak: one array of shape [N] a category, and which moment it is.

    ``reserved`` and ``context`` (outside the allocator) are of a CUDA device; ``host`` is what is
    offloaded.
    """

    categories: Mapping[str, FloatArray]
    moment: IntArray
    reserved: FloatArray
    context: FloatArray
    host: FloatArray

    @property
    def allocated(self) -> FloatArray:
        return np.asarray(sum(self.categories.values()))


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``."""
    held = in_flight(
        group.pipeline, shape.rank, group.columns.micro_batches, group.candidates.schedule
    )
    states, on_host = on_device(state_bytes(shape, group), group)
    at = {
        "gradients": _gradients(group, held, states),
        "activations": activation_moments(shape, group, held),
        "logits_and_loss": logit_moments(shape, group, held),
        "communication": communication_moments(shape, group, held, states),
        "temporary": temporary_moments(shape, group, held, states),
    }
    by_category = {name: moments.stacked() for name, moments in at.items()}
    moment, peak = at_peak(by_category)
    peak |= {"parameters": states.parameters, "optimizer": states.optimizer}
    nothing = np.zeros(len(group))
    in_use = np.asarray(sum(by_category.values())) + states.parameters + states.optimizer
    return RankMemory(
        categories={name: peak.get(name, nothing) for name in MEMORY_CATEGORIES},
        moment=moment,
        reserved=reserved_bytes(in_use, by_category["gradients"], states, shape, group),
        context=context_bytes(group),
        host=on_host + offloaded_activations(shape, group, held),
    )


def _gradients(group: LayoutGroup, held: InFlight, states: StateBytes) -> Moments:
    """Gradients as the optimizer will see them.

    They wait through a micro-batch where an earlier one has made them. Until the last micro-batch
    FSDP2's hooks hold whole gradients, and those of hybrid sharding that are not yet summed over
    replicas, elsewhere (see ``predict.memory.unsharded``).
    """
    columns = group.columns
    elsewhere = columns.keeps_gradients | waits_for_replicas(group)
    waiting = np.where((held.accumulating & ~elsewhere) | in_buckets(group), states.gradients, 0.0)
    end = np.where(elsewhere, 0.0, states.gradients)
    return Moments(
        forward_end=waiting,
        head=waiting,
        loss=waiting,
        head_backward=waiting,
        backward_start=waiting,
        layer_passed=waiting,
        backward_end=end,
        optimizer=states.gradients,
    )
