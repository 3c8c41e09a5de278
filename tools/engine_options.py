"""Names of the options that releases of engines know, as small tables of ``meshfit.engines``.

    make engines                 # makes .venv-engines, which this needs
    .venv-engines/bin/python tools/engine_options.py \
        --megatron .venv-engines/wheels/megatron_core --bridge .venv-engines/wheels/megatron_bridge

Each table (``engines/NAME/options.tsv``) has the engine's own spelling and how many values it takes:
``flag``, ``one``, ``many``, or ``block`` for one that holds others. Names only: no help texts, no
defaults. FOLDER: where the wheels of megatron-core and megatron-bridge were unpacked (they are for
another Python).
"""

import argparse
import ast
import dataclasses
import importlib.metadata
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

ENGINES = Path(__file__).resolve().parents[1] / "src" / "meshfit" / "engines"

Row = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megatron", type=Path, required=True)
    parser.add_argument("--bridge", type=Path, required=True)
    arguments = parser.parse_args()
    write("megatron", "megatron-core 0.19.2, training/arguments.py", megatron(arguments.megatron))
    write("megatron_bridge", "megatron-bridge 0.6.2, training/config.py", bridge(arguments.bridge))
    write("torchtitan", f"torchtitan {version('torchtitan')}, Trainer.Config", torchtitan())
    write("deepspeed", f"deepspeed {version('deepspeed')}, runtime/config.py", deepspeed())
    write("accelerate", f"accelerate {version('accelerate')}, its YAML", accelerate())


def version(package: str) -> str:
    return importlib.metadata.version(package)


def write(engine: str, source: str, rows: Iterable[Row]) -> None:
    """The table of one engine, in order of names."""
    lines = [f"# {source}", "option\tvalues", *("\t".join(row) for row in sorted(set(rows)))]
    (ENGINES / engine / "options.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(engine, len(lines) - 2)


def megatron(folder: Path) -> Iterator[Row]:
    import typing_extensions  # noqa: PLC0415

    typing.override = typing_extensions.override  # the wheel is for Python 3.12
    sys.path.insert(0, str(folder))
    from megatron.training.arguments import add_megatron_arguments  # noqa: PLC0415

    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    for action in parser._actions:
        values = {0: "flag", None: "one", "+": "many", "*": "many"}.get(action.nargs, "one")
        for name in action.option_strings:
            if name.startswith("--") and name != "--help":
                yield name, values


def bridge(folder: Path) -> Iterator[Row]:
    """``section.field`` of its ``ConfigContainer``, with the fields of base classes."""
    classes = dict(_classes([folder / "megatron/bridge"]))
    for section, kind in _fields(classes["ConfigContainer"]):
        names = [name for name in _names(kind) if name in classes]
        yield section, "block" if names else "one"
        for name in names:
            yield from ((f"{section}.{field}", "one") for field in _all_fields(name, classes))
    for provider in ("GPTModelProvider", "MLAModelProvider"):
        yield from ((f"model.{field}", "one") for field in _all_fields(provider, classes))


def _classes(folders: Iterable[Path]) -> Iterator[tuple[str, ast.ClassDef]]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node.name, node


def _fields(node: ast.ClassDef) -> list[tuple[str, ast.expr]]:
    return [
        (item.target.id, item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def _names(annotation: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]


def _all_fields(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    node = classes[name]
    yield from (field for field, _ in _fields(node))
    for base in node.bases:
        parent = getattr(base, "id", getattr(base, "attr", None))
        if parent in classes and parent != name:
            yield from _all_fields(parent, classes)


def torchtitan() -> Iterator[Row]:
    from torchtitan.trainer import Trainer  # noqa: PLC0415

    yield from _nested(Trainer.Config, "")


def _nested(kind: type, prefix: str) -> Iterator[Row]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        inner = [part for part in _parts(hints[field.name]) if dataclasses.is_dataclass(part)]
        yield f"{prefix}{field.name}", "block" if inner else "one"
        for part in inner:
            yield from _nested(part, f"{prefix}{field.name}.")


def _parts(hint: object) -> list[object]:
    return [hint, *typing.get_args(hint)]


def deepspeed() -> Iterator[Row]:
    """Top-level keys are constants and literals of ``DeepSpeedConfig``; blocks are pydantic models."""
    from deepspeed.runtime import constants  # noqa: PLC0415
    from deepspeed.runtime.activation_checkpointing import config as checkpointing  # noqa: PLC0415
    from deepspeed.runtime.precision_config import (  # noqa: PLC0415
        DeepSpeedBF16Config,
        DeepSpeedFP16Config,
    )
    from deepspeed.runtime.tensor_parallel.config import TPTrainingConfig  # noqa: PLC0415
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # noqa: PLC0415

    blocks = {
        "zero_optimization": DeepSpeedZeroConfig,
        "tensor_parallel": TPTrainingConfig,
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
    }
    for name, model in blocks.items():
        yield name, "block"
        yield from _pydantic(model, f"{name}.")
    yield checkpointing.ACT_CHKPT, "block"
    for key, value in vars(checkpointing).items():
        if key.startswith("ACT_CHKPT_") and not key.endswith("DEFAULT") and isinstance(value, str):
            yield f"{checkpointing.ACT_CHKPT}.{value}", "one"
    known = {name for name, _ in _top_level(constants)}
    yield from ((name, "one") for name in known - set(blocks) - {checkpointing.ACT_CHKPT})


def _pydantic(model: type, prefix: str) -> Iterator[Row]:
    for name, field in model.model_fields.items():
        inner = [part for part in _parts(field.annotation) if hasattr(part, "model_fields")]
        for spelling in {name, field.alias or name}:
            yield f"{prefix}{spelling}", "block" if inner else "one"
            for part in inner:
                yield from _pydantic(part, f"{prefix}{spelling}.")


def _top_level(constants: object) -> Iterator[Row]:
    """Keys that the sources ask a configuration for: ``get_scalar_param(param_dict, NAME, ...)``,
    ``param_dict.get(NAME)``, ``param_dict[NAME]``, ``NAME in param_dict``."""
    import deepspeed  # noqa: PLC0415

    paths = sorted(Path(deepspeed.__file__).parent.rglob("*.py"))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    elsewhere: dict[str, str] = {}  # constants are imported from modules of that name
    for path, tree in zip(paths, trees, strict=True):
        if path.stem in ("constants", "config"):
            elsewhere |= _string_constants(tree)
    for tree in trees:
        literals = {**elsewhere, **_string_constants(tree), **vars(constants)}
        for node in ast.walk(tree):
            for asked in _asked(node):
                value = asked.value if isinstance(asked, ast.Constant) else None
                if isinstance(asked, ast.Name):
                    value = literals.get(asked.id)
                if isinstance(value, str) and value.replace("_", "").isalnum():
                    yield value, "one"


def _string_constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


_DICTS = {"param_dict", "ds_config", "config", "_param_dict", "pd", "ds_config_dict"}


def _is_dict(node: ast.expr) -> bool:
    return getattr(node, "id", getattr(node, "attr", None)) in _DICTS


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[asked_of, key, *_]) if name.startswith(
            "get_"
        ) and _is_dict(asked_of):
            yield key
        case ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg=name), *_], defaults=defaults)):
            if name in _DICTS:  # a key that is asked for unless the caller names another
                yield from (one for one in defaults if not ast.unparse(one).endswith("_DEFAULT"))
        case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[key, *_]) if _is_dict(
            value
        ):
            yield key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]):
            if _is_dict(getattr(getattr(value, "func", None), "value", value)):  # or of its keys()
                yield key
        case ast.Subscript(value=ast.Name(id="param_dict"), slice=key):
            yield key
        case ast.DictComp(value=value, generators=[ast.comprehension(iter=ast.Tuple(elts=keys))]):
            if list(_asked(value)):
                yield from keys


_GROUPS_OF_BLOCKS = {
    "fsdp_config": "FSDP Arguments",
    "parallelism_config": "ParallelismConfig",
    "deepspeed_config": "DeepSpeed Arguments",
    "megatron_lm_config": "Megatron-LM Arguments",
    "fp8_config": "FP8 Arguments",
    "mpirun_config": "MPI Arguments",
}
"""Block of the YAML -> group of arguments of ``accelerate launch`` that it fills in."""

_PREFIXES = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""What ``accelerate launch`` puts in front of a block's keys where it is left out."""


def accelerate() -> Iterator[Row]:
    from accelerate.commands.config.config_args import ClusterConfig  # noqa: PLC0415
    from accelerate.commands.launch import launch_command_parser  # noqa: PLC0415

    parser = launch_command_parser()
    for field in dataclasses.fields(ClusterConfig):
        yield field.name, "block" if field.name.endswith("_config") else "one"
    names = {
        block: [action.dest for action in group._group_actions]
        for block, title in _GROUPS_OF_BLOCKS.items()
        for group in parser._action_groups
        if group.title and group.title.startswith(title)
    }
    names["dynamo_config"] = [a.dest for a in parser._actions if a.dest.startswith("dynamo_")]
    for block, listed in names.items():
        for name in (*listed, *_asked_for(block)):
            yield f"{block}.{name}", "one"
            yield f"{block}.{name.removeprefix(_PREFIXES.get(block, ''))}", "one"


def _asked_for(block: str) -> Iterator[str]:
    """Keys that ``accelerate config`` writes into a block: ``BLOCK["name"] = ...``."""
    from accelerate.commands.config import cluster  # noqa: PLC0415

    for node in ast.walk(ast.parse(Path(cluster.__file__).read_text(encoding="utf-8"))):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
                if name == block:
                    yield key


if __name__ == "__main__":
    main()
