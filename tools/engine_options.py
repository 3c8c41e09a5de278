"""Names of the options that releases of engines know, as small tables of ``meshfit.engines``.

    make engines                 # makes .venv-engines, which this needs
    .venv-engines/bin/python tools/engine_options.py \
        megatron megatron/yaml megatron_bridge torchtitan deepspeed accelerate sglang --wheels .venv-engines/wheels
    $MESHFIT_VLLM_PYTHON tools/engine_options.py vllm    # in an environment of its own

Each table (``engines/NAME/options.tsv``) has the engine's own spelling, how many values it takes
(``flag``, ``one``, ``many`` or a number, or ``block`` for one that holds others) and, behind another name of an
option, the one that it stands for. Names only: no help texts, no defaults. FOLDER: where the wheels of
megatron-core, megatron-bridge and sglang were unpacked: they are for another Python, or ask for
another PyTorch.
"""

import argparse
import ast
import dataclasses
import importlib.metadata
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ENGINES = Path(__file__).resolve().parents[1] / "src" / "meshfit" / "engines"

Row = tuple[str, ...]


def main() -> None:
    tables: dict[str, Callable[[Path], tuple[str, Iterable[Row]]]] = {
        "megatron": lambda wheels: (
            "megatron-core 0.19.2, training/arguments.py",
            megatron(wheels / "megatron_core"),
        ),
        "megatron/yaml": lambda wheels: (
            "megatron-core 0.19.2, --yaml-cfg",
            megatron_yaml(wheels / "megatron_core"),
        ),
        "megatron_bridge": lambda wheels: (
            "megatron-bridge 0.6.2, training/config.py",
            bridge(wheels),
        ),
        "torchtitan": lambda _: (
            f"torchtitan {version('torchtitan')}, Trainer.Config",
            torchtitan(),
        ),
        "deepspeed": lambda _: (
            f"deepspeed {version('deepspeed')}, runtime/config.py",
            deepspeed(),
        ),
        "accelerate": lambda _: (f"accelerate {version('accelerate')}, its YAML", accelerate()),
        "vllm": lambda _: (f"vllm {version('vllm')}, vllm serve", vllm()),
        "sglang": lambda wheels: ("sglang 0.5.23, srt/server_args.py", sglang(wheels / "sglang")),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engines", nargs="+", choices=tables)
    parser.add_argument("--wheels", type=Path, default=Path(), metavar="FOLDER")
    arguments = parser.parse_args()
    for engine in arguments.engines:
        write(engine, *tables[engine](arguments.wheels))


def version(package: str) -> str:
    return importlib.metadata.version(package).partition("+")[0]


def write(engine: str, source: str, rows: Iterable[Row]) -> None:
    """The table of one engine, in order of names."""
    lines = [f"# {source}", "option\tvalues", *("\t".join(row) for row in sorted(set(rows)))]
    (ENGINES / engine).mkdir(exist_ok=True)
    (ENGINES / engine / "options.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(engine, len(lines) - 2)


def megatron(folder: Path) -> Iterator[Row]:
    for action in _megatron_parser(folder)._actions:
        for name in action.option_strings:
            if name.startswith("--") and name != "--help":
                yield name, _values(action)


def _megatron_parser(folder: Path) -> argparse.ArgumentParser:
    import typing_extensions  # noqa: PLC0415

    typing.override = typing_extensions.override  # the wheel is for Python 3.12
    sys.path.insert(0, str(folder))
    from megatron.training.arguments import add_megatron_arguments  # noqa: PLC0415

    return add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def _values(action: argparse.Action) -> str:
    counts = {0: "flag", None: "one", 1: "one", "?": "one", "+": "many", "*": "many"}
    return counts.get(action.nargs, str(action.nargs))


def megatron_yaml(folder: Path) -> Iterator[Row]:
    """Keys of ``--yaml-cfg``: destinations of the arguments, and two blocks that are merged and hold the
    fields of ``TransformerConfig``."""
    for action in _megatron_parser(folder)._actions:
        if action.dest != "help":
            yield action.dest, "one"
    for block in ("language_model", "model_parallel"):
        yield block, "block"
        for field in _Sources([folder / "megatron/core"]).fields("TransformerConfig"):
            yield f"{block}.{field}", "one"


def bridge(wheels: Path) -> Iterator[Row]:
    """``section.field`` of its ``ConfigContainer``, with the fields of base classes."""
    core, own = wheels / "megatron_core/megatron", wheels / "megatron_bridge/megatron/bridge"
    sources = _Sources([own, core / "core", core / "training"])
    for section, kind in sources.annotated("ConfigContainer"):
        names = [name for name in _names(kind) if sources.has(name)]
        yield section, "block" if names or section == "model" else "one"
        for name in names:
            yield from ((f"{section}.{field}", "one") for field in sources.fields(name))
    for provider in ("GPTModelProvider", "MLAModelProvider"):
        yield from ((f"model.{field}", "one") for field in sources.fields(provider))


class _Sources:
    """Dataclasses of some folders by name, earlier folders first."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._classes: dict[str, list[ast.ClassDef]] = {}
        self._imported: dict[int, dict[str, str]] = {}
        for path in (path for folder in folders for path in sorted(folder.rglob("*.py"))):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            imported = dict(_imported_names(tree))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._classes.setdefault(node.name, []).append(node)
                    self._imported[id(node)] = imported

    def has(self, name: str) -> bool:
        return name in self._classes

    def annotated(self, name: str) -> list[tuple[str, ast.expr]]:
        """The fields of the first class of that name, without those of its bases."""
        return _fields(self._classes[name][0])

    def fields(self, name: str) -> Iterator[str]:
        """The names of a class's fields, with those of its bases."""
        yield from self._fields_of(self._classes[name][0])

    def _fields_of(self, node: ast.ClassDef) -> Iterator[str]:
        yield from (field for field, _ in _fields(node) if not field.startswith("_"))
        for base in node.bases:
            name = getattr(base, "id", getattr(base, "attr", ""))
            name = self._imported[id(node)].get(name, name)
            others = [one for one in self._classes.get(name, []) if one is not node]
            if others:
                yield from self._fields_of(others[0])


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name that a module calls it by -> its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((one.asname, one.name) for one in node.names if one.asname)


def _fields(node: ast.ClassDef) -> list[tuple[str, ast.expr]]:
    return [
        (item.target.id, item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def _names(annotation: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]


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


def vllm() -> Iterator[Row]:
    """Options of ``vllm serve``; of a block the fields too, ``--eplb-config.step_interval``."""
    from vllm.config import ParallelConfig, VllmConfig  # noqa: PLC0415
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    hints = typing.get_type_hints(ParallelConfig) | typing.get_type_hints(VllmConfig)
    for action in make_arg_parser(FlexibleArgumentParser())._actions:
        inner = [part for part in _parts(hints.get(action.dest)) if dataclasses.is_dataclass(part)]
        values = "block" if inner else _values(action)
        yield from _named(action.option_strings, values)
        for field in (field for part in inner for field in dataclasses.fields(part)):
            if not field.name.startswith("_"):
                yield f"{action.option_strings[0]}.{field.name}", "one"


def _named(names: list[str], values: str) -> Iterator[Row]:
    """The first long name, the one that negates it, and other names for the first."""
    long = [name for name in names if name.startswith("--") and name != "--help"]
    if not long:
        return
    yield long[0], values
    for name in names:
        if name == f"--no-{long[0].removeprefix('--')}":
            yield name, "flag"
        elif name != long[0]:
            yield name, values, long[0]


def sglang(folder: Path) -> Iterator[Row]:
    """Fields of ``ServerArgs`` (``A[type, help]`` or ``A[type, Arg(...)]``) and what is added by hand.

    Where a field names an action, an option takes one value unless the action's name says a flag.
    """
    groups = folder / "sglang/srt/arg_groups/fields"
    for path in sorted(groups.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id=name),
                    annotation=ast.Subscript(
                        value=ast.Name(id="A"), slice=ast.Tuple(elts=[kind, said])
                    ),
                ):
                    yield from _server_argument(name, ast.unparse(kind), said)
    tree = ast.parse((folder / "sglang/srt/server_args.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=args, keywords=keywords):
                names = [one.value for one in args if isinstance(one, ast.Constant)]
                action = next((ast.unparse(k.value) for k in keywords if k.arg == "action"), "")
                is_flag = "rue" in action and "nargs" not in {k.arg for k in keywords}
                yield from _named(names, "flag" if is_flag else "one")


def _server_argument(name: str, kind: str, said: ast.expr) -> Iterator[Row]:
    given = {k.arg: k.value for k in said.keywords} if isinstance(said, ast.Call) else {}
    if "no_cli" in given:
        return
    own = ast.literal_eval(given["cli_name"]) if "cli_name" in given else f"--{name}"
    names = [own.replace("_", "-"), *ast.literal_eval(given.get("aliases", ast.List(elts=[])))]
    action = ast.unparse(given["action"]) if "action" in given else ""
    values = "one"
    if "Boolean" in action:
        values = "flag"
        names.append(f"--no-{names[0].removeprefix('--')}")
    elif kind.removeprefix("Optional[").startswith("bool") or "rue" in action:
        values = "flag"
    elif "List[" in kind.replace("list[", "List[") and "type_parser" not in given:
        values = "many"
    if "nargs" in ast.unparse(said):
        values = "many"
    yield from _named(names, values)


if __name__ == "__main__":
    main()
