"""Models, layouts and the world of one step that the tests of the runner share. No torch here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshfit.funnel.sweep.routing import routing_groups
from meshfit.mesh.spec import AXES, LayoutSpec, make_layout
from meshfit.record.schema import RoutingGroups
from meshfit.workload.families import read_family
from meshfit.workload.training import (
    PRECISIONS,
    AdapterSpec,
    DataSpec,
    RuntimeSpec,
    TrainingSpec,
)

NUM_RANKS = 4
JUDGED_STEPS = 5
SEQUENCE_LENGTH, GLOBAL_BATCH_SIZE = 16, 8

INNERMOST_FIRST = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
"""An order of ranks that turns the engine's own round."""

ADAPTER = AdapterSpec(rank=4)
LESSONS = Path(__file__).parents[2] / "examples" / "lora" / "lessons.jsonl"

_SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip

_DEEP = _SIZES | {"hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 8,
                  "num_key_value_heads": 4}  # fmt: skip
"""What eight ranks can divide along any axis."""

_DEEPSEEK = _SIZES | {"model_type": "deepseek_v3", "num_key_value_heads": 4,
                      "moe_intermediate_size": 32, "n_routed_experts": 8,
                      "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2,
                      "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 16,
                      "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
                      "v_head_dim": 8}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _SIZES | {"model_type": "llama", "num_key_value_heads": 4},
    "llama_tied": _SIZES | {"model_type": "llama", "tie_word_embeddings": True},
    "llama_bias": _SIZES | {"model_type": "llama", "attention_bias": True, "mlp_bias": True,
                            "pad_token_id": 40},
    "llama_bytes": _SIZES | {"model_type": "llama", "vocab_size": 256},
    "llama_uneven": _SIZES | {"model_type": "llama", "vocab_size": 67, "intermediate_size": 50},
    "llama_odd": _SIZES | {"model_type": "llama", "vocab_size": 67},
    "qwen2": _SIZES | {"model_type": "qwen2"},
    "qwen3": _SIZES | {"model_type": "qwen3", "head_dim": 16},
    "mistral": _SIZES | {"model_type": "mistral", "sliding_window": 8},
    "mixtral": _SIZES | {"model_type": "mixtral", "num_local_experts": 8,
                         "num_experts_per_tok": 2},
    "mixtral_auxiliary": _SIZES | {"model_type": "mixtral", "num_local_experts": 8,
                                   "num_experts_per_tok": 2,
                                   "output_router_logits": True, "router_aux_loss_coef": 0.1},
    "qwen3_moe": _SIZES | {"model_type": "qwen3_moe", "head_dim": 16, "num_experts": 8,
                           "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                           "mlp_only_layers": [0], "norm_topk_prob": True},
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v3_dense": _DEEPSEEK | {"first_k_dense_replace": 4, "q_lora_rank": 24},
    "deepseek_v3_full_queries": _DEEPSEEK | {"q_lora_rank": None, "attention_bias": True},
    "phi3": _SIZES | {"model_type": "phi3", "pad_token_id": 0, "bos_token_id": 1,
                      "eos_token_id": 2},
    "llama_deep": _DEEP | {"model_type": "llama"},
    "mixtral_deep": _DEEP | {"model_type": "mixtral", "num_local_experts": 8,
                             "num_experts_per_tok": 2},
    "mixtral_deep_auxiliary": _DEEP | {"model_type": "mixtral", "num_local_experts": 8,
                                       "num_experts_per_tok": 2,
                                       "output_router_logits": True, "router_aux_loss_coef": 0.1},
    "gpt2": {"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 4, "n_head": 4,
             "n_positions": 64},
}  # fmt: skip
"""Name -> raw Hugging Face config. GPT-2's has dropout of 0.1 by default and tied embeddings."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One layout of one model, run and compared with one process."""

    model: str
    keys: dict[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    masked: bool = False
    """Whether most labels of some sequences are padding, so that ranks count unequal tokens."""

    optimizer: str = "adamw"
    rank_order: tuple[str, ...] = AXES
    capacity: float | None = None
    """Copies of tokens that an expert takes from a rank over an even share."""

    groups: RoutingGroups | None = None
    """Of a reference: how ranks of the layout that it stands for share out tokens."""
    adapter: AdapterSpec | None = None
    documents: bool = False
    """Whether sequences are packed prompts and answers, of which only answers count."""

    @property
    def layout(self) -> LayoutSpec:
        return make_layout(self.keys)

    @property
    def reference(self) -> "Case":
        """The same work in one process."""
        return Case(model=self.model, precision=self.precision, masked=self.masked,
                    optimizer=self.optimizer, adapter=self.adapter, documents=self.documents,
                    keys={"micro_batch_size": GLOBAL_BATCH_SIZE},
                    capacity=self.capacity,
                    groups=routing_groups(CONFIGS[self.model], self.training, self.layout))  # fmt: skip

    @property
    def name(self) -> str:
        extras = [self.precision] * (self.precision != "fp32") + ["masked"] * self.masked
        extras += [self.optimizer] * (self.optimizer != "adamw")
        extras += ["lora"] * (self.adapter is not None) + ["documents"] * self.documents
        extras += ["-".join(self.rank_order)] * (self.rank_order != AXES)
        extras += [f"capacity {self.capacity}"] * (self.capacity is not None)
        if self.groups is not None:
            extras += [f"{self.groups.sequences}x{self.groups.shards}"]
        return " ".join([self.model, *extras, self.layout.label])

    @property
    def training(self) -> TrainingSpec:
        return TrainingSpec(
            sequence_length=SEQUENCE_LENGTH,
            global_batch_size=GLOBAL_BATCH_SIZE,
            precision=PRECISIONS[self.precision],
            optimizer=self.optimizer,
            adapter=self.adapter,
            learning_rate=1e-3,
            runtime=RuntimeSpec(expert_capacity_factor=self.capacity),
            data=DataSpec(source="documents", path=str(LESSONS), seed=3)
            if self.documents
            else DataSpec(seed=3),
        )


def has_experts(case: Case) -> bool:
    """Whether its model is a mixture of experts."""
    return read_family(case.model, CONFIGS[case.model]).moe is not None


def _cases(model: str, *layouts: str, **options: Any) -> list[Case]:
    keys = [dict(map(_key, layout.split(","))) for layout in layouts]
    return [Case(model=model, keys=k, **options) for k in keys]


def _key(text: str) -> tuple[str, Any]:
    """A key and its value as ``--layout`` takes them."""
    name, _, value = text.partition("=")
    if value in ("true", "false"):
        return name, value == "true"
    if ":" in value:
        return name, tuple(map(int, value.split(":")))
    return name, int(value) if value.isdigit() else value


CASES: list[Case] = [
    *_cases(
        "llama",
        "dp_replicate=4",
        "dp_replicate=4,micro_batch_size=2",
        "dp_shard=4,zero_stage=1",
        "dp_replicate=2,dp_shard=2,zero_stage=1,micro_batch_size=2",
        "dp_shard=4",
        "dp_shard=4,zero_stage=2",
        "dp_replicate=2,dp_shard=2",
        "tp=4,sp=false,micro_batch_size=8",
        "dp_replicate=2,tp=2,micro_batch_size=2",
        "dp_shard=2,tp=2,micro_batch_size=2",
        "pp=4,schedule=gpipe",
        "pp=4",
        "pp=4,micro_batch_size=2",
        "pp=2,vpp=2,dp_shard=2,micro_batch_size=2",
        "pp=2,dp_shard=2,zero_stage=2,schedule=gpipe,micro_batch_size=2",
        "pp=2,dp_replicate=2,micro_batch_size=2",
        "pp=2,tp=2,micro_batch_size=4",
        "pp=2,dp_shard=2,stage_layers=1:3",
        "pp=2,dp_shard=2,zero_stage=1,micro_batch_size=2",
        "pp=2,vpp=2,dp_shard=2,schedule=looped_bfs",
        "pp=2,vpp=2,dp_shard=2,schedule=dualpipe_v,zero_stage=2",
        "pp=2,vpp=2,dp_replicate=2,schedule=interleaved_zero_bubble,micro_batch_size=2",
        "dp_replicate=4,recompute=full",
        "dp_replicate=4,recompute=operations",
        "dp_shard=4,recompute=selective",
        "pp=4,recompute=full,micro_batch_size=2",
        "pp=4,schedule=gpipe,recompute=alternate,micro_batch_size=2",
        "pp=2,dp_shard=2,recompute=block",
    ),
    *_cases("llama_tied", "dp_replicate=4", "dp_shard=4", "dp_shard=4,zero_stage=1",
            "dp_shard=2,tp=2,micro_batch_size=4", "pp=4,micro_batch_size=2",
            "pp=2,vpp=2,dp_replicate=2,schedule=zbv_zero_bubble"),
    *_cases("llama_bias", "pp=2,tp=2,micro_batch_size=4"),
    *_cases("llama_uneven", "dp_shard=4", "dp_shard=2,tp=2,micro_batch_size=4"),
    *_cases("qwen2", "pp=4"),
    *_cases("qwen3", "dp_replicate=4", "pp=2,tp=2,micro_batch_size=4"),
    *_cases("mistral", "pp=2,tp=2,micro_batch_size=4", "pp=2,dp_replicate=2,micro_batch_size=2",
            "dp_replicate=2,cp=2,cp_method=all_to_all"),
    *_cases("gpt2", "dp_replicate=4", "pp=2,tp=2,micro_batch_size=4"),
    *_cases("phi3", "dp_shard=2,tp=2,micro_batch_size=4"),
    *_cases("llama", "dp_replicate=4", "dp_shard=4", "pp=4", "pp=2,tp=2,micro_batch_size=4",
            precision="bf16_mixed"),
    *_cases("llama", "dp_replicate=4", "dp_shard=4", "pp=4", "pp=2,dp_replicate=2", masked=True),
    *_cases("llama", "dp_shard=4,zero_stage=1", "pp=2,dp_replicate=2,micro_batch_size=2",
            optimizer="sgd"),
    *_cases("llama", "dp_shard=4", optimizer="muon"),
    *_cases("llama", "dp_replicate=2,cp=2", "dp_shard=2,cp=2,cp_method=all_gather",
            "cp=4,cp_method=hierarchical,cp_inner=2,micro_batch_size=4",
            "pp=2,cp=2,cp_method=all_to_all,micro_batch_size=2"),
    *_cases("llama", "pp=2,cp=2,micro_batch_size=2", precision="bf16_mixed"),
    *_cases("llama", "pp=2,tp=2,micro_batch_size=4", "dp_replicate=2,dp_shard=2",
            rank_order=INNERMOST_FIRST),
    *_cases("mixtral", "dp_shard=4,ep=2", "dp_shard=2,cp=2,ep=4,micro_batch_size=4"),
    *_cases("qwen3_moe", "dp_replicate=2,dp_shard=2,ep=2,micro_batch_size=2",
            "pp=2,dp_shard=2,ep=2,micro_batch_size=2"),
    *_cases("mixtral", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4"),
    *_cases("deepseek_v3", "pp=2,dp_shard=2,ep=2,micro_batch_size=2",
            "dp_shard=2,tp=2,ep=2,micro_batch_size=4"),
    *_cases("mixtral", "dp_shard=4,ep=2", precision="bf16_mixed"),
    *_cases("mixtral_auxiliary", "dp_shard=4,ep=2"),
    *_cases("mixtral", "pp=2,dp_shard=2,ep=2,micro_batch_size=2", capacity=1.0),
    *_cases("llama", "dp_shard=4", "dp_replicate=4", adapter=ADAPTER),
    *_cases("llama_bytes", "dp_replicate=4", "dp_replicate=2,cp=2,cp_method=all_to_all",
            documents=True),
]  # fmt: skip
"""The everyday ones: every axis, ZeRO stage, schedule, recompute policy, exchange of attention, family
of models, optimizer and kind of data once or twice, where it is cheapest. What they leave out, mostly
the same under another axis, is in the lists below."""

HEAVY_CASES: list[Case] = [
    *_cases("mixtral", "dp_replicate=4", "dp_shard=4", "dp_shard=4,ep=4", "dp_shard=4,ep=2,zero_stage=2",
            "dp_replicate=2,dp_shard=2,ep=2", "dp_shard=2,tp=2,ep=2,micro_batch_size=2",
            "tp=4,ep=4,micro_batch_size=8", "dp_replicate=2,tp=2,ep=2,micro_batch_size=4",
            "pp=2,tp=2,ep=2,micro_batch_size=4", "pp=2,dp_shard=2,ep=2", "pp=4",
            "dp_shard=2,tp=2,ep=4,micro_batch_size=2,recompute=full"),
    *_cases("qwen3_moe", "dp_replicate=4", "dp_shard=4", "dp_shard=4,ep=2", "dp_shard=4,ep=4",
            "dp_shard=2,tp=2,ep=4,micro_batch_size=2", "pp=2,tp=2,ep=2,micro_batch_size=4",
            "pp=2,dp_replicate=2", "dp_shard=4,ep=2,recompute=full"),
    *_cases("mixtral", "dp_shard=2,tp=2,ep=4,micro_batch_size=4"),
    *_cases("deepseek_v3", "dp_replicate=4", "dp_shard=4", "dp_shard=4,ep=2", "pp=4,micro_batch_size=2",
            "dp_replicate=2,dp_shard=2,ep=2", "dp_shard=4,ep=4,recompute=full"),
    *_cases("mixtral", "dp_shard=4,ep=4", "dp_shard=2,tp=2,ep=2,micro_batch_size=4",
            "pp=2,dp_shard=2,ep=2,micro_batch_size=2", precision="bf16_mixed"),
    *_cases("deepseek_v3", "pp=2,tp=2,ep=2,micro_batch_size=4", "tp=4,ep=4,micro_batch_size=8",
            "dp_replicate=2,tp=2,ep=2,micro_batch_size=4",
            "dp_shard=2,tp=2,ep=4,micro_batch_size=2,recompute=full",
            "dp_shard=2,tp=2,ep=2,micro_batch_size=4,recompute=operations"),
    *_cases("deepseek_v3_full_queries", "dp_shard=2,tp=2,ep=2,micro_batch_size=4"),
    *_cases("deepseek_v3", "dp_shard=4,ep=2", "dp_shard=2,tp=2,ep=2,micro_batch_size=4",
            precision="bf16_mixed"),
    *_cases("deepseek_v3", "dp_shard=2,tp=2,ep=2,micro_batch_size=4", adapter=ADAPTER),
    *_cases("mixtral_auxiliary", "dp_replicate=4", "dp_shard=2,tp=2,ep=2,micro_batch_size=4",
            "dp_shard=4,ep=4,recompute=full"),
    *_cases("mixtral", "dp_replicate=4", "dp_shard=4,ep=4", capacity=1.0),
    *_cases("qwen3_moe", "dp_shard=2,tp=2,ep=2,micro_batch_size=2", capacity=1.0),
    *_cases("deepseek_v3", "dp_shard=4,ep=2,micro_batch_size=2", capacity=0.5),
    *_cases("qwen3_moe", "dp_shard=4,ep=2", masked=True),
    *_cases("mixtral", "tp=4,micro_batch_size=8", "dp_shard=2,tp=2,micro_batch_size=4",
            "tp=4,ep=2,etp=2,micro_batch_size=8", "cp=2,tp=2,ep=2,etp=2,micro_batch_size=4",
            "dp_shard=2,tp=2,ep=2,etp=2,sp=false,micro_batch_size=4",
            "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4,recompute=full",
            "dp_shard=2,tp=2,micro_batch_size=4,recompute=operations"),
    *_cases("qwen3_moe", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4",
            "pp=2,tp=2,micro_batch_size=4", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=2"),
    *_cases("mixtral", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4",
            "pp=2,tp=2,micro_batch_size=4", precision="bf16_mixed"),
    *_cases("mixtral_auxiliary", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4",
            "tp=4,sp=false,micro_batch_size=8"),
    *_cases("qwen3_moe", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=2",
            "dp_replicate=2,tp=2,micro_batch_size=4", capacity=1.0),
    *_cases("mixtral", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4", rank_order=INNERMOST_FIRST),
    *_cases("deepseek_v3", "dp_shard=2,tp=2,ep=2,etp=2,micro_batch_size=4",
            "dp_replicate=2,tp=2,micro_batch_size=4"),
]  # fmt: skip
"""Mixtures of experts under every combination that the runner has for them: `make test-all`."""

STRATEGY_CASES: list[Case] = [
    *_cases(
        "llama",
        "tp=4,micro_batch_size=8",
        "tp=4,micro_batch_size=4",
        "pp=2,dp_shard=2",
        "pp=2,vpp=2,tp=2,micro_batch_size=4",
        "dp_shard=4,recompute=full",
        "tp=2,dp_shard=2,recompute=full,micro_batch_size=4",
        "tp=2,dp_shard=2,recompute=operations,micro_batch_size=4",
        "pp=2,vpp=2,tp=2,schedule=interleaved_zero_bubble,micro_batch_size=2",
        "cp=2,tp=2,micro_batch_size=4",
        "dp_replicate=2,cp=2,recompute=full",
        "pp=2,vpp=2,tp=2,schedule=looped_bfs,micro_batch_size=2",
        "pp=2,vpp=2,tp=2,schedule=zbv_zero_bubble,micro_batch_size=2,recompute=full",
        "pp=2,vpp=2,dp_shard=2,schedule=zbv_zero_bubble,zero_stage=2",
        "pp=2,vpp=2,dp_shard=2,schedule=interleaved_zero_bubble,zero_stage=2",
        "pp=2,vpp=2,dp_replicate=2,schedule=interleaved_zero_bubble",
        "pp=2,vpp=2,tp=2,schedule=dualpipe_v,micro_batch_size=2",
        "pp=2,vpp=2,dp_shard=2,schedule=dualpipe_v,zero_stage=2,stage_layers=1:1:1:1",
        "tp=2,dp_replicate=2,recompute=selective,micro_batch_size=4",
        "tp=2,pp=2,recompute=alternate,micro_batch_size=4",
        "dp_shard=2,tp=2,zero_stage=1,micro_batch_size=2",
        "cp=2,dp_shard=2,zero_stage=1",
    ),
    *_cases("llama_tied", "pp=2,dp_shard=2", "pp=2,tp=2,micro_batch_size=4",
            "dp_replicate=2,tp=2,micro_batch_size=4", "tp=4,micro_batch_size=8",
            "pp=2,vpp=2,tp=2,schedule=dualpipe_v,micro_batch_size=2", "tp=4,sp=false,micro_batch_size=8"),
    *_cases("llama_bias", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4",
            "dp_shard=2,tp=2,micro_batch_size=4"),
    *_cases("llama_uneven", "dp_replicate=2,dp_shard=2", "pp=2,tp=2,micro_batch_size=4"),
    *_cases("llama_odd", "tp=4,micro_batch_size=8"),
    *_cases("qwen3", "tp=4,micro_batch_size=8", "dp_shard=4", "pp=4,micro_batch_size=2",
            "dp_replicate=2,tp=2,micro_batch_size=4", "dp_shard=2,tp=2,sp=false,micro_batch_size=4",
            "cp=2,tp=2,cp_method=all_gather,micro_batch_size=4"),
    *_cases("qwen2", "tp=4,micro_batch_size=8", "dp_shard=2,tp=2,micro_batch_size=4"),
    *_cases("mistral", "dp_shard=4", "dp_shard=2,tp=2,micro_batch_size=4",
            "dp_shard=2,cp=2,cp_method=all_to_all", "cp=4,cp_method=all_gather"),
    *_cases("gpt2", "dp_shard=4,recompute=full", "dp_replicate=2,dp_shard=2",
            "dp_replicate=2,tp=2,sp=false,micro_batch_size=4", "dp_shard=2,cp=2"),
    *_cases("gpt2", "pp=4", "pp=2,dp_shard=2", "dp_shard=2,tp=2,micro_batch_size=4",
            "tp=4,micro_batch_size=8", "tp=2,dp_replicate=2,recompute=selective,micro_batch_size=4"),
    *_cases("phi3", "dp_shard=4", "pp=2,tp=2,micro_batch_size=4", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4"),
    *_cases("llama", "pp=2,vpp=2,dp_shard=2,schedule=dualpipe_v,zero_stage=2",
            "pp=2,vpp=2,tp=2,schedule=zbv_zero_bubble,micro_batch_size=2",
            "dp_shard=4,recompute=operations", "dp_replicate=2,dp_shard=2",
            "dp_replicate=2,tp=2,micro_batch_size=4", "tp=4,micro_batch_size=8", "pp=2,dp_shard=2",
            "dp_shard=4,recompute=full", "dp_shard=2,cp=2", precision="bf16_mixed"),
    *_cases("llama_tied", "pp=2,tp=2,micro_batch_size=4", masked=True),
    *_cases("llama", "dp_replicate=2,tp=2,micro_batch_size=4", "cp=4", masked=True),
    *_cases("llama", "dp_shard=2,tp=2,micro_batch_size=4", optimizer="sgd"),
    *_cases("llama", "dp_replicate=2,tp=2,micro_batch_size=4", "dp_shard=2,tp=2,micro_batch_size=4",
            "pp=2,dp_shard=2", rank_order=INNERMOST_FIRST),
    *_cases("llama", "dp_shard=2,tp=2,micro_batch_size=4", adapter=ADAPTER),
    *_cases("llama_bytes", "dp_shard=2,tp=2,micro_batch_size=4",
            "dp_shard=2,cp=2,cp_method=all_to_all", documents=True),
    *_cases("llama", "pp=2,tp=2,sp=false,micro_batch_size=4", "dp_shard=4,recompute=full",
            "tp=4,micro_batch_size=8", "pp=4", adapter=ADAPTER),
    *_cases("llama_tied", "tp=4,micro_batch_size=8", adapter=ADAPTER),
    *_cases("llama", "dp_shard=2,tp=2,micro_batch_size=4", "dp_replicate=4", "pp=2,dp_replicate=2",
            optimizer="muon"),
    *_cases("gpt2", "pp=2,dp_shard=2", adapter=ADAPTER),
    *_cases("llama_tied", "pp=2,tp=2,micro_batch_size=4", adapter=ADAPTER, precision="bf16_mixed"),
    *_cases("llama_bytes", "dp_shard=4", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4",
            "tp=4,micro_batch_size=8", documents=True, adapter=ADAPTER),
    *_cases("llama", "cp=4,micro_batch_size=2", "cp=4,cp_method=all_to_all",
            "cp=2,tp=2,sp=false,micro_batch_size=4",
            "pp=2,vpp=2,cp=2,cp_method=all_gather,micro_batch_size=4"),
    *_cases("llama_tied", "pp=2,cp=2,micro_batch_size=2"),
    *_cases("gpt2", "cp=4,cp_method=all_to_all"),
    *_cases("llama", "dp_shard=2,cp=2", adapter=ADAPTER),
    *_cases("llama_bytes", "cp=4,cp_method=all_gather,recompute=full", documents=True),
    *_cases("deepseek_v3_dense", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4",
            "dp_shard=2,tp=2,micro_batch_size=4", "tp=4,micro_batch_size=8",
            "pp=2,tp=2,micro_batch_size=4", "cp=2,tp=2,cp_method=all_to_all,micro_batch_size=4",
            "cp=2,tp=2,micro_batch_size=4", "dp_shard=2,cp=2,cp_method=all_gather"),
    *_cases("deepseek_v3_dense", "dp_replicate=2,tp=2,sp=false,micro_batch_size=4", adapter=ADAPTER),
]  # fmt: skip
"""Further combinations, which only ``make test-all`` runs."""
