"""A layout as a script with Megatron-LM's arguments."""

from collections.abc import Mapping
from typing import Any

from meshfit.engines.handover import Files, Handover, command_words, comment, torchrun
from meshfit.engines.layout_options import Options
from meshfit.engines.megatron.write import layout_options
from meshfit.engines.training_parts import ANY, Said, require_said
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.blocks.attention import AttentionSpec
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.feed_forward import MlpSpec, MoeSpec
from meshfit.workload.blocks.latent import LatentAttentionSpec
from meshfit.workload.model import LayerSpec, ModelSpec
from meshfit.workload.training import TrainingSpec

SCRIPT = "train.sh"

_WORDS: dict[type[Block], str] = {
    AttentionSpec: "attention",
    LatentAttentionSpec: "latent attention",
    MlpSpec: "dense MLP",
    MoeSpec: "experts",
}

_PRECISIONS = {"bf16_mixed": "--bf16", "fp16_mixed": "--fp16", "fp8_mixed": "--bf16", "fp32": None}
_OPTIMIZERS = {"adamw": "adam", "sgd": "sgd", "muon": "muon"}
_ATTENTION = {"auto": None, "flash": "flash", "cudnn": "fused", "unfused": "unfused"}

SAID: Said = {
    "workload.precision": tuple(_PRECISIONS),
    "workload.optimizer": tuple(_OPTIMIZERS),
    "workload.learning_rate": ANY,
    "workload.weight_decay": ANY,
    "workload.max_grad_norm": ANY,
    "runtime.compile": (False,),
    "runtime.attention": tuple(_ATTENTION),
    "runtime.loss": ("plain", "fused"),
    "runtime.allocator": ANY,
    "runtime.fp8_recipe": ("delayed", "tensorwise", "blockwise", "mxfp8"),
    "runtime.fp8_parameters": ANY,
    "runtime.attention_dropout": ANY,
    "runtime.hidden_dropout": ANY,
    "runtime.overlap_gradients": ANY,
    "runtime.overlap_parameters": ANY,
    "runtime.overlap_tensor_parallel": ANY,
    "runtime.fused_gradient_accumulation": ANY,
    "runtime.expert_capacity_factor": ANY,
}

_NOTES = (
    "# Needs pretrain_gpt.py of Megatron-LM, as MEGATRON/pretrain_gpt.py. Data is mock data: put yours in.",
    "# Scores of a router and scaled positions are Megatron's defaults: set those of the model's own.",
)


def export(given: Handover) -> Files:
    """``train.sh``. It trains on Megatron's mock data with a tokenizer of the right size.

    Raises:
        InputError: Megatron-LM's arguments cannot describe the model, the layout or the training.
    """
    batch = given.training.global_batch_size
    groups: dict[str, Options] = {
        "MODEL_ARGS": model_options(given.model) | _dropouts(given.training, given.model),
        "TRAINING_ARGS": training_options(given.training, given.steps),
        "LAYOUT_ARGS": {
            **layout_options(given.layout, batch),
            "--global-batch-size": batch,
            "--recompute-modules": recompute_modules(given.layout, given.model),
        },
        "DATA_ARGS": {
            "--mock-data": True,
            "--tokenizer-type": "NullTokenizer",
            "--vocab-size": given.model.vocab_size,
        },
    }
    lines = ["#!/bin/bash", *comment(given), *_NOTES, ""]
    if given.layout.zero_stage < 2 and max(given.layout.tp, given.layout.cp) > 1:
        lines.append("export CUDA_DEVICE_MAX_CONNECTIONS=1")
    for name, options in groups.items():
        lines += [f"{name}=(", *(f"    {words}" for words in command_words(options)), ")"]
    arguments = " ".join(f'"${{{name}[@]}}"' for name in groups)
    lines += torchrun(given, f'"${{MEGATRON:-.}}/pretrain_gpt.py" {arguments} "$@"')
    return {SCRIPT: "\n".join(lines) + "\n"}


def recompute_modules(layout: LayoutSpec, model: ModelSpec) -> str | None:
    """Those whose outputs are discarded, of those that the model has; None where none is asked for."""
    if layout.recompute != "operations":
        return None
    has_experts = any(layer.find(MoeSpec) for layer in model.layers)
    is_latent = any(layer.find(LatentAttentionSpec) for layer in model.layers)
    modules = {"layernorm": True, "moe_act": has_experts, "mla_up_proj": is_latent}
    return " ".join(name for name, is_there in modules.items() if is_there)


def model_options(model: ModelSpec) -> Options:
    """The architecture.

    Raises:
        InputError: it has what the arguments do not describe; names it.
    """
    kinds = list(dict.fromkeys(model.layers))
    dense = _one_of(kinds, MlpSpec, model)
    experts = _one_of(kinds, MoeSpec, model)
    if model.encoder or model.towers or model.embedding_size or dense is experts:
        raise InputError(
            f"megatron: {model.name} has more than a decoder; its arguments do not say it"
        )
    mlp = dense if isinstance(dense, MlpSpec) else experts.expert  # type: ignore[union-attr]
    return {
        "--num-layers": model.num_hidden_layers,
        "--hidden-size": model.hidden_size,
        "--ffn-hidden-size": mlp.intermediate_size,
        **_attention(kinds, model),
        "--swiglu": mlp.gated,
        "--disable-bias-linear": not mlp.bias,
        "--normalization": "RMSNorm" if model.norm == "rms_norm" else "LayerNorm",
        "--position-embedding-type": "learned_absolute" if model.learned_positions else "rope",
        "--max-position-embeddings": model.max_position_embeddings,
        "--untie-embeddings-and-output-weights": not model.tie_word_embeddings,
        "--norm-epsilon": _number(model.config, "rms_norm_eps", "layer_norm_epsilon"),
        "--rotary-base": None if model.learned_positions else _rotary_base(model.config),
        "--mtp-num-layers": model.mtp.depth if model.mtp else None,
        **(_experts(experts, model) if isinstance(experts, MoeSpec) else {}),
    }


def _dropouts(training: TrainingSpec, model: ModelSpec) -> Options:
    runtime = training.runtime
    asked = {
        "--attention-dropout": runtime.attention_dropout,
        "--hidden-dropout": runtime.hidden_dropout,
    }
    return {name: str(model.dropout if value is None else value) for name, value in asked.items()}


def _rotary_base(config: Mapping[str, Any]) -> str | None:
    """That of the config, which newer ones have in ``rope_parameters``; None where it says none."""
    parameters = config.get("rope_parameters")
    inner = parameters if isinstance(parameters, Mapping) else {}
    return _number(config, "rope_theta") or _number(inner, "rope_theta")


def _number(config: Mapping[str, Any], *names: str) -> str | None:
    found = (config.get(name) for name in names)
    return next((str(value) for value in found if isinstance(value, int | float)), None)


def _one_of(kinds: list[LayerSpec], kind: type[Block], model: ModelSpec) -> Block | None:
    """The one block of a kind that layers have; None where none has.

    Raises:
        InputError: layers have different ones.
    """
    found = list(dict.fromkeys(block for layer in kinds if (block := layer.find(kind)) is not None))
    if len(found) > 1:
        raise InputError(
            f"megatron: layers of {model.name} have {len(found)} kinds of {_WORDS[kind]}; the arguments "
            f"say one"
        )
    return found[0] if found else None


def _attention(kinds: list[LayerSpec], model: ModelSpec) -> Options:
    softmax = _one_of(kinds, AttentionSpec, model)
    latent = _one_of(kinds, LatentAttentionSpec, model)
    if isinstance(latent, LatentAttentionSpec) and softmax is None:
        return {
            "--num-attention-heads": latent.num_attention_heads,
            "--multi-latent-attention": True,
            "--q-lora-rank": latent.q_lora_rank,
            "--kv-lora-rank": latent.kv_lora_rank,
            "--qk-head-dim": latent.qk_nope_head_dim,
            "--qk-pos-emb-head-dim": latent.qk_rope_head_dim,
            "--v-head-dim": latent.v_head_dim,
        }
    if not isinstance(softmax, AttentionSpec) or latent is not None or _is_special(softmax):
        raise InputError(f"megatron: the arguments do not describe the attention of {model.name}")
    groups = softmax.num_key_value_heads
    is_grouped = groups != softmax.num_attention_heads
    return {
        "--num-attention-heads": softmax.num_attention_heads,
        "--group-query-attention": is_grouped,
        "--num-query-groups": groups if is_grouped else None,
        "--kv-channels": softmax.head_dim,
        "--add-qkv-bias": softmax.qkv_bias and not softmax.output_bias,
        "--qk-layernorm": softmax.qk_norm,
    }


def _is_special(attention: AttentionSpec) -> bool:
    """Whether it has what no argument here says."""
    plain = AttentionSpec(
        num_attention_heads=attention.num_attention_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        qkv_bias=attention.qkv_bias,
        output_bias=attention.output_bias,
        qk_norm=attention.qk_norm,
    )
    return attention != plain


def _experts(experts: MoeSpec, model: ModelSpec) -> Options:
    has_experts = [layer.find(MoeSpec) is not None for layer in model.layers]
    first = has_experts.index(True)
    if not all(has_experts[first:]) or experts.dense is not None or experts.expert_input_size:
        raise InputError(f"megatron: the arguments do not describe the experts of {model.name}")
    shared = experts.shared
    return {
        "--num-experts": experts.num_experts,
        "--moe-router-topk": experts.experts_per_token,
        "--moe-ffn-hidden-size": experts.expert.intermediate_size,
        "--moe-shared-expert-intermediate-size": shared.intermediate_size if shared else None,
        "--moe-shared-expert-gate": experts.shared_gate,
        "--moe-layer-freq": f"([0]*{first}+[1]*{len(has_experts) - first})" if first else None,
        "--moe-grouped-gemm": True,
        "--moe-token-dispatcher-type": "alltoall",
    }


def training_options(training: TrainingSpec, steps: int) -> Options:
    """Batch, sequence, precision, optimizer and runtime.

    Raises:
        InputError: no argument says a part of it.
    """
    require_said("megatron", training, SAID)
    name, runtime = training.precision.name, training.runtime
    options: Options = {
        "--seq-length": training.sequence_length,
        "--train-iters": steps,
        "--lr": str(training.learning_rate),
        "--lr-decay-style": "constant",
        "--weight-decay": str(training.weight_decay),
        "--clip-grad": str(training.max_grad_norm or 0.0),
        "--optimizer": _OPTIMIZERS[training.optimizer],
        "--overlap-grad-reduce": runtime.overlap_gradients or None,
        "--overlap-param-gather": runtime.overlap_parameters or None,
        "--tp-comm-overlap": runtime.overlap_tensor_parallel or None,
        "--no-gradient-accumulation-fusion": runtime.fused_gradient_accumulation is False,
        "--attention-backend": _ATTENTION[runtime.attention],
        "--cross-entropy-loss-fusion": runtime.loss == "fused",
        "--moe-expert-capacity-factor": _optional(runtime.expert_capacity_factor),
    }
    if (flag := _PRECISIONS[name]) is not None:
        options[flag] = True
    if name == "fp8_mixed":
        options |= {
            "--fp8-format": "hybrid",
            "--fp8-recipe": runtime.fp8_recipe or "delayed",
            "--fp8-param-gather": runtime.fp8_parameters,
        }
    return options


def _optional(value: float | None) -> str | None:
    return None if value is None else str(value)
