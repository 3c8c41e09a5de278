"""Logs of transformers' ``Trainer`` 5.24, which Accelerate runs: what the console shows
(``trainer_callback.py``: ``ProgressCallback.on_log``, ``PrinterCallback.on_log``), and the entries of
``log_history`` in ``trainer_state.json`` (``trainer.py``: ``Trainer.log``), which alone number steps.

The main process prints. ``train_runtime`` stands beside a loss where ``include_num_input_tokens_seen``
is set: seconds since training began. Memory is in the last entry: what the Trainer's own tracker found
(``skip_memory_metrics=False``), or what a script puts there under the names of ``_HIGHEST``.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshfit.engines.logs.form import LogForm, Printed, number, whole
from meshfit.engines.logs.lines import Line

STATE_FILE = "trainer_state.json"
_FIRST_BYTES = 64

_ENTRY = re.compile(r"\{(?:['\"]\w+['\"]: [^{}]*?)\}")
_PAIR = re.compile(r"['\"](?P<name>\w+)['\"]: ['\"]?(?P<value>[^'\",}]+)")
_BATCH = re.compile(
    r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)"
)
_HIGHEST = {
    "max_memory_allocated": "allocated_bytes",
    "max_memory_reserved": "reserved_bytes",
    "max_memory_resident": "resident_bytes",
}
"""Bytes of the rank that has most, after torch.cuda's functions; our own name for host memory."""
_TRACKER = {"gpu": "allocated_bytes", "cpu": "resident_bytes"}


def _printed(line: Line) -> Iterator[Printed]:
    for match in _ENTRY.finditer(line.text):
        entry = {one["name"]: one["value"] for one in _PAIR.finditer(match.group())}
        if "loss" in entry:
            step = whole(entry.get("step"))
            yield Printed(
                step=step,
                is_unnumbered=step is None,
                loss=number(entry["loss"]),
                gradient_norm=number(entry.get("grad_norm")),
                clock_s=number(entry.get("train_runtime")),
            )
        elif "train_steps_per_second" in entry:
            rate = number(entry["train_steps_per_second"])
            yield Printed(run_mean_step_s=1 / rate if rate else None, **_tracked(entry))
        elif memory := _highest(entry):
            yield Printed(**memory)


def _highest(entry: dict[str, str]) -> dict[str, Any]:
    sizes = {of: whole(entry.get(name)) for name, of in _HIGHEST.items()}
    return {of: size for of, size in sizes.items() if size is not None}


def _tracked(entry: dict[str, str]) -> dict[str, Any]:
    """Peaks that the Trainer's tracker found: what was held before, and what each stage added to it."""
    peaks: dict[str, Any] = {}
    for device, kind in _TRACKER.items():
        parts = (
            f"before_init_mem_{device}",
            f"init_mem_{device}_alloc_delta",
            f"train_mem_{device}_alloc_delta",
            f"train_mem_{device}_peaked_delta",
        )
        sizes = [size for part in parts if (size := number(entry.get(part))) is not None]
        if len(sizes) == len(parts):
            peaks[kind] = int(sum(sizes))
    return peaks


def _stated(text: str) -> dict[str, int]:
    found = _BATCH.search(text)
    return {"global_batch_size": int(found[1].replace(",", ""))} if found else {}


def state_lines(path: Path) -> list[Line]:
    """The history in a ``trainer_state.json``, one line an entry; none where the file is none."""
    try:
        with path.open("rb") as file:
            if file.read(_FIRST_BYTES).lstrip()[:1] != b"{":
                return []
        history = json.loads(path.read_bytes())["log_history"]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    return [Line(text=json.dumps(entry)) for entry in history]


LOG = LogForm(
    engine="accelerate",
    words="the log of transformers' Trainer",
    opening=re.compile(r"\{['\"]loss['\"]: "),
    start=re.compile(r"\*\*\*\*\* Running training \*\*\*\*\*"),
    printed=_printed,
    stated=_stated,
    clock_of_run=True,
    absent={"mfu": "transformers' Trainer prints no share of a peak"},
)
