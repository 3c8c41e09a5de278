"""How a checkpoint stores its weights: what ``quantization_config`` makes of them, in bytes.

Linear maps of layers are quantised; embeddings, the output head, norms, biases, routers and
convolutions stay as they are, and so does what the config names (``modules_to_not_convert``,
``ignore``).
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshfit.errors import InputError
from meshfit.workload.blocks.tensor import Tensor
from meshfit.workload.counts import layer_tensors, model_tensors, stack_tensors
from meshfit.workload.families.keys import Config, mapping, shown, whole_number
from meshfit.workload.model import ModelSpec
from meshfit.workload.parts import part_of

PLAIN_BYTES = 2
"""Of a parameter that is not quantised, where the config names no type: 16 bits."""


@dataclass(frozen=True, kw_only=True)
class WeightFormat:
    """How the weights of one linear map are stored.

    Attributes:
        bits: of one weight.
        group: inputs that share a scale; None: all of a row.
        rows: outputs that share it; None: all (one scale a tensor, with ``group`` None).
        scale_bytes, zero_bits: of one group's scale and zero point.
        tensor_bytes: of what a whole tensor has once (a second scale).
        input_bytes: of what every input has (the group index of GPTQ).
    """

    name: str
    bits: int
    group: int | None = None
    rows: int | None = 1
    scale_bytes: int = 0
    zero_bits: int = 0
    tensor_bytes: int = 0
    input_bytes: int = 0

    def weight_bytes(self, tensor: Tensor) -> int:
        """Of the weights themselves, all copies."""
        return -(-tensor.elements * self.bits // 8)

    def scale_bytes_of(self, tensor: Tensor) -> int:
        """Of scales and zero points, all copies; groups at the edges count whole."""
        outputs, inputs = tensor.shape
        groups = -(-outputs // (self.rows or outputs)) * -(-inputs // (self.group or inputs))
        zeros = -(-groups * self.zero_bits // 8)
        once = self.tensor_bytes + inputs * self.input_bytes
        return tensor.copies * (groups * self.scale_bytes + zeros + once)


FP8_BLOCK = WeightFormat(
    name="fp8 in blocks of 128 x 128", bits=8, group=128, rows=128, scale_bytes=4
)
FP8_ROW = WeightFormat(name="fp8, a scale a row", bits=8, scale_bytes=4)
FP8_TENSOR = WeightFormat(name="fp8, a scale a tensor", bits=8, rows=None, scale_bytes=4)
INT8_ROW = WeightFormat(name="int8, a scale a row", bits=8, scale_bytes=4)
INT4_GROUP = WeightFormat(
    name="int4 in groups of 128", bits=4, group=128, scale_bytes=2, zero_bits=4
)
MXFP4 = WeightFormat(name="mxfp4 (groups of 32)", bits=4, group=32, scale_bytes=1)
NVFP4 = WeightFormat(name="nvfp4 (groups of 16)", bits=4, group=16, scale_bytes=1, tensor_bytes=4)
NF4 = WeightFormat(name="nf4 in groups of 64", bits=4, group=64, scale_bytes=4)

COMMON_FORMATS: Mapping[str, WeightFormat] = {
    "fp8": FP8_BLOCK,
    "int8": INT8_ROW,
    "int4": INT4_GROUP,
    "mxfp4": MXFP4,
    "nvfp4": NVFP4,
}
"""What a model may be quantised to, beside how its checkpoint is stored."""

Choice = Callable[[str, Tensor], WeightFormat | None]
"""(name of a linear map's module, its tensor) -> its format; None: not quantised."""


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """What of a model is quantised, and how.

    Attributes:
        name: the formats in words.
        choose: the format of each linear map.
        by_layer: whether ``choose`` tells layers apart, so that each must be asked.
    """

    name: str
    choose: Choice
    by_layer: bool = False


@dataclass(frozen=True, kw_only=True)
class WeightBytes:
    """Bytes of all parameters, undivided, and how many of them are quantised."""

    weights: int
    scales: int
    quantized_parameters: int
    kept_parameters: int

    @property
    def total(self) -> int:
        return self.weights + self.scales


def weight_bytes(
    model: ModelSpec, quantization: Quantization | None, *, plain_bytes: int = PLAIN_BYTES
) -> WeightBytes:
    """Bytes of the weights of ``model``; what is not quantised has ``plain_bytes`` a parameter."""
    weights = scales = quantized = kept = 0
    by_layer = quantization is not None and quantization.by_layer
    for tensor, count in _numbered_tensors(model) if by_layer else model_tensors(model):
        chosen = None
        if quantization is not None and tensor.role == "linear":
            chosen = quantization.choose(tensor.name.removesuffix(".weight"), tensor)
        if chosen is None:
            kept += count * tensor.elements
            weights += count * tensor.elements * plain_bytes
        else:
            quantized += count * tensor.elements
            weights += count * chosen.weight_bytes(tensor)
            scales += count * chosen.scale_bytes_of(tensor)
    return WeightBytes(
        weights=weights, scales=scales, quantized_parameters=quantized, kept_parameters=kept
    )


def _numbered_tensors(model: ModelSpec) -> Iterator[tuple[Tensor, int]]:
    """As ``model_tensors``, but every layer of the decoder with its number in the name."""
    stacked = {tensor.name for tensor, _ in stack_tensors(model.layers, model, model.names.layers)}
    for tensor, count in model_tensors(model):
        if tensor.name not in stacked:
            yield tensor, count
    for i, layer in enumerate(model.layers):
        for tensor in layer_tensors(layer, model.hidden_size, model.vectors_per_norm):
            yield tensor.below(f"{model.names.layers}.{i}"), 1


def everything_as(weight_format: WeightFormat) -> Quantization:
    """Every linear map of a layer in one format; the output head stays as it is."""
    return Quantization(name=weight_format.name, choose=_unless((), weight_format))


def read_quantization(config: Config) -> Quantization | None:
    """What ``quantization_config`` of a model's config says; None where there is none.

    Raises:
        InputError: a method or a format that is not known, or a key that cannot be right.
    """
    quantization = mapping(config, "quantization_config")
    if not quantization:
        return None
    method = quantization.get("quant_method")
    reader = _METHODS.get(method) if isinstance(method, str) else None
    if reader is None:
        raise InputError(
            f"quantization_config.quant_method is {shown(method)}; known: {', '.join(_METHODS)}"
        )
    return reader(quantization, config)


def _fp8(quantization: Config, config: Config) -> Quantization:
    weight_format = FP8_TENSOR
    if (block := quantization.get("weight_block_size")) is not None:
        rows, group = _block(block)
        scale_bytes = 1 if quantization.get("scale_fmt") == "ue8m0" else 4
        name = f"fp8 in blocks of {rows} x {group}"
        weight_format = WeightFormat(
            name=name, bits=8, group=group, rows=rows, scale_bytes=scale_bytes
        )
    experts = quantization.get("expert_dtype", config.get("expert_dtype"))
    of_experts = MXFP4 if experts == "fp4" else None
    return _named(weight_format, _ignored(quantization), of_experts)


def _block(value: object) -> tuple[int, int]:
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(isinstance(size, int) and 0 < size <= 2**16 for size in value)
    ):
        raise InputError(
            f"quantization_config.weight_block_size is {shown(value)}; expected two sizes"
        )
    return value[0], value[1]


def _fbgemm(quantization: Config, config: Config) -> Quantization:
    return _named(FP8_ROW, _ignored(quantization))


def _mxfp4(quantization: Config, config: Config) -> Quantization:
    return _named(MXFP4, _ignored(quantization))


def _grouped(quantization: Config, config: Config) -> Quantization:
    """AWQ and GPTQ: ``bits`` with a 16-bit scale and a zero point a group; -1: one group a row."""
    bits = whole_number(quantization, "bits", 4, maximum=8)
    size = whole_number(quantization, "group_size", 128, minimum=-1, maximum=2**16)
    method = quantization["quant_method"]
    weight_format = WeightFormat(
        name=f"{method} int{bits} in groups of {size}" if size > 0 else f"{method} int{bits}",
        bits=bits,
        group=size if size > 0 else None,
        scale_bytes=2,
        zero_bits=bits,
        input_bytes=4 if method == "gptq" else 0,
    )
    return _named(weight_format, _ignored(quantization))


def _bitsandbytes(quantization: Config, config: Config) -> Quantization:
    weight_format = INT8_ROW
    if quantization.get("load_in_4bit") is True:
        weight_format = NF4
        if quantization.get("bnb_4bit_use_double_quant") is True:
            weight_format = WeightFormat(
                name="nf4 in groups of 64, scales in 8 bits", bits=4, group=64, scale_bytes=1
            )
    return _named(weight_format, _ignored(quantization))


_MODELOPT = {
    "FP8": FP8_TENSOR,
    "FP8_PB_WO": FP8_BLOCK,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_ROW,
    "NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "W4A16_AWQ": INT4_GROUP,
    "MXFP4": MXFP4,
}


def _modelopt(quantization: Config, config: Config) -> Quantization:
    algorithm = quantization.get("quant_algo")
    if not isinstance(algorithm, str) or algorithm not in _MODELOPT:
        raise InputError(
            f"quantization_config.quant_algo is {shown(algorithm)}; known: {', '.join(_MODELOPT)}"
        )
    return _named(_MODELOPT[algorithm], _ignored(quantization))


def _compressed_tensors(quantization: Config, config: Config) -> Quantization:
    """Groups of targets, each with a scheme of its own; ``Linear`` means every linear map."""
    groups = []
    for name, group in mapping(quantization, "config_groups").items():
        if not isinstance(group, Mapping):
            raise InputError(f"quantization_config.config_groups.{name} is {shown(group)}")
        targets = group.get("targets", ["Linear"])
        if not isinstance(targets, list):
            raise InputError(f"config_groups.{name}.targets is {shown(targets)}; expected a list")
        matches = None if "Linear" in targets else _matcher(tuple(map(str, targets)))
        groups.append((matches, _scheme(mapping(group, "weights"))))
    if not groups:
        raise InputError("quantization_config.config_groups is missing; it names what is quantised")
    ignored = _ignored(quantization)
    is_kept = _matcher(ignored)

    def choose(module: str, tensor: Tensor) -> WeightFormat | None:
        if is_kept(module):
            return None
        found = (scheme for matches, scheme in groups if matches is None or matches(module))
        return next(found, None)

    return Quantization(
        name=", ".join(dict.fromkeys(scheme.name for _, scheme in groups)),
        choose=choose,
        by_layer=_names_layers(ignored) or any(matches is not None for matches, _ in groups),
    )


def _scheme(weights: Config) -> WeightFormat:
    """The format of a ``weights`` entry of compressed-tensors."""
    bits = whole_number(weights, "num_bits", 8, maximum=16)
    kind, strategy = weights.get("type", "int"), weights.get("strategy", "tensor")
    size = weights.get("group_size")
    if kind == "float" and bits == 4:
        return NVFP4 if size in (None, 16) else MXFP4
    scale_bytes = 4 if kind == "float" else 2
    name = f"{'fp' if kind == 'float' else 'int'}{bits}"
    if strategy == "group":
        group = whole_number(weights, "group_size", 128, maximum=2**16)
        zero = 0 if weights.get("symmetric", True) else bits
        return WeightFormat(
            name=f"{name} in groups of {group}",
            bits=bits,
            group=group,
            scale_bytes=scale_bytes,
            zero_bits=zero,
        )
    if strategy == "block":
        rows, group = _block(weights.get("block_structure"))
        return WeightFormat(
            name=f"{name} in blocks of {rows} x {group}",
            bits=bits,
            group=group,
            rows=rows,
            scale_bytes=scale_bytes,
        )
    rows_sharing = 1 if strategy == "channel" else None
    return WeightFormat(name=name, bits=bits, rows=rows_sharing, scale_bytes=scale_bytes)


_METHODS: Mapping[str, Callable[[Config, Config], Quantization]] = {
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
}
"""``quant_method`` -> reader of its keys."""


# What stays as it is

_IGNORE_KEYS = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
)


def _ignored(quantization: Config) -> tuple[str, ...]:
    names: list[str] = []
    for key in _IGNORE_KEYS:
        value = quantization.get(key)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InputError(
                f"quantization_config.{key} is {shown(value)}; expected a list of module names"
            )
        names += value
    return tuple(names)


def _named(
    weight_format: WeightFormat,
    ignored: tuple[str, ...],
    of_experts: WeightFormat | None = None,
) -> Quantization:
    name = weight_format.name
    if of_experts is not None:
        name = f"{of_experts.name} in routed experts, else {name}"
    return Quantization(
        name=name,
        choose=_unless(ignored, weight_format, of_experts),
        by_layer=_names_layers(ignored),
    )


def _unless(
    ignored: tuple[str, ...], weight_format: WeightFormat, of_experts: WeightFormat | None = None
) -> Choice:
    """``weight_format`` for all but the output head, towers, and what is ``ignored``."""
    is_kept = _matcher(ignored)

    def choose(module: str, tensor: Tensor) -> WeightFormat | None:
        part = part_of(module)
        if part in ("lm_head", "vision_or_other_tower") or is_kept(module):
            return None
        return of_experts if of_experts is not None and part == "routed_expert" else weight_format

    return choose


def _names_layers(patterns: tuple[str, ...]) -> bool:
    return any(character.isdigit() for pattern in patterns for character in pattern)


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a module is named by one of ``patterns``: by its full name, that of a module it lies
    in, the end of either, a glob, or a regular expression behind ``re:``.

    Prefixes before ``layers`` differ between a checkpoint and its class, so only what follows
    counts.
    """
    plain = {_tail(pattern) for pattern in patterns if not _is_pattern(pattern)}
    expressions = [_compiled(pattern) for pattern in patterns if _is_pattern(pattern)]

    def matches(module: str) -> bool:
        words = _tail(module).split(".")
        spans = {
            ".".join(words[start:end])
            for start in range(len(words))
            for end in range(start + 1, len(words) + 1)
        }
        if not plain.isdisjoint(spans):
            return True
        names = [module, *(".".join(words[:end]) for end in range(1, len(words) + 1))]
        return any(expression.match(name) for expression in expressions for name in names)

    return matches


def _is_pattern(name: str) -> bool:
    return name.startswith("re:") or "*" in name


def _compiled(pattern: str) -> re.Pattern[str]:
    if not pattern.startswith("re:"):
        return re.compile(fnmatch.translate(_tail(pattern)))
    try:
        return re.compile(pattern.removeprefix("re:"))
    except (re.error, RecursionError, OverflowError):
        raise InputError(
            f"quantization_config names {shown(pattern)}, which is no regular expression"
        ) from None


def _tail(module: str) -> str:
    _, found, rest = module.partition("layers.")
    return found + rest if found else module


def plain_element_bytes(config: Mapping[str, Any]) -> int | None:
    """Bytes of a parameter in the type that a config names (``dtype``, ``torch_dtype``); None where
    it names none that is known."""
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}
    nested = [value for value in config.values() if isinstance(value, Mapping)]
    for where in (config, *nested):
        for key in ("dtype", "torch_dtype"):
            name = where.get(key)
            if isinstance(name, str) and name.removeprefix("torch.") in sizes:
                return sizes[name.removeprefix("torch.")]
    return None
