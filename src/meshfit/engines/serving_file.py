"""What a file that starts a server says, and how layouts are written into such files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from meshfit.engines.engine_file import UnknownOption
from meshfit.engines.layout_options import Options
from meshfit.engines.syntax.edit import Style
from meshfit.engines.syntax.setting import Setting


@dataclass(frozen=True, kw_only=True)
class ServingFile:
    """One file, read.

    Attributes:
        engine: name of its profile.
        form: what kind of file it is, in words.
        settings: every option that it sets, as it writes them.
        spelling: an option's own name -> how the file writes it.
        unknown: options that the engine does not know.
        model: name or path of what it serves; None where it does not say.
        weights: a format of ``quantization.weights`` that they are turned into; None: as stored.
        tp: ranks that cut a stage's matrices.
        pp: stages; cp: ranks that prompts are shared out to, each with tp of its own.
        replicas: full ones; ``joins_replicas``: whether those of a mixture of experts share its experts.
        attention_dp: groups of the tp ranks that share out sequences.
        ep: ranks that experts are spread over; ``spreads_experts``: all of a stage, whatever ep says.
        hosts: that it is started on.
        longest_tokens: of a request, prompt and output; None: as many as the model has positions.
        starts_short: whether the server starts where its cache does not hold such a request.
        budget: fields of ``serve.setting.budget.ServingBudget`` that it sets.
        switches: facts for rules of ``mesh.rulebook`` beyond the layout.
        notes: what a person must know of what was read.
    """

    engine: str
    form: str
    settings: tuple[Setting, ...]
    spelling: Mapping[str, str]
    unknown: tuple[UnknownOption, ...] = ()
    model: str | None = None
    weights: str | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    replicas: int = 1
    joins_replicas: bool = False
    attention_dp: int = 1
    ep: int = 1
    spreads_experts: bool = False
    hosts: int = 1
    longest_tokens: int | None = None
    starts_short: bool = False
    budget: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def num_ranks(self) -> int:
        """Accelerators that it takes in all."""
        return self.tp * self.pp * self.cp * self.replicas


class Degrees(Protocol):
    """The part of ``serve.setting.layout.ServingLayout`` that options are written from."""

    @property
    def replicas(self) -> int: ...
    @property
    def tp(self) -> int: ...
    @property
    def pp(self) -> int: ...
    @property
    def ep(self) -> int: ...
    @property
    def attention_dp(self) -> int: ...


ServingWriter = Callable[[Degrees, bool], Options]
"""From a layout, and whether the model is a mixture of experts; raises InputError where the engine has no
options for it."""


@dataclass(frozen=True, kw_only=True)
class BudgetNames:
    """Options of an engine that decide what fits; ``eight_bits`` is a value of ``cache_type``."""

    longest: str
    memory_fraction: str
    cache_type: str
    eight_bits: str
    page_tokens: str
    step_tokens: str
    max_sequences: str
    no_graphs: str


@dataclass(frozen=True, kw_only=True)
class ServingForm:
    """One kind of file that starts a server.

    Attributes:
        words, marks, read, write, style: as of ``recognise.Form``.
        budget: its options of the budget, by the names that ``write`` uses.
    """

    words: str
    marks: tuple[str, ...]
    read: Callable[[str], ServingFile]
    write: ServingWriter
    style: Style
    budget: BudgetNames


def as_written(options: Options, file: ServingFile, style: Style) -> Options:
    """Options by the names that a file gives them: ``-tp``, or ``tensor_parallel_size`` in YAML."""

    def name(option: str) -> str:
        own = option.removeprefix("--") if style.blocks else option
        return file.spelling.get(option, own)

    return {name(option): value for option, value in options.items()}
