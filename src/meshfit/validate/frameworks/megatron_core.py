"""Megatron-Core as its own tests run it: rows carry the arguments of the training script.

``pretrain_bert.py`` rows have a model name that starts with ``bert/``. Defaults are those of
``megatron/training/arguments.py``.
"""

import math
import re
from dataclasses import replace
from functools import cache

from meshfit.engines.megatron.architecture import with_experts, with_mtp
from meshfit.engines.megatron.read import memory_options
from meshfit.engines.options import option_table
from meshfit.engines.syntax.setting import Settings
from meshfit.engines.syntax.shell import read_script
from meshfit.profile import EngineProfile, MegatronOptions
from meshfit.validate.architecture import model_of
from meshfit.validate.divisions import Defaults
from meshfit.validate.frameworks.assemble import Conventions, assemble
from meshfit.validate.profiles import MEGATRON
from meshfit.validate.row_job import RowJob
from meshfit.validate.rows import NotModelledError, TruthRow
from meshfit.workload.blocks.tensor import Tensor, linear, lookup, norm
from meshfit.workload.model import ModelSpec

GPUS_OF_A_TEST_NODE = 8
"""Where the recipe does not give a node count: one DGX."""


def read(row: TruthRow) -> RowJob:
    """The job of one test.

    Raises:
        NotModelledError: it has something that is not covered.
        InputError: an argument is none that Megatron takes.
    """
    arguments = parse_arguments(row.text("engine_args"))
    if "--data-parallel-sharding-strategy" in arguments and row.text("zero_stage") == "3":
        row = row.completed({"dp_shard": row.text("dp")})
    row = row.completed(_columns(arguments))
    how = Conventions(
        profile=_profile(_options(row, arguments)),
        defaults=Defaults(experts_follow_tp=True),
        memory_of="last",
    )
    return assemble(row, how, _model(row, arguments))


def parse_arguments(line: str) -> Settings:
    """The options of a line, as Megatron's own files are read."""
    return Settings(list(read_script(line, option_table("megatron").values).settings))


def _columns(arguments: Settings) -> dict[str, str]:
    """Columns that a row may lack, from its arguments or their defaults."""
    has, text = arguments.__contains__, arguments.text
    tokens = re.search(r"_(\d+)k\.model", text("--tokenizer-model"))
    batches = re.match(r"0:(\d+)", text("--step-batch-size-schedule"))
    return {
        "n_gpus": str(_ranks(arguments)),
        "vocab": f"{tokens[1]}000" if tokens else "",
        "gbs": batches[1] if batches else "",
        "gated_mlp": str(int(has("--swiglu"))),
        "norm": text("--normalization", default="LayerNorm").lower(),
        "pos_embedding": text("--position-embedding-type", default="learned_absolute"),
        "tied_embeddings": str(int(not has("--untie-embeddings-and-output-weights"))),
        "linear_bias": str(int(not has("--disable-bias-linear"))),
        "attn_dropout": text("--attention-dropout", default="0.1"),
        "hidden_dropout": text("--hidden-dropout", default="0.1"),
        "head_dim": text("--kv-channels"),
        "max_positions": text("--max-position-embeddings"),
        "note": "tp-comm-overlap on" if has("--tp-comm-overlap") else "",
    }


@cache
def _profile(options: MegatronOptions) -> EngineProfile:
    return replace(MEGATRON, megatron=options)


def _options(row: TruthRow, arguments: Settings) -> MegatronOptions:
    """The arguments', but what a row has a column for from there."""
    return replace(
        memory_options(arguments),
        transformer_engine=not row.text("attn").startswith("local"),
        gradient_bytes=4 if row.text("grad_dtype") == "fp32" else None,
        micro_batch_group=row.whole("microbatch_group"),
    )


def _ranks(arguments: Settings) -> int:
    """Those of as few nodes as hold one replica of the model."""
    model_parallel = math.prod(
        arguments.count(f"--{axis}-parallel-size")
        for axis in ("tensor-model", "pipeline-model", "context")
    )
    return math.lcm(GPUS_OF_A_TEST_NODE, model_parallel)


def _model(row: TruthRow, arguments: Settings) -> ModelSpec:
    kind = row.text("model").split("/")[0]
    if kind == "bert":
        binary = "--bert-no-binary-head" not in arguments
        return model_of(row, extra=bert_extra(row.required("hidden"), binary), head_bias=True)
    if kind not in ("gpt", "moe", row.text("model")):
        raise NotModelledError(f"script not modelled: {kind}")
    arch = row.text("arch").replace("moe", "dense")
    model = model_of(TruthRow({**row.columns, "arch": arch}))
    if "--num-experts" in arguments:
        attention = model.layers[0].blocks[0][1]
        layers = with_experts(attention, model.mlp, model.num_hidden_layers, arguments)
        model = replace(model, layers=layers)
    return with_mtp(model, arguments)


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
