"""What a model costs by arithmetic alone: parameters, FLOPs, KV cache and training state.

Everything here is a sum over the tensors and blocks of a ``ModelSpec``, exact for what it is given.
Nothing depends on a layout, and nothing here knows a kind of block.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block, CacheKind
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.parts import PARTS, part_of
from meshfit.workload.training import OPTIMIZER_MOMENTS, OptimizerName, PrecisionSpec

TOWER = "vision_or_other_tower"

FLOPS_FORMULA = (
    "forward = 2 x matmul parameters that a token uses (head included, embedding lookup not)"
    " + what blocks compute beside them, summed over layers; training = 3 x forward, without"
    " recomputation"
)
"""What ``forward_flops_per_token`` and ``training_flops_per_token`` count in any model."""


# Parameters


@dataclass(frozen=True, kw_only=True)
class ParameterSplit:
    """Parameters of one block: those that tensor parallelism divides, and those each rank holds."""

    sharded: int
    replicated: int = 0

    @property
    def total(self) -> int:
        return self.sharded + self.replicated

    def per_rank(self, tp: int) -> int:
        """Parameters on one of ``tp`` ranks; rounded up where they do not divide."""
        return -(-self.sharded // tp) + self.replicated


@dataclass(frozen=True, kw_only=True)
class LayerParameters:
    """Parameters of one layer: blocks that mix tokens; MLPs, experts and the rest; norms."""

    attention: ParameterSplit
    mlp: ParameterSplit
    norm: ParameterSplit

    @property
    def total(self) -> int:
        return self.attention.total + self.mlp.total + self.norm.total


def split_of(tensors: Iterable[Tensor]) -> ParameterSplit:
    """Parameters of ``tensors`` by whether tensor parallelism cuts them."""
    sharded = replicated = 0
    for tensor in tensors:
        if tensor.split is None:
            replicated += tensor.elements
        else:
            sharded += tensor.elements
    return ParameterSplit(sharded=sharded, replicated=replicated)


def norm_parameters(model: ModelSpec) -> int:
    """Parameters of one norm over the hidden dim; every rank holds them."""
    return model.hidden_size * model.vectors_per_norm


def layer_parameters(model: ModelSpec, layer: LayerSpec) -> LayerParameters:
    """Parameters of one layer of ``model`` by block, its norms included."""
    mixing, feeding = (
        [
            t
            for _, b in layer.blocks
            if b.mixes_tokens is mixes
            for t in b.tensors(model.hidden_size)
        ]
        for mixes in (True, False)
    )
    return LayerParameters(
        attention=split_of(mixing),
        mlp=split_of([*feeding, *layer.extra]),
        norm=ParameterSplit(sharded=0, replicated=len(layer.norms) * norm_parameters(model)),
    )


def embedding_parameters(model: ModelSpec) -> int:
    """Parameters of the token embedding; tensor parallelism cuts it by vocabulary."""
    return model.vocab_size * model.embedding_width


def position_parameters(model: ModelSpec) -> int:
    """Parameters of a learned position embedding (0 with rotary positions); never cut."""
    return model.learned_positions * model.hidden_size


def head_tensors(model: ModelSpec) -> tuple[Tensor, ...]:
    """The output head, tied to the embedding or not."""
    width, rows, name = model.embedding_width, model.vocab_size, model.names.head
    return linear(name, width, rows, bias=model.head_bias, split="column")


def _is_tied(tensor: Tensor, model: ModelSpec) -> bool:
    return model.tie_word_embeddings and tensor.name == f"{model.names.head}.weight"


@lru_cache(maxsize=1024)
def layer_tensors(layer: LayerSpec, hidden_size: int, norm_vectors: int) -> tuple[Tensor, ...]:
    """Every parameter of one layer, named below the layer."""
    return (
        *(
            tensor.below(name)
            for name, block in layer.blocks
            for tensor in block.tensors(hidden_size)
        ),
        *(
            tensor
            for name in layer.norms
            for tensor in norm(name, hidden_size, vectors=norm_vectors)
        ),
        *layer.extra,
    )


def stack_tensors(
    layers: Iterable[LayerSpec], model: ModelSpec, prefix: str
) -> Iterator[tuple[Tensor, int]]:
    """Every parameter of equal layers of a stack, named with ``#`` for the layer's number, and in
    how many layers it is."""
    for layer, count in Counter(layers).items():
        for tensor in layer_tensors(layer, model.hidden_size, model.vectors_per_norm):
            yield tensor.below(f"{prefix}.#"), count


def outer_tensors(model: ModelSpec) -> tuple[Tensor, ...]:
    """Parameters outside layers and towers: embeddings, final norms, a head of its own."""
    names = model.names
    positions = (
        (lookup(names.positions, model.learned_positions, model.hidden_size),)
        if model.learned_positions
        else ()
    )
    return (
        lookup(names.embedding, model.vocab_size, model.embedding_width, split="column"),
        *positions,
        *model.final_norms
        * norm(names.final_norm, model.hidden_size, vectors=model.vectors_per_norm),
        *(tensor for tensor in head_tensors(model) if not _is_tied(tensor, model)),
        *model.extra,
    )


def model_tensors(model: ModelSpec) -> Iterator[tuple[Tensor, int]]:
    """Every parameter that published counts hold, shared ones once, and how often it is there.

    Left out as in published counts: heads for multi-token prediction, and towers that transformers'
    class of the language model leaves out.
    """
    for tensor in outer_tensors(model):
        yield tensor, 1
    yield from stack_tensors(model.encoder, model, model.names.encoder)
    yield from stack_tensors(model.layers, model, model.names.layers)
    for tower in model.towers:
        if tower.counted and tower.tensors is not None:
            for tensor in tower.tensors:
                yield tensor.below(f"vision.{tower.name}"), 1


def total_parameters(model: ModelSpec) -> int:
    """Parameters of the model; shared ones once."""
    return sum(count * tensor.elements for tensor, count in model_tensors(model))


def active_parameters(model: ModelSpec) -> int:
    """Parameters less those of experts that a token does not choose; embeddings included."""
    return sum(count * tensor.elements_used for tensor, count in model_tensors(model))


def parameters_by_part(model: ModelSpec) -> dict[str, int]:
    """Parameters under each of ``PARTS``, 0 for parts the model lacks; they add up to the total.

    A tensor belongs where its name in transformers puts it, as in published tables: Llama's
    ``post_attention_layernorm`` counts as attention, GPT-2's position embedding as other.
    ``layer_parameters`` splits by function instead.
    """
    parts = dict.fromkeys(PARTS, 0)
    for tensor, count in model_tensors(model):
        parts[part_of(tensor.name)] += count * tensor.elements
    return parts


def mtp_tensors(model: ModelSpec) -> Iterator[tuple[Tensor, int]]:
    """Every parameter of the heads for multi-token prediction, and how often it is there."""
    if model.mtp is None:
        return
    for tensor in model.mtp.extra:
        yield tensor.below("mtp.#"), model.mtp.depth
    for tensor, count in stack_tensors(model.mtp.layers, model, "mtp.#.layers"):
        yield tensor, count * model.mtp.depth


def mtp_parameters(model: ModelSpec) -> int:
    """Parameters of the heads for multi-token prediction, which no published count holds."""
    return sum(count * tensor.elements for tensor, count in mtp_tensors(model))


# FLOPs


def matmul_parameters(model: ModelSpec) -> int:
    """Weights that a token is multiplied with: projections, MLPs, chosen experts and the head.

    The embedding lookup, biases and norms are no matmuls; a tied head is one; towers are left out,
    as they see no text. In an encoder-decoder, as many source tokens as target tokens.
    """
    used = sum(
        count * tensor.matmul_elements
        for tensor, count in model_tensors(model)
        if part_of(tensor.name) not in (TOWER, "lm_head")
    )
    return used + sum(tensor.matmul_elements for tensor in head_tensors(model))


def attention_flops(
    attention: Block, document_lengths: Iterable[int], *, causal: bool = True
) -> int:
    """Forward FLOPs of one block over given documents beside matmuls with weights.

    For softmax attention, scores and weighted sum: 4 x heads x head_dim x keys seen, two matmuls of
    2 FLOPs a multiply-add. A token sees only its own document, so packed documents cost the sum of
    their squares, not the square of their sum. Softmax is left out.
    """
    return sum(
        count * attention.token_mixing_flops(length, causal=causal)
        for length, count in Counter(document_lengths).items()
    )


def attention_forward_flops(
    model: ModelSpec, document_lengths: Iterable[int], *, causal: bool = True
) -> int:
    """``attention_flops`` summed over the blocks of a model; an encoder's see all tokens."""
    lengths = list(document_lengths)
    decoder = _blocks(model.layers).items()
    encoder = _blocks(model.encoder).items()
    return sum(
        count * attention_flops(block, lengths, causal=causal) for block, count in decoder
    ) + sum(count * attention_flops(block, lengths, causal=False) for block, count in encoder)


def _blocks(layers: Iterable[LayerSpec]) -> Counter[Block]:
    blocks: Counter[Block] = Counter()
    for layer, count in Counter(layers).items():
        for _, block in layer.blocks:
            blocks[block] += count
    return blocks


def forward_flops_per_token(
    model: ModelSpec, sequence_length: int, *, causal: bool = True
) -> float:
    """Forward FLOPs per token in full sequences of ``sequence_length``: see ``flops_formula``.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    if sequence_length < 1:
        raise InputError(f"sequence length is {sequence_length}; it takes at least 1 token")
    mixing = attention_forward_flops(model, [sequence_length], causal=causal)
    return 2 * matmul_parameters(model) + mixing / sequence_length


def training_flops_per_token(
    model: ModelSpec, sequence_length: int, *, causal: bool = True
) -> float:
    """Forward and backward FLOPs per token: 3 x forward, as backward has two matmuls for each.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    return 3 * forward_flops_per_token(model, sequence_length, causal=causal)


def mtp_forward_flops_per_token(model: ModelSpec, sequence_length: int) -> float:
    """Forward FLOPs per token of all heads for multi-token prediction, logits included."""
    if model.mtp is None:
        return 0.0
    matmuls = sum(count * tensor.matmul_elements for tensor, count in mtp_tensors(model))
    if model.mtp.applies_head:
        matmuls += model.mtp.depth * sum(t.matmul_elements for t in head_tensors(model))
    mixing = model.mtp.depth * sum(
        count * block.token_mixing_flops(sequence_length)
        for block, count in _blocks(model.mtp.layers).items()
    )
    return 2 * matmuls + mixing / sequence_length


def flops_formula(model: ModelSpec) -> str:
    """``FLOPS_FORMULA`` and what each kind of block of the model adds to it."""
    blocks = [*_blocks(model.encoder), *_blocks(model.layers)]
    formulas = dict.fromkeys(block.formula for block in blocks if block.formula)
    return "; ".join((FLOPS_FORMULA, *formulas))


# Memory


def kv_cache_bytes_per_token(model: ModelSpec, tp: int = 1) -> int:
    """Bytes of a 16-bit KV cache per token, every attention layer in full, on one of ``tp`` ranks.

    A latent counts as what is cached for keys and values. State-space and linear layers cache
    nothing per token (``state_bytes_per_sequence``); indexer keys and the encoder's keys and values
    are not in it (``cache_bytes_per_token``). Ranks beyond the number of key/value heads replicate
    them, and a latent lies on every rank.
    """
    return cache_bytes_per_token(model, "attention", tp)


def cache_bytes_per_token(model: ModelSpec, kind: CacheKind, tp: int = 1) -> int:
    """Bytes of one kind of 16-bit cache per token, every layer in full, on one of ``tp`` ranks."""
    return sum(
        count * cache.bytes_per_token(tp)
        for block, count in _blocks(model.layers).items()
        for cache in block.caches
        if cache.kind == kind
    )


def kv_cache_bytes(model: ModelSpec, context_tokens: int) -> int:
    """Bytes of a 16-bit KV cache of one sequence; a windowed layer keeps its window only."""
    return cache_bytes(model, context_tokens, "attention")


def cache_bytes(model: ModelSpec, context_tokens: int, kind: CacheKind) -> int:
    """Bytes of one kind of 16-bit cache of one sequence, no layer beyond its window."""
    return sum(
        count * cache.bytes_of(context_tokens)
        for block, count in _blocks(model.layers).items()
        for cache in block.caches
        if cache.kind == kind
    )


def state_bytes_per_sequence(model: ModelSpec) -> int:
    """Bytes of recurrent and convolution state that a sequence keeps whatever its length."""
    return sum(count * block.state_bytes for block, count in _blocks(model.layers).items())


@dataclass(frozen=True, kw_only=True)
class TrainingStateBytes:
    """Bytes of the states of training that do not depend on the batch, undivided."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


def training_state_bytes(
    model: ModelSpec, precision: PrecisionSpec, optimizer: OptimizerName
) -> TrainingStateBytes:
    """Bytes of parameters, gradients and optimizer moments of the whole model.

    Copies in the compute precision are no state; neither is the optimizer's step counter.
    """
    parameters = total_parameters(model)
    return TrainingStateBytes(
        parameters=parameters * precision.parameter_bytes,
        gradients=parameters * precision.gradient_bytes,
        optimizer=parameters * OPTIMIZER_MOMENTS[optimizer] * precision.moment_bytes,
    )
