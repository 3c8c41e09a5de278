"""One attention function for Hugging Face models, behind which context-parallel ranks exchange.

Transformers calls attention through a registry (``AttentionInterface``). ``ATTENTION`` is our entry
in it; which ranks exchange what reaches it as a keyword of the model's own forward, which passes on
what it does not know.

Legend: B micro-batch, N query heads, G key/value heads, S tokens of this rank, T of the whole sequence,
D head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from meshfit.measure.timeline.axes import along
from meshfit.run.context.gather import GatheredAttention
from meshfit.run.context.heads import HeadsForTokens, TokensForHeads
from meshfit.run.context.ring import RingAttention
from meshfit.run.context.sharding import SequenceShards, shards_of
from meshfit.run.mesh import RankMesh
from meshfit.run.model.positions import positions_in_documents
from meshfit.run.model.transformer import Stage

ATTENTION = "meshfit_context_parallel"
"""Name of the attention function in transformers' registries."""


@dataclass(frozen=True, kw_only=True)
class ContextParallel:
    """How this rank's part of a sequence meets the others.

    Attributes:
        shards: what each rank holds of a sequence.
        rank: this one's place on the axis.
        heads, keys: ranks with which heads are traded, and keys exchanged; None: with no one.
        gathers_keys: whether keys are gathered; else they go round a ring.
    """

    shards: SequenceShards
    rank: int
    heads: dist.ProcessGroup | None
    keys: dist.ProcessGroup | None
    gathers_keys: bool

    @property
    def size(self) -> int:
        """Ranks over which a sequence is cut."""
        return self.shards.key_ranks * self.shards.head_ranks

    def positions(self, sequence_length: int, device: torch.device) -> Tensor:
        """Places in the sequence of what this rank holds."""
        return self.shards.positions(sequence_length, self.rank, device)

    def own(self, whole_BT: Tensor) -> Tensor:
        """This rank's part of the tokens, or labels, of whole sequences."""
        return whole_BT.index_select(1, self.positions(whole_BT.shape[1], whole_BT.device))

    def whole(self, own_BS: Tensor) -> Tensor:
        """The inverse of ``own``, from what all ranks have; not of a hierarchical exchange."""
        batch, length = own_BS.shape
        parts = own_BS.new_empty((self.size * batch, length))
        with along("cp"):
            dist.all_gather_single(parts, own_BS.contiguous(), group=self.keys or self.heads)
        by_rank_BT = parts.unflatten(0, (self.size, batch)).movedim(0, 1).flatten(1)
        places_T = torch.cat(
            [
                self.shards.positions(length * self.size, rank, own_BS.device)
                for rank in range(self.size)
            ]
        )
        return torch.empty_like(by_rank_BT).index_copy_(1, places_T, by_rank_BT)

    def arguments(self, inputs: Tensor, end_token: int | None) -> dict[str, Any]:
        """What a Hugging Face model's forward takes beside this rank's tokens (or hidden states).

        ``end_token`` ends a document, where several are packed into a sequence.
        """
        sequence_length, device = inputs.shape[1] * self.size, inputs.device
        positions, documents_BT = self.positions(sequence_length, device).unsqueeze(0), None
        if end_token is not None:
            places_BT = positions_in_documents(self.whole(inputs), end_token)
            positions, documents_BT = self.own(places_BT), (places_BT == 0).cumsum(1)
        masks = self.masks(sequence_length, device, documents_BT)
        return {"position_ids": positions, "attend": partial(self.attend, masks=masks)}

    def masks(
        self, sequence_length: int, device: torch.device, documents_BT: Tensor | None = None
    ) -> "Masks":
        """What queries that this rank attends with may see; ``documents_BT``: the document of each
        token of the whole sequences, where they are packed."""
        shard = self.rank // self.shards.head_ranks
        positions = self.shards.shared_positions(sequence_length, shard, device)
        return Masks(positions, sequence_length, documents_BT)

    def attend(
        self,
        q_BNSD: Tensor,
        k_BGSD: Tensor,
        v_BGSD: Tensor,
        *,
        scale: float,
        window: int | None,
        masks: "Masks",
    ) -> Tensor:
        """Causal attention of this rank's queries over the whole sequence, [B, N, S, D].

        ``window``: keys a query sees, itself included; None: all before it.
        """
        mask = masks.of(window, q_BNSD.dtype)
        if self.heads is None:
            return self._over_keys(q_BNSD, k_BGSD, v_BGSD, scale, mask)
        k_BGSD, v_BGSD = (self._with_whole_heads(x_BGSD) for x_BGSD in (k_BGSD, v_BGSD))
        q, k, v = (TokensForHeads.apply(x, self.heads) for x in (q_BNSD, k_BGSD, v_BGSD))
        return HeadsForTokens.apply(self._over_keys(q, k, v, scale, mask), self.heads)

    def _with_whole_heads(self, x_BGSD: Tensor) -> Tensor:
        """Key heads, each as often as it takes for every rank to get one."""
        ranks, groups = self.shards.head_ranks, x_BGSD.shape[1]
        return x_BGSD if groups % ranks == 0 else x_BGSD.repeat_interleave(ranks // groups, dim=1)

    def _over_keys(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None
    ) -> Tensor:
        if self.keys is None:
            return functional.scaled_dot_product_attention(
                q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=True
            )
        if self.gathers_keys:
            return GatheredAttention.apply(q, k, v, self.keys, scale, mask)
        assert mask is None, "keys that go round a ring meet no mask"
        return RingAttention.apply(q, k, v, self.keys, scale)


class Masks:
    """What hides keys from queries beyond the causal order; made once for all layers of a forward."""

    def __init__(
        self, positions_S: Tensor, sequence_length: int, documents_BT: Tensor | None
    ) -> None:
        self._positions_S = positions_S
        self._length = sequence_length
        self._documents_BT = documents_BT
        self._made: dict[int, Tensor] = {}

    def of(self, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """[B or 1, 1, S, T]: 0 where a query sees a key, -inf elsewhere; None: causal order is all."""
        reach = self._length if window is None else min(window, self._length)
        if reach == self._length and self._documents_BT is None:
            return None
        if reach not in self._made:
            self._made[reach] = self._make(reach, dtype)
        return self._made[reach]

    def _make(self, reach: int, dtype: torch.dtype) -> Tensor:
        device = self._positions_S.device
        distance_ST = self._positions_S[:, None] - torch.arange(self._length, device=device)
        is_seen = ((distance_ST >= 0) & (distance_ST < reach))[None]
        if self._documents_BT is not None:
            of_query_BS = self._documents_BT.index_select(1, self._positions_S)
            is_seen = is_seen & (of_query_BS[:, :, None] == self._documents_BT[:, None, :])
        mask = torch.zeros(is_seen.shape, dtype=dtype, device=device)
        return mask.masked_fill_(~is_seen, float("-inf"))[:, None]


def context_parallel_of(mesh: RankMesh) -> ContextParallel | None:
    """What the layout's method makes of its context-parallel axis; None where it has none."""
    layout = mesh.layout
    if layout.cp == 1:
        return None
    shards = shards_of(layout)
    keys, heads = mesh.context_groups(shards.key_ranks, shards.head_ranks)
    return ContextParallel(
        shards=shards,
        rank=mesh.index("cp"),
        heads=heads,
        keys=keys,
        gathers_keys=layout.cp_method == "all_gather",
    )


def apply_context_parallel(stage: Stage, context: ContextParallel) -> None:
    """Let the stage's attention run through ``context``, and its inputs be this rank's part."""
    _register()
    stage.model.config._attn_implementation = ATTENTION
    stage.context_parallel = context


def _register() -> None:
    """Make ``ATTENTION`` known to transformers: the function, and that no mask shall be built."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: PLC0415
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415

    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, lambda *_args, **_kwargs: None)


def _attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    attend: Callable[..., Tensor],
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; what comes back is [B, S, N, D]."""
    query, key, value = (_as_computed(tensor) for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out_BNSD = attend(query, key, value, scale=scale, window=sliding_window)
    return out_BNSD.transpose(1, 2).contiguous(), None


def _as_computed(tensor: Tensor) -> Tensor:
    """In the type in which autocast would have attention compute."""
    device_type = tensor.device.type
    if not torch.is_autocast_enabled(device_type):
        return tensor
    return tensor.to(torch.get_autocast_dtype(device_type))
