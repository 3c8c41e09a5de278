"""What a file of an engine says, in the words of a job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshfit.engines.options import OptionTable
from meshfit.engines.syntax.setting import Setting
from meshfit.errors import InputError, nearest_name, shown
from meshfit.profile import MegatronOptions
from meshfit.workload.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class UnknownOption:
    """An option that this release of the engine does not know; ``nearest`` is one that it does.

    ``is_word``: it is no option but a word that none takes.
    """

    name: str
    line: int
    nearest: str | None
    is_word: bool = False

    @property
    def message(self) -> str:
        if self.is_word:
            return f"line {self.line}: no option takes {shown(self.name)}"
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"line {self.line}: unknown option {self.name}{hint}"


@dataclass(frozen=True, kw_only=True)
class EngineFile:
    """One file, read.

    Attributes:
        engine: name of its profile.
        form: what kind of file it is, in words.
        settings: every option that it sets.
        unknown: options that the engine does not know.
        num_ranks: accelerators that it is for; num_hosts: that they are in; None where it does not say.
        model: the architecture, or a name of it; None where it does not say.
        layout, workload, runtime: keys of a job, as far as they are stated.
        facts: what only this engine's rules ask for, by name.
        accumulation: micro-batches of one step where no global batch is stated.
        notes: what a person must know of what was read.
        is_rewritten: whether better layouts can be written into it.
        megatron: options of Megatron-Core that memory depends on, None for other engines.
        option_names: what such a file calls the options, where its engine's profile has other names.
    """

    engine: str
    form: str
    settings: tuple[Setting, ...]
    unknown: tuple[UnknownOption, ...] = ()
    num_ranks: int | None = None
    num_hosts: int | None = None
    model: ModelSpec | str | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    accumulation: int = 1
    notes: tuple[str, ...] = ()
    is_rewritten: bool = True
    megatron: MegatronOptions | None = None
    option_names: Mapping[str, str] | None = None


def require_blocks(settings: list[Setting], table: OptionTable) -> None:
    """Does nothing where every block that the engine knows holds options, or nothing.

    Raises:
        InputError: one is a plain value; names the line.
    """
    for setting in settings:
        holds = setting.value is None or isinstance(setting.value, dict)
        if table.values.get(setting.name) == "block" and not holds:
            raise InputError(
                f"line {setting.line}: {setting.name} {shown(setting.value)} must be a block of options"
            )


def unknown_options(
    settings: list[Setting], table: OptionTable, also: Mapping[str, Any] | None = None
) -> tuple[UnknownOption, ...]:
    """Settings that neither the engine's release nor ``also`` knows, each with the nearest name.

    Inside a block that is unknown itself, or that holds what a person names, nothing is reported.
    """
    known = {**table.values, **(also or {})}
    found: dict[str, UnknownOption] = {}
    for setting in settings:
        name = _first_unknown(setting.name, known)
        if name is not None and name not in found:
            nearest = _nearest(name, known, name.rpartition(".")[0])
            found[name] = UnknownOption(name=name, line=setting.line, nearest=nearest)
    return tuple(found.values())


def stray_words(words: Iterable[Setting]) -> tuple[UnknownOption, ...]:
    """Words that no option takes, which a parser refuses as it does unknown options."""
    return tuple(
        UnknownOption(name=word.name, line=word.line, nearest=None, is_word=True) for word in words
    )


def _first_unknown(name: str, known: Mapping[str, Any]) -> str | None:
    """The outermost block of an option, or the option itself, that is not known; None where all are."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        prefix = ".".join(parts[:depth])
        if prefix not in known:
            return prefix
        if known[prefix] != "block":
            return None
    return None


def _nearest(name: str, known: Mapping[str, Any], parent: str) -> str | None:
    """The known option that looks most like it: of that name in another block, then of the same block."""
    last = name.rpartition(".")[2]
    moved = [one for one in known if parent and one.endswith(f".{last}")]
    if len(moved) == 1:
        return moved[0]
    siblings = [one for one in known if one.rpartition(".")[0] == parent]
    return nearest_name(name, siblings) or nearest_name(name, known)
