"""GPTBigCode (StarCoder, SantaCoder): GPT-2 with one key/value head for all heads."""

from dataclasses import replace

from meshfit.workload.families import gpt2
from meshfit.workload.families.keys import Config, flag
from meshfit.workload.model import LayerSpec, ModelSpec


def read(name: str, config: Config) -> ModelSpec:
    """The model; ``multi_query`` false gives every head its own key and value.

    Raises:
        InputError: a key cannot be right.
    """
    model = replace(gpt2.read(name, config), model_type="gpt_bigcode")
    if not flag(config, "multi_query", True):
        return model
    layer = model.layers[0]
    attention = replace(layer.attention, num_key_value_heads=1)
    shared = LayerSpec(blocks=(("attn", attention), layer.blocks[1]), norms=layer.norms)
    return replace(model, layers=(shared,) * model.num_hidden_layers)
