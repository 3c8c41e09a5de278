"""Mistral Small 3.1 and later: a Mistral behind the Pixtral vision tower."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import linear, norm
from meshfit.workload.families import mistral
from meshfit.workload.families.deepseek import MISTRAL4
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    Config,
    flag,
    mapping,
    shown,
    whole_number,
)
from meshfit.workload.families.ministral import MINISTRAL, MINISTRAL3
from meshfit.workload.model import MlpSpec, ModelSpec, TowerSpec

_TEXTS: Mapping[str, Callable[[str, Config], ModelSpec]] = {
    "mistral": mistral.read,
    "ministral": MINISTRAL.read,
    "ministral3": MINISTRAL3.read,
    "mistral4": MISTRAL4.read,
}


def read(name: str, config: Config) -> ModelSpec:
    """The model with its vision tower.

    Raises:
        InputError: the text config is missing or of another family, or a key cannot be right.
    """
    text = mapping(config, "text_config")
    model_type = text.get("model_type", "mistral")
    if not text or not isinstance(model_type, str) or model_type not in _TEXTS:
        raise InputError(
            f"text_config.model_type is {shown(text.get('model_type'))}; expected one of"
            f" {', '.join(_TEXTS)}"
        )
    model = _TEXTS[model_type](name, text)
    return replace(
        model,
        model_type="mistral3",
        tie_word_embeddings=flag(config, "tie_word_embeddings", True),
        towers=(_tower(config, model.hidden_size),),
        config=config,
    )


def _tower(config: Config, hidden_size: int) -> TowerSpec:
    vision = mapping(config, "vision_config")
    width = whole_number(vision, "hidden_size", 1024)
    inner = whole_number(vision, "intermediate_size", 4096)
    depth = whole_number(vision, "num_hidden_layers", 24, maximum=MAX_LAYERS)
    patch = whole_number(vision, "patch_size", 14, maximum=2**10)
    channels = whole_number(vision, "num_channels", 3, maximum=2**10)
    merge = whole_number(config, "spatial_merge_size", 2, maximum=64)
    bias = flag(config, "multimodal_projector_bias", False)
    attention = (
        tensor
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj")
        for tensor in linear(projection, width, width)
    )
    layer = (
        *attention,
        *MlpSpec(intermediate_size=inner, gated=True).tensors(width),
        *norm("attention_norm", width),
        *norm("ffn_norm", width),
    )
    return TowerSpec(
        name="vision_config",
        tensors=(
            *linear("patch_conv", channels * patch**2, width),
            *norm("ln_pre", width),
            *(tensor.repeated(depth) for tensor in layer),
            *norm("projector.norm", width),
            *linear("projector.patch_merger", width * merge**2, width),
            *linear("projector.linear_1", width, hidden_size, bias=bias),
            *linear("projector.linear_2", hidden_size, hidden_size, bias=bias),
        ),
    )
