"""torchtitan's console: ``components/metrics.py`` (``MetricsProcessor.log``), ``trainer.py`` and
``distributed/parallel_dims.py`` of 0.3.0; lines of earlier releases without tflops, too.

Every rank prints. Memory is the peak of the allocator's reserve since the last line, ``tps`` tokens a
second and rank over all time since then (``LOG_RANK`` and torchrun's filter decide which ranks show).
"""

import math
import re
from collections.abc import Iterator

from meshfit.engines.logs.form import LogForm, Printed, clock_seconds, number, scaled
from meshfit.engines.logs.lines import Line

_STEP = re.compile(
    r"(?<!validate )\bstep:\s*(?P<step>\d+)\s+loss:\s*(?P<loss>[\w.+-]+)"
    r"(?:\s+grad_norm:\s*(?P<norm>[\w.+-]+))?"
    r"\s+memory:\s*(?P<memory>[\d.]+)GiB\([\d.]+%\)"
    r"\s+(?:tps|wps):\s*(?P<tps>[\d,]+)"
    r"(?:\s+tflops:\s*(?P<tflops>[\d,.]+))?"
    r"\s+mfu:\s*(?:(?P<mfu>[\d.]+)%|N/A)"
)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}(?= - )")
_BATCH = re.compile(
    r"Trainer is initialized with .*?global batch size (?P<batch>\d+),.*?sequence length (?P<length>\d+),"
)
_MESH = re.compile(r"Building device mesh with parallelism: (?P<degrees>[\w=, ]+)")
_AXES_OF_RANKS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def _printed(line: Line) -> Iterator[Printed]:
    clocks = [(match.start(), match.group()) for match in _CLOCK.finditer(line.text)]
    for match in _STEP.finditer(line.text):
        clock = next((text for at, text in reversed(clocks) if at < match.start()), None)
        flops, mfu = number(match["tflops"]), number(match["mfu"])
        yield Printed(
            step=int(match["step"]),
            tokens_per_s_per_rank=number(match["tps"]),
            clock_s=None if clock is None else clock_seconds(clock),
            loss=number(match["loss"]),
            gradient_norm=number(match["norm"]),
            mfu=None if mfu is None else mfu / 100,
            flops_per_s=None if flops is None else flops * 1e12,
            reserved_bytes=scaled(match["memory"], 2**30),
        )


def _stated(text: str) -> dict[str, int]:
    if batch := _BATCH.search(text):
        return {"global_batch_size": int(batch["batch"]), "sequence_length": int(batch["length"])}
    mesh = _MESH.search(text)
    if mesh is None:
        return {}
    degrees = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", mesh["degrees"])}
    if degrees.keys() < set(_AXES_OF_RANKS):
        return {}
    return degrees | {"world_size": math.prod(degrees[axis] for axis in _AXES_OF_RANKS)}


LOG = LogForm(
    engine="torchtitan",
    words="torchtitan's console",
    opening=re.compile(r"(?<!validate )\bstep:\s*\d"),
    start=re.compile(r"Training starts at step \d+"),
    printed=_printed,
    stated=_stated,
    absent={"allocated": "torchtitan prints what the allocator reserves alone"},
)
