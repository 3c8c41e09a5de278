"""Profiles of frameworks that rows name and meshfit has no engine of: what is known of each.

Each is an engine's profile with what differs. Constants belong to the framework, never to a row.
"""

from dataclasses import replace

from meshfit.engines.accelerate.profile import ACCELERATE
from meshfit.engines.deepspeed.profile import DEEPSPEED
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.engines.torchtitan.profile import TORCHTITAN_2024 as TORCHTITAN
from meshfit.profile import MegatronOptions

NEMO = replace(
    MEGATRON, name="nemo", version="24.07 to 25.05", megatron=MegatronOptions(gradient_bytes=2)
)
"""NVIDIA NeMo's performance recipes: Megatron-Core under another launcher, with gradients reduced
and kept in bf16 (``grad_reduce_in_fp32 = False``)."""

MEGATRON_LM = replace(
    MEGATRON,
    name="megatron-lm",
    version="2021 to 2022",
    memory_checked="nothing",
    attention="unfused",
    megatron=MegatronOptions(transformer_engine=False, global_buffers=False),
)
"""The training scripts of NVIDIA/Megatron-LM before Megatron-Core: fused softmax, no flash
attention."""

MEGATRON_CORE = replace(MEGATRON, name="megatron-lm", version="core 0.8")
"""The training scripts on Megatron-Core, with the overlaps that a row states."""

MEGATRON_DEEPSPEED = replace(
    MEGATRON_LM,
    name="megatron-deepspeed",
    version="2021",
    sequence_parallel=False,
    overlap_fraction=0.0,
    scatters_pipeline_exchange=False,
    megatron=replace(MEGATRON_LM.megatron, gradient_bytes=4),
    context_bytes=1271 * 2**20 + 5 * 500_000_000,
)
"""BigScience's and Microsoft's fork: Megatron's layers under DeepSpeed's engine (ZeRO, pipeline).

fp16 gradients lie twice: autograd's, and the flat ones that the ZeRO optimizer reduces.
BigScience read 1,271 MiB of context on a V100; 0.5 GB a communicator."""

MEGATRON_ZERO3 = replace(
    MEGATRON_DEEPSPEED,
    name="megatron-deepspeed-zero3",
    megatron=replace(
        MEGATRON_DEEPSPEED.megatron, gradient_bytes=None, distributed_checkpoints=True
    ),
    context_bytes=1271 * 2**20 + 3 * 500_000_000,
)
"""DeepSpeed's first branch of Megatron with ZeRO-3 and no pipeline, with activations partitioned."""

MEGATRON_ZERO3_ON_HOST = replace(
    MEGATRON_ZERO3, megatron=replace(MEGATRON_ZERO3.megatron, checkpoints_on_host=True)
)
"""The same with ``checkpoint-in-cpu``, which that branch's runs used where they do not deny it."""

FSDP1 = replace(
    NATIVE,
    name="fsdp1",
    version="torch 2.0 to 2.6",
    memory_checked="nothing",
    sequence_parallel=False,
    zero_stages=(0, 2, 3),
    schedules=(),
    flat_parameters=True,
    host_s_per_layer=0.0,
)
"""PyTorch's ``FullyShardedDataParallel``."""

LLM_FOUNDRY = replace(FSDP1, name="llm-foundry")
"""MosaicML llm-foundry on composer: FSDP1."""

FMS_FSDP = replace(FSDP1, name="fms-fsdp")
"""IBM fms-fsdp: FSDP1 with compiled blocks."""

INTERNEVO = replace(
    MEGATRON,
    name="internevo",
    version="2023",
    memory_checked="nothing",
    sequence_parallel=False,
    vocabulary_multiple=1,
    kernels="pytorch",
    broadcasts_updates=True,
    overlaps_gradients=True,
)
"""InternEvo: its own tensor and pipeline parallelism and ZeRO-1 groups, flash attention."""

NANOTRON = replace(
    MEGATRON,
    name="nanotron",
    version="2024 to 2025",
    memory_checked="nothing",
    vocabulary_multiple=1,
    kernels="pytorch",
    fused_layers=False,
    norm_kernel="fused",
    attention="flash",
    hides_tensor_parallel_backward=False,
    hides_pipeline_exchange=False,
    scatters_pipeline_exchange=False,
    schedules=("1f1b", "gpipe"),
    megatron=MegatronOptions(
        transformer_engine=False, attention_mask=False, global_buffers=False, gradient_bytes=4
    ),
)
"""Hugging Face's nanotron (and picotron, made after it): Megatron's tensor parallelism with sequence
parallelism in PyTorch's modules, FlashAttention 2, a fused RMS norm, fp32 gradients, ZeRO-1."""

TRAINER = replace(
    ACCELERATE,
    name="hf-trainer",
    version="2023 to 2025",
    flat_parameters=True,
    reduces_each_micro_batch=False,
)
"""Hugging Face's Trainer and what is built on it (TRL, PEFT, LLaMA-Factory, Axolotl, ms-swift):
transformers' modules on one device, under DDP, or FSDP1 through Accelerate, which sums gradients
after the last micro-batch (``Accelerator.no_sync``)."""

GEMINI = replace(
    DEEPSPEED,
    name="colossalai-gemini",
    version="2022 to 2023",
    attention="unfused",
    overlap_fraction=0.0,
)
"""ColossalAI's Gemini: states in chunks over ranks and the host as DeepSpeed's stage 3 has them."""

DEEPSPEED_TRAINER = replace(
    DEEPSPEED, name="hf-trainer-deepspeed", attention="unfused", overlap_fraction=0.0
)
"""Hugging Face's Trainer on DeepSpeed ZeRO."""

TORCHTUNE = replace(
    NATIVE, name="torchtune", version="0.3 to 0.5", schedules=(), memory_checked="nothing"
)
"""torchtune's recipes: one device, or FSDP2."""

LITGPT = replace(
    NATIVE,
    name="litgpt",
    version="2023 to 2024",
    schedules=(),
    memory_checked="nothing",
    flat_parameters=True,
    reduces_each_micro_batch=False,
)
"""LitGPT on Lightning Fabric: one device, or FSDP1 whose ranks sum gradients after the last
micro-batch alone (``no_backward_sync``)."""

XLA = replace(
    NATIVE,
    name="xla",
    version="JAX-Toolbox 2024 to 2025",
    memory_checked="nothing",
    kernels="megatron",
    fused_layers=True,
    attention="cudnn",
    norm_kernel="fused",
    saves_gathered_inputs=False,
    schedules=(),
    host_s_per_layer=0.0,
    tensor_parallel_host_s_per_layer=0.0,
)
"""MaxText and PaxML on GPUs: XLA shards parameters as FSDP does and gathers a layer ahead (its
latency-hiding scheduler); it compiles whole steps, so kernels follow one another without gaps, with
cuDNN's attention through Transformer Engine."""

__all__ = [
    "DEEPSPEED_TRAINER",
    "FMS_FSDP",
    "FSDP1",
    "GEMINI",
    "INTERNEVO",
    "LITGPT",
    "LLM_FOUNDRY",
    "MEGATRON",
    "MEGATRON_CORE",
    "MEGATRON_DEEPSPEED",
    "MEGATRON_LM",
    "MEGATRON_ZERO3",
    "MEGATRON_ZERO3_ON_HOST",
    "NANOTRON",
    "NEMO",
    "TORCHTITAN",
    "TORCHTUNE",
    "TRAINER",
    "XLA",
]
