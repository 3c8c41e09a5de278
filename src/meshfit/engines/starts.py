"""How the exported files of an engine are started on this machine, and where its log then is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshfit.engines.accelerate.export import CONFIG
from meshfit.engines.accelerate.log import STATE_FILE
from meshfit.engines.accelerate.program import PROGRAM, program
from meshfit.engines.handover import Files, Handover
from meshfit.engines.torchtitan.export import SCRIPT
from meshfit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class EngineStart:
    """A command in the folder of the exported files.

    Attributes:
        files: written beside those.
        command: found on the path of the engine's environment.
        variables: beside this process's own.
        log: file in which the engine leaves its own record of the run; None: what it prints is all.
    """

    command: tuple[str, ...]
    files: Files = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    log: str | None = None


def _accelerate(given: Handover, weights: str | None) -> EngineStart:
    on_cpu = given.topology.accelerator.device_type == "cpu"
    if on_cpu and given.layout.dp_shard > 1:
        raise InputError(
            "accelerate runs FSDP on accelerators alone: on CPU ranks it passes over fsdp_config and "
            "keeps whole replicas, without a word; use dp_replicate"
        )
    return EngineStart(
        files=program(given, weights),
        command=(
            "accelerate",
            "launch",
            "--config_file",
            CONFIG,
            "--main_process_port",
            "0",
            PROGRAM,
        ),
        variables={"ACCELERATE_USE_CPU": "true"} if on_cpu else {},
        log=STATE_FILE,
    )


def _torchtitan(given: Handover, _weights: str | None) -> EngineStart:
    if given.topology.accelerator.device_type == "cpu":
        raise InputError(
            "torchtitan 0.3 trains on GPUs alone: its attention has no backward pass on CPU ranks"
        )
    return EngineStart(command=("bash", SCRIPT))


STARTS: Mapping[str, Callable[[Handover, str | None], EngineStart]] = {
    "accelerate": _accelerate,
    "torchtitan": _torchtitan,
}
"""Engine -> its start, given the layout and a folder of weights (None: random ones).

Raises:
    InputError: the engine cannot run it on these ranks.
"""

NOT_STARTED: Mapping[str, str] = {
    "megatron": "its training script and its data are yours",
    "megatron_bridge": "its recipe and its data are yours",
    "deepspeed": "its file configures a training script, which is yours",
}
"""Engines whose files are exported but not started, and why."""
