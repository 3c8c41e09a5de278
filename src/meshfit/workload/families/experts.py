"""Mixtures of experts: reading their sizes, and which layers have them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.families.decoder import DecoderSizes
from meshfit.workload.families.family import FeedForwards, Setting, setting
from meshfit.workload.families.keys import (
    MAX_LAYERS,
    Config,
    index_list,
    layer_kinds,
    shown,
    whole_number,
)
from meshfit.workload.model import MlpSpec, MoeSpec

MAX_EXPERTS = 2**14

SparseLayers = Callable[[Config, int], Sequence[bool]]
"""(config, number of layers) -> which layers have experts."""

_MLP_KINDS = {"dense": "dense", "sparse": "sparse"}


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The keys under which a family states its experts, with their defaults.

    Attributes:
        total, chosen: key and default of the number of experts, and of those a token uses.
        width: key and default of an expert's inner size.
        shared_width: key and default of the inner size of all shared experts together.
        shared_count: key and default of the number of shared experts, each as wide as a routed one.
        balance_bias: whether a bias that balances the load is a parameter.
        shared_bias: whether the shared experts have biases; None: as the routed ones.
    """

    total: tuple[str, int]
    chosen: tuple[str, int]
    width: tuple[str, int]
    shared_width: tuple[str, int] | None = None
    shared_count: tuple[str, int] | None = None
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    balance_bias: bool = False
    shared_bias: Setting | None = None

    def read(self, config: Config) -> MoeSpec:
        """The mixture of experts of ``config``.

        Raises:
            InputError: a size cannot be right, or more experts are chosen than there are.
        """
        num_experts, per_token = expert_counts(config, self.total, self.chosen)
        width = whole_number(config, *self.width)
        shared = self._shared_width(config, width)
        return MoeSpec(
            num_experts=num_experts,
            experts_per_token=per_token,
            expert=self._mlp(width),
            shared=self._shared(shared, config),
            shared_gate=self.shared_gate,
            router_bias=self.router_bias,
            balance_bias=self.balance_bias,
        )

    def _shared_width(self, config: Config, width: int) -> int:
        if self.shared_width is not None:
            return whole_number(config, *self.shared_width, minimum=0)
        if self.shared_count is None:
            return 0
        key, default = self.shared_count
        if config.get(key, default) is None:
            return 0
        return width * whole_number(config, key, default, minimum=0, maximum=MAX_EXPERTS)

    def _shared(self, width: int, config: Config) -> MlpSpec | None:
        if width == 0:
            return None
        bias = self.bias if self.shared_bias is None else setting(config, self.shared_bias)
        return replace(self._mlp(width), bias=bias)

    def _mlp(self, width: int) -> MlpSpec:
        return MlpSpec(intermediate_size=width, gated=self.gated, bias=self.bias)


def expert_counts(
    config: Config, total: tuple[str, int], chosen: tuple[str, int]
) -> tuple[int, int]:
    """Experts, and how many of them a token uses, each under a key with a default (0: none).

    Raises:
        InputError: no whole numbers, or more are chosen than there are.
    """
    for key, default in (total, chosen):
        if not default and config.get(key) is None:
            raise InputError(f"{key} is missing, and this family has no default for it")
    num_experts = whole_number(config, *total, maximum=MAX_EXPERTS)
    per_token = whole_number(config, *chosen, maximum=MAX_EXPERTS)
    if per_token > num_experts:
        raise InputError(
            f"{chosen[0]} is {per_token}, but {total[0]} is {num_experts};"
            " a token cannot choose more experts than there are"
        )
    return num_experts, per_token


def feed_forwards(experts: Experts, sparse_layers: SparseLayers) -> FeedForwards:
    """Experts in the layers that ``sparse_layers`` names, the dense MLP in the others."""

    def blocks(config: Config, sizes: DecoderSizes, mlp: MlpSpec) -> Sequence[Block]:
        sparse = sparse_layers(config, sizes.num_hidden_layers)
        moe = experts.read(config) if any(sparse) else None
        return tuple(moe if moe is not None and is_sparse else mlp for is_sparse in sparse)

    return blocks


def every_layer(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    """All layers have experts."""
    return (True,) * num_hidden_layers


def by_sparse_step(config: Config, num_hidden_layers: int) -> Sequence[bool]:
    """Every ``decoder_sparse_step``-th layer, except those in ``mlp_only_layers`` (Qwen)."""
    if config.get("num_experts") == 0:
        return (False,) * num_hidden_layers
    step = whole_number(config, "decoder_sparse_step", 1, maximum=MAX_LAYERS)
    dense = index_list(config, "mlp_only_layers", num_hidden_layers)
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(num_hidden_layers))


def after_first(default: int) -> SparseLayers:
    """All layers behind the first ``first_k_dense_replace`` (DeepSeek), or as ``mlp_layer_types``
    says; ``moe_layer_freq`` may only say the same."""

    def sparse(config: Config, num_hidden_layers: int) -> Sequence[bool]:
        dense = whole_number(
            config, "first_k_dense_replace", default, minimum=0, maximum=MAX_LAYERS
        )
        usual = ["dense" if i < dense else "sparse" for i in range(num_hidden_layers)]
        kinds = layer_kinds(config, num_hidden_layers, _MLP_KINDS, usual, key="mlp_layer_types")
        found = tuple(kind == "sparse" for kind in kinds)
        _check_frequency(config, found)
        return found

    return sparse


def _check_frequency(config: Config, sparse: Sequence[bool]) -> None:
    """``moe_layer_freq``: every layer (1), or a list of 0 and 1, one entry a layer.

    Raises:
        InputError: it says something else than ``sparse``.
    """
    frequency = config.get("moe_layer_freq")
    if frequency is None or frequency == 1:
        return
    if isinstance(frequency, list) and frequency == [int(is_sparse) for is_sparse in sparse]:
        return
    raise InputError(
        f"moe_layer_freq is {shown(frequency)}; expected 1, or one 0 or 1 for each of"
        f" {len(sparse)} layers that agrees with the dense layers stated elsewhere"
        f" ({sparse.count(False)} of them)"
    )
