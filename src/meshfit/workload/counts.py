"""What a model costs by arithmetic alone: parameters, FLOPs, KV cache and training state.

Everything here is exact for the ``ModelSpec`` it is given; nothing depends on a layout.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from meshfit.errors import InputError
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import OPTIMIZER_MOMENTS, OptimizerName, PrecisionSpec

PARTS: tuple[str, ...] = (
    "embedding",
    "attention_or_mixer",
    "mlp_or_other",
    "routed_expert",
    "shared_expert",
    "norm",
    "lm_head",
    "vision_or_other_tower",
)
"""Published keys of parameters by part."""

FLOPS_FORMULA = (
    "forward = 2 x matmul parameters (head included, embedding lookup not)"
    " + 4 x heads x head_dim x keys seen, summed over layers;"
    " causal: a token sees itself and what is before it, (s + 1) / 2 keys on average,"
    " and never more than a sliding window; training = 3 x forward, without recomputation"
)
"""What ``forward_flops_per_token`` and ``training_flops_per_token`` count."""

KV_CACHE_ELEMENT_BYTES = 2
"""Of a 16-bit cache."""


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
    """Parameters of one layer by block."""

    attention: ParameterSplit
    mlp: ParameterSplit
    norm: ParameterSplit

    @property
    def total(self) -> int:
        return self.attention.total + self.mlp.total + self.norm.total


def attention_parameters(hidden_size: int, attention: AttentionSpec) -> ParameterSplit:
    """Parameters of the q, k, v and output projections.

    Tensor parallelism cuts q, k, v (with their biases) by heads and the output by its input; the
    output's bias and the norms over q and k stay whole on every rank.
    """
    heads, kv_heads = attention.num_attention_heads, attention.num_key_value_heads
    return ParameterSplit(
        sharded=attention_matmul_parameters(hidden_size, attention)
        + attention.qkv_bias * (heads + 2 * kv_heads) * attention.head_dim,
        replicated=attention.output_bias * hidden_size + attention.qk_norm * 2 * attention.head_dim,
    )


def mlp_parameters(hidden_size: int, mlp: MlpSpec) -> ParameterSplit:
    """Parameters of one MLP.

    Tensor parallelism cuts up and gate (with their biases) by output and down by its input; the
    bias of down stays whole on every rank.
    """
    inner_matrices = 2 if mlp.gated else 1
    return ParameterSplit(
        sharded=mlp_matmul_parameters(hidden_size, mlp)
        + mlp.bias * inner_matrices * mlp.intermediate_size,
        replicated=mlp.bias * hidden_size,
    )


def norm_parameters(model: ModelSpec) -> int:
    """Parameters of one norm over the hidden dim; every rank holds them."""
    return model.hidden_size * (2 if model.norm == "layer_norm" else 1)


def layer_parameters(model: ModelSpec, layer: LayerSpec) -> LayerParameters:
    """Parameters of one layer of ``model`` by block, its two norms included."""
    return LayerParameters(
        attention=attention_parameters(model.hidden_size, layer.attention),
        mlp=mlp_parameters(model.hidden_size, layer.mlp),
        norm=ParameterSplit(sharded=0, replicated=2 * norm_parameters(model)),
    )


def embedding_parameters(model: ModelSpec) -> int:
    """Parameters of the token embedding; tensor parallelism cuts it by vocabulary."""
    return model.vocab_size * model.hidden_size


def position_parameters(model: ModelSpec) -> int:
    """Parameters of a learned position embedding (0 with rotary positions); never cut."""
    return model.learned_positions * model.hidden_size


def head_parameters(model: ModelSpec) -> int:
    """Parameters of the output head beyond the embedding: 0 when it shares the embedding's."""
    return 0 if model.tie_word_embeddings else embedding_parameters(model)


def total_parameters(model: ModelSpec) -> int:
    """Parameters of the model; shared ones once."""
    return (
        embedding_parameters(model)
        + position_parameters(model)
        + sum(
            count * layer_parameters(model, layer).total
            for layer, count in Counter(model.layers).items()
        )
        + norm_parameters(model)
        + head_parameters(model)
    )


def active_parameters(model: ModelSpec) -> int:
    """Parameters that one token uses: all of them in a dense model."""
    return total_parameters(model)


def parameters_by_part(model: ModelSpec) -> dict[str, int]:
    """Parameters under each of ``PARTS``, 0 for parts the model lacks; they add up to the total.

    A tensor belongs where its name in transformers puts it, as in published tables: Llama's
    ``post_attention_layernorm`` counts as attention, GPT-2's position embedding as other.
    ``layer_parameters`` splits by function instead.
    """
    blocks = [
        (count, layer_parameters(model, layer)) for layer, count in Counter(model.layers).items()
    ]
    renamed = model.num_hidden_layers * model.norms_named_after_attention * norm_parameters(model)
    norms = sum(count * block.norm.total for count, block in blocks) + norm_parameters(model)
    return dict.fromkeys(PARTS, 0) | {
        "embedding": embedding_parameters(model),
        "attention_or_mixer": sum(count * block.attention.total for count, block in blocks)
        + renamed,
        "mlp_or_other": sum(count * block.mlp.total for count, block in blocks)
        + position_parameters(model),
        "norm": norms - renamed,
        "lm_head": head_parameters(model),
    }


# FLOPs


def attention_matmul_parameters(hidden_size: int, attention: AttentionSpec) -> int:
    """Weights of the q, k, v and output projections, without biases."""
    heads = 2 * attention.num_attention_heads + 2 * attention.num_key_value_heads
    return hidden_size * heads * attention.head_dim


def mlp_matmul_parameters(hidden_size: int, mlp: MlpSpec) -> int:
    """Weights of one MLP, without biases."""
    return (3 if mlp.gated else 2) * hidden_size * mlp.intermediate_size


def matmul_parameters(model: ModelSpec) -> int:
    """Weights that every token is multiplied with: projections, MLPs and the head, tied or not.

    The embedding lookup, biases and norms are no matmuls.
    """
    return embedding_parameters(model) + sum(
        count
        * (
            attention_matmul_parameters(model.hidden_size, layer.attention)
            + mlp_matmul_parameters(model.hidden_size, layer.mlp)
        )
        for layer, count in Counter(model.layers).items()
    )


def keys_seen(length: int, *, window: int | None = None, causal: bool = True) -> int:
    """Keys that the queries of one document of ``length`` tokens see, summed over its queries.

    Causal: query i (from 0) sees ``min(i + 1, window)`` keys, ``length (length + 1) / 2`` in all
    without a window. Not causal: every query sees ``min(length, window)``; this is the convention
    that counts masked scores too.
    """
    reach = length if window is None else min(window, length)
    if not causal:
        return length * reach
    return reach * (reach + 1) // 2 + (length - reach) * reach


def attention_flops(
    attention: AttentionSpec, document_lengths: Iterable[int], *, causal: bool = True
) -> int:
    """Forward FLOPs of the scores and the weighted sum of one layer over given documents.

    4 x heads x head_dim x keys seen: two matmuls of 2 FLOPs a multiply-add. A token sees only its
    own document, so packed documents cost the sum of their squares, not the square of their sum.
    Softmax is left out.
    """
    seen = sum(
        count * keys_seen(length, window=attention.sliding_window, causal=causal)
        for length, count in Counter(document_lengths).items()
    )
    return 4 * attention.num_attention_heads * attention.head_dim * seen


def attention_forward_flops(
    model: ModelSpec, document_lengths: Iterable[int], *, causal: bool = True
) -> int:
    """``attention_flops`` summed over the layers of a model."""
    lengths = list(document_lengths)
    attentions = Counter(layer.attention for layer in model.layers)
    return sum(
        count * attention_flops(attention, lengths, causal=causal)
        for attention, count in attentions.items()
    )


def forward_flops_per_token(
    model: ModelSpec, sequence_length: int, *, causal: bool = True
) -> float:
    """Forward FLOPs per token in full sequences of ``sequence_length``: see ``FLOPS_FORMULA``.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    if sequence_length < 1:
        raise InputError(f"sequence length is {sequence_length}; it takes at least 1 token")
    attention = attention_forward_flops(model, [sequence_length], causal=causal)
    return 2 * matmul_parameters(model) + attention / sequence_length


def training_flops_per_token(
    model: ModelSpec, sequence_length: int, *, causal: bool = True
) -> float:
    """Forward and backward FLOPs per token: 3 x forward, as backward has two matmuls for each.

    Raises:
        InputError: ``sequence_length`` is not positive.
    """
    return 3 * forward_flops_per_token(model, sequence_length, causal=causal)


# Memory


def kv_cache_bytes_per_token(model: ModelSpec) -> int:
    """Bytes of a 16-bit KV cache per token, every layer in full, before any division by tp."""
    return sum(_layer_kv_bytes(layer.attention) for layer in model.layers)


def kv_cache_bytes(model: ModelSpec, context_tokens: int) -> int:
    """Bytes of a 16-bit KV cache of one sequence; a windowed layer keeps its window only."""
    return sum(
        _layer_kv_bytes(layer.attention)
        * min(context_tokens, layer.attention.sliding_window or context_tokens)
        for layer in model.layers
    )


def _layer_kv_bytes(attention: AttentionSpec) -> int:
    return 2 * attention.num_key_value_heads * attention.head_dim * KV_CACHE_ELEMENT_BYTES


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
