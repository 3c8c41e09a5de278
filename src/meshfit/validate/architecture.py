"""The model of a row: from its columns, else the catalogue's of the same name."""

import re
from dataclasses import replace
from functools import cache

from meshfit.validate.experts import Experts, experts_of
from meshfit.validate.public_models import public_sizes
from meshfit.validate.rows import NotModelledError, TruthRow
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.models import catalogue, read_model

MODEL_COLUMNS: tuple[str, ...] = (
    "model", "arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab",
    "vocab_padded", "fill_n_heads", "fill_n_kv_heads", "fill_ffn_hidden", "fill_vocab",
    "gated_mlp", "norm", "pos_embedding", "tied_embeddings", "linear_bias", "attn_dropout",
    "hidden_dropout", "qk_layernorm", "mla_dims", "head_dim", "max_positions", "seq_len",
)  # fmt: skip
"""Columns that a model is made from (``head_dim`` and ``max_positions`` come from engine
arguments); rows that agree in them share one model."""

_COVERED = ("dense", "dense-mla", "moe", "moe-mla")


def model_of(
    row: TruthRow, *, extra: tuple[Tensor, ...] = (), head_bias: bool = False
) -> ModelSpec:
    """The architecture that a row's columns describe.

    Sizes that they leave out are those of the public model of that name; where more than sizes is
    missing, it is the catalogue's model of the same name, if it has as many layers. The vocabulary
    is the padded one where the row has it: what the engine holds.

    Args:
        extra: parameters outside layers that a framework adds (BERT's pooler).

    Raises:
        NotModelledError: a size is not stated, or the kind of model is not covered.
    """
    try:
        sized = row.completed(public_sizes(row.text("model")))
        cells = tuple(sized.text(name) for name in MODEL_COLUMNS)
        return _model(cells, experts_of(row), extra, head_bias)
    except NotModelledError:
        named = named_model(row.text("model"))
        if named is None or named.num_hidden_layers != row.whole("n_layers"):
            raise
        return named


@cache
def named_model(name: str) -> ModelSpec | None:
    """The catalogue's model that a row names; None where it has none.

    Punctuation does not count, nor the size at the end; what is left may be the beginning of one name
    alone (``llama4-maverick-400b`` is Llama-4-Maverick-17B-128E).
    """
    for spelling in (name, re.sub(r"-\d+[bt]$", "", name.lower())):
        wanted = _letters(spelling)
        names = [known for known in catalogue() if _letters(known) == wanted] or [
            known for known in catalogue() if wanted and _letters(known).startswith(wanted)
        ]
        if len(names) == 1:
            return read_model(names[0])
    return None


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _model(
    cells: tuple[str, ...], experts: Experts | None, extra: tuple[Tensor, ...], head_bias: bool
) -> ModelSpec:
    row = TruthRow(dict(zip(MODEL_COLUMNS, cells, strict=True)))
    if row.text("arch") not in _COVERED:
        raise NotModelledError(f"layers not in the columns: {row.text('arch') or 'no arch'}")
    vocabulary = row.whole("vocab_padded") or row.required("vocab")
    layer = LayerSpec(blocks=(("self_attn", _attention(row)), ("mlp", _feed_forward(row, experts))))
    sequence_length = row.whole("seq_len") or 0
    positions = row.whole("max_positions") or sequence_length
    return ModelSpec(
        name=row.text("model"),
        model_type="llama" if row.text("gated_mlp") == "1" else "gpt",
        hidden_size=row.required("hidden"),
        vocab_size=vocabulary,
        layers=(layer,) * row.required("n_layers"),
        norm="rms_norm" if row.text("norm").startswith("rms") else "layer_norm",
        tie_word_embeddings=row.flag("tied_embeddings") or False,
        max_position_embeddings=positions,
        learned_positions=positions if row.text("pos_embedding").startswith("learned") else 0,
        dropout=max(row.number("attn_dropout") or 0.0, row.number("hidden_dropout") or 0.0),
        head_bias=head_bias,
        extra=extra,
    )


def _attention(row: TruthRow) -> Block:
    heads, hidden = row.required("n_heads"), row.required("hidden")
    if row.text("mla_dims"):
        return _latent_attention(row, heads)
    if "mla" in row.text("arch"):
        raise NotModelledError("not stated: dims of latent attention")
    head_dim = row.whole("head_dim") or hidden // heads
    if not head_dim:
        raise NotModelledError(f"n_heads {heads} is more than hidden {hidden}")
    has_bias = row.text("linear_bias") in ("1", "attention only")
    return AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=row.required("n_kv_heads") if row.filled("n_kv_heads") else heads,
        head_dim=head_dim,
        qkv_bias=has_bias,
        output_bias=has_bias,
        qk_norm=row.flag("qk_layernorm") or False,
    )


def _latent_attention(row: TruthRow, heads: int) -> LatentAttentionSpec:
    dims = dict(pair.split("=") for pair in row.text("mla_dims").split(";") if "=" in pair)
    try:
        return LatentAttentionSpec(
            num_attention_heads=heads,
            kv_lora_rank=int(dims["kv-lora-rank"]),
            qk_nope_head_dim=int(dims["qk-head-dim"]),
            qk_rope_head_dim=int(dims["qk-pos-emb-head-dim"]),
            v_head_dim=int(dims["v-head-dim"]),
            q_lora_rank=int(dims["q-lora-rank"]) if "q-lora-rank" in dims else None,
        )
    except (KeyError, ValueError):
        raise NotModelledError(f"dims of latent attention: {row.text('mla_dims')}") from None


def _feed_forward(row: TruthRow, experts: Experts | None) -> Block:
    mlp = MlpSpec(
        intermediate_size=row.required("ffn_hidden"),
        gated=row.text("gated_mlp") == "1",
        bias=row.text("linear_bias") == "1",
    )
    if experts is None:
        return mlp
    expert = replace(mlp, intermediate_size=experts.width or mlp.intermediate_size)
    shared = replace(expert, intermediate_size=experts.shared * expert.intermediate_size)
    return MoeSpec(
        num_experts=experts.count,
        experts_per_token=experts.per_token,
        expert=expert,
        shared=shared if experts.shared else None,
    )
