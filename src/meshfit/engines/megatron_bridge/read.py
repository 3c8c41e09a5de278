"""Recipes of Megatron-Bridge 0.6 and what a file sets otherwise: a Python function that starts from one, a
command line with ``section.field=value``, or a YAML file of such fields.

A recipe's own values come from ``recipes.tsv``; the file's go before them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from meshfit.engines.engine_file import EngineFile, require_blocks, unknown_options
from meshfit.engines.megatron.fields import as_arguments
from meshfit.engines.megatron.read import LAUNCHER, described, left_open, started_ranks
from meshfit.engines.megatron_bridge.names import option_names
from meshfit.engines.megatron_bridge.recipes import Recipe, recipes
from meshfit.engines.options import option_table
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.python_config import read_python
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.engines.syntax.shell import read_script
from meshfit.errors import nearest_name

_OVERRIDE = re.compile(r"(?:\+{1,2})?([a-z_]+\.[\w.]+|mixed_precision)=(.*)", re.DOTALL)
"""A word of Hydra that sets a field, or adds one."""

_SECTIONS = ("model", "train", "ddp", "optimizer", "dist", "checkpoint", "comm_overlap")
"""Sections whose fields Megatron-LM has as arguments of the same names."""

_STAGE_LETTERS = {"embedding": "E", "loss": "L", "decoder": "t", "mtp": "m"}
_FP8 = {"current": "tensorwise", "mxfp8": "mxfp8", "subchannel": "blockwise"}

_ARCHITECTURE = (
    "model.num_layers",
    "model.hidden_size",
    "model.ffn_hidden_size",
    "model.num_attention_heads",
    "model.num_query_groups",
    "model.num_moe_experts",
    "model.vocab_size",
)


def read_python_file(text: str, num_ranks: int | None) -> EngineFile:
    """What a function that returns a ``ConfigContainer`` says.

    Raises:
        InputError: no such function, or several.
    """
    table = option_table("megatron_bridge")
    sections = [name for name, kind in table.values.items() if kind == "block"]
    found = read_python(text, sections)
    return _file(
        found.settings,
        (found.base or "").rpartition(".")[2],
        num_ranks,
        form="a recipe of Megatron-Bridge",
    )


def read_command(text: str, num_ranks: int | None) -> EngineFile:
    """What a command line says: ``--recipe NAME`` and overrides."""
    script = read_script(text, LAUNCHER)
    options, launcher = Settings(list(script.settings)), Settings(list(script.launcher))
    ranks, hosts = started_ranks(script, launcher, num_ranks)
    file = _file(
        tuple(_overrides(script.positional)),
        options.text("--recipe"),
        ranks,
        form="overrides of a recipe of Megatron-Bridge",
    )
    return replace(file, num_hosts=hosts, notes=(*left_open(script), *file.notes))


def read_yaml_file(text: str, num_ranks: int | None) -> EngineFile:
    """What a YAML file of overrides says; the recipe stands elsewhere."""
    settings = read_yaml(text)
    blocks = [one for one in settings if one.name != "mixed_precision"]  # which may be a name
    require_blocks(blocks, option_table("megatron_bridge"))
    return _file(settings, "", num_ranks, form="a YAML file of Megatron-Bridge")


def _overrides(words: Iterable[Setting]) -> Iterator[Setting]:
    for word in words:
        if (match := _OVERRIDE.fullmatch(word.name)) is not None:
            yield Setting(name=match[1], value=_plain(match[2]), line=word.line)


def _plain(text: str) -> Any:
    """A value as Hydra reads it, which is as YAML does."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _file(
    settings: Sequence[Setting], name: str, num_ranks: int | None, *, form: str
) -> EngineFile:
    recipe = recipes().get(name)
    own = {} if recipe is None else recipe.fields
    defaults = [Setting(name=key, value=_plain(value), line=1) for key, value in own.items()]
    held = {one.name: one for one in (*defaults, *settings) if not isinstance(one.value, dict)}
    options = Settings.filed([*_arguments(held.values()), *_precision(held)])
    file = described(options, num_ranks, {})
    model = file.model or (recipe.repository if recipe else None)
    return replace(
        file,
        form=form,
        settings=tuple(settings),
        unknown=unknown_options(list(settings), option_table("megatron_bridge")),
        model=model,
        facts={**file.facts, "cuda_device_max_connections": _connections(options)},
        notes=(*_notes(recipe, name, settings), *file.notes),
        option_names=option_names(),
    )


def _arguments(held: Iterable[Setting]) -> Iterator[tuple[str, Setting]]:
    """What fields say, as Megatron-LM's arguments."""
    for one in held:
        section, _, field = one.name.partition(".")
        if section in _SECTIONS or one.name == "dataset.seq_length":
            yield from as_arguments(field, replace(one, value=_argument_value(field, one.value)))


def _argument_value(field: str, value: Any) -> Any:
    """The value as an argument has it: ``AttnBackend.flash`` is ``flash``, stages are letters."""
    if field == "pipeline_model_parallel_layout" and isinstance(value, list):
        return "|".join("".join(_STAGE_LETTERS.get(part, "t") for part in stage) for stage in value)
    return value.removeprefix("AttnBackend.") if isinstance(value, str) else value


def _precision(held: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """What ``mixed_precision`` says: a name such as ``bf16_with_fp8_current_scaling_mixed``."""
    said = held.get("mixed_precision", Setting(name="mixed_precision", value="bf16_mixed", line=1))
    text = str(said.value)
    yield ("--fp16" if "fp16" in text else "--bf16"), replace(said, value=True)
    if "fp8" in text:
        recipe = next((ours for theirs, ours in _FP8.items() if theirs in text), "delayed")
        yield "--fp8-format", replace(said, value="hybrid")
        yield "--fp8-recipe", replace(said, value=recipe)


def _connections(options: Settings) -> int:
    """``CUDA_DEVICE_MAX_CONNECTIONS`` as its launchers set it for what is shared out."""
    return 8 if options.is_on("--use-megatron-fsdp") else 1


def _notes(recipe: Recipe | None, name: str, settings: Iterable[Setting]) -> list[str]:
    """What is known of the recipe, and what the file changes of its model."""
    notes = []
    if recipe is not None:
        notes.append(f"what {name}() sets to values that are written out is part of this answer")
    elif name:
        nearest = nearest_name(name, recipes())
        hint = f"; did you mean {nearest}?" if nearest else ""
        notes.append(f"what {name}() sets of its own is not in this answer{hint}")
    else:
        notes.append("what the recipe sets is not in this answer: the file names none")
    changed = [one.name for one in settings if one.name in _ARCHITECTURE]
    if recipe is not None and changed:
        notes.append(f"{', '.join(changed)}: the model is counted as {recipe.repository}")
    return notes
