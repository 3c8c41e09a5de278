"""The log of Megatron-LM: ``megatron/training/training.py`` (``training_log``), ``utils/common_utils.py``
(``report_memory``) and ``arguments.py`` (``_print_args``) in the wheel of Megatron-Core 0.19.2; Megatron-
Bridge 0.6.2 prints the same (``bridge/training/utils/train_utils.py``).

The last rank prints iterations: time and loss are means since the last line; that of the first iteration
is printed and not taken out of the next mean. The first rank of every data-parallel group prints its
memory, where MB are 2^20 bytes.
"""

import re
from collections.abc import Iterator

from meshfit.engines.logs.form import LogForm, Printed, number, scaled, whole
from meshfit.engines.logs.lines import Line

_ITERATION = re.compile(
    r"\biteration\s+(?P<step>\d+)/\s*\d+\s*\|(?P<fields>(?:(?!\biteration\s+\d+/).)*)"
)
_FIELD = re.compile(r"\s*(?P<name>[^|:]+?):\s*(?P<value>[^|]*?)\s*\|")
_MEMORY = re.compile(
    r"\[Rank (?P<rank>\d+)\].*? memory \(MB\) \| allocated: [\d.]+ \| max allocated: (?P<allocated>[\d.]+)"
    r" \| reserved: [\d.]+ \| max reserved: (?P<reserved>[\d.]+)\b"
)
_ARGUMENT = re.compile(r"^\s*(?P<name>\w+) \.+ (?P<value>\d+)\s*$")
_ARGUMENTS = {
    "world_size": "world_size",
    "global_batch_size": "global_batch_size",
    "seq_length": "sequence_length",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch_size",
}


def _printed(line: Line) -> Iterator[Printed]:
    for match in _ITERATION.finditer(line.text):
        fields = {one["name"]: one["value"] for one in _FIELD.finditer(match["fields"])}
        milliseconds = number(fields.get("elapsed time per iteration (ms)"))
        if milliseconds is None:
            continue
        flops = number(fields.get("throughput per GPU (TFLOP/s/GPU)"))
        yield Printed(
            step=int(match["step"]),
            step_s=milliseconds / 1000,
            global_batch_size=whole(fields.get("global batch size")),
            loss=number(fields.get("lm loss")),
            gradient_norm=number(fields.get("grad norm")),
            flops_per_s=None if flops is None else flops * 1e12,
        )
    for match in _MEMORY.finditer(line.text):
        yield Printed(
            rank=int(match["rank"]),
            allocated_bytes=scaled(match["allocated"], 2**20),
            reserved_bytes=scaled(match["reserved"], 2**20),
        )


def _stated(text: str) -> dict[str, int]:
    argument = _ARGUMENT.match(text)
    name = _ARGUMENTS.get(argument["name"]) if argument else None
    return {name: int(argument["value"])} if argument and name else {}


LOG = LogForm(
    engine="megatron",
    words="the log of Megatron-LM",
    opening=re.compile(r"\biteration\s+\d+/\s*\d"),
    start=re.compile(r"\[before the start of training step\]"),
    printed=_printed,
    stated=_stated,
    carries_first=True,
    absent={"mfu": "Megatron-LM prints TFLOP/s of a GPU, and no peak to hold it against"},
)
