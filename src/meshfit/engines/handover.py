"""What engines' exports are given, and what all of their files begin with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit import __version__
from meshfit.breakdown import Interval, Prediction
from meshfit.cluster.topology import Topology
from meshfit.engines.around.script import HostScript, commented
from meshfit.engines.layout_options import Options, OptionValue
from meshfit.mesh.spec import LayoutSpec
from meshfit.profile import EngineProfile
from meshfit.units import format_bytes, format_duration
from meshfit.workload.model import ModelSpec
from meshfit.workload.training import TrainingSpec

RECOMPUTE_IN_MODEL = "Recomputation is the model's: model.gradient_checkpointing_enable()."
"""What is said where a layout recomputes and the file has no key for it."""

Files = dict[str, str]
"""File name -> text."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """One layout that is to run in an engine.

    Attributes:
        name: of the job, for file names.
        steps: optimizer steps that the files ask for.
    """

    name: str
    layout: LayoutSpec
    model: ModelSpec
    training: TrainingSpec
    topology: Topology
    profile: EngineProfile
    prediction: Prediction | None
    steps: int

    @property
    def num_hosts(self) -> int:
        return -(-self.layout.world_size // self.topology.gpus_per_host)

    @property
    def compiles(self) -> bool:
        """Whether layers go through ``torch.compile``: as the job says, else as the engine does."""
        asked = self.training.runtime.compile
        return self.profile.compiles if asked is None else asked

    @property
    def ranks_per_host(self) -> int:
        return self.layout.world_size // self.num_hosts


def header(given: Handover, status: str) -> list[str]:
    """What a file says of itself: the layout, the engine's version, the prediction, its status."""
    return [*_about(given), f"Status: {status}"]


def about_lines(where: str, profile: EngineProfile, prediction: str) -> tuple[str, ...]:
    """A header without the status; ``where`` names the layout and its ranks."""
    return (
        where,
        f"Written by meshfit {__version__} for {profile.name} {profile.version}.",
        prediction,
    )


def host_script(given: Handover, script: str) -> HostScript:
    """``script`` as what a job starts on every host."""
    return HostScript(
        name=given.name,
        script=script,
        about=_about(given),
        num_hosts=given.num_hosts,
        devices_per_host=given.ranks_per_host,
        accelerator=given.topology.accelerator,
        hosts=given.topology.hosts[: given.num_hosts],
    )


def _about(given: Handover) -> tuple[str, ...]:
    where = f"{given.layout.label} on {given.layout.world_size} ranks."
    return about_lines(where, given.profile, prediction_line(given.prediction))


def names_checked(profile: EngineProfile) -> str:
    """The status of a file whose options are all known to the release."""
    return (
        f"names checked: every option is one of {profile.name} {profile.version}; "
        f"this file has not been run"
    )


def prediction_line(prediction: Prediction | None) -> str:
    """Memory and step time with their intervals, and what binds them."""
    if prediction is None:
        return "No prediction."
    memory, step = prediction.memory_total, prediction.step_time
    basis = step.basis.replace("_", " ")
    return (
        f"Predicted: peak memory {_bytes(memory)} a rank, step time {_seconds(step)},"
        f" bound by {prediction.binding}; basis: {basis}."
    )


def _bytes(interval: Interval) -> str:
    low, high = format_bytes(interval.low), format_bytes(interval.high)
    return f"{format_bytes(interval.middle)} ({low} to {high})"


def _seconds(interval: Interval) -> str:
    low, high = format_duration(interval.low), format_duration(interval.high)
    return f"{format_duration(interval.middle)} ({low} to {high})"


def launch_script(given: Handover, program: str, before: Sequence[str] = ()) -> str:
    """A script that starts ``program`` of its own folder on one host; ``before``: lines in front."""
    return "\n".join(
        [
            "#!/bin/bash",
            *comment(given),
            'cd "$(dirname "$0")" || exit',
            *before,
            *torchrun(given, program),
            "",
        ]
    )


def module_name(kind: str, name: str) -> str:
    """A name that Python can import, of a job's name."""
    return f"{kind}_{re.sub(r'[^a-z0-9_]+', '_', name.lower())[:60]}"


def comment(given: Handover) -> list[str]:
    """The header of a file whose options are all known to the release, as comments."""
    return commented(header(given, names_checked(given.profile)))


def torchrun(given: Handover, program: str) -> list[str]:
    """The lines of a launch that goes on every host."""
    expandable = (
        given.training.runtime.allocator == "expandable" or given.profile.expandable_segments
    )
    return [
        *(["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"] if expandable else []),
        f'NNODES="${{NNODES:-{given.num_hosts}}}"',
        "exec torchrun \\",
        '    --nnodes "$NNODES" \\',
        f"    --nproc-per-node {given.ranks_per_host} \\",
        '    --node-rank "${NODE_RANK:-0}" \\',
        '    --rdzv-backend "${RDZV_BACKEND:-c10d}" \\',
        '    --rdzv-endpoint "${RDZV_ENDPOINT:-localhost:0}" \\',
        f"    {program}",
    ]


def command_words(options: Options) -> list[str]:
    """``--name value`` of each option that is set, one a line."""
    return [
        name if value is True else f"{name} {quoted(value)}"
        for name, value in options.items()
        if value is not None and value is not False
    ]


def quoted(value: OptionValue) -> str:
    """A word of a shell."""
    text = str(value)
    plain = all(character.isalnum() or character in "._-+,:/= " for character in text)
    return text if plain else f'"{text}"'


def nested(options: Options) -> dict[str, object]:
    """Options that are set, by dotted name, as blocks in blocks."""
    tree: dict[str, object] = {}
    for name, value in options.items():
        if value is None:
            continue
        *blocks, last = name.split(".")
        inner = tree
        for block in blocks:
            found = inner.setdefault(block, {})
            assert isinstance(found, dict), f"{block} is a value and a block"
            inner = found
        inner[last] = value
    return tree
