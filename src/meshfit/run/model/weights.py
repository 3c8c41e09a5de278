"""Weights on disk in Hugging Face's layout: writing the initial ones, loading each rank's shards."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from meshfit.errors import InputError
from meshfit.run.experts.files import is_stacked, other_names, read_each
from meshfit.run.model.adapters import initial_factor, is_adapter, name_in_files
from meshfit.run.model.packed import pieces_of
from meshfit.run.model.transformer import Stage, build_causal_lm, family_of

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_FILE_BYTES = 512 * 2**20


def write_initial_weights(
    config: Mapping[str, Any], folder: Path, seed: int, *, file_bytes: int = _FILE_BYTES
) -> None:
    """Write random weights of a raw Hugging Face config into ``folder``, fp32, as ``seed`` draws them.

    Module by module with the model's own ``_init_weights``, so that memory holds one layer and one
    unfinished file (``file_bytes``), never the model. The folder appears under its name only when
    complete; a finished one is left as it is.

    Raises:
        InputError: the config cannot be built.
    """
    if folder.exists():
        return
    model, _ = build_causal_lm(config)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a writer that was killed
    unfinished.mkdir(parents=True)
    torch.manual_seed(seed)
    writer = _ShardedWriter(unfinished, file_bytes)
    for prefix, module in _units(model, getattr(model.base_model, family_of(config).layers)):
        for name, tensor in _initialized(model, module):
            full_name = f"{prefix}.{name}"
            if full_name not in model.all_tied_weights_keys:
                writer.add(full_name, tensor)
    writer.finish()
    (unfinished / "config.json").write_text(json.dumps(dict(config), indent=2))
    unfinished.replace(folder)


def _units(model: nn.Module, layers: nn.ModuleList) -> Iterator[tuple[str, nn.Module]]:
    """Modules to initialise one after another: whole layers, and leaves outside them."""
    inside = {id(child) for layer in layers for child in layer.modules()} - {id(x) for x in layers}
    whole = {id(layer) for layer in layers}
    for name, module in model.named_modules():
        is_leaf = not any(True for _ in module.children())
        if id(module) in whole or (is_leaf and id(module) not in inside):
            yield name, module


@torch.no_grad()
def _initialized(model: nn.Module, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names inside ``module`` and their initial values, which live until the next module."""
    if not any(parameter.is_meta for parameter in module.parameters()):
        return
    module._apply(lambda tensor: _materialised(tensor, torch.device("cpu")))
    module.apply(model._init_weights)
    for name, parameter in module.named_parameters():
        yield name, parameter.detach()
    yield from persistent_buffers(module)
    module.to("meta")


def persistent_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers that files hold, such as biases that balance experts; not what a config gives anew."""
    for prefix, child in module.named_modules():
        for name, buffer in child.named_buffers(recurse=False):
            if name not in child._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


def _materialised(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device)


class _ShardedWriter:
    """Collects tensors and writes a safetensors file each time ``file_bytes`` are together."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._pending: dict[str, Tensor] = {}
        self._pending_bytes = 0
        self._total_bytes = 0
        self._files = 0
        self._weight_map: dict[str, str] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        self._pending[name] = tensor
        self._pending_bytes += tensor.nbytes
        if self._pending_bytes >= self._file_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        self._files += 1
        file_name = f"model-{self._files:05d}.safetensors"
        save_file(self._pending, self._folder / file_name, metadata={"format": "pt"})
        self._weight_map |= dict.fromkeys(self._pending, file_name)
        self._total_bytes += self._pending_bytes
        self._pending, self._pending_bytes = {}, 0

    def finish(self) -> None:
        self._flush()
        index = {"metadata": {"total_size": self._total_bytes}, "weight_map": self._weight_map}
        (self._folder / _INDEX).write_text(json.dumps(index, indent=2, sort_keys=True))


class WeightsFolder:
    """A folder of safetensors in Hugging Face's layout, read slice by slice."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            InputError: the folder holds neither model.safetensors nor a sharded index, or it is
                broken.
        """
        self._file_of = _weight_map(folder)
        self._folder = folder
        self._open: dict[Path, Any] = {}

    def has_any(self, names: Iterable[str]) -> bool:
        """Whether one of ``names`` is there."""
        return any(name in self._file_of for name in names)

    def read(self, names: Iterable[str], shape: Sequence[int], box: tuple[slice, ...]) -> Tensor:
        """The part ``box`` of the first of ``names`` that is there, a tensor of ``shape``.

        Raises:
            InputError: none of them is in the folder, or it has another shape.
        """
        names = tuple(names)
        for name in names:
            if name in self._file_of:
                part = self._handle(self._file_of[name]).get_slice(name)
                if tuple(part.get_shape()) != tuple(shape):
                    raise InputError(
                        f"weights {self._folder}: {name} has the shape {tuple(part.get_shape())}, "
                        f"but this model config gives it {tuple(shape)}"
                        f"{_split_hint(part.get_shape(), shape)}"
                    )
                return part[box]
        raise InputError(f"weights {self._folder} lack {names[0]}, which this model config has")

    def _handle(self, path: Path) -> Any:
        if path not in self._open:
            self._open[path] = _open(path)
        return self._open[path]


def _split_hint(found: Sequence[int], expected: Sequence[int]) -> str:
    """What a shape says that is an even part of the expected one along a single dimension."""
    differing = [(f, e) for f, e in zip(found, expected, strict=False) if f != e]
    if len(found) != len(expected) or len(differing) != 1:
        return ""
    ((part, whole),) = differing
    if part == 0 or whole % part:
        return ""
    return f": one of {whole // part} parts, so these weights are split over ranks already"


def _weight_map(folder: Path) -> dict[str, Path]:
    """Tensor name -> the file that holds it."""
    index = folder / _INDEX
    if index.exists():
        try:
            weight_map = json.loads(index.read_text())["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"weights {index}: not an index of safetensors files") from error
        return {name: folder / file_name for name, file_name in weight_map.items()}
    single = folder / _SINGLE
    if single.exists():
        return dict.fromkeys(_open(single).keys(), single)
    raise InputError(f"weights {folder}: neither {_SINGLE} nor {_INDEX} is there")


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise InputError(f"weights {path} cannot be read: {error}") from error


@torch.no_grad()
def materialise(stage: Stage, device: torch.device) -> None:
    """Give the meta parameters of a stage memory on ``device``, with nothing in it."""
    stage._apply(lambda tensor: _materialised(tensor, device))
    stage.tie_head()


@torch.no_grad()
def load_shards(stage: Stage, folder: Path, device: torch.device) -> None:
    """Give the meta parameters of a stage memory on ``device`` and fill them from ``folder``.

    What no file holds, factors of adapters, is drawn. Each rank reads only its own shards, one
    parameter at a time, into fp32 masters whatever the file's dtype is.

    Raises:
        InputError: the folder lacks a parameter, or has it in another shape.
    """
    materialise(stage, device)
    weights = WeightsFolder(folder)
    for name, parameter in stage.parameters_by_name().items():
        local, box = local_shard(parameter)
        if local.numel() == 0:
            continue
        if is_adapter(name):
            local.copy_(initial_factor(name, parameter.shape)[box])
            continue
        names = tuple(_names_in_files(stage, name_in_files(name)))
        for own, whole in pieces_of(box, stage.packings.get(name)):
            local[own].copy_(_read(weights, names, parameter.shape, whole))
    for name, buffer in persistent_buffers(stage.model):
        _, whole = local_shard(buffer)
        buffer.copy_(weights.read(_names_in_files(stage, name), buffer.shape, whole))


def _read(
    weights: WeightsFolder, names: tuple[str, ...], shape: Sequence[int], box: tuple[slice, ...]
) -> Tensor:
    """The part ``box`` of a parameter; of stacked experts also from a tensor for each of them."""
    if is_stacked(names[0]) and not weights.has_any(names):
        return read_each(weights, names[0], shape, box)
    return weights.read(names, shape, box)


def local_shard(parameter: Tensor) -> tuple[Tensor, tuple[slice, ...]]:
    """What this rank holds of a parameter or gradient, and where it lies in the whole."""
    if not hasattr(parameter, "placements"):
        return parameter, tuple(slice(0, size) for size in parameter.shape)
    from torch.distributed.tensor._utils import (  # noqa: PLC0415
        compute_local_shape_and_global_offset,
    )

    shape, offset = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    box = tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
    return parameter.to_local(), box


def _names_in_files(stage: Stage, name: str) -> Iterator[str]:
    """The names under which Hugging Face's files may hold a parameter."""
    yield name
    tied = getattr(stage.model, "all_tied_weights_keys", {})
    yield from (alias for alias, source in tied.items() if source == name)
    if name in tied:  # a head on another stage than the embedding that it is tied to
        yield tied[name]
    yield from other_names(name)
    # Some files hold the base model alone, GPT-2's for one.
    yield name.removeprefix(f"{stage.model.base_model_prefix}.")
