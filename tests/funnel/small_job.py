"""A job that is small enough to run whole in a test."""

import json
from pathlib import Path

from meshfit.breakdown import MemoryBreakdown
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.mesh.spec import make_layout
from meshfit.record.schema import ParameterGradient, RankReport, RunResult

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}

JOB = """
schema_version: 1
name: small
model: config.json
workload:
  sequence_length: 32
  global_batch: 4 sequences
  precision: fp32
  data: {source: text, path: "${stdlib}/a*.py"}
cluster: {here: {ranks: 2, device: cpu, oversubscribe: true}}
"""


def write_job(folder: Path, more: str = "") -> Path:
    """The small job in ``folder``, with ``more`` lines of YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    path = folder / "job.yaml"
    path.write_text(JOB + more)
    return path


DDP = make_layout({"dp_replicate": 2})
FSDP2 = make_layout({"dp_shard": 2})


def read_small_job(folder: Path, more: str = "") -> Job:
    return read_job(write_job(folder, more))


def read_small_cluster_job(folder: Path, more: str = "") -> Job:
    """The small job on two nodes of one GPU that this machine is none of."""
    path = write_job(folder, more)
    lines = path.read_text().splitlines(keepends=True)
    cluster = "cluster: 2x1 H100-SXM\n"
    path.write_text("".join(cluster if line.startswith("cluster:") else line for line in lines))
    return read_job(path)


def result(loss: float = 5.0) -> RunResult:
    """What a worker on two ranks may have found."""
    steps = 6
    return RunResult(
        losses=(loss,) * steps,
        gradient_norms=(1.0,) * steps,
        useful_tokens_per_step=128,
        gradients=(ParameterGradient(name="lm_head.weight", error=0.0, ratio=1.0),),
        ranks=tuple(
            RankReport(
                rank=rank,
                host="host",
                step_s=(0.1,) * steps,
                input_wait_s=(0.0,) * steps,
                memory=MemoryBreakdown(parameters=100),
            )
            for rank in range(2)
        ),
        environment={"torch": "2.13.0"},
        sample_ids=((0, 1, 2, 3),) * 5,
    )
