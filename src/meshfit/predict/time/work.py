"""What a block computes: its matmuls with weights, and how it mixes tokens."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.tensor import Split
from meshfit.workload.model import LayerSpec


@dataclass(frozen=True, kw_only=True)
class Matmul:
    """Tokens times one weight.

    Attributes:
        inputs, outputs: dims of the weight before anything divides it.
        split: which of them tensor parallelism divides; None: every rank does all of it.
        experts: how many weights of this kind there are, of which a token uses ``used``.
        of_mixer: whether it belongs to a recurrence: engines differ in whether they divide those.
        in_linear: whether fp8 recipes apply; routers and depthwise convolutions stay in 16 bits.
    """

    inputs: int
    outputs: int
    split: Split | None
    experts: int = 1
    used: int = 1
    of_mixer: bool = False
    in_linear: bool = True


@dataclass(frozen=True, kw_only=True)
class SoftmaxMixing:
    """Scores and weighted sum of one softmax attention."""

    block: Block
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    value_dim: int

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.num_key_value_heads * self.head_dim


@dataclass(frozen=True, kw_only=True)
class ScanMixing:
    """A linear recurrence over tokens (state space, linear attention), by its FLOPs.

    ``width``: of what convolutions, gates and norms around it pass over.
    """

    block: Block
    width: int


Mixing = SoftmaxMixing | ScanMixing


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Everything that one layer computes beside elementwise passes.

    Attributes:
        last: the matmul that makes its output.
        activations: what nonlinearities are applied to: width, whether gated, and how many a token
            passes.
        routed: its mixtures of experts.
    """

    matmuls: tuple[tuple[Matmul, int], ...]
    last: Matmul | None
    mixings: tuple[Mixing, ...]
    activations: tuple[tuple[int, bool, int], ...]
    routed: tuple[MoeSpec, ...]


@lru_cache(maxsize=512)
def layer_work(layer: LayerSpec, hidden_size: int) -> LayerWork:
    """The work of all blocks of a layer; equal matmuls are counted."""
    blocks = [block for _, block in layer.blocks]
    matmuls = [one for block in blocks for one in block_matmuls(block, hidden_size)]
    return LayerWork(
        matmuls=tuple(Counter(matmuls).items()),
        last=next((one for one in reversed(matmuls) if one.split == "row"), None),
        mixings=tuple(mixing for block in blocks if (mixing := block_mixing(block)) is not None),
        activations=tuple(one for block in blocks for one in _activations(block)),
        routed=tuple(block for block in blocks if isinstance(block, MoeSpec)),
    )


def block_matmuls(block: Block, hidden_size: int) -> tuple[Matmul, ...]:
    """One a weight matrix, in order: any block declares its weights as tensors, and that is all
    there is to know. Depthwise convolutions are no matmuls; they are counted as passes.

    The projections of a recurrence are given as Megatron-Core divides them: its heads by output,
    what comes back to the hidden dim by input (``core/ssm/mamba_mixer.py``).
    """
    is_mixer = isinstance(block_mixing(block), ScanMixing)
    return tuple(
        Matmul(
            inputs=tensor.shape[-1],
            outputs=tensor.shape[0],
            split=_mixer_split(tensor.name) if is_mixer else tensor.split,
            of_mixer=is_mixer,
            experts=tensor.copies,
            used=tensor.copies_used,
            in_linear=tensor.role == "linear",
        )
        for tensor in block.tensors(hidden_size)
        if tensor.role in ("linear", "router") and len(tensor.shape) == 2
    )


def _mixer_split(name: str) -> Split:
    return "row" if name.startswith(("out_proj", "o_proj")) else "column"


def block_mixing(block: Block) -> Mixing | None:
    """How a block mixes tokens beside its matmuls; None where it does not."""
    if isinstance(block, AttentionSpec):
        return SoftmaxMixing(
            block=block,
            num_heads=block.num_attention_heads,
            num_key_value_heads=block.num_key_value_heads,
            head_dim=block.head_dim,
            value_dim=block.value_dim,
        )
    if isinstance(block, LatentAttentionSpec):
        return SoftmaxMixing(
            block=block,
            num_heads=block.num_attention_heads,
            num_key_value_heads=block.num_attention_heads,
            head_dim=block.qk_head_dim,
            value_dim=block.v_head_dim,
        )
    if not block.mixes_tokens:
        return None
    linears = [tensor for tensor in block.tensors(1) if tensor.role == "linear"]
    width = sum(t.shape[0] for t in linears if _mixer_split(t.name) == "column")
    return ScanMixing(block=block, width=width)


def _activations(block: Block) -> tuple[tuple[int, bool, int], ...]:
    if isinstance(block, MlpSpec):
        return ((block.intermediate_size, block.gated, 1),)
    if isinstance(block, MoeSpec):
        routed = (block.expert.intermediate_size, block.expert.gated, block.experts_per_token)
        beside = (mlp for mlp in (block.shared, block.dense) if mlp is not None)
        return (routed, *((mlp.intermediate_size, mlp.gated, 1) for mlp in beside))
    return ()
