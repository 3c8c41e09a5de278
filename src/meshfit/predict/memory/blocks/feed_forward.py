"""Dense MLPs."""

from meshfit.predict.memory.blocks.parts import BlockMemory, linear_input
from meshfit.predict.shape.layer_basis import LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor, Split
from meshfit.workload.blocks.feed_forward import MlpSpec

_SPELT_OUT = ("up", "half", "tanh", "one_plus_tanh", "activated")


def mlp_memory(block: MlpSpec, basis: LayerBasis) -> BlockMemory:
    """Its input and what lies between its matmuls."""
    element, inner = basis.compute_bytes, block.intermediate_size
    made = ("gate", "up") if block.gated else ("up",)
    return BlockMemory(
        saved=(
            linear_input("mlp.input", basis.hidden_size, len(made), basis),
            *inner_tensors("mlp", block, element, "tp", basis),
        ),
        matmul_outputs=(
            *(SavedTensor(name=f"mlp.{name}", bytes_per_token=element * inner, split="tp") for name in made),
            SavedTensor(name="mlp.projected", bytes_per_token=element * basis.hidden_size, split="sequence"),
        ),
        gradients=BytesPerToken(tp=float(element * inner * (3 if block.gated else 4))),
        last_input=BytesPerToken(tp=float(element * inner)),
    )  # fmt: skip


def inner_tensors(
    prefix: str, block: MlpSpec, bytes_each: float, split: Split, basis: LayerBasis
) -> tuple[SavedTensor, ...]:
    """Between the matmuls of one MLP. Gated: gate, activated gate (not where one kernel makes the
    product), up and product. Plain: what the activation keeps and its output."""
    names: tuple[str, ...]
    if block.gated:
        names = ("gate", "up", "product") if basis.compiled else ("gate", "activated", "up", "product")  # fmt: skip
    elif basis.activation_tensors == 1:
        names = ("activated",)
    else:
        names = _SPELT_OUT if basis.activation_tensors == len(_SPELT_OUT) else ("up", "activated")
    return tuple(
        SavedTensor(
            name=f"{prefix}.{name}",
            bytes_per_token=bytes_each * block.intermediate_size,
            split=split,
        )
        for name in names
    )
