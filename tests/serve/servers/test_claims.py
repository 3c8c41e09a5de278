"""What servers' logs claim."""

import pytest

from meshfit.record.serving import ServerClaims
from meshfit.serve.servers.claims import server_claims

VLLM = """
(EngineCore) INFO [gpu_model_runner.py:5150] Model loading took 10.80 GiB memory and 3.1 seconds
(EngineCore) INFO [kv_cache_utils.py:2327] GPU KV cache size: 116,784 tokens
(EngineCore) INFO [gpu_model_runner.py:6475] Estimated CUDA graph memory: 118.65 GiB total
(EngineCore) INFO [gpu_model_runner.py:6582] Graph capturing finished in 20 secs, took 0.46 GiB
"""
CPU = "(EngineCore) INFO CPU KV cache size: 65,536 tokens, Maximum concurrency for 512 tokens: 128x"
SGLANG = "[2026-01-01] max_total_num_tokens=457880, chunked_prefill_size=8192"


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (
            VLLM,
            ServerClaims(
                kv_tokens=116784,
                weights_bytes=round(10.80 * 2**30),
                graph_bytes=round(0.46 * 2**30),
            ),
        ),
        (CPU, ServerClaims(kv_tokens=65536)),
        (SGLANG, ServerClaims(kv_tokens=457880)),
        ("nothing of it", ServerClaims()),
    ],
    ids=["vllm", "vllm-cpu", "sglang", "none"],
)
def test_claims_are_read_from_the_log(tmp_path, text, claims):
    log = tmp_path / "server.log"
    log.write_text(text)
    assert server_claims(log) == claims
