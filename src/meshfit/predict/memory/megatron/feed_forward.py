"""What MLPs and experts keep for backward, in the modules of Megatron-Core 0.19."""

from meshfit.predict.memory.megatron.settings import LayerSettings
from meshfit.predict.memory.megatron.tensors import Saved
from meshfit.predict.shape.layer_basis import FP32_BYTES
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec

INDEX_BYTES = 4


def mlp_tensors(mlp: MlpSpec, settings: LayerSettings, module: str = "mlp") -> tuple[Saved, ...]:
    """Between the norm's output and the down projection, whose input is the last: what the
    activation takes (gate and up in one tensor) and what it gives."""
    width = mlp.intermediate_size
    taken = width * (2 if mlp.gated else 1)
    return (
        Saved(name="up", bytes_per_token=settings.element_bytes * taken, split="tp", module=module),
        Saved(
            name="down.input",
            bytes_per_token=settings.linear_input_bytes * width,
            split="tp",
            module=module,
        ),
    )


def moe_tensors(moe: MoeSpec, hidden_size: int, settings: LayerSettings) -> tuple[Saved, ...]:
    """Router, routed experts (dropless, evenly loaded, or filled to their capacity) and shared
    experts.

    The router keeps its scores and the chosen probabilities in fp32 and a map of choices. Tokens
    are copied once per choice; probabilities are multiplied in by the activation, so nothing wide
    is kept behind the down projection (``TEGroupedMLP``, ``MoEAlltoAllTokenDispatcher``).
    """
    rows = moe.experts_per_token * settings.capacity_factor
    element, expert = settings.element_bytes, moe.expert
    taken = expert.intermediate_size * (2 if expert.gated else 1)
    routed = (
        Saved(
            name="router.scores", bytes_per_token=3 * FP32_BYTES * moe.num_experts, split="sequence"
        ),
        Saved(name="router.map", bytes_per_token=moe.num_experts, split="sequence"),
        Saved(name="permutation", bytes_per_token=2 * INDEX_BYTES * rows, split="sequence"),
        Saved(
            name="experts.input",
            bytes_per_token=settings.linear_input_bytes
            * (moe.expert_input_size or hidden_size)
            * rows,
            split="dispatched",
            module="moe",
        ),
        Saved(
            name="experts.probabilities",
            bytes_per_token=FP32_BYTES * rows,
            split="dispatched",
            module="moe",
        ),
        Saved(
            name="experts.up", bytes_per_token=element * taken * rows, split="experts", module="moe"
        ),
        Saved(
            name="experts.down.input",
            bytes_per_token=settings.linear_input_bytes * expert.intermediate_size * rows,
            split="experts",
            module="moe_act",
        ),
    )
    others = [mlp for mlp in (moe.shared, moe.dense) if mlp is not None]
    beside = tuple(t for mlp in others for t in mlp_tensors(mlp, settings, module="shared_experts"))
    return routed + beside
