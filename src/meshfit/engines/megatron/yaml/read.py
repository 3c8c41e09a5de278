"""What a YAML file of Megatron-LM says (``training/yaml_arguments.py`` of 0.19.2).

Blocks ``language_model`` and ``model_parallel`` are merged and hold fields of ``TransformerConfig``; all
else are destinations of arguments. Megatron takes top-level keys that nothing reads without a word.
"""

from collections.abc import Sequence
from dataclasses import replace

from meshfit.engines.engine_file import EngineFile, require_blocks, unknown_options
from meshfit.engines.megatron.fields import as_arguments
from meshfit.engines.megatron.read import described
from meshfit.engines.megatron.yaml.names import option_names
from meshfit.engines.options import OptionTable, option_table
from meshfit.engines.syntax.blocks import read_yaml
from meshfit.engines.syntax.setting import Setting, Settings

_OVERWRITTEN = "virtual_pipeline_model_parallel_size"
"""A field that Megatron works out from ``num_layers_per_virtual_pipeline_stage``."""

_MODEL = "language_model."
_MOST_NAMED = 3


def read(text: str, num_ranks: int | None) -> EngineFile:
    """What the file says.

    Raises:
        InputError: a number is none, or what it says of the model does not add up.
    """
    table = option_table("megatron/yaml")
    settings = read_yaml(text)
    require_blocks(settings, table)
    fields = [(one.name.rpartition(".")[2], one) for one in settings]
    overwritten = [one for field, one in fields if field == _OVERWRITTEN and one.value is not None]
    options = Settings.filed(
        argument
        for field, one in fields
        if field != _OVERWRITTEN
        for argument in as_arguments(field, one)
    )
    file = described(options, num_ranks, {})
    notes = [
        f"line {one.line}: Megatron works {one.name} out of num_layers_per_virtual_pipeline_stage; what "
        f"stands here is overwritten"
        for one in overwritten
    ]
    return replace(
        file,
        form="a YAML file of Megatron-LM",
        settings=tuple(settings),
        unknown=unknown_options(settings, table),
        notes=(*notes, *_left_out(settings, table), *file.notes),
        option_names=option_names(),
    )


def _left_out(settings: Sequence[Setting], table: OptionTable) -> tuple[str, ...]:
    """That Megatron stops where a field of ``TransformerConfig`` is in neither block."""
    given = {one.name.rpartition(".")[2] for one in settings}
    fields = (name.removeprefix(_MODEL) for name in table.values if name.startswith(_MODEL))
    missing = [name for name in fields if name not in given]
    if not missing:
        return ()
    named = ", ".join(missing[:_MOST_NAMED])
    return (
        f"Megatron asks for every field of TransformerConfig in the file, if null; {len(missing)} are not "
        f"there: {named} ...",
    )
