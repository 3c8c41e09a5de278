"""A short gated convolution instead of attention (LFM2)."""

from dataclasses import dataclass

from meshfit.workload.blocks.block import ELEMENT_BYTES, Block
from meshfit.workload.blocks.tensor import Tensor, linear, vector


@dataclass(frozen=True, kw_only=True)
class ShortConvolutionSpec(Block):
    """A depthwise convolution over ``kernel`` tokens between two gates."""

    kernel: int
    width: int
    bias: bool = False

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        convolution = Tensor(
            name="conv.weight", shape=(self.width, 1, self.kernel), role="convolution"
        )
        return (
            convolution,
            *((vector("conv.bias", self.width),) if self.bias else ()),
            *linear("in_proj", hidden_size, 3 * self.width, bias=self.bias),
            *linear("out_proj", self.width, hidden_size, bias=self.bias),
        )

    @property
    def state_bytes(self) -> int:
        """The inputs that the convolution still needs."""
        return self.width * (self.kernel - 1) * ELEMENT_BYTES
