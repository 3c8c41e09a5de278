"""The flat namespace that rules read: one name, one value, whatever it came from.

A value is a plain number (one layout) or an integer array of shape [N] (N layouts); rules are
written so that both work. What is not known is absent, and rules that need it are skipped.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from meshfit.cluster.topology import Topology
from meshfit.mesh.candidates import (
    CP_METHOD_NAMES,
    OFFLOAD_NAMES,
    RECOMPUTE,
    SCHEDULES,
    Candidates,
    IntArray,
)
from meshfit.mesh.model_facts import model_facts
from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

Facts = Mapping[str, Any]

DEGREES: tuple[str, ...] = ("dp_replicate", "dp_shard", "tp", "cp", "pp", "vpp", "ep", "etp")
SIZES: tuple[str, ...] = (
    *DEGREES,
    "micro_batch_size",
    "global_batch_size",
    "sequence_length",
    "data_parallel_size",
    "sequences_per_micro_batch",
    "world",
    "gpus_per_domain",
    "gpus_per_host",
    "num_attention_heads",
    "num_key_value_heads",
    "vision_num_attention_heads",
    "mixer_heads",
    "linear_key_heads",
    "state_space_groups",
    "state_space_channels",
    "hidden_size",
    "cp_inner",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "attention_width",
    "quantization_block_size",
    "attention_quantization_block_size",
    "key_value_quantization_rows",
    "vocab_size",
    "num_hidden_layers",
    "layers_per_virtual_stage",
    "local_batch_size",
    "gradient_accumulation_steps",
    "attn_dp",
    "attn_cp",
    "moe_dp",
    "dcp",
    "num_hosts",
    "step_tokens",
    "max_sequences",
)
"""Names whose value must be at least 1."""


def facts_of(
    *,
    model: ModelSpec | None = None,
    training: TrainingSpec | None = None,
    topology: Topology | None = None,
    layout: LayoutSpec | None = None,
) -> dict[str, Any]:
    """What is known of the parts that are given."""
    facts: dict[str, Any] = {}
    if model is not None:
        facts |= model_facts(model)
    if training is not None:
        facts["sequence_length"] = training.sequence_length
        facts["global_batch_size"] = training.global_batch_size
        facts["optimizer"] = training.optimizer
        facts["adapters"] = training.adapter is not None
        facts["packed_documents"] = training.data.source == "documents"
        facts["expert_capacity"] = training.runtime.expert_capacity_factor is not None
    if topology is not None:
        facts["world"] = topology.num_accelerators
        facts["gpus_per_domain"] = max(topology.gpus_per_host, topology.levels[0].size)
        facts["gpus_per_host"] = topology.gpus_per_host
    if layout is not None:
        facts |= _layout_facts(layout)
    return facts


def engine_facts(profile: EngineProfile) -> dict[str, Any]:
    """What an engine runs, as rules on policies need it."""
    return {
        "engine": profile.name,
        "schedules": profile.schedules,
        "zero_stages": profile.zero_stages,
        "recompute_options": profile.recompute,
        "offload_options": profile.offload,
        "cp_methods": profile.cp_methods,
        "default_cp_method": profile.cp_method,
        "vocabulary_multiple": profile.vocabulary_multiple,
        "vocabulary_multiple_per_rank": profile.vocabulary_multiple_per_rank,
    }


def candidate_facts(candidates: Candidates) -> dict[str, Any]:
    """The columns of ``candidates`` as facts, policies by name."""
    columns = {
        f.name: getattr(candidates, f.name) for f in fields(candidates) if f.name != "stage_splits"
    }
    return column_facts(columns, candidates.stage_splits)


def column_facts(
    columns: Mapping[str, IntArray], stage_splits: tuple[tuple[int, ...] | None, ...] = (None,)
) -> dict[str, Any]:
    """Columns coded as in ``Candidates``, with the policies among them by name."""
    facts: dict[str, Any] = dict(columns)
    if "stage_split" in facts:
        facts |= _stage_facts(
            facts.pop("stage_split"), columns["pp"] * columns["vpp"], stage_splits
        )
    for name, names in (("schedule", SCHEDULES), ("recompute", RECOMPUTE)):
        if name in facts:
            facts[name] = np.array(names)[facts[name]]
    if "offload_to" in facts:
        facts["offload"] = np.array(OFFLOAD_NAMES)[facts.pop("offload_to")]
    if "cp_method" in facts:
        facts["cp_method"] = np.array(CP_METHOD_NAMES)[facts["cp_method"]]
    return facts


def with_derived(facts: Facts) -> dict[str, Any]:
    """``facts`` and what follows from them; a name that is given is never overwritten.

    Adds ``data_parallel_size``; ``sequences_per_micro_batch`` (of all data-parallel ranks
    together); ``num_micro_batches`` (of one optimizer step on one data-parallel rank, floor);
    ``cp_exchange`` (the ``cp_method``, or the engine's own where the layout has none).
    """
    known = dict(facts)
    if "default_cp_method" in known:
        method = known.get("cp_method", "none")
        known.setdefault("cp_exchange", _or_default(method, known["default_cp_method"]))
    if {"dp_replicate", "dp_shard"} <= known.keys():
        known.setdefault("data_parallel_size", known["dp_replicate"] * known["dp_shard"])
    if {"data_parallel_size", "micro_batch_size"} <= known.keys():
        known.setdefault(
            "sequences_per_micro_batch", known["data_parallel_size"] * known["micro_batch_size"]
        )
    if {"global_batch_size", "sequences_per_micro_batch"} <= known.keys():
        known.setdefault(
            "num_micro_batches", known["global_batch_size"] // known["sequences_per_micro_batch"]
        )
    return known


def _or_default(method: Any, default: str) -> Any:
    if isinstance(method, str):
        return default if method == "none" else method
    return np.where(method == "none", default, method)


def _layout_facts(layout: LayoutSpec) -> dict[str, Any]:
    facts = {f.name: getattr(layout, f.name) for f in fields(layout)}
    split = facts.pop("stage_layers")
    facts["cp_method"] = layout.cp_method or "none"
    facts["offload"] = layout.offload or "none"
    facts["stage_layers_given"] = split is not None
    if split is not None:
        facts["stage_layers_length"] = len(split)
        facts["stage_layers_sum"] = sum(split)
        facts["stage_layers_min"] = min(split, default=0)
    return facts


def _stage_facts(
    stage_split: IntArray, num_stages: IntArray, splits: tuple[tuple[int, ...] | None, ...]
) -> dict[str, Any]:
    """Given stage splits as columns; where a row has none, what an even split would satisfy."""
    if all(split is None for split in splits):
        return {}
    given = np.array([split is not None for split in splits])[stage_split]
    length = np.array([len(split or ()) for split in splits])[stage_split]
    smallest = np.array([1 if split is None else min(split, default=0) for split in splits])
    total = np.array([sum(split or ()) for split in splits])[stage_split]
    return {
        "stage_layers_given": given,
        "stage_layers_length": np.where(given, length, num_stages),
        "stage_layers_min": smallest[stage_split],
        "stage_layers_sum": np.where(given, total, EVEN_SPLIT),
    }


STAGE_FACTS: tuple[str, ...] = (
    "stage_layers_given",
    "stage_layers_length",
    "stage_layers_min",
    "stage_layers_sum",
)
"""What the column ``stage_split`` decides."""

EVEN_SPLIT = -1
"""``stage_layers_sum`` of a row whose layers are spread evenly: the sum is right by construction."""
