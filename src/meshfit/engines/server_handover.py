"""What exports of the engines that serve are given, and the script that they make."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.engines.around.script import HostScript, commented
from meshfit.engines.handover import about_lines, command_words, names_checked
from meshfit.engines.layout_options import Options
from meshfit.engines.serving_file import BudgetNames, Degrees
from meshfit.errors import InputError
from meshfit.profile import EngineProfile

SCRIPT = "serve.sh"


@dataclass(frozen=True, kw_only=True)
class ServerHandover:
    """One layout that is to serve.

    Attributes:
        label: of the layout; accelerators: that it takes.
        model: a repository or folder of the weights.
        notes: what a person must know, for the header.
        prediction: in a sentence.
        memory_fraction, step_tokens, max_sequences: None: the engine's default.
        quantization: that the server does while it loads weights.
        has_small_cache: whether the cache has 8 bits.
        longest_tokens: of a request; None: as many as the model has positions.
    """

    layout: Degrees
    label: str
    accelerators: int
    model: str
    has_experts: bool
    profile: EngineProfile
    gpus_per_host: int
    prediction: str
    notes: tuple[str, ...] = ()
    memory_fraction: float | None = None
    step_tokens: int | None = None
    max_sequences: int | None = None
    quantization: str | None = None
    has_small_cache: bool = False
    longest_tokens: int | None = None

    @property
    def num_hosts(self) -> int:
        """Hosts that the ranks are shared out to evenly.

        Raises:
            InputError: they cannot be.
        """
        hosts = -(-self.accelerators // self.gpus_per_host)
        if self.accelerators % hosts:
            raise InputError(
                f"{self.accelerators} accelerators cannot be shared out to {hosts} hosts of "
                f"{self.gpus_per_host} evenly; replicas are servers of their own, so export one"
            )
        return hosts

    def host_script(self, accelerator: AcceleratorSpec) -> HostScript:
        """The script as what a job starts on every host."""
        return HostScript(
            name=f"{self.profile.name} {self.model}",
            script=SCRIPT,
            about=(*_about(self), *self.notes),
            num_hosts=self.num_hosts,
            devices_per_host=self.accelerators // self.num_hosts,
            accelerator=accelerator,
            serves=True,
        )


def budget_options(given: ServerHandover, names: BudgetNames) -> Options:
    """What decides what fits, by an engine's names; both engines call ``--quantization`` so."""
    fraction = given.memory_fraction
    return {
        names.longest: given.longest_tokens,
        names.memory_fraction: None if fraction is None else f"{fraction:g}",
        names.cache_type: names.eight_bits if given.has_small_cache else None,
        "--quantization": given.quantization,
        names.step_tokens: given.step_tokens,
        names.max_sequences: given.max_sequences,
    }


def server_script(
    given: ServerHandover, command: str, options: Options, before: Sequence[str] = ()
) -> str:
    """A script that starts the server, with what a person adds behind it; ``before``: lines in front."""
    lines = (*_about(given), f"Status: {names_checked(given.profile)}")
    words = [*command_words(options), '"$@"']
    return "\n".join(
        [
            "#!/bin/bash",
            *commented((*lines, *given.notes)),
            f"DEFAULT_MODEL={shlex.quote(given.model)}",
            'MODEL="${MODEL:-$DEFAULT_MODEL}"',
            *before,
            f"exec {command} \\",
            " \\\n".join(f"    {word}" for word in words),
            "",
        ]
    )


def _about(given: ServerHandover) -> tuple[str, ...]:
    where = f"{given.label} on {given.accelerators} accelerators."
    return about_lines(where, given.profile, given.prediction)
