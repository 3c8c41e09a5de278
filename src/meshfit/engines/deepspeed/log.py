"""The log of DeepSpeed 0.19.8: ``utils/timer.py`` (``ThroughputTimer.stop``), ``runtime/engine.py``
(``_report_progress``), ``runtime/pipe/engine.py`` (``train_batch``), ``runtime/utils.py``
(``see_memory_usage``) and ``runtime/config.py`` (``print``).

Rank 0 prints. ``CurrSamplesPerSec`` is the whole batch over the last step alone, from the start of its
first forward to the end of its update; GB are 2^30 bytes. The loss is the training script's to print,
but for the pipeline engine's.
"""

import re
from collections.abc import Iterator

from meshfit.engines.logs.form import LogForm, Printed, clock_seconds, number, scaled
from meshfit.engines.logs.lines import Line

_GB = 2**30
_SPEED = re.compile(
    r"\bglobal_step=(?P<step>\d+), RunningAvgSamplesPerSec=[\w.+-]+, CurrSamplesPerSec=(?P<rate>[\d.e+-]+)"
    r", MemAllocated=[\d.]+GB, MaxMemAllocated=(?P<allocated>[\d.]+)GB"
)
_PIPELINE = re.compile(
    r"\bsteps: (?P<step>\d+) loss: (?P<loss>[\w.+-]+) .*?iter time \(s\): (?P<seconds>[\d.]+)"
    r" samples/sec: [\d.]+"
)
_PROGRESS = re.compile(
    r"\[(?P<clock>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\](?:(?!\[\d{4}-).)*?"
    r"\[Rank 0\] step=(?P<step>\d+), skipped=\d+, lr=.*?, mom=.*\]"
)
_USAGE = re.compile(
    r"\bMA [\d.]+ GB\s+Max_MA (?P<allocated>[\d.]+) GB\s+CA [\d.]+ GB\s+Max_CA (?P<reserved>[\d.]+) GB"
)
_BATCH = re.compile(r"\strain_batch_size \.+ (\d+)\s*$")


def _printed(line: Line) -> Iterator[Printed]:
    text = line.text
    for match in _SPEED.finditer(text):
        yield Printed(
            step=int(match["step"]),
            samples_per_s=number(match["rate"]),
            allocated_bytes=scaled(match["allocated"], _GB),
            rank=0,
        )
    for match in _PIPELINE.finditer(text):
        if line.is_whole or match.end() < len(text):
            yield Printed(
                step=int(match["step"]),
                step_s=number(match["seconds"]),
                loss=number(match["loss"]),
            )
    for match in _PROGRESS.finditer(text):
        yield Printed(step=int(match["step"]), clock_s=clock_seconds(match["clock"]))
    for match in _USAGE.finditer(text):
        yield Printed(
            rank=0,
            allocated_bytes=scaled(match["allocated"], _GB),
            reserved_bytes=scaled(match["reserved"], _GB),
        )


def _stated(text: str) -> dict[str, int]:
    found = _BATCH.search(text)
    return {"global_batch_size": int(found[1])} if found else {}


LOG = LogForm(
    engine="deepspeed",
    words="the log of DeepSpeed",
    opening=re.compile(r"\bglobal_step=\d|\bsteps: \d+ loss|\[Rank 0\] step=\d"),
    start=re.compile(r"DeepSpeed info: version="),
    version=re.compile(r"DeepSpeed info: version=(\d[\w.]*)"),
    printed=_printed,
    stated=_stated,
    absent={
        "mfu": "DeepSpeed prints samples a second, and no peak to hold them against",
        "loss": "printing the loss is the training script's part, but for DeepSpeed's pipeline engine",
    },
)
