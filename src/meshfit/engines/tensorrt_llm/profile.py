"""TensorRT-LLM 1.3 (PyTorch backend): option names and what it checks of a layout.

Nothing of it was run or read here: names and rules from its documentation as far as known
(``LlmArgs``), the rest of what its layers share with the other engines'. Ranks of a replica are
tp x pp; attention data parallelism takes all of tp or none (``enable_attention_dp``), and
``moe_tensor_parallel_size x moe_expert_parallel_size`` is tp.
"""

from meshfit.engines.serving import CUT_MAPS_DIVISIBLE, CUTS_KEEP_QUANTIZATION, serving_profile
from meshfit.profile import BatchDefaults, ServingOptions

RULES: tuple[str, ...] = (
    *CUT_MAPS_DIVISIBLE,
    *CUTS_KEEP_QUANTIZATION,
    "context_parallel_unknown",
    "layers_fill_stages",
    "virtual_stages_unknown",
    "serving_shards_no_states",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_within_tensor_parallel",
    "attention_groups_within_tp",
)

WARNINGS: tuple[str, ...] = (
    "key_value_heads_replicated",
    "vision_tower_replicated",
    "tensor_parallel_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "ep": "moe_expert_parallel_size",
    "etp": "moe_tensor_parallel_size",
    "attn_dp": "enable_attention_dp",
    "sequence_length": "max_seq_len",
}

NOT_CHECKED: dict[str, str] = {
    "what a kernel asks of a width": "the engine was not run",
    "models that its PyTorch backend lacks": "which classes it has is not in a model's config",
}

SERVING = ServingOptions(
    memory_policy="free",
    memory_fraction=0.9,
    page_tokens=32,
    frees_behind_window=True,
    batches=(BatchDefaults(least_device_bytes=0, max_batched_tokens=8192, max_sequences=2048),),
    graph_bytes=2**30,
)
"""``KvCacheConfig.free_gpu_memory_fraction`` and ``tokens_per_block``, ``max_num_tokens`` and
``max_batch_size`` of ``LlmArgs``; pages behind a window are freed (``max_attention_window``)."""

TENSORRT_LLM = serving_profile(
    name="tensorrt_llm",
    version="1.3.0",
    serving=SERVING,
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    expert_fold=("tp",),
    option_names=OPTION_NAMES,
)
