"""Linear attention: a matrix of state a head instead of keys and values."""

from dataclasses import dataclass
from typing import Literal

from meshfit.workload.blocks.block import ELEMENT_BYTES, Block
from meshfit.workload.blocks.tensor import Tensor, linear, norm, vector


@dataclass(frozen=True, kw_only=True)
class GatedDeltaNetSpec(Block):
    """Gated delta rule (arXiv 2412.06464) behind a short convolution: Qwen3-Next, Qwen3.5.

    A key head serves ``num_value_heads / num_key_heads`` value heads.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_element_bytes: int = 4

    @property
    def _key_width(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def _value_width(self) -> int:
        return self.num_value_heads * self.value_head_dim

    @property
    def _conv_width(self) -> int:
        return 2 * self._key_width + self._value_width

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        heads = self.num_value_heads
        convolution = Tensor(
            name="conv1d.weight", shape=(self._conv_width, 1, self.conv_kernel), role="convolution"
        )
        return (
            vector("dt_bias", heads),
            vector("A_log", heads),
            convolution,
            *linear("in_proj_qkv", hidden_size, self._conv_width),
            *linear("in_proj_z", hidden_size, self._value_width),
            *linear("in_proj_b", hidden_size, heads),
            *linear("in_proj_a", hidden_size, heads),
            *norm("norm", self.value_head_dim),
            *linear("out_proj", self._value_width, hidden_size),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """The recurrence: 7 x value heads x key_head_dim x value_head_dim a token.

        Of each element of the state: decay 1, read by the key 2, update 2, read by the query 2.
        Kernels that work chunk by chunk compute more.
        """
        return 7 * self.num_value_heads * self.key_head_dim * self.value_head_dim * length

    @property
    def state_bytes(self) -> int:
        """The matrices of all heads, and the inputs that the convolution still needs."""
        matrices = self.num_value_heads * self.key_head_dim * self.value_head_dim
        kept = self._conv_width * (self.conv_kernel - 1)
        return matrices * self.state_element_bytes + kept * ELEMENT_BYTES

    @property
    def formula(self) -> str:
        return "gated delta net as a recurrence: 7 x value heads x key head dim x value head dim"


@dataclass(frozen=True, kw_only=True)
class KimiDeltaSpec(Block):
    """Kimi delta attention: the delta rule with a decay for every channel of a key.

    ``gates``: ``low_rank`` factors decay and output gate through ``head_dim``; ``full`` does not.
    """

    num_heads: int
    head_dim: int
    conv_kernel: int
    gates: Literal["low_rank", "full"] = "low_rank"
    state_element_bytes: int = 4

    @property
    def _width(self) -> int:
        return self.num_heads * self.head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        width = self._width
        projections = (
            tensor
            for name in ("q_proj", "k_proj", "v_proj")
            for tensor in linear(name, hidden_size, width)
        )
        return (
            *projections,
            Tensor(
                name="conv1d.weight", shape=(3 * width, 1, self.conv_kernel), role="convolution"
            ),
            vector("forget_gate.dt_bias", width),
            vector("forget_gate.A_log", self.num_heads),
            *self._gate("forget_gate.f", hidden_size),
            *self._gate("g", hidden_size),
            *linear("b_proj", hidden_size, self.num_heads),
            *norm("o_norm", self.head_dim),
            *linear("o_proj", width, hidden_size),
        )

    def _gate(self, name: str, hidden_size: int) -> tuple[Tensor, ...]:
        if self.gates == "full":
            return linear(f"{name}_proj", hidden_size, self._width)
        return (
            *linear(f"{name}_a_proj", hidden_size, self.head_dim),
            *linear(f"{name}_b_proj", self.head_dim, self._width),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """As ``GatedDeltaNetSpec``: 7 x heads x head_dim^2 a token."""
        return 7 * self.num_heads * self.head_dim**2 * length

    @property
    def state_bytes(self) -> int:
        kept = 3 * self._width * (self.conv_kernel - 1)
        return self._width * self.head_dim * self.state_element_bytes + kept * ELEMENT_BYTES

    @property
    def formula(self) -> str:
        return "Kimi delta attention as a recurrence: 7 x heads x head_dim^2"


@dataclass(frozen=True, kw_only=True)
class LightningAttentionSpec(Block):
    """Linear attention with a fixed decay a head (MiniMax-01, arXiv 2501.08313)."""

    num_heads: int
    head_dim: int
    state_element_bytes: int = 4

    @property
    def _width(self) -> int:
        return self.num_heads * self.head_dim

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        return (
            *norm("norm", self._width),
            *linear("qkv_proj", hidden_size, 3 * self._width),
            *linear("output_gate", hidden_size, self._width),
            *linear("out_proj", self._width, hidden_size),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """The recurrence: 5 x heads x head_dim^2 a token (decay 1, update 2, read 2)."""
        return 5 * self._width * self.head_dim * length

    @property
    def state_bytes(self) -> int:
        return self._width * self.head_dim * self.state_element_bytes

    @property
    def formula(self) -> str:
        return "lightning attention as a recurrence: 5 x heads x head_dim^2"


@dataclass(frozen=True, kw_only=True)
class GatedRecurrenceSpec(Block):
    """Griffin's recurrent block (arXiv 2402.19427): a short convolution and a real-gated linear
    recurrence of ``width`` channels; its two gates are block-diagonal with ``num_blocks`` blocks."""

    width: int
    num_blocks: int
    conv_kernel: int
    state_element_bytes: int = 4

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        block = self.width // self.num_blocks
        gates = tuple(
            tensor
            for name in ("input_gate", "recurrent_gate")
            for tensor in linear(f"rg_lru.{name}", block, self.width, bias=True)
        )
        return (
            *linear("linear_y", hidden_size, self.width, bias=True),
            *linear("linear_x", hidden_size, self.width, bias=True),
            *linear("linear_out", self.width, hidden_size, bias=True),
            Tensor(
                name="conv_1d.weight", shape=(self.width, 1, self.conv_kernel), role="convolution"
            ),
            vector("conv_1d.bias", self.width),
            vector("rg_lru.recurrent_param", self.width),
            *gates,
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """The recurrence: 4 x width a token (decay 1, input scaled by two gates 2, sum 1)."""
        return 4 * self.width * length

    @property
    def state_bytes(self) -> int:
        """The state of every channel, and the inputs that the convolution still needs."""
        kept = self.width * (self.conv_kernel - 1)
        return self.width * self.state_element_bytes + kept * ELEMENT_BYTES

    @property
    def formula(self) -> str:
        return "gated linear recurrence: 4 x width"
