"""Low-rank adapters (LoRA, arXiv 2106.09685) beside frozen linears.

They are attached before anything is cut or sharded, so every strategy treats the three matrices of
an adapted linear as it treats any other.

Legend: B micro-batch, S sequence, I inputs of a linear, O its outputs, R the adapters' rank.
"""

import math
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from meshfit.errors import InputError
from meshfit.run.model.transformer import Stage
from meshfit.workload.training import AdapterSpec

_FACTORS = ("lora_A", "lora_B")
BASE = "base_layer"
"""Where an adapted linear keeps the frozen one; PEFT's name, as are those of the factors."""


class AdaptedLinear(nn.Module):
    """A frozen linear, plus the product of two small ones, of which the second starts at zero.

    Its scale is 1: what PEFT calls alpha is the rank.
    """

    def __init__(self, base: nn.Linear | Conv1D, rank: int) -> None:
        super().__init__()
        inputs, outputs = _sizes(base)
        self.base_layer = base
        self.lora_A = nn.Linear(inputs, rank, bias=False, device="meta")
        self.lora_B = nn.Linear(rank, outputs, bias=False, device="meta")

    def forward(self, inputs_BSI: Tensor) -> Tensor:
        return self.base_layer(inputs_BSI) + self.lora_B(self.lora_A(inputs_BSI))


def _sizes(linear: nn.Linear | Conv1D) -> tuple[int, int]:
    """(inputs, outputs)."""
    if isinstance(linear, Conv1D):
        return linear.nx, linear.nf
    return linear.in_features, linear.out_features


def attach_adapters(stage: Stage, adapter: AdapterSpec) -> None:
    """Put adapters beside the linears that ``adapter`` names.

    Raises:
        InputError: it names a linear that no layer has.
    """
    for layer in stage.layers:
        found = dict(_linears(layer))
        names = adapter.targets or sorted({path.rpartition(".")[2] for path in found})
        for name in names:
            paths = [path for path in found if path.rpartition(".")[2] == name]
            if not paths:
                known = sorted({path.rpartition(".")[2] for path in found})
                raise InputError(
                    f"workload.method: a layer has no linear {name}; it has {', '.join(known)}"
                )
            for path in paths:
                layer.set_submodule(path, AdaptedLinear(found[path], adapter.rank))


def freeze_all_but_adapters(stage: Stage) -> None:
    """Train nothing else. Tensor parallelism makes new parameters, so that this comes after it."""
    for name, parameter in stage.named_parameters():
        parameter.requires_grad_(is_adapter(name))


def _linears(layer: nn.Module) -> Iterator[tuple[str, nn.Linear | Conv1D]]:
    for path, module in layer.named_modules():
        if isinstance(module, nn.Linear | Conv1D):
            yield path, module


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is a factor of an adapter."""
    return any(factor in name.split(".") for factor in _FACTORS)


def name_in_files(name: str) -> str:
    """What a parameter is called where there are no adapters."""
    return name.replace(f".{BASE}.", ".")


def initial_factor(name: str, shape: torch.Size) -> Tensor:
    """The first value of an adapter's factor, the same for every layout.

    The first factor as ``nn.Linear`` draws its weight, uniform within 1/sqrt(I); the second zero.
    """
    if _FACTORS[1] in name.split("."):
        return torch.zeros(shape)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    bound = 1 / math.sqrt(shape[1])
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
