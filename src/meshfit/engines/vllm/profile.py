"""vLLM 0.32.0: option names and what it checks of a layout.

Rules from ``vllm/config/parallel.py``, ``config/model.py`` and the layers: key/value heads are
copied beyond tp = kv heads; the vocabulary is padded to a multiple of 64 and then has to divide by
tp (``vocab_parallel_embedding.py``); experts are cut by tp, or spread whole over tp x cp x dp with
``--enable-expert-parallel``, unevenly if need be. Data-parallel replicas are the outermost ranks.
Hosts are
shared out to replicas: nnodes has to be a multiple of the groups that dp / dp-local makes. Lengths and
batches from ``config/model.py`` and ``config/scheduler.py``.
"""

from meshfit.engines.serving import CUT_MAPS_DIVISIBLE, CUTS_KEEP_QUANTIZATION, serving_profile
from meshfit.profile import BatchDefaults, ServingOptions

RULES: tuple[str, ...] = (
    *CUT_MAPS_DIVISIBLE,
    "padded_vocabulary_divisible",
    *CUTS_KEEP_QUANTIZATION,
    "layers_fill_stages",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "stage_layers_positive",
    "virtual_stages_unknown",
    "serving_shards_no_states",
    "expert_parallel_needs_experts",
    "experts_over_every_rank",
    "expert_tensor_parallel_unknown",
    "decode_context_within_tp",
    "decode_context_spans_prefill",
    "decode_context_needs_copied_heads",
    "decode_context_within_copies",
    "decode_context_divides_queries",
    "expert_balancing_needs_experts",
    "balanced_experts_divisible",
    "elastic_experts_need_balancing",
    "redundant_experts_need_balancing",
    "replicas_fill_hosts",
    "replica_within_hosts",
    "ranks_divide_over_hosts",
    "sequence_within_positions",
    "steps_hold_every_request",
    "steps_hold_whole_prompts",
)

WARNINGS: tuple[str, ...] = (
    "key_value_heads_replicated",
    "vocabulary_padded",
    "vision_tower_replicated",
    "tensor_parallel_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "dp_replicate": "--data-parallel-size",
    "tp": "--tensor-parallel-size",
    "cp": "--prefill-context-parallel-size",
    "dcp": "--decode-context-parallel-size",
    "pp": "--pipeline-parallel-size",
    "ep": "--enable-expert-parallel",
    "eplb": "--enable-eplb",
    "num_redundant_experts": "--eplb-config.num_redundant_experts",
    "elastic_ep": "--enable-elastic-ep",
    "stage_layers": "VLLM_PP_LAYER_PARTITION",
    "stage_layers_length": "VLLM_PP_LAYER_PARTITION",
    "stage_layers_sum": "VLLM_PP_LAYER_PARTITION",
    "sequence_length": "--max-model-len",
    "step_tokens": "--max-num-batched-tokens",
    "max_sequences": "--max-num-seqs",
    "num_hosts": "--nnodes",
    "vision_replicated": "--mm-encoder-tp-mode data",
}

NOT_CHECKED: dict[str, str] = {
    "pipelines of models without SupportsPP": "which classes have it is not in a model's config",
    "uneven experts that one model's own kernels refuse": (
        "the layers spread any number of experts; a model file that asks for equal parts is not known"
    ),
}

SERVING = ServingOptions(
    memory_policy="total",
    memory_fraction=0.92,
    page_tokens=16,
    frees_behind_window=True,
    batches=(
        BatchDefaults(least_device_bytes=160 * 2**30, max_batched_tokens=16384, max_sequences=1024),
        BatchDefaults(
            least_device_bytes=70 * 2**30,
            max_batched_tokens=8192,
            max_sequences=1024,
            not_on=("A100",),
        ),
        BatchDefaults(least_device_bytes=0, max_batched_tokens=2048, max_sequences=256),
    ),
    graph_bytes=2**30,
)
"""Defaults of its API server (``engine/arg_utils.py``) and of ``config/cache.py`` in 0.32; the page is
that of its GPU attention. Pages behind a window are freed by its hybrid cache manager
(``v1/core/single_type_kv_cache_manager.py``). Graphs: 0.5 to 1.5 GiB in logs."""

VLLM = serving_profile(
    name="vllm",
    version="0.32.0",
    serving=SERVING,
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    expert_fold=("dp_replicate", "dp_shard", "cp", "tp"),
    vocabulary_multiple=64,
    option_names=OPTION_NAMES,
)
