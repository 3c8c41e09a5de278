"""Options of a server's command line, by the names that its parser files them under.

The parsers of vLLM and SGLang take other names (``-tp``), beginnings that only one option has
(``--tensor-par``) and ``--block.field``; vLLM's also takes underscores for dashes. A YAML file has the
long names without the dashes in front.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshfit.engines.engine_file import UnknownOption, unknown_options
from meshfit.engines.options import OptionTable
from meshfit.engines.serving_file import BudgetNames
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.engines.syntax.shell import Script
from meshfit.errors import InputError, shown

WEIGHTS: Mapping[str, str] = {
    "fp8": "fp8",
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
}
"""``--quantization`` of both engines -> a format of ``serve.setting.quantized.WEIGHT_FORMATS``."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What a file sets.

    Attributes:
        given: as it writes them.
        named: by the engine's own names.
        spelling: own name -> how the file writes it.
        unknown: those that the engine does not know.
        positional: words that belong to no option, such as the model behind ``vllm serve``.
        variables: what a script sets of its environment.
        left_open: references to what a script does not set.
    """

    given: tuple[Setting, ...]
    named: Settings
    spelling: Mapping[str, str]
    unknown: tuple[UnknownOption, ...]
    positional: tuple[Setting, ...] = ()
    variables: Mapping[str, str]
    left_open: tuple[Setting, ...] = ()


def word_counts(table: OptionTable) -> dict[str, str]:
    """Option -> how many values it takes, with underscores too."""
    counts = {name: "one" if count == "block" else count for name, count in table.values.items()}
    return counts | {f"--{name[2:].replace('-', '_')}": counts[name] for name in table.values}


def of_script(script: Script, table: OptionTable) -> ServerOptions:
    """Options of a command."""
    return _options(
        script.settings,
        table,
        positional=script.positional,
        variables=script.variables,
        left_open=script.left_open,
    )


def of_yaml(text: str, table: OptionTable) -> ServerOptions:
    """Options of a YAML file, whose top-level keys are options without the dashes in front."""
    rows = [one for one in read_yaml(text) if "." not in one.name]
    read = _options([replace(one, name=f"--{one.name}") for one in rows], table, variables={})
    return replace(
        read,
        given=tuple(rows),
        spelling={own: name.removeprefix("--") for own, name in read.spelling.items()},
        unknown=tuple(
            replace(one, name=_bare(one.name), nearest=one.nearest and _bare(one.nearest))
            for one in read.unknown
        ),
    )


def _bare(name: str) -> str:
    return name.removeprefix("--")


def _options(
    given: Iterable[Setting],
    table: OptionTable,
    *,
    variables: Mapping[str, str],
    positional: tuple[Setting, ...] = (),
    left_open: tuple[Setting, ...] = (),
) -> ServerOptions:
    given = tuple(given)
    named = [replace(one, name=own_name(one.name, table)) for one in given]
    spelt = zip(given, named, strict=True)
    everything = [*named, *_fields(named, table)]
    return ServerOptions(
        given=given,
        named=Settings(everything),
        spelling={own.name: one.name for one, own in spelt},
        unknown=unknown_options(everything, table),
        positional=positional,
        variables=variables,
        left_open=left_open,
    )


def own_name(name: str, table: OptionTable) -> str:
    """The name that an option is filed under; ``name`` where there is none, or several begin so."""
    option, dot, field = name.partition(".")
    if option not in table.values and option.startswith("--"):
        option = f"--{option[2:].replace('_', '-')}"
    if option not in table.values and option.startswith("--"):
        options = (one for one in table.values if "." not in one and one.startswith(option))
        beginnings = {table.aliases.get(one, one) for one in options}
        option = beginnings.pop() if len(beginnings) == 1 else name.partition(".")[0]
    return f"{table.aliases.get(option, option)}{dot}{field}"


def _fields(named: Iterable[Setting], table: OptionTable) -> Iterator[Setting]:
    """The keys of blocks that are written as JSON, as settings of their own.

    Raises:
        InputError: a block is no JSON object; names the line.
    """
    for one in named:
        if table.values.get(one.name) != "block":
            continue
        held = one.value
        if isinstance(held, str) and held.lstrip().startswith("{"):
            try:
                held = json.loads(held)
            except (ValueError, RecursionError):
                raise InputError(
                    f"line {one.line}: {one.name} {shown(one.value)} is no JSON"
                ) from None
        if isinstance(held, dict):
            yield from (
                Setting(name=f"{one.name}.{key}", value=value, line=one.line)
                for key, value in held.items()
            )


def require_one_file(options: ServerOptions) -> None:
    """Does nothing where all options stand in the file itself.

    Raises:
        InputError: ``--config`` names another one.
    """
    if (config := options.named.get("--config")) is not None:
        raise InputError(
            f"line {config.line}: {config.name} {shown(config.value)} holds options too; put them into "
            f"one file"
        )


def _memory_share(options: ServerOptions, name: str) -> float | None:
    """The share of the device that an option grants.

    Raises:
        InputError: it is none.
    """
    found = options.named.get(name)
    if found is None:
        return None
    share = found.number()
    if not 0 < share <= 1:
        raise InputError(
            f"line {found.line}: {name} {share:g} is no share; above 0 and at most 1 is"
        )
    return share


def stated_memory(
    options: ServerOptions, names: BudgetNames, cache_bytes: Mapping[str, float | None]
) -> dict[str, Any]:
    """What a file says of ``serve.setting.budget.ServingBudget`` beside tokens and sequences.

    Args:
        cache_bytes: of an element of the KV cache, by its type; None: as the model computes.

    Raises:
        InputError: a number is none.
    """
    named, budget = options.named, dict[str, Any]()
    if (share := _memory_share(options, names.memory_fraction)) is not None:
        budget["memory_fraction"] = share
    if (cache := cache_bytes.get(named.text(names.cache_type, default="auto"))) is not None:
        budget["cache_element_bytes"] = cache
    if names.page_tokens in named:
        budget["page_tokens"] = named.count(names.page_tokens)
    if named.is_on(names.no_graphs):
        budget["graph_bytes"] = 0
    return budget


def notes_of(
    options: ServerOptions, not_in_answer: Iterable[str], cache_types: Iterable[str]
) -> list[str]:
    """What a person must know of what was read: what is left open, or known and not predicted."""
    named = options.named
    notes = [
        f"line {one.line}: {one.name} is not set in the file; its options are not in this answer"
        for one in options.left_open
    ]
    set_ = {one.name.partition(".")[0] for one in named.all}
    notes += [f"{name} is not in this answer" for name in not_in_answer if name in set_]
    cache = named.text("--kv-cache-dtype", default="auto")
    if cache not in cache_types:
        notes.append(f"--kv-cache-dtype {cache} is not predicted; the cache is counted in 16 bits")
    quantization = named.text("--quantization")
    if quantization and quantization not in WEIGHTS:
        notes.append(
            f"--quantization {quantization}: weights are counted as the model's config says"
        )
    if named.text("--dtype") in ("float32", "float"):
        notes.append("--dtype float32 is not predicted; weights and cache are counted in 16 bits")
    return notes
