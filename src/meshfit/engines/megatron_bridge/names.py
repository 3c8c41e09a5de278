"""Where Megatron-Bridge has what Megatron-LM's command line has as arguments."""

from collections.abc import Mapping

from meshfit.engines.megatron.fields import field_of
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.options import option_table

_SECTIONS = ("model", "train", "ddp", "optimizer", "dist", "checkpoint", "comm_overlap", "dataset")
"""Sections in the order in which a field is looked for; the same field may be in several."""

_OF_DDP = ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather")
"""Fields that recipes set in ``ddp``, which the optimizer's follow."""


def key_of(argument: str) -> str:
    """``model.tensor_model_parallel_size`` of ``--tensor-model-parallel-size``."""
    field = field_of(argument)
    if field in _OF_DDP:
        return f"ddp.{field}"
    known = option_table("megatron_bridge").values
    keys = (f"{section}.{field}" for section in _SECTIONS)
    return next((key for key in keys if key in known), argument)


def option_names() -> Mapping[str, str]:
    """Those of the profile, as Megatron-Bridge calls them."""
    return {
        key: key_of(name) if name.startswith("--") else name
        for key, name in MEGATRON.option_names.items()
    }
