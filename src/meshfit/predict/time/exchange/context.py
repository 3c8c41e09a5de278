"""Context parallelism: keys and values, or heads, of a layer's attention."""

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.shape.context import context_method
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.time.compute import PartTime
from meshfit.predict.time.exchange.machine import Machine
from meshfit.predict.time.exchange.tensor import PassTerms
from meshfit.predict.time.messages.context import context_passes, heads, keys
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]


def context_exchange(
    kind: LayerSpec, group: LayoutGroup, machine: Machine, time: PartTime
) -> PassTerms:
    """What shows of it. An all_gather and an all_to_all come before and after the kernel, so all of
    them does; a ring sends the next keys while it computes on the last ones, all but the first."""
    has_attention = kind.find(AttentionSpec) or kind.find(LatentAttentionSpec)
    axes = machine.axes
    if (axes.cp_keys.is_single and axes.cp_heads.is_single) or has_attention is None:
        return PassTerms(forward={}, backward={}, again={})
    uses = context_method(group)
    gathered = machine.seconds("all_gather", keys(kind, group), axes.cp_keys)
    exchanged = machine.seconds("all_to_all", heads(kind, group), axes.cp_heads)
    terms = PassTerms(forward={}, backward={}, again={})
    for name, seconds in (("all_gather", gathered), ("all_to_all", exchanged)):
        passes, used = context_passes(name, group), np.where(uses[name], seconds, 0.0)
        terms.forward[f"{name}.cp"] = passes.forward * used
        terms.backward[f"{name}.cp"] = passes.backward * used
        terms.again[f"{name}.cp"] = passes.again * used
    ring, passes = np.where(uses["send_recv"], gathered, 0.0), context_passes("send_recv", group)
    hiding = machine.overlap * (1 - 1 / group.columns.key_ranks)
    forward = machine.shown(ring, hiding * time.mixing)
    backward = machine.shown(passes.backward * ring, hiding * time.mixing_backward)
    terms.forward["send_recv.cp"], terms.backward["send_recv.cp"] = forward, backward
    terms.again["send_recv.cp"] = passes.again * forward
    return terms
