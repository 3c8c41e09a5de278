"""What configuration functions of torchtitan 0.3.0's registry set, where a file starts from one."""

from collections.abc import Mapping
from typing import Any

_SELECTIVE, _FULL = "SelectiveAC.Config", "FullAC.Config"

TRAINER: Mapping[str, Any] = {
    "training.local_batch_size": 8,
    "training.seq_len": 2048,
    "activation_checkpoint": _SELECTIVE,
}
"""Defaults of ``Trainer.Config`` itself, and of its blocks."""

REGISTRY: Mapping[str, Mapping[str, Any]] = {
    "llama3_8b": {
        "training.local_batch_size": 1,
        "training.seq_len": 8192,
    },
    "llama3_70b": {
        "training.local_batch_size": 8,
        "training.seq_len": 8192,
        "parallelism.tensor_parallel_degree": 8,
        "activation_checkpoint": _FULL,
    },
    "llama3_405b": {
        "training.local_batch_size": 2,
        "training.seq_len": 8192,
        "parallelism.tensor_parallel_degree": 8,
        "activation_checkpoint": _FULL,
    },
    "deepseek_v3_16b": {
        "training.local_batch_size": 4,
        "training.seq_len": 4096,
        "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
        "parallelism.expert_parallel_degree": 8,
    },
    "deepseek_v3_671b": {
        "training.local_batch_size": 4,
        "training.seq_len": 4096,
        "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
        "parallelism.expert_parallel_degree": 2,
    },
}
"""Function -> the fields that it sets apart from ``TRAINER``, as far as a layout or a workload has them."""

FLOAT8 = "llama3_405b"
"""The one of them that converts its linear layers to float8."""
