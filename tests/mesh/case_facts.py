"""From the inputs of public cases, as their tables spell them, to facts."""

from typing import Any

from meshfit.job.layout import layout_of_keys
from meshfit.mesh.facts import facts_of
from meshfit.profile import EngineProfile

MODEL_FIELDS = {
    "n_head": "num_attention_heads",
    "share_expert_dim": "shared_expert_intermediate_size",
    "vision_heads": "vision_num_attention_heads",
    "vocab": "vocab_size",
}
WORKLOAD_FIELDS = {
    "gpus": "world",
    "gpus_per_node": "gpus_per_domain",
    "seq": "sequence_length",
    "micro_batch": "micro_batch_size",
    "global_batch": "global_batch_size",
    "microbatches": "num_micro_batches",
}
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe"}


def case_facts(
    case: dict[str, Any], layout: dict[str, Any], profile: EngineProfile
) -> dict[str, Any]:
    """What a case gives, and the data-parallel size that its accelerators leave over.

    A layout with ``dp_shard`` or ``dp_replicate`` and every other degree is taken as complete.
    """
    given = case["input"]
    model = given.get("model")
    facts = model_facts(case.get("dimensions", {}) if isinstance(model, str) else model or {})
    facts |= {WORKLOAD_FIELDS[key]: value for key, value in given.items() if key in WORKLOAD_FIELDS}
    facts |= layout_facts(layout, profile)
    model_parallel = facts.get("tp", 1) * facts.get("cp", 1) * facts.get("pp", 1)
    if "world" in facts and facts["world"] % model_parallel == 0:
        facts.setdefault("data_parallel_size", facts["world"] // model_parallel)
    return facts


def model_facts(model: dict[str, Any]) -> dict[str, Any]:
    facts = {MODEL_FIELDS.get(key, key): value for key, value in model.items()}
    quantization = facts.pop("quantization_config", {})
    if "group_size" in quantization:
        facts |= {
            "quantization_block_size": quantization["group_size"],
            "quantization_unit": "group",
        }
    if "weight_block_size" in facts:
        facts["quantization_block_size"] = facts.pop("weight_block_size")[0]
    return facts


def layout_facts(layout: dict[str, Any], profile: EngineProfile) -> dict[str, Any]:
    keys = dict(layout)
    if "ulysses" in keys:
        keys |= {"cp": keys.pop("ulysses"), "cp_method": "all_to_all"}
    if "schedule" in keys:
        keys["schedule"] = SCHEDULES.get(keys["schedule"], keys["schedule"])
    if "dp" in keys:
        keys["data_parallel_size"] = keys.pop("dp")
    if "stage_layers" in keys:
        return facts_of(layout=layout_of_keys(keys, profile))
    return keys
