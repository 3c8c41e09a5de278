"""What a server says of its own memory while it starts.

These are claims: an engine's profile of itself does not see uneven experts, and an estimate of its
graphs has been larger than the device (vllm#27951, vllm#53013). What the device's own counter says
goes before them (``serve.servers.held``).
"""

import re
from pathlib import Path

from meshfit.record.serving import ServerClaims

_KV_TOKENS = re.compile(
    r"KV cache size: (?P<vllm>[\d,]+) tokens|max_total_num_tokens=(?P<sglang>\d+)"
)
_WEIGHTS_GIB = re.compile(r"Model loading took (?P<gib>[\d.]+) GiB")
_GRAPHS_GIB = re.compile(
    r"Graph capturing finished in \S+ secs, took (?P<took>[\d.]+) GiB"
    r"|Estimated CUDA graph memory: (?P<estimated>[\d.]+) GiB"
)


def server_claims(log: Path) -> ServerClaims:
    """What the log of a server of vLLM or SGLang claims; the last of each where it says it again."""
    text = log.read_text(errors="replace")
    tokens = _last(_KV_TOKENS, text)
    weights, graphs = _last(_WEIGHTS_GIB, text), _last(_GRAPHS_GIB, text)
    return ServerClaims(
        kv_tokens=None if tokens is None else int(tokens.replace(",", "")),
        weights_bytes=None if weights is None else _bytes(weights),
        graph_bytes=None if graphs is None else _bytes(graphs),
    )


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    """The group that the last match has."""
    found = None
    for match in pattern.finditer(text):
        found = match[match.lastgroup or 0]
    return found


def _bytes(gib: str) -> int:
    return round(float(gib) * 2**30)
