"""Gradients over all ranks: their global norm, and how far they are from a reference's.

A rank holds a shard of some parameters and a copy of others, of its own stages only. A sum over
all ranks therefore counts each rank's part divided by the number of ranks that hold the same.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from meshfit.errors import RunError
from meshfit.record.schema import ParameterGradient
from meshfit.run.mesh import RankMesh
from meshfit.run.model.packed import Packing, pieces_of
from meshfit.run.model.weights import local_shard

_FILE = "gradients.safetensors"


def local_tensor(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: the local part of a DTensor, else the tensor."""
    return tensor.to_local() if hasattr(tensor, "placements") else tensor


def copies_of(parameter: nn.Parameter, mesh: RankMesh) -> int:
    """Ranks that hold the same part of ``parameter`` as this one, itself included."""
    ranks_of_stage = mesh.layout.world_size // mesh.layout.pp
    placements = getattr(parameter, "placements", ())
    shards = math.prod(
        parameter.device_mesh.size(dim)
        for dim, placement in enumerate(placements)
        if not placement.is_replicate()  # Shard, and _StridedShard of FSDP2 over tensor parallelism
    )
    return ranks_of_stage // shards


class GlobalNorm:
    """The L2 norm of the whole model's gradient, and clipping by it.

    ``torch.nn.utils.clip_grad_norm_`` sees the parameters of one rank: under pipeline parallelism
    it would clip each stage by its own norm. ``tied_copy`` holds what another stage has in the norm
    already; it is clipped all the same.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        mesh: RankMesh,
        tied_copy: nn.Parameter | None = None,
    ) -> None:
        self._mesh = mesh
        self._parameters = list(parameters)
        self._clipped = [*self._parameters, *([] if tied_copy is None else [tied_copy])]
        copies = [copies_of(parameter, mesh) for parameter in self._parameters]
        self._is_whole = min(copies) == mesh.layout.world_size
        device = local_tensor(self._parameters[0]).device
        self._shares = 1 / torch.tensor(copies, dtype=torch.float64, device=device)

    @torch.no_grad()
    def measure(self) -> Tensor:
        """The norm over every stage, shard and rank: one scalar in device memory, one all-reduce.

        Where every rank holds the whole gradient there is nothing to reduce.
        """
        norms = torch._foreach_norm(_local_gradients(self._parameters))
        squares = torch.stack(norms).double().square()
        if self._is_whole:
            return squares.sum().sqrt()
        return self._mesh.sum_over_ranks((squares * self._shares).sum()).sqrt()

    @torch.no_grad()
    def clip(self, norm: Tensor, max_norm: float) -> None:
        """Scale the gradients so that their norm is at most ``max_norm`` (no wait for the device)."""
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).float()
        torch._foreach_mul_(_local_gradients(self._clipped), factor)


def _local_gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    return [local_tensor(parameter.grad) for parameter in parameters]


def save_gradients(parameters: Mapping[str, nn.Parameter], folder: Path) -> None:
    """Write the gradients that one process holds into ``folder``, for others to compare with."""
    gradients = {name: parameter.grad.detach().cpu() for name, parameter in parameters.items()}
    save_file(gradients, folder / _FILE)


def has_gradients(folder: Path) -> bool:
    """Whether a reference of one process left its gradients in ``folder``."""
    return (folder / _FILE).exists()


@torch.no_grad()
def compare_gradients(
    parameters: Mapping[str, nn.Parameter],
    mesh: RankMesh,
    reference: Path,
    packings: Mapping[str, Packing] = MappingProxyType({}),
) -> tuple[ParameterGradient, ...]:
    """Each parameter's gradient against the one in folder ``reference``, over all its shards.

    ``packings`` are those of parameters whose shards lie in another order than the reference's.

    Every rank compares what it holds, in fp64; nothing is gathered. All ranks call it, and all get
    the same answer, in the reference's order.

    Raises:
        RunError: the ranks together do not hold exactly the parameters of the reference.
    """
    with safe_open(reference / _FILE, framework="pt") as file:
        names = sorted(file.keys())
        unknown = set(parameters) - set(names)
        if unknown:
            raise RunError(f"the reference has no gradient of {', '.join(sorted(unknown))}")
        rows = torch.zeros(len(names), 4, dtype=torch.float64)
        row_of = {name: row for row, name in enumerate(names)}
        for name, parameter in parameters.items():
            local, box = local_shard(parameter.grad)
            if local.numel():
                share = 1 / copies_of(parameter, mesh)
                for own, whole in pieces_of(box, packings.get(name)):
                    expected = file.get_slice(name)[whole].to(local.device)
                    rows[row_of[name]] += share * _distances(local[own], expected).cpu()
        sizes = [math.prod(file.get_slice(name).get_shape()) for name in names]
    device = local_tensor(next(iter(parameters.values()))).device
    rows = mesh.sum_over_ranks(rows.to(device)).cpu()
    _check_all_held(names, sizes, rows)
    return tuple(_verdict(name, *row.tolist()) for name, row in zip(names, rows, strict=True))


def _distances(gradient: Tensor, expected: Tensor) -> Tensor:
    """[sum of squared error, sum of squared reference, inner product, elements] in fp64."""
    gradient, expected = gradient.double(), expected.double()
    return torch.stack(
        [
            (gradient - expected).square().sum(),
            expected.square().sum(),
            (gradient * expected).sum(),
            torch.tensor(float(gradient.numel()), dtype=torch.float64, device=gradient.device),
        ]
    )


def _check_all_held(names: Sequence[str], sizes: Sequence[int], rows: Tensor) -> None:
    for name, size, held in zip(names, sizes, rows[:, 3].tolist(), strict=True):
        if round(held) != size:
            raise RunError(
                f"the ranks hold {held:g} of the {size} elements of {name}'s gradient, each counted once"
            )


def _verdict(
    name: str, square_error: float, square: float, inner: float, _elements: float
) -> ParameterGradient:
    if square == 0:
        exact = square_error == 0
        return ParameterGradient(
            name=name, error=0.0 if exact else math.inf, ratio=1.0 if exact else math.inf
        )
    return ParameterGradient(
        name=name, error=math.sqrt(square_error / square), ratio=inner / square
    )
