"""Peak memory of one pipeline rank under Megatron-Core, for all layouts that share its pipeline.

The peak is the largest of these moments of one micro-batch, while the schedule has most in flight.
``loss``: logits and their fp32 copy. ``loss_backward``: the softmax and the logits' gradient.
``head_backward``: that gradient and the head's weight gradient. ``layer_backward``: inside the last
layer, recomputed where it is. ``embedding_backward``: the embedding's gradient. ``optimizer``: fp32
copies of gradients that are kept in another type.

Ignored: padding of buckets and shards, rounding of the allocator, and the few bytes of scales,
counters and rotary tables.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshfit.breakdown import MEMORY_CATEGORIES
from meshfit.mesh.candidates import RECOMPUTE
from meshfit.predict.group import LayoutGroup
from meshfit.predict.megatron.attention import FP32_BYTES
from meshfit.predict.megatron.flight import in_flight
from meshfit.predict.megatron.kernels import workspace_bytes
from meshfit.predict.megatron.layer import (
    backward_bytes,
    checkpoint_bytes,
    layer_bytes,
    recomputed_bytes,
)
from meshfit.predict.megatron.parameters import vocabulary_on_rank
from meshfit.predict.megatron.settings import LayerSettings, layer_settings
from meshfit.predict.megatron.states import StateBytes, state_bytes
from meshfit.predict.megatron.tensors import BytesPerToken, RankTokens, Saved, rank_tokens, total
from meshfit.predict.memory import RankMemory
from meshfit.predict.schedule import Chunk, RankShape
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOMENTS: tuple[str, ...] = (
    "loss",
    "loss_backward",
    "head_backward",
    "layer_backward",
    "embedding_backward",
    "optimizer",
)

LABEL_BYTES = 45
"""A token around the loss: label, mask, position in the vocabulary, maximum, sums and the loss."""


def rank_memory(shape: RankShape, group: LayoutGroup) -> RankMemory:
    """Memory of one pipeline rank at its peak, for every layout of ``group``."""
    rank = _Rank(
        shape=shape, group=group, settings=layer_settings(group), tokens=rank_tokens(group)
    )
    states = state_bytes(shape, group)
    at = {
        "activations": rank.activations(),
        "logits_and_loss": rank.logits(),
        "temporary": rank.temporary(states),
        "communication": rank.communication(),
    }
    stacked = {name: np.stack([each[moment] for moment in MOMENTS]) for name, each in at.items()}
    moment = np.argmax(sum(stacked.values()), axis=0)
    peak = {name: np.choose(moment, values) for name, values in stacked.items()}
    peak |= {
        "parameters": states.weights,
        "gradients": states.gradients,
        "optimizer": states.optimizer,
    }
    nothing = np.zeros(len(group))
    return RankMemory(
        categories={name: peak.get(name, nothing) for name in MEMORY_CATEGORIES}, moment=moment
    )


def rest_bytes(shape: RankShape, group: LayoutGroup) -> FloatArray:
    """What is allocated between steps: states, workspaces and standing buffers."""
    rank = _Rank(
        shape=shape, group=group, settings=layer_settings(group), tokens=rank_tokens(group)
    )
    states = state_bytes(shape, group)
    held = states.weights + states.gradients + states.optimizer + states.main_gradients
    return np.asarray(held + rank.standing())


@dataclass(frozen=True, kw_only=True)
class _Rank:
    """One pipeline rank of a group, with what its formulas share."""

    shape: RankShape
    group: LayoutGroup
    settings: LayerSettings
    tokens: RankTokens

    # What is in flight

    @property
    def counts(self) -> tuple[IntArray, ...]:
        options = self.group.profile.megatron
        return in_flight(
            self.group.pipeline,
            self.shape.rank,
            self.group.columns.micro_batches,
            options.micro_batch_group,
        )

    @property
    def has_head(self) -> bool:
        return self.shape.chunks[-1].has_head

    @property
    def has_embedding(self) -> bool:
        return self.shape.chunks[0].has_embedding

    def activations(self) -> dict[str, FloatArray]:
        each = [self._chunk(chunk) for chunk in self.shape.chunks]
        kept = np.asarray(sum(n * b for n, b in zip(self.counts, each, strict=True)))
        nothing = np.zeros(len(self.group))
        head = self._head() if self.has_head else nothing
        return {
            "loss": kept,
            "loss_backward": kept,
            "head_backward": kept,
            "layer_backward": kept - head + self._recomputed(),
            "embedding_backward": kept - each[0] if self.has_embedding else nothing,
            "optimizer": nothing,
        }

    def _chunk(self, chunk: Chunk) -> FloatArray:
        """Kept for one micro-batch on one virtual stage."""
        hidden, settings, tokens = self.group.model.hidden_size, self.settings, self.tokens
        recompute = self.group.candidates.recompute
        checkpoint = checkpoint_bytes(hidden, settings).on_rank(tokens)
        kept, before = np.zeros(len(self.group)), 0
        for layer, count in chunk.layers:
            whole = layer_bytes(layer, hidden, settings).on_rank(tokens)
            dropped = self._dropped(layer).on_rank(tokens)
            whole = whole - np.where(recompute == RECOMPUTE.index("selective"), dropped, 0.0)
            checkpointed, inputs = self._checkpoints(count, before)
            kept += (count - checkpointed) * whole + inputs * checkpoint
            before += count
        if chunk.has_embedding and settings.hidden_dropout:
            mask = Saved(name="embedding.mask", bytes_per_token=hidden, split="sequence")
            kept += total([mask]).on_rank(tokens)
        if chunk.has_head:
            kept += self._head()
        return kept

    def _dropped(self, layer: LayerSpec) -> BytesPerToken:
        modules = self.group.profile.megatron.recompute_modules
        return recomputed_bytes(layer, self.group.model.hidden_size, self.settings, modules)

    def _checkpoints(self, count: int, before: int) -> tuple[FloatArray, FloatArray]:
        """Of ``count`` layers of a stage with ``before`` others in front: how many are recomputed
        as a whole, and how many inputs are kept for that."""
        layers, recompute = self.group.candidates.recompute_layers, self.group.candidates.recompute
        is_full, is_block = (recompute == RECOMPUTE.index(name) for name in ("full", "block"))
        first = np.clip(layers - before, 0, count)
        checkpointed = np.where(is_full, count, np.where(is_block, first, 0))
        inputs = np.where(is_full, np.ceil(count / np.maximum(layers, 1)), checkpointed)
        return checkpointed, inputs

    def _head(self) -> FloatArray:
        """Input, statistics and output of the final norm."""
        hidden, settings = self.group.model.hidden_size, self.settings
        wide = Saved(
            name="final_norm", bytes_per_token=2 * settings.element_bytes * hidden, split="sequence"
        )
        narrow = Saved(
            name="statistics",
            bytes_per_token=FP32_BYTES * settings.norm_statistics,
            split="sequence",
        )
        return total([wide, narrow]).on_rank(self.tokens)

    def _recomputed(self) -> FloatArray:
        """What is made again before the backward of the last checkpoint."""
        candidates, hidden = self.group.candidates, self.group.model.hidden_size
        recompute, layers = candidates.recompute, candidates.recompute_layers
        whole, part = np.zeros(len(self.group)), np.zeros(len(self.group))
        for layer in self._kinds():
            bytes_ = layer_bytes(layer, hidden, self.settings).on_rank(self.tokens)
            whole = np.maximum(whole, bytes_)
            part = np.maximum(part, self._dropped(layer).on_rank(self.tokens))
        shared = checkpoint_bytes(hidden, self.settings).on_rank(self.tokens)
        again = np.select(
            [recompute == RECOMPUTE.index(name) for name in ("full", "block", "selective")],
            [whole * layers - shared, np.where(layers > 0, whole - shared, 0.0), part],
            default=0.0,
        )
        return np.asarray(again)

    def _kinds(self) -> set[LayerSpec]:
        return {layer for chunk in self.shape.chunks for layer, _ in chunk.layers}

    # Logits and loss

    def logits(self) -> dict[str, FloatArray]:
        """Zero on ranks without the head."""
        nothing = np.zeros(len(self.group))
        at = dict.fromkeys(MOMENTS, nothing)
        if not self.has_head:
            return at
        element, runtime = self.settings.element_bytes, self.group.training.runtime
        entries = self.group.columns.tokens * vocabulary_on_rank(self.group)
        labels = self.group.columns.tokens * LABEL_BYTES
        options = self.group.profile.megatron
        kernel = options.loss_kernel if runtime.loss == "fused" else "plain"
        forward, backward = _loss_bytes(kernel, element)
        mtp = self.group.model.mtp
        earlier = entries * (mtp.depth if mtp else 0) * (backward - element)
        deferred = self._deferred(entries)
        return at | {
            "loss": entries * forward + labels + earlier + deferred,
            "loss_backward": entries * backward + labels + earlier + deferred,
            "head_backward": entries * element + labels + earlier + deferred,
            "layer_backward": deferred,
        }

    def _deferred(self, entries: FloatArray) -> FloatArray:
        """Logit gradients and head inputs of micro-batches whose weight gradient waits."""
        limit = self.group.profile.megatron.deferred_head_gradients
        micro_batches = self.group.columns.micro_batches
        waiting = micro_batches if limit < 0 else np.minimum(limit, micro_batches)
        inputs = self.group.columns.tokens * self.group.model.hidden_size
        return np.asarray(waiting * (entries + inputs) * self.settings.element_bytes)

    # Temporaries and buffers

    def standing(self) -> FloatArray:
        """Workspaces, and the buffers that Megatron-Core keeps for good: gathered inputs of its own
        linears under sequence parallelism, and the unfused attention's scores."""
        options, element = self.group.profile.megatron, self.settings.element_bytes
        buffer = np.zeros(len(self.group))
        if options.global_buffers:
            gathers = self.has_head or not options.transformer_engine
            is_split = gathers & (self.group.columns.sequence_split > 1)
            gathered = self.group.columns.tokens * self.group.model.hidden_size * element
            buffer = np.maximum(np.where(is_split, gathered, 0.0), self._scores())
        return np.asarray(workspace_bytes(self.group) + buffer)

    def _scores(self) -> FloatArray:
        """Of one layer of Megatron-Core's own attention, before the softmax."""
        if self.group.profile.megatron.transformer_engine or self.settings.kernel != "unfused":
            return np.zeros(len(self.group))
        heads = max((_heads(kind) for kind in self._kinds()), default=0)
        element = self.settings.element_bytes
        scores = Saved(name="scores", bytes_per_token=element * heads, split="scores")
        return total([scores]).on_rank(self.tokens)

    def temporary(self, states: StateBytes) -> dict[str, FloatArray]:
        standing, gradient = self.standing(), self._weight_gradient()
        hidden, element = self.group.model.hidden_size, self.settings.element_bytes
        vocabulary = vocabulary_on_rank(self.group) * self.group.model.embedding_width * element
        passing = np.zeros(len(self.group))
        for layer in self._kinds():
            for phase in backward_bytes(layer, hidden, self.settings):
                passing = np.maximum(passing, phase.on_rank(self.tokens))
        fused = self._fuses_accumulation()
        head = np.zeros(len(self.group)) if fused else vocabulary
        mask = self._attention_mask()
        return {
            "loss": standing + mask,
            "loss_backward": standing,
            "head_backward": standing + (head if self.has_head else 0.0),
            "layer_backward": standing + passing + gradient,
            "embedding_backward": standing + (vocabulary if self.has_embedding else 0.0),
            "optimizer": standing + states.main_gradients,
        }

    def _attention_mask(self) -> FloatArray:
        """One byte for every pair of tokens, while forward has it."""
        if not self.group.profile.megatron.attention_mask:
            return np.zeros(len(self.group))
        return self.group.columns.tokens * float(self.group.training.sequence_length)

    def _fuses_accumulation(self) -> bool:
        return self.group.training.runtime.fused_gradient_accumulation is not False

    def _weight_gradient(self) -> FloatArray:
        """The largest gradient of one weight before it is added to the buffer, unless the matmul
        adds it itself."""
        if self._fuses_accumulation():
            return np.zeros(len(self.group))
        sizes = [
            tensor.elements / tensor.copies
            for layer in self._kinds()
            for _, block in layer.blocks
            for tensor in block.tensors(self.group.model.hidden_size)
        ]
        return np.asarray(
            max(sizes, default=0) / self.group.columns.tp * self.settings.element_bytes
        )

    def communication(self) -> dict[str, FloatArray]:
        """What pipeline ranks have received for later, or have sent and not yet let go."""
        boundary = checkpoint_bytes(self.group.model.hidden_size, self.settings).on_rank(
            self.tokens
        )
        pipeline, options = self.group.pipeline, self.group.profile.megatron
        if pipeline.pp == 1:
            held = 0
        elif pipeline.vpp > 1 and options.overlap_pipeline_exchange:
            held = 4
        else:
            held = 1
        at = dict.fromkeys(MOMENTS, boundary * held)
        return at | {"optimizer": np.zeros(len(self.group))}


def _loss_bytes(kernel: str, element: int) -> tuple[int, int]:
    """Bytes per logit while the loss, and while its gradient is computed.

    Plain (``VocabParallelCrossEntropy``): an fp32 copy beside the logits, worked on in place, then
    the gradient in the logits' type. ``native`` compiles the same steps, which makes one more fp32
    copy; ``te`` writes the gradient over the logits.
    """
    if kernel == "te":
        return element, element
    copy = 0 if element == FP32_BYTES else FP32_BYTES
    more = FP32_BYTES if kernel == "native" else 0
    return element + copy + more, element + copy


def _heads(layer: LayerSpec) -> int:
    for _, block in layer.blocks:
        if isinstance(block, AttentionSpec | LatentAttentionSpec):
            return block.num_attention_heads
    return 0
