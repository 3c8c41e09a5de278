"""One pipeline rank of a group of layouts, with what all formulas of its memory share."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshfit.predict.memory.megatron.layer import (
    backward_bytes,
    checkpoint_bytes,
    layer_bytes,
    recomputed_bytes,
)
from meshfit.predict.memory.megatron.parameters import vocabulary_on_rank
from meshfit.predict.memory.megatron.settings import LayerSettings, layer_settings
from meshfit.predict.memory.megatron.tensors import RankTokens, rank_tokens
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape, in_flight
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Bytes of one kind of layer, for one micro-batch on every layout.

    Attributes:
        kept: what forward keeps, nothing recomputed.
        dropped: what of it selective recomputation drops; ``discarded``: what that of operations does.
        backward: the most that backward holds beyond what is kept up to then.
        heads: of its attention.
        largest_weight: parameters of its largest matrix.
    """

    kept: FloatArray
    dropped: FloatArray
    discarded: FloatArray
    backward: FloatArray
    heads: int
    largest_weight: float


@dataclass(frozen=True, kw_only=True)
class MegatronRank:
    """What the formulas take; arrays have one entry a layout of ``group``."""

    shape: RankShape
    group: LayoutGroup

    @cached_property
    def settings(self) -> LayerSettings:
        return layer_settings(self.group)

    @cached_property
    def tokens(self) -> RankTokens:
        return rank_tokens(self.group, self._key_value_heads)

    @cached_property
    def kinds(self) -> dict[LayerSpec, LayerKind]:
        """Every kind of layer on the rank, in the order in which it is met."""
        return {layer: self._kind(layer) for layer in self._layers}

    @cached_property
    def micro_batches(self) -> tuple[IntArray, ...]:
        """Micro-batches in flight, per virtual stage; rounds are of ``micro_batch_group`` of them."""
        pipeline, micro_batches = self.group.pipeline, self.group.columns.micro_batches
        size = self.group.profile.megatron.micro_batch_group or pipeline.pp
        held = in_flight(
            pipeline,
            self.shape.rank,
            micro_batches,
            self.group.candidates.schedule,
            np.minimum(size, micro_batches),
        )
        return held.per_chunk

    @cached_property
    def boundary(self) -> FloatArray:
        """Hidden states of one micro-batch as layers, and stages, hand them on."""
        return checkpoint_bytes(self.hidden_size, self.settings).on_rank(self.tokens)

    @cached_property
    def vocabulary(self) -> FloatArray:
        """Rows of the padded vocabulary on this rank."""
        return vocabulary_on_rank(self.group)

    @property
    def hidden_size(self) -> int:
        return self.group.model.hidden_size

    @property
    def has_embedding(self) -> bool:
        return self.shape.chunks[0].has_embedding

    @property
    def has_head(self) -> bool:
        return self.shape.chunks[-1].has_head

    @property
    def nothing(self) -> FloatArray:
        return np.zeros(len(self.group))

    @property
    def fuses_accumulation(self) -> bool:
        """Whether no weight gradient exists outside the buffer: matmuls add them to it themselves,
        or the weights are frozen."""
        training = self.group.training
        is_fused = training.runtime.fused_gradient_accumulation is not False
        return is_fused or training.adapter is not None

    @cached_property
    def _layers(self) -> tuple[LayerSpec, ...]:
        mtp = self.group.model.mtp if self.has_head else None
        stages = (layer for chunk in self.shape.chunks for layer, _ in chunk.layers)
        return tuple(dict.fromkeys((*stages, *(mtp.layers if mtp else ()))))

    @property
    def _key_value_heads(self) -> int:
        found = (layer.find(AttentionSpec) for layer in self._layers)
        return max((each.num_key_value_heads for each in found if each is not None), default=1)

    def _kind(self, layer: LayerSpec) -> LayerKind:
        hidden, settings, tokens = self.hidden_size, self.settings, self.tokens
        options = self.group.profile.megatron
        phases = [each.on_rank(tokens) for each in backward_bytes(layer, hidden, settings)]
        weights = [
            t.elements / t.copies for _, block in layer.blocks for t in block.tensors(hidden)
        ]
        return LayerKind(
            kept=layer_bytes(layer, hidden, settings).on_rank(tokens),
            dropped=recomputed_bytes(layer, hidden, settings, options.recompute_modules).on_rank(
                tokens
            ),
            discarded=recomputed_bytes(layer, hidden, settings, options.discarded_modules).on_rank(
                tokens
            ),
            backward=np.maximum.reduce(phases),
            heads=max(
                (
                    block.num_attention_heads
                    for _, block in layer.blocks
                    if isinstance(block, AttentionSpec | LatentAttentionSpec)
                ),
                default=0,
            ),
            largest_weight=max(weights, default=0.0),
        )
