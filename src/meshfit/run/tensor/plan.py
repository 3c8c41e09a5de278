"""Which linears of a layer tensor parallelism cuts, and how."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from meshfit.errors import InputError
from meshfit.run.model.adapters import AdaptedLinear
from meshfit.run.model.packed import Packing
from meshfit.run.model.transformer import Stage, head_dim_of
from meshfit.run.tensor.latent import LATENT_ATTENTION, has_latent_attention

_OWN_PLANS: dict[str, dict[str, str]] = {
    "gpt2": {
        "attn.c_attn": "transposed_colwise",
        "attn.c_proj": "transposed_rowwise",
        "mlp.c_fc": "transposed_colwise",
        "mlp.c_proj": "transposed_rowwise",
    },
    "phi3": {
        "self_attn.qkv_proj": "colwise",
        "self_attn.o_proj": "rowwise",
        "mlp.gate_up_proj": "colwise",
        "mlp.down_proj": "rowwise",
    },
}
"""Of families that pack matrices: transformers has no plan for GPT-2, and one for Phi-3 that gathers
what it has just divided."""


def plan_of_layers(stage: Stage, tp: int) -> dict[str, str]:
    """Module name inside a layer -> style: our own, or that of ``config.base_model_tp_plan``.

    Keys and values of which there are fewer heads than ranks are ``shared_heads``.

    Raises:
        InputError: there is none for this model, or its adapters stand beside packed matrices.
    """
    config = stage.model.config
    if config.model_type in _OWN_PLANS:
        if any(isinstance(module, AdaptedLinear) for module in stage.modules()):
            raise InputError(
                f"adapters of {config.model_type} stand beside packed matrices, which tp={tp} would "
                f"cut in several pieces; use tp=1"
            )
        return _OWN_PLANS[config.model_type]
    prefix = f"{stage.family.layers}.*."
    plan = getattr(config, "base_model_tp_plan", None) or {}
    inside = {
        name.removeprefix(prefix): style for name, style in plan.items() if name.startswith(prefix)
    }
    if not inside:
        raise InputError(
            f"transformers has no tensor-parallel plan for {type(stage.model).__name__}; use tp=1"
        )
    if has_latent_attention(config):
        return inside | LATENT_ATTENTION
    if config.num_key_value_heads < tp:
        inside |= {"self_attn.k_proj": "shared_heads", "self_attn.v_proj": "shared_heads"}
    return inside


def packings_of(config: Any, names: Iterable[str], tp: int) -> dict[str, Packing]:
    """Those of parameters ``names`` that pack several matrices, by name."""
    packings = {}
    for name in names:
        module, _, kind = name.rpartition(".")
        for packed, sizes in _packed_sizes(config).items():
            if module.endswith(f".{packed}"):
                dim = 1 if kind == "weight" and config.model_type == "gpt2" else 0
                packings[name] = Packing(dim=dim, sizes=sizes, shards=tp)
    return packings


def _packed_sizes(config: Any) -> Mapping[str, tuple[int, ...]]:
    """Module name inside a layer -> output columns of each matrix that it packs."""
    hidden = config.hidden_size
    if config.model_type == "gpt2":
        return {"attn.c_attn": (hidden, hidden, hidden)}
    if config.model_type != "phi3":
        return {}
    head_dim = head_dim_of(config)
    queries = config.num_attention_heads * head_dim
    keys = config.num_key_value_heads * head_dim
    width = config.intermediate_size
    return {"self_attn.qkv_proj": (queries, keys, keys), "mlp.gate_up_proj": (width, width)}


def share_heads(layer: nn.Module, config: Any, tp: int) -> None:
    """Tell a layer's attention that it has a rank's share of the heads, where it counts them."""
    if config.model_type == "gpt2":
        layer.attn.split_size //= tp
        return
    attention = layer.self_attn
    heads = config.num_attention_heads // tp
    kv_heads = max(1, config.num_key_value_heads // tp)
    attention.num_key_value_groups = heads // kv_heads
    if has_latent_attention(config):
        attention.num_heads = heads
    if config.model_type == "phi3":
        attention.num_key_value_heads = kv_heads
        attention.config = _FewerHeads(config, heads)


class _FewerHeads:
    """A model's config, as one layer's attention sees it."""

    def __init__(self, config: Any, num_attention_heads: int) -> None:
        self._config = config
        self.num_attention_heads = num_attention_heads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def check_divisible(config: Any, tp: int) -> None:
    """
    Raises:
        InputError: ``tp`` ranks cannot each hold a whole share of heads and columns.
    """
    for name, size in _divided_sizes(config).items():
        if size % tp:
            raise InputError(
                f"tp={tp} does not divide {name}={size}: every tensor-parallel rank holds a whole "
                f"share of it; use a divisor of {size}"
            )
    if has_latent_attention(config):
        return
    kv_heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    if kv_heads % tp and (tp % kv_heads or config.model_type in _OWN_PLANS):
        raise InputError(
            f"tp={tp} does not divide num_key_value_heads={kv_heads}, nor is it a multiple of it "
            f"(nor are packed heads shared); use a divisor of {kv_heads}"
        )


def _divided_sizes(config: Any) -> dict[str, int]:
    """What every rank holds an equal share of, by name."""
    names = ("num_attention_heads", "intermediate_size")
    sizes = {name: getattr(config, name, None) or config.hidden_size for name in names}
    shared = getattr(config, "n_shared_experts", None)
    if shared:
        sizes["n_shared_experts x moe_intermediate_size"] = shared * config.moe_intermediate_size
    return sizes
