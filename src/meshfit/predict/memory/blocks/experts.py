"""Mixtures of experts: router, copies of the tokens for their experts, grouped matmuls."""

from collections.abc import Iterator

from meshfit.predict.memory.blocks.feed_forward import inner_tensors, mlp_memory
from meshfit.predict.memory.blocks.parts import BlockMemory, linear_input
from meshfit.predict.shape.layer_basis import FP32_BYTES, LayerBasis
from meshfit.predict.shape.saved import BytesPerToken, SavedTensor, total
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec

INDEX_BYTES = 8


def moe_memory(block: MoeSpec, basis: LayerBasis) -> BlockMemory:
    """Every token is copied once for each expert that it chooses.

    Kept (transformers' ``grouped_mm`` experts, and torchtitan's): the copies, what lies between the
    grouped matmuls, each expert's output before its weight, and the routing itself. Under expert
    parallelism the fullest rank receives ``RuntimeSpec.expert_imbalance`` times as many copies as
    it sends.
    """
    element, copies = basis.compute_bytes, block.experts_per_token
    width = block.expert_input_size or basis.hidden_size
    dispatched = SavedTensor(name="experts.input", bytes_per_token=element * copies * width, split="received")  # fmt: skip
    returned = SavedTensor(name="experts.output", bytes_per_token=element * copies * width, split="dispatched")  # fmt: skip
    inner = inner_tensors("experts", block.expert, element * copies, "experts", basis)
    beside = [_renamed(mlp_memory(mlp, basis), name) for name, mlp in _beside(block)]
    one_width = float(element * copies * block.expert.intermediate_size)
    return BlockMemory(
        saved=(
            linear_input("mlp.input", basis.hidden_size, 1, basis),
            *_routing(block, basis),
            dispatched,
            *inner,
            returned,
            *(t for one in beside for t in one.saved if not t.name.endswith(".input")),
        ),
        matmul_outputs=tuple(t for one in beside for t in one.matmul_outputs),
        kernel_outputs=(dispatched, returned),
        gradients=BytesPerToken(
            experts=one_width * (3 if block.expert.gated else 2),
            received=2.0 * element * copies * width,
        ),
        last_input=BytesPerToken(experts=one_width) + total([returned]),
    )


def _routing(block: MoeSpec, basis: LayerBasis) -> Iterator[SavedTensor]:
    """Scores in fp32 over all experts; of each choice its expert, its weight twice (before and
    after they are made to add up to one) and its place among the copies, three times."""
    choices, outputs = block.experts_per_token, block.num_experts + block.num_zero_experts
    scored = 2 if basis.fp32_router else 1
    yield SavedTensor(name="router.scores", bytes_per_token=FP32_BYTES * outputs * scored, split="sequence")  # fmt: skip
    per_choice = INDEX_BYTES + 2 * FP32_BYTES + 3 * INDEX_BYTES
    yield SavedTensor(name="router.choices", bytes_per_token=per_choice * choices, split="sequence")
    if basis.fp32_router and basis.compute_bytes != FP32_BYTES:
        yield SavedTensor(name="router.input_fp32", bytes_per_token=FP32_BYTES * basis.hidden_size, split="sequence")  # fmt: skip


def _beside(block: MoeSpec) -> Iterator[tuple[str, MlpSpec]]:
    """MLPs that every token passes."""
    if block.shared is not None:
        yield "shared_expert", block.shared
    if block.dense is not None:
        yield "dense", block.dense


def _renamed(memory: BlockMemory, name: str) -> BlockMemory:
    def renamed(tensors: tuple[SavedTensor, ...]) -> tuple[SavedTensor, ...]:
        return tuple(
            SavedTensor(
                name=t.name.replace("mlp", name, 1),
                bytes_per_token=t.bytes_per_token,
                split=t.split,
            )
            for t in tensors
        )

    return BlockMemory(saved=renamed(memory.saved), matmul_outputs=renamed(memory.matmul_outputs))
