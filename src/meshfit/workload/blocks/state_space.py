"""State-space mixers: Mamba (arXiv 2312.00752) and Mamba-2 (arXiv 2405.21060)."""

from dataclasses import dataclass

from meshfit.workload.blocks.block import ELEMENT_BYTES, Block
from meshfit.workload.blocks.tensor import Tensor, linear, norm, vector


@dataclass(frozen=True, kw_only=True)
class MambaSpec(Block):
    """Mamba: ``inner_size`` channels with a state of ``state_size`` each.

    ``inner_norms``: norms over the time step, B and C (Jamba).
    """

    inner_size: int
    state_size: int
    conv_kernel: int
    time_step_rank: int
    conv_bias: bool = True
    proj_bias: bool = False
    inner_norms: bool = False
    state_element_bytes: int = 2

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner, state, rank = self.inner_size, self.state_size, self.time_step_rank
        norms = norm("dt_layernorm", rank) + norm("b_layernorm", state) + norm("c_layernorm", state)
        return (
            vector("A_log", inner * state),
            vector("D", inner),
            *_convolution(inner, self.conv_kernel, self.conv_bias),
            *linear("in_proj", hidden_size, 2 * inner, bias=self.proj_bias),
            *linear("x_proj", inner, rank + 2 * state),
            *linear("dt_proj", rank, inner, bias=True),
            *linear("out_proj", inner, hidden_size, bias=self.proj_bias),
            *(norms if self.inner_norms else ()),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """The scan: 8 x inner_size x state_size a token.

        Of each element of the state: its decay 2 (product and exponential), its input 2, the update
        2, the read by C 2.
        """
        return 8 * self.inner_size * self.state_size * length

    @property
    def state_bytes(self) -> int:
        state = self.inner_size * self.state_size * self.state_element_bytes
        return state + self.inner_size * (self.conv_kernel - 1) * ELEMENT_BYTES

    @property
    def formula(self) -> str:
        return "Mamba scan: 8 x inner size x state size"


@dataclass(frozen=True, kw_only=True)
class Mamba2Spec(Block):
    """Mamba-2: ``num_heads`` heads with a matrix of ``head_dim`` x ``state_size`` each.

    B and C are shared by the heads of each of ``num_groups`` groups.
    """

    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int
    conv_kernel: int
    conv_bias: bool = True
    proj_bias: bool = False
    gated_norm: bool = True
    state_element_bytes: int = 2

    @property
    def _inner_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def _conv_width(self) -> int:
        return self._inner_size + 2 * self.num_groups * self.state_size

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        inner, heads = self._inner_size, self.num_heads
        projected = inner + self._conv_width + heads
        return (
            vector("dt_bias", heads),
            vector("A_log", heads),
            vector("D", heads),
            *_convolution(self._conv_width, self.conv_kernel, self.conv_bias),
            *linear("in_proj", hidden_size, projected, bias=self.proj_bias),
            *(norm("norm", inner) if self.gated_norm else ()),
            *linear("out_proj", inner, hidden_size, bias=self.proj_bias),
        )

    def token_mixing_flops(self, length: int, *, causal: bool = True) -> int:
        """The recurrence: 5 x heads x head_dim x state_size a token.

        Of each element of the state: decay 1, update 2, read by C 2. Kernels that work chunk by
        chunk compute more.
        """
        return 5 * self._inner_size * self.state_size * length

    @property
    def state_bytes(self) -> int:
        state = self._inner_size * self.state_size * self.state_element_bytes
        return state + self._conv_width * (self.conv_kernel - 1) * ELEMENT_BYTES

    @property
    def formula(self) -> str:
        return "Mamba-2 as a recurrence: 5 x heads x head_dim x state size"


def _convolution(channels: int, kernel: int, bias: bool) -> tuple[Tensor, ...]:
    """A depthwise convolution: every channel with its own ``kernel`` weights."""
    weight = Tensor(name="conv1d.weight", shape=(channels, 1, kernel), role="convolution")
    return (weight, vector("conv1d.bias", channels)) if bias else (weight,)
