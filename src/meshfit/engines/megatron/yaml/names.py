"""Where Megatron's YAML has what its command line has as arguments."""

from collections.abc import Mapping

from meshfit.engines.megatron.fields import field_of
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.options import option_table

_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
    "tp_comm_overlap",
    "gradient_accumulation_fusion",
    "overlap_p2p_comm",
    "bf16",
    "fp16",
)
"""Fields that Megatron's own files have in the block of parallelism; the others are the model's."""


def key_of(argument: str) -> str:
    """``model_parallel.tensor_model_parallel_size`` of ``--tensor-model-parallel-size``."""
    field = field_of(argument)
    if field in _PARALLEL:
        return f"model_parallel.{field}"
    in_block = f"language_model.{field}"
    return in_block if in_block in option_table("megatron/yaml").values else field


def option_names() -> Mapping[str, str]:
    """Those of the profile, as a YAML file calls them."""
    return {
        key: key_of(name) if name.startswith("--") else name
        for key, name in MEGATRON.option_names.items()
    }
