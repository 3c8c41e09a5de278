"""The interface through which rules and predictions see an engine.

A mesh alone does not decide memory or speed: the engine does too. Each engine keeps its own
profile in ``engines/NAME/profile.py``; the packages below only ever see this type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EngineKind = Literal["training", "serving"]
MemoryModel = Literal["pytorch", "megatron", "deepspeed"]
MemoryChecked = Literal["records", "peaks", "nothing"]


@dataclass(frozen=True, kw_only=True)
class MegatronOptions:
    """What Megatron-Core is told beyond a layout and a job's runtime, as far as memory depends on it.

    The defaults are those of its command line (``training/arguments.py`` of 0.19.2).

    Attributes:
        transformer_engine: layers of Transformer Engine; else Megatron-Core's own ("local").
        deterministic: ``--deterministic-mode``, which asks for cuBLAS workspaces of 32 MiB.
        fused_softmax: the fused kernel of scale, mask and softmax where attention is unfused.
        softmax_in_fp32: whether an unfused softmax computes in fp32.
        attention_mask: whether the data loader makes a mask of every pair of tokens.
        recompute_modules: what ``selective`` recomputes; ``discarded_modules``: what ``operations``
            does, parts whose outputs are dropped once used and made again from inputs that are kept.
        global_buffers: whether gathered inputs and attention scores of Megatron-Core's own layers
            are written to buffers that stay (``GlobalMemoryBuffer``, since 2022).
        loss_kernel: the fused loss: ``native`` (compiled PyTorch) or ``te``.
        gradient_bytes: of one gradient in the buffer; None: 4 under bf16, the compute type's else.
        micro_batch_group: micro-batches that go through one virtual stage in a row; None: pp.
        overlap_pipeline_exchange: whether an interleaved schedule prefetches what it receives.
        deferred_head_gradients: micro-batches whose head weight gradient waits for the end of the
            step (``--defer-embedding-wgrad-compute``): 0 none, -1 all.
        distributed_checkpoints: whether what full recomputation keeps is cut over tp
            (``--distribute-saved-activations``; DeepSpeed's ``partition-activations``).
        checkpoints_on_host: whether what full recomputation keeps waits in host memory (DeepSpeed's
            ``checkpoint-in-cpu``).
        grouped_experts: one grouped matmul for all experts of a rank.
        expert_capacity_factor: tokens an expert takes over an even share; None: dropless.
    """

    transformer_engine: bool = True
    deterministic: bool = False
    fused_softmax: bool = True
    softmax_in_fp32: bool = False
    attention_mask: bool = True
    recompute_modules: tuple[str, ...] = ("core_attn",)
    discarded_modules: tuple[str, ...] = ("layernorm", "moe_act", "mla_up_proj")
    global_buffers: bool = True
    loss_kernel: Literal["native", "te"] = "native"
    gradient_bytes: int | None = None
    micro_batch_group: int | None = None
    overlap_pipeline_exchange: bool = True
    deferred_head_gradients: int = 0
    distributed_checkpoints: bool = False
    checkpoints_on_host: bool = False
    grouped_experts: bool = True
    expert_capacity_factor: float | None = None


MemoryPolicy = Literal["total", "static", "free"]
"""What an inference engine's memory fraction is of. ``total``: all that it takes of the device,
activations and graphs included (vLLM). ``static``: weights and KV cache of the device, the rest being
left to activations and graphs (SGLang). ``free``: the KV cache, of what weights and activations
leave free (TensorRT-LLM)."""


@dataclass(frozen=True, kw_only=True)
class BatchDefaults:
    """What an inference engine batches on devices of at least so much memory.

    Attributes:
        max_batched_tokens: token budget of one step.
        max_sequences: requests that are computed at once on one attention group.
        not_on: beginnings of names of accelerators that it does not hold for.
    """

    least_device_bytes: int
    max_batched_tokens: int
    max_sequences: int
    not_on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """How an inference engine budgets memory and batches requests, where a job does not say.

    Attributes:
        memory_fraction: see ``MemoryPolicy``.
        page_tokens: tokens of one page of the KV cache.
        frees_behind_window: whether a layer with a sliding window gives back pages behind it; else
            it keeps a page for every token.
        batches: by the device, the largest first; the last holds for every device.
        graph_bytes: of captured CUDA graphs, a rank.
        mixed_steps: whether by default chunks of prompts and decoding requests share steps; else each
            has steps of its own.
    """

    memory_policy: MemoryPolicy
    memory_fraction: float
    page_tokens: int
    frees_behind_window: bool
    batches: tuple[BatchDefaults, ...]
    graph_bytes: int
    mixed_steps: bool = True


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """What one release of one engine does with a layout.

    Attributes:
        rules: names of the rules of ``mesh.rulebook`` that hold for this engine.
        warnings: names of those that do not refuse a layout but must be said of it.
        not_checked: what else the engine checks -> why no rule here does.
        kind: what it does with a model.
        serving: budgets of an inference engine; None in one that trains.
        rank_order: mesh axes from the outermost (ranks farthest apart) to the innermost (adjacent).
        any_rank_order: whether it can be told another one (``rank_order`` of a job).
        option_names: layout key -> the engine's own spelling; keys it lacks map to themselves.
        schedules: pipeline schedules it runs.
        zero_stages: ZeRO stages it runs.
        default_zero_stage: the stage meant where only ``dp_shard`` is given.
        sequence_parallel: whether tensor parallelism comes with sequence parallelism by default.
        offload: where it moves states to; ``none`` is nowhere.
        cp_method: how context parallelism exchanges where a layout does not say; ``none``: the
            engine decides.
        cp_methods: the exchanges it runs.
        ring_gradients_in_fp32: whether gradients of keys go round a ring in fp32
            (``torch.distributed.tensor.experimental``'s context parallelism).
        expert_fold: mesh axes whose ranks expert parallelism divides, outermost first.
        gathers_before_dispatch: whether ranks that share an expert (etp) gather each other's tokens
            before they send copies to experts; else each sends its own, and copies are gathered.
        vocabulary_multiple: the vocabulary is padded to a multiple of this; 1: it is not padded.
        vocabulary_multiple_per_rank: whether that multiple is of every tensor-parallel rank's part.
        memory_model: which of the memory models describes it: PyTorch's own wrappers (FSDP2, DDP),
            Megatron-Core's buffers and modules, or DeepSpeed's ZeRO around PyTorch's modules.
        megatron: what Megatron-Core's takes beyond this profile.
        has_memory_model: whether predictions are made for this engine; else those of the native
            profile stand in and are marked.
        memory_checked: what the predicted memory of this engine was checked against: bytes that it
            records of itself (``records``), published peaks of the device's allocator (``peaks``), or
            ``nothing`` but its source.
        live_unsharded_blocks: blocks whose full parameters are in memory at once under a sharded
            stage 3 (the one in use plus those prefetched).
        context_bytes: memory of a CUDA context and its communicators outside the allocator, where it
            was read; 0: ``predict.memory.device`` counts them.
        replicates_through_fsdp: whether replicated data parallelism combined with tp or pp runs
            through FSDP2's hooks (``replicate``) instead of DDP.
        flat_parameters: whether a unit is one flat parameter (FSDP1): its gradient is one tensor too,
            which frozen weights beside trained ones are part of, waits in the compute type where it
            is not summed after every micro-batch, and is summed without a copy in that type.
        reduces_each_micro_batch: whether sharded gradients are summed over ranks after every
            micro-batch; else whole gradients are kept until the last one.
        pipeline_keeps_unsharded: whether a pipeline stage keeps gathered parameters and whole
            gradients from its first backward until the end of the step
            (``torch.distributed.pipelining``).
        pipeline_buffers: whether receive buffers of every micro-batch exist all the time.
        interleaving_keeps_sent: whether interleaved schedules hold what they have sent until the
            end of the step (``torch.distributed.pipelining``'s runtime waits for its sends there).
        frozen_as_trained: whether frozen weights beside adapters are stored in the type that they
            would be trained in; else in the compute type.
        gradients_live_in_buckets: whether DDP's gradients are views of its buckets, which exist
            all the time; else the buckets are a second copy.
        gathers_logits: whether every tensor-parallel rank holds the logits of the whole vocabulary.
        saves_gathered_inputs: whether under sequence parallelism the gathered input of a linear is
            kept for backward (PyTorch), or gathered again (Megatron-Core).
        gathers_latents: whether under sequence parallelism latent attention makes latents of a rank's
            own tokens and gathers those, not hidden states.
        norm_kernel: how RMS norms compute: by hand in transformers' way, in several operations all in
            fp32 (PyTorch's own up to 2.8), or in one kernel.
        fused_activations: whether one kernel computes an activation, keeping fewer tensors.
        compiles: whether layers go through ``torch.compile`` where a job does not say.
        root_stays_gathered: whether, under stage 3, embedding and head stay gathered from forward to
            backward; last_layer_stays_gathered: the last layer with them.
        expandable_segments: whether its launcher asks for the allocator's expandable segments.
        loss: the loss where a job does not say.
        repeats_keys: whether keys and values are copied to the number of query heads before the
            attention kernel.
        keeps_dropout: whether the model's own dropout stays on in training.
        optimizer_temporary_moments: temporaries of the optimizer's step, in units of one moment of
            all parameters (PyTorch's ``foreach`` AdamW: 1; fused: 0).
        kernels: whose modules compute a layer: PyTorch's, or Megatron's and Transformer Engine's.
        fused_layers: whether chains of elementwise kernels of a layer (norm, rotation, activation,
            loss) are one kernel each without a compiler.
        attention: attention kernel where a job leaves it to the engine.
        hides_tensor_parallel_backward: whether column-parallel linears send gradients of their input
            while they compute those of their weight.
        hides_pipeline_exchange: whether interleaved schedules send and receive under computation.
        stage_2_shards_parameters: whether ZeRO stage 2 keeps parameters in shards between steps
            (FSDP2 without resharding); else it shards gradients and optimizer alone (1910.02054).
        recomputes_what_is_needed: whether recomputation stops before what no backward reads, a
            layer's last matmul (``torch.utils.checkpoint``'s early stop).
        scatters_pipeline_exchange: whether tensor-parallel ranks send a share each of what a stage
            hands on, though every one of them holds all of it.
        scatters_gradients: whether stage 1 scatters gradients and gathers parameters; else it sums
            gradients everywhere and broadcasts.
        broadcasts_updates: whether at stage 1 each rank sends what it updated on its own, one after
            the other; else one gather does.
        overlaps_gradients, overlaps_parameters: whether stage 0 and 1 reduce under backward, and
            gather what the optimizer has updated under the next forward, where a job does not say.
        overlap_fraction: share of a layer's computation under which data-parallel communication
            can hide on CUDA.
        host_s_per_layer: seconds in which the host issues one layer's forward; backward takes as
            long. A GPU hides it under its own work, where that is longer; a CPU rank does both.
        tensor_parallel_host_s_per_layer: what tensor parallelism adds to it (DTensor's dispatch).
    """

    name: str
    version: str
    rules: tuple[str, ...]
    rank_order: tuple[str, ...]
    any_rank_order: bool = False
    schedules: tuple[str, ...]
    zero_stages: tuple[int, ...]
    recompute: tuple[str, ...]
    option_names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)
    kind: EngineKind = "training"
    serving: ServingOptions | None = None
    default_zero_stage: int = 3
    sequence_parallel: bool = True
    offload: tuple[str, ...] = ("none",)
    cp_method: str = "none"
    cp_methods: tuple[str, ...] = ("none", "ring", "all_gather", "all_to_all")
    ring_gradients_in_fp32: bool = False
    expert_fold: tuple[str, ...] = ("dp_shard", "cp", "tp")
    gathers_before_dispatch: bool = False
    vocabulary_multiple: int = 1
    vocabulary_multiple_per_rank: bool = False
    memory_model: MemoryModel = "pytorch"
    megatron: MegatronOptions = field(default_factory=MegatronOptions)
    has_memory_model: bool = False
    memory_checked: MemoryChecked = "nothing"
    live_unsharded_blocks: int = 2
    context_bytes: int = 0
    replicates_through_fsdp: bool = True
    flat_parameters: bool = False
    reduces_each_micro_batch: bool = True
    pipeline_keeps_unsharded: bool = True
    pipeline_buffers: bool = True
    interleaving_keeps_sent: bool = True
    frozen_as_trained: bool = False
    gradients_live_in_buckets: bool = True
    gathers_logits: bool = True
    saves_gathered_inputs: bool = True
    gathers_latents: bool = False
    norm_kernel: Literal["by_hand", "fp32", "fused"] = "by_hand"
    fused_activations: bool = False
    compiles: bool = False
    root_stays_gathered: bool = False
    last_layer_stays_gathered: bool = False
    expandable_segments: bool = False
    loss: Literal["plain", "fused", "chunked"] = "plain"
    repeats_keys: bool = False
    keeps_dropout: bool = False
    optimizer_temporary_moments: int = 0
    kernels: Literal["pytorch", "megatron"] = "pytorch"
    fused_layers: bool = False
    attention: Literal["flash1", "flash", "cudnn", "unfused"] = "flash"
    hides_tensor_parallel_backward: bool = False
    hides_pipeline_exchange: bool = False
    scatters_pipeline_exchange: bool = False
    recomputes_what_is_needed: bool = False
    stage_2_shards_parameters: bool = True
    scatters_gradients: bool = False
    broadcasts_updates: bool = False
    overlaps_gradients: bool = True
    overlaps_parameters: bool = False
    overlap_fraction: float = 0.9
    host_s_per_layer: float = 0.0
    tensor_parallel_host_s_per_layer: float = 0.0

    def option(self, key: str) -> str:
        """The engine's own name of layout key ``key``."""
        return self.option_names.get(key, key)
