"""A job that is small enough to run whole in a test."""

import json
from pathlib import Path

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
