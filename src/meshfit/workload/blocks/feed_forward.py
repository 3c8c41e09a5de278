"""Dense MLPs and mixtures of experts."""

from dataclasses import dataclass
from typing import ClassVar

from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.tensor import Tensor, linear, vector


@dataclass(frozen=True, kw_only=True)
class MlpSpec(Block):
    """One dense MLP: gated (three matrices) or plain (two)."""

    mixes_tokens: ClassVar[bool] = False

    intermediate_size: int
    gated: bool
    bias: bool = False

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Tensor parallelism cuts up and gate (with their biases) by output, down by its input;
        the bias of down stays whole on every rank."""
        inner, bias = self.intermediate_size, self.bias
        gate = (
            linear("gate_proj", hidden_size, inner, bias=bias, split="column") if self.gated else ()
        )
        return (
            *gate,
            *linear("up_proj", hidden_size, inner, bias=bias, split="column"),
            *linear("down_proj", inner, hidden_size, bias=bias, split="row"),
        )


@dataclass(frozen=True, kw_only=True)
class MoeSpec(Block):
    """A mixture of experts: a router sends each token to some of many equal MLPs.

    Attributes:
        expert: one routed expert.
        shared: what every token passes beside them (all shared experts as one MLP).
        shared_gate: whether a sigmoid gate of one output scales the shared expert; it is there even
            where that expert has no width.
        dense: a dense MLP that runs beside the experts and is none of them (Gemma 4).
        expert_input_size: width of the experts' input and output where tokens are projected to it
            first (Nemotron 3); None: the hidden size. ``latent_bias``: with a bias.
        router_bias: a bias on the router's logits.
        balance_bias: a bias that only balances the load is a parameter, one an expert; in most
            families it is a buffer, and not counted.
        num_zero_experts: choices of the router that compute nothing (LongCat).
    """

    mixes_tokens: ClassVar[bool] = False

    num_experts: int
    experts_per_token: int
    expert: MlpSpec
    shared: MlpSpec | None = None
    shared_gate: bool = False
    dense: MlpSpec | None = None
    expert_input_size: int | None = None
    latent_bias: bool = False
    router_bias: bool = False
    balance_bias: bool = False
    num_zero_experts: int = 0

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Tensor parallelism cuts every expert as it cuts an MLP; the router stays whole."""
        outputs = self.num_experts + self.num_zero_experts
        router = linear("gate", hidden_size, outputs, bias=self.router_bias, role="router")
        balance = vector("gate.e_score_correction_bias", self.num_experts)
        width = self.expert_input_size or hidden_size
        experts = (
            tensor.below("experts").repeated(self.num_experts, self.experts_per_token)
            for tensor in self.expert.tensors(width)
        )
        return (
            *router,
            *((balance,) if self.balance_bias else ()),
            *experts,
            *self._latent_tensors(hidden_size),
            *self._shared_tensors(hidden_size),
            *(self.dense.tensors(hidden_size) if self.dense else ()),
        )

    def _latent_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        latent = self.expert_input_size
        if latent is None:
            return ()
        return (
            *linear("fc1_latent_proj", hidden_size, latent, bias=self.latent_bias),
            *linear("fc2_latent_proj", latent, hidden_size, bias=self.latent_bias),
        )

    def _shared_tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        shared = self.shared.tensors(hidden_size) if self.shared else ()
        gate = linear("shared_expert_gate", hidden_size, 1, role="router")
        return (
            *(tensor.below("shared_expert") for tensor in shared),
            *(gate if self.shared_gate else ()),
        )
