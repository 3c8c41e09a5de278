"""Whatever a file of an engine sets, ``meshfit check`` answers with a document or one message."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import MeshfitError

VLLM = (
    "--tensor-parallel-size", "-pp", "--data-parallel-size", "--nnodes", "--max-model-len",
    "--max-num-batched-tokens", "--max-num-seqs", "--gpu-memory-utilization", "--kv-cache-dtype",
    "--block-size", "--decode-context-parallel-size", "--prefill-context-parallel-size",
    "--eplb-config", "--eplb-config.num_redundant_experts", "--quantization", "--dtype",
    "--enable-expert-parallel", "--enable-eplb", "--enforce-eager", "--tensor", "--x",
)  # fmt: skip
SGLANG = (
    "--tp", "--pp-size", "--dp-size", "--attn-dp-size", "--attn-cp-size", "--ep", "--moe-dp-size",
    "--dcp-size", "--nnodes", "--context-length", "--mem-fraction-static", "--page-size",
    "--chunked-prefill-size", "--max-running-requests", "--kv-cache-dtype", "--quantization",
    "--enable-dp-attention", "--enable-prefill-cp", "--disable-cuda-graph", "--max", "--x",
)  # fmt: skip
BRIDGE = (
    "model.tensor_model_parallel_size", "model.pipeline_model_parallel_size",
    "model.virtual_pipeline_model_parallel_size", "model.context_parallel_size",
    "model.expert_model_parallel_size", "model.expert_tensor_parallel_size", "model.seq_length",
    "model.sequence_parallel", "model.pipeline_model_parallel_layout", "model.recompute_granularity",
    "model.recompute_modules", "model.num_layers", "train.micro_batch_size",
    "train.global_batch_size", "ddp.use_distributed_optimizer", "ddp.use_megatron_fsdp",
    "ddp.data_parallel_sharding_strategy", "mixed_precision", "train.x",
)  # fmt: skip
STARTS = {
    "vllm serve Qwen/Qwen3-30B-A3B": VLLM,
    "vllm serve Qwen/Qwen3-8B": VLLM,
    "python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B": SGLANG,
    "torchrun --nproc-per-node 8 run_recipe.py --recipe llama31_8b_pretrain_config": BRIDGE,
}
VALUES = (
    "1", "2", "2", "4", "8", "16", "3", "0", "-1", "1000000000000", "0.5", "0.9", "0.99", "1e9", "nan",
    "32k", "1.5K", "auto", "fp8", "full", "selective", "null", "true", "false", "[[a],[b]]", "'{}'",
    "'{\"step_interval\": 1}'", "'{'", "$X", "no_shard", "optim_grads_params", "''",
)  # fmt: skip


@st.composite
def commands(draw):
    start = draw(st.sampled_from(list(STARTS)))
    chosen = draw(st.lists(st.sampled_from(STARTS[start]), max_size=6, unique=True))
    joint = "=" if STARTS[start] is BRIDGE else " "
    words = [f"{name}{joint}{draw(st.sampled_from(VALUES))}" for name in chosen]
    return " ".join([start, *words])


@given(command=commands())
@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_command_gets_a_document_or_one_message(tmp_path, command):
    (tmp_path / "start.sh").write_text(command + "\n")
    words = ["check", str(tmp_path / "start.sh"), "--json", "--accelerator", "H100-SXM"]
    result = CliRunner().invoke(app, words)
    if isinstance(result.exception, MeshfitError):
        assert str(result.exception)
        assert result.stdout == ""
        return
    assert result.exception is None or isinstance(result.exception, SystemExit), command
    document = json.loads(result.stdout)
    assert document["verdict"] in (None, "fits", "tight", "does_not_fit", "invalid")
    assert (document["verdict"] == "invalid") == bool(
        document["violations"] or document["unknown_options"]
    )
