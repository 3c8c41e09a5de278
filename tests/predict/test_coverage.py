"""A model with blocks that the memory model does not know is refused before anything is estimated."""

import pytest

from meshfit.errors import InputError
from meshfit.predict.coverage import require_covered
from meshfit.workload.models import read_model


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gpt2", "qwen3-8b", "mistral-7b", "gemma-2-9b", "falcon-40b"]
)
def test_dense_attention_models_are_covered(name):
    require_covered(read_model(name))


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("mixtral-8x7b", "mlp Moe layers"),
        ("deepseek-v3", "self_attn LatentAttention, mlp Moe layers"),
        ("qwen3.5-27b", "linear_attn GatedDeltaNet layers"),
        ("nemotron-h-56b", "mixer Mamba2 layers"),
        ("qwen3-vl-2b", r"a tower \(vision_config\)"),
    ],
)
def test_any_other_is_refused_with_what_it_has(name, has):
    expected = rf"covers dense attention models so far; {name} has {has}"
    with pytest.raises(InputError, match=expected):
        require_covered(read_model(name))
