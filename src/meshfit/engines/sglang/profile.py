"""SGLang 0.5.23: option names and what it checks of a layout.

Rules from ``srt/arg_groups`` and ``parallel_hook.py``: a replica has tp x pp ranks, and attention's
data- and context-parallel ranks, the experts' and the decode's are all taken from tp. The vocabulary
is padded to a multiple of 64 (``vocab_parallel_embedding.py``, on GPUs) and then has to divide by tp.
"""

from meshfit.engines.serving import CUT_MAPS_DIVISIBLE, CUTS_KEEP_QUANTIZATION, serving_profile
from meshfit.profile import BatchDefaults, ServingOptions

RULES: tuple[str, ...] = (
    *CUT_MAPS_DIVISIBLE,
    "padded_vocabulary_divisible",
    *CUTS_KEEP_QUANTIZATION,
    "context_parallel_unknown",
    "layers_fill_stages",
    "stage_layers_one_per_stage",
    "stage_layers_cover_model",
    "stage_layers_positive",
    "virtual_stages_unknown",
    "serving_shards_no_states",
    "expert_parallel_needs_experts",
    "experts_divisible",
    "experts_within_tensor_parallel",
    "attention_groups_within_tp",
    "replicas_or_attention_data_parallel",
    "expert_data_within_tp",
    "expert_groups_fill_tp",
    "decode_context_within_tp",
    "one_context_parallel_of_a_server",
    "replica_within_hosts",
    "ranks_divide_over_hosts",
    "replicas_on_one_host",
    "sequence_within_positions",
)

WARNINGS: tuple[str, ...] = (
    "key_value_heads_replicated",
    "vocabulary_padded",
    "vision_tower_replicated",
    "tensor_parallel_inside_domain",
)

OPTION_NAMES: dict[str, str] = {
    "dp_replicate": "--data-parallel-size",
    "data_parallel_size": "--data-parallel-size",
    "tp": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "ep": "--expert-parallel-size",
    "attn_dp": "--attention-data-parallel-size",
    "attn_cp": "--attn-cp-size",
    "moe_dp": "--moe-dp-size",
    "dcp": "--decode-context-parallel-size",
    "cp": "--attn-cp-size",
    "num_hosts": "--nnodes",
    "sequence_length": "--context-length",
    "vision_replicated": "--mm-enable-dp-encoder",
}

NOT_CHECKED: dict[str, str] = {
    "what a kernel asks of a width": "its names were read from the wheel; it was not run",
}

SERVING = ServingOptions(
    memory_policy="static",
    memory_fraction=0.88,
    page_tokens=1,
    frees_behind_window=True,
    batches=(
        BatchDefaults(least_device_bytes=70 * 2**30, max_batched_tokens=8192, max_sequences=1024),
        BatchDefaults(least_device_bytes=0, max_batched_tokens=2048, max_sequences=256),
    ),
    graph_bytes=2 * 2**30,
    mixed_steps=False,
)
"""``mem_fraction_static`` of a server on 80 GB and more (``server_args.py`` works it out from the chunk
and the graphs; 0.84 to 0.9 in logs), a radix cache of single tokens, its chunk of a prefill.
Windowed layers have a pool of their own (``SWAKVPool``). Prompts go before decoding, without
``--enable-mixed-chunk``."""

SGLANG = serving_profile(
    name="sglang",
    version="0.5.23",
    serving=SERVING,
    rules=RULES,
    warnings=WARNINGS,
    not_checked=NOT_CHECKED,
    expert_fold=("tp",),
    vocabulary_multiple=64,
    option_names=OPTION_NAMES,
)
