"""Megatron-Core as its own tests run it: rows carry the arguments of the training script.

``pretrain_bert.py`` rows have a model name that starts with ``bert/``. Defaults are those of
``megatron/training/arguments.py``.
"""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from meshfit.profile import EngineProfile, MegatronOptions
from meshfit.validate.architecture import model_of
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import MEGATRON
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm
from meshfit.workload.model import LayerSpec, ModelSpec, MoeSpec, MtpSpec

GPUS_OF_A_TEST_NODE = 8
"""Where the recipe does not give a node count: one DGX."""

Arguments = Mapping[str, str]


def read(row: TruthRow) -> RowJob:
    """The job of one test.

    Raises:
        NotModelledError: it has something that is not covered.
    """
    arguments = parse_arguments(row.text("engine_args"))
    if "data-parallel-sharding-strategy" in arguments and row.text("zero_stage") == "3":
        row = row.completed({"dp_shard": row.text("dp")})
    row = row.completed(_columns(arguments))
    how = Conventions(profile=_profile(_options(row, arguments)), memory_of="last")
    return assemble(row, how, _model(row, arguments))


def parse_arguments(line: str) -> Arguments:
    """``--name value`` pairs; several values of one name are joined by spaces, a flag has ``""``."""
    arguments: dict[str, list[str]] = {}
    name = None
    for word in shlex.split(line):
        if re.match(r"--[a-z]", word):
            name, _, value = word[2:].partition("=")
            arguments[name] = [value] if value else []
        elif name is not None:
            arguments[name].append(word)
    return {name: " ".join(words) for name, words in arguments.items()}


def _columns(arguments: Arguments) -> dict[str, str]:
    """Columns that a row may lack, from its arguments or their defaults."""
    has = arguments.__contains__
    tokens = re.search(r"_(\d+)k\.model", arguments.get("tokenizer-model", ""))
    batches = re.match(r"0:(\d+)", arguments.get("step-batch-size-schedule", ""))
    return {
        "n_gpus": str(_ranks(arguments)),
        "vocab": f"{tokens[1]}000" if tokens else "",
        "gbs": batches[1] if batches else "",
        "gated_mlp": str(int(has("swiglu"))),
        "norm": arguments.get("normalization", "LayerNorm").lower(),
        "pos_embedding": arguments.get("position-embedding-type", "learned_absolute"),
        "tied_embeddings": str(int(not has("untie-embeddings-and-output-weights"))),
        "linear_bias": str(int(not has("disable-bias-linear"))),
        "attn_dropout": arguments.get("attention-dropout", "0.1"),
        "hidden_dropout": arguments.get("hidden-dropout", "0.1"),
        "head_dim": arguments.get("kv-channels", ""),
        "max_positions": arguments.get("max-position-embeddings", ""),
        "note": "tp-comm-overlap on" if has("tp-comm-overlap") else "",
    }


@cache
def _profile(options: MegatronOptions) -> EngineProfile:
    return replace(MEGATRON, megatron=options)


def _options(row: TruthRow, arguments: Arguments) -> MegatronOptions:
    has = arguments.__contains__
    limit = int(arguments.get("wgrad-deferral-limit", 0)) or -1
    return MegatronOptions(
        transformer_engine=not row.text("attn").startswith("local"),
        deterministic=has("deterministic-mode"),
        fused_softmax=not has("no-masked-softmax-fusion"),
        softmax_in_fp32=has("attention-softmax-in-fp32") or has("apply-query-key-layer-scaling"),
        attention_mask=not has("no-create-attention-mask-in-dataloader"),
        recompute_modules=tuple(arguments.get("recompute-modules", "core_attn").split()),
        loss_kernel="te" if arguments.get("cross-entropy-fusion-impl") == "te" else "native",
        gradient_bytes=4 if row.text("grad_dtype") == "fp32" else None,
        micro_batch_group=row.whole("microbatch_group"),
        overlap_pipeline_exchange=not has("no-overlap-p2p-communication"),
        deferred_head_gradients=limit if has("defer-embedding-wgrad-compute") else 0,
        grouped_experts=has("moe-grouped-gemm"),
        expert_capacity_factor=float(arguments["moe-expert-capacity-factor"])
        if has("moe-expert-capacity-factor")
        else None,
    )


def _ranks(arguments: Arguments) -> int:
    """Those of as few nodes as hold one replica of the model."""
    model_parallel = math.prod(
        int(arguments.get(f"{axis}-parallel-size", 1))
        for axis in ("tensor-model", "pipeline-model", "context")
    )
    return math.lcm(GPUS_OF_A_TEST_NODE, model_parallel)


def _model(row: TruthRow, arguments: Arguments) -> ModelSpec:
    kind = row.text("model").split("/")[0]
    if kind == "bert":
        binary = "bert-no-binary-head" not in arguments
        return model_of(row, extra=bert_extra(row.required("hidden"), binary), head_bias=True)
    if kind not in ("gpt", "moe", row.text("model")):
        raise NotModelledError(f"script not modelled: {kind}")
    arch = row.text("arch").replace("moe", "dense")
    dense = model_of(TruthRow({**row.columns, "arch": arch}))
    return _with_mtp(_with_experts(dense, row, arguments), arguments)


def _with_experts(model: ModelSpec, row: TruthRow, arguments: Arguments) -> ModelSpec:
    """``model`` with experts in the layers that ``--moe-layer-freq`` names."""
    if "num-experts" not in arguments:
        return model
    dense = model.layers[0]
    width = int(arguments.get("moe-ffn-hidden-size", row.required("ffn_hidden")))
    shared = int(arguments.get("moe-shared-expert-intermediate-size", 0))
    experts = MoeSpec(
        num_experts=int(arguments["num-experts"]),
        experts_per_token=int(arguments.get("moe-router-topk", 2)),
        expert=replace(dense.mlp, intermediate_size=width),
        shared=replace(dense.mlp, intermediate_size=shared) if shared else None,
        shared_gate="moe-shared-expert-gate" in arguments,
    )
    routed = LayerSpec(blocks=(dense.blocks[0], ("mlp", experts)))
    has_experts = layers_with_experts(arguments.get("moe-layer-freq", "1"), len(model.layers))
    layers = tuple(routed if has else dense for has in has_experts)
    return replace(model, layers=layers)


def layers_with_experts(pattern: str, num_layers: int) -> tuple[bool, ...]:
    """``--moe-layer-freq``: every n-th layer from the first on, or a sum of lists times counts
    (``([0]*3+[1]*58)``).

    Raises:
        NotModelledError: it is written otherwise, or has another number of layers.
    """
    if pattern.isdigit():
        return tuple(index % int(pattern) == 0 for index in range(num_layers))
    terms = re.findall(r"\[([01, ]+)\](?:\*(\d+))?", pattern)
    flags = [
        flag == "1"
        for listed, times in terms
        for flag in re.findall("[01]", listed) * int(times or 1)
    ]
    if len(flags) != num_layers:
        raise NotModelledError(f"moe-layer-freq: {pattern}")
    return tuple(flags)


def _with_mtp(model: ModelSpec, arguments: Arguments) -> ModelSpec:
    depth, hidden = int(arguments.get("mtp-num-layers", 0)), model.hidden_size
    if not depth:
        return model
    names = ("enorm", "hnorm", "final_layernorm")
    norms = (t for name in names for t in norm(name, hidden, vectors=model.vectors_per_norm))
    entry = linear("eh_proj", 2 * hidden, hidden, split="column")
    return replace(
        model, mtp=MtpSpec(depth=depth, layers=model.layers[-1:], extra=(*norms, *entry))
    )


def bert_extra(hidden_size: int, binary_head: bool) -> tuple[Tensor, ...]:
    """What BERT has beside layers, embedding, positions and head (``bert_model.py``): the language
    model head's dense and norm; with a binary head, its linear, a pooler and token types."""
    head = (*linear("lm_head.dense", hidden_size, hidden_size, bias=True),
            *norm("lm_head.layer_norm", hidden_size, vectors=2))  # fmt: skip
    if not binary_head:
        return head
    return (
        lookup("embedding.tokentype_embeddings", 2, hidden_size),
        *head,
        *linear("binary_head", hidden_size, 2, bias=True),
        *linear("pooler.dense", hidden_size, hidden_size, bias=True),
    )
