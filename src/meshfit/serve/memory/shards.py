"""What one rank of a serving engine holds of each tensor of a model.

Engines cut more than a training runtime does: mixers of state-space and linear attention by heads,
embedding and head by the vocabulary padded to a multiple, experts over ranks of their own. What is
held decides memory, and what a step multiplies with.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

from meshfit.mesh.padding import padded_vocabulary
from meshfit.mesh.spec import even_stages
from meshfit.profile import EngineProfile
from meshfit.serve.setting.layout import ServingLayout
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.compressed import CompressedAttentionSpec
from meshfit.workload.blocks.tensor import Split, Tensor
from meshfit.workload.counts import head_tensors, layer_tensors, outer_tensors
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.parts import part_of
from meshfit.workload.quantization import PLAIN_BYTES, Quantization, WeightFormat, read_quantization

MIXER_SPLITS: dict[str, Split] = {
    "in_proj": "column",
    "in_proj_qkv": "column",
    "in_proj_z": "column",
    "in_proj_a": "column",
    "in_proj_b": "column",
    "qkv_proj": "column",
    "q_proj": "column",
    "k_proj": "column",
    "v_proj": "column",
    "b_proj": "column",
    "output_gate": "column",
    "linear_x": "column",
    "linear_y": "column",
    "out_proj": "row",
    "o_proj": "row",
    "linear_out": "row",
    "conv1d": "column",
    "A_log": "column",
    "D": "column",
    "dt_bias": "column",
}
"""How inference engines cut mixers that training runtimes leave whole: by heads, that is by outputs,
and what leads out of them by its inputs (vLLM 0.32: ``layers/mamba``, ``models/qwen3_next.py``)."""

COMPRESSED_SPLITS: dict[str, Split] = {
    "sinks": "column",
    "q_b_proj": "column",
    "o_a_proj": "column",
    "o_b_proj": "row",
}
"""The same of DeepSeek V4: heads and their output groups; the one key/value head lies on every rank."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Part of one tensor, or of several equal ones.

    Attributes:
        outputs, inputs: of the part; a vector has inputs 1.
        copies: experts of the rank, else how many there are.
        stored_as: its format; None: 16 bits.
        reads: which input it is multiplied with; tensors that share one are one matmul.
        is_copy: False of a head that is the embedding itself, and takes no memory of its own.
    """

    tensor: Tensor
    outputs: int
    inputs: int
    copies: int
    stored_as: WeightFormat | None
    reads: str
    is_copy: bool = True

    @property
    def elements(self) -> int:
        return self.outputs * self.inputs * self.copies

    @property
    def weight_bytes(self) -> int:
        """Weights and their scales; the group at an edge counts whole."""
        if self.stored_as is None:
            return self.elements * PLAIN_BYTES
        return self.stored_as.weight_bytes(self._part) + self.stored_as.scale_bytes_of(self._part)

    @property
    def is_expert(self) -> bool:
        """Of a routed expert."""
        return self.tensor.copies > 1 and part_of(self.tensor.name) == "routed_expert"

    @property
    def _part(self) -> Tensor:
        return Tensor(
            name=self.tensor.name,
            shape=(self.outputs, self.inputs),
            role=self.tensor.role,
            copies=self.copies,
        )


@dataclass(frozen=True, kw_only=True)
class LayerShards:
    """Equal layers on one rank: their spec, its shards, and how many of them there are."""

    layer: LayerSpec
    shards: tuple[Shard, ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class StageShards:
    """What one rank of one pipeline stage holds."""

    layers: tuple[LayerShards, ...]
    embedding: tuple[Shard, ...] = ()
    head: tuple[Shard, ...] = ()
    tower_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        held = sum(
            group.count * sum(shard.weight_bytes for shard in group.shards) for group in self.layers
        )
        ends = sum(shard.weight_bytes for shard in (*self.embedding, *self.head) if shard.is_copy)
        return held + ends + self.tower_bytes


def stages(
    model: ModelSpec, layout: ServingLayout, profile: EngineProfile
) -> tuple[StageShards, ...]:
    """What a rank of each pipeline stage holds.

    Equal stages are one object. Layers are spread evenly; the first stage has the embedding, the last
    final norm and head, and with them a tied embedding again where there are several. Ranks with the
    most experts count. Towers lie whole on the first stage; heads for multi-token prediction are not
    loaded.
    """
    kinds, order = _layer_kinds(model, layout, read_quantization(model.config))
    counts = even_stages(model.num_hidden_layers, layout.pp)
    equal: dict[object, StageShards] = {}
    found = []
    first = 0
    for index, count in enumerate(counts):
        own = Counter(order[first : first + count])
        first += count
        is_first, is_last = index == 0, index == len(counts) - 1
        key = (tuple(own.items()), is_first, is_last)
        if key not in equal:
            layers = tuple(replace(kinds[kind], count=number) for kind, number in own.items())
            equal[key] = StageShards(
                layers=layers,
                embedding=_embedding(model, layout, profile) if is_first else (),
                head=_head(model, layout, profile) if is_last else (),
                tower_bytes=_tower_bytes(model) if is_first else 0,
            )
        found.append(equal[key])
    return tuple(found)


def _embedding(
    model: ModelSpec, layout: ServingLayout, profile: EngineProfile
) -> tuple[Shard, ...]:
    return tuple(
        _vocabulary(tensor, model, layout, profile)
        for tensor in outer_tensors(model)
        if tensor.name.startswith(model.names.embedding)
    )


def _head(model: ModelSpec, layout: ServingLayout, profile: EngineProfile) -> tuple[Shard, ...]:
    """The output head and whatever else is outside layers. A tied head is there (it multiplies), and
    weighs where it is a copy: behind a pipeline."""
    names = model.names
    own = [
        replace(
            _vocabulary(tensor, model, layout, profile),
            is_copy=not (model.tie_word_embeddings and layout.pp == 1),
        )
        for tensor in head_tensors(model)
    ]
    others = [
        _shard(tensor, layout, None, None)
        for tensor in outer_tensors(model)
        if not tensor.name.startswith((names.embedding, names.head))
    ]
    return (*own, *others)


def _tower_bytes(model: ModelSpec) -> int:
    return sum(
        tensor.elements * PLAIN_BYTES for tower in model.towers for tensor in tower.tensors or ()
    )


def _layer_kinds(
    model: ModelSpec, layout: ServingLayout, quantization: Quantization | None
) -> tuple[list[LayerShards], list[int]]:
    """The different layers with their shards (one each), and which of them every layer is."""
    by_layer = quantization is not None and quantization.by_layer
    numbers: dict[object, int] = {}
    kinds: list[LayerShards] = []
    order: list[int] = []
    for index, layer in enumerate(model.layers):
        shards = None
        if by_layer or layer not in numbers:
            name = str(index) if by_layer else "#"
            shards = _layer_shards(model, layer, layout, quantization, name)
        key = (layer, shards) if by_layer else layer
        if key not in numbers:
            assert shards is not None
            numbers[key] = len(kinds)
            kinds.append(LayerShards(layer=layer, shards=shards, count=1))
        order.append(numbers[key])
    return kinds, order


def _layer_shards(
    model: ModelSpec,
    layer: LayerSpec,
    layout: ServingLayout,
    quantization: Quantization | None,
    number: str,
) -> tuple[Shard, ...]:
    blocks = dict(layer.blocks)
    shards = []
    for tensor in layer_tensors(layer, model.hidden_size, model.vectors_per_norm):
        block = blocks.get(tensor.name.partition(".")[0])
        stored_as = None
        if quantization is not None and tensor.role == "linear":
            module = tensor.below(f"{model.names.layers}.{number}").name.removesuffix(".weight")
            stored_as = quantization.choose(module, tensor)
        shards.append(_shard(tensor, layout, block, stored_as))
    return tuple(shards)


def _shard(
    tensor: Tensor, layout: ServingLayout, block: Block | None, stored_as: WeightFormat | None
) -> Shard:
    outputs, *rest = tensor.shape
    inputs = 1
    for size in rest:
        inputs *= size
    copies = tensor.copies
    ranks = layout.tp
    if copies > 1 and part_of(tensor.name) == "routed_expert":
        copies = -(-copies // layout.ep)
        ranks = layout.expert_tp
    match _split(tensor, block):
        case "column":
            outputs = -(-outputs // _column_parts(tensor, block, ranks))
        case "row":
            inputs = -(-inputs // ranks)
    return Shard(
        tensor=tensor,
        outputs=outputs,
        inputs=inputs,
        copies=copies,
        stored_as=stored_as,
        reads=_input_of(tensor, block),
    )


def _split(tensor: Tensor, block: Block | None) -> Split | None:
    if tensor.split is not None or block is None or not block.mixes_tokens:
        return tensor.split
    if isinstance(block, AttentionSpec):
        return None
    known = COMPRESSED_SPLITS if isinstance(block, CompressedAttentionSpec) else MIXER_SPLITS
    return known.get(_module(tensor))


def _column_parts(tensor: Tensor, block: Block | None, ranks: int) -> int:
    """Parts that the outputs are cut into: keys and values no finer than by head."""
    if isinstance(block, AttentionSpec) and _module(tensor) in ("k_proj", "v_proj"):
        return min(ranks, block.num_key_value_heads)
    return ranks


@cache
def _module(tensor: Tensor) -> str:
    """``k_proj`` of ``self_attn.k_proj.weight``; a lone vector's own name."""
    return tensor.name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]


def _input_of(tensor: Tensor, block: Block | None) -> str:
    """Tensors of a block that read the hidden state are one matmul; others one each (gate and up of
    an expert read the same, too)."""
    inner, _, _ = tensor.name.rpartition(".")
    parent, _, module = inner.rpartition(".")
    is_first = module in ("gate_proj", "up_proj") or (
        block is not None and block.mixes_tokens and module not in _BEHIND_THE_INPUT
    )
    return f"{parent}.input" if is_first else inner


_BEHIND_THE_INPUT = (
    "o_proj", "out_proj", "linear_out", "q_b_proj", "kv_b_proj", "o_a_proj", "o_b_proj", "x_proj",
    "dt_proj", "wq_b",
)  # fmt: skip


def _vocabulary(
    tensor: Tensor, model: ModelSpec, layout: ServingLayout, profile: EngineProfile
) -> Shard:
    """A part of embedding or head."""
    padded = padded_vocabulary(
        model.vocab_size,
        layout.tp,
        profile.vocabulary_multiple,
        profile.vocabulary_multiple_per_rank,
    )
    rows, *rest = tensor.shape
    assert rows == model.vocab_size
    return Shard(
        tensor=tensor,
        outputs=-(-padded // layout.tp),
        inputs=rest[0] if rest else 1,
        copies=1,
        stored_as=None,
        reads="head",
    )
