"""What recipes of Megatron-Bridge set, as far as layouts, batches and memory depend on it.

    .venv-engines/bin/python tools/bridge_recipes.py .venv-engines/wheels/megatron_bridge

Writes ``engines/megatron_bridge/recipes.tsv``: the name of a recipe, the repository of its model, and
``field=value`` of what its function and those that it starts from set to values that are written out.
Read by the syntax tree; recipes of adapters and those without a repository are left out.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from meshfit.engines.syntax.arithmetic import whole_value

TABLE = Path(__file__).resolve().parents[1] / "src/meshfit/engines/megatron_bridge/recipes.tsv"
RELEASE = "megatron-bridge 0.6.2, recipes"

KEPT = (
    "model.tensor_model_parallel_size",
    "model.pipeline_model_parallel_size",
    "model.virtual_pipeline_model_parallel_size",
    "model.context_parallel_size",
    "model.expert_model_parallel_size",
    "model.expert_tensor_parallel_size",
    "model.sequence_parallel",
    "model.seq_length",
    "dataset.seq_length",
    "model.recompute_granularity",
    "model.recompute_method",
    "model.recompute_num_layers",
    "model.recompute_modules",
    "model.cross_entropy_loss_fusion",
    "model.cross_entropy_fusion_impl",
    "train.global_batch_size",
    "train.micro_batch_size",
    "ddp.use_distributed_optimizer",
    "ddp.overlap_grad_reduce",
    "ddp.overlap_param_gather",
    "ddp.use_megatron_fsdp",
    "ddp.data_parallel_sharding_strategy",
    "mixed_precision",
)

Fields = dict[str, object]


def main() -> None:
    recipes = Path(sys.argv[1]) / "megatron/bridge/recipes"
    modules = {
        ".".join(path.relative_to(sys.argv[1]).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(recipes.rglob("*.py"))
    }
    trees = modules.values()
    for tree in trees:
        _read_constants(tree)
    functions = {
        node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    rows: dict[str, Fields] = {}
    for module, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and re.fullmatch(r"[a-z].*_config", node.name):
                found = dict(_fields_of(node, functions))
                if "repository" in found:
                    rows[node.name] = found | {"module": module}
    for module, tree in modules.items():
        for other, own in _aliases(tree):
            if own in rows and not module.endswith("__init__"):
                rows[other] = rows[own] | {"module": module}
    lines = [f"# {RELEASE}", "recipe\tmodule\trepository\tfields"]
    lines += [_row(name, rows[name]) for name in sorted(rows) if "_peft" not in name]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(lines) - 2, "recipes")


def _row(name: str, found: Fields) -> str:
    fields = " ".join(
        f"{key}={str(found[key]).replace(' ', '')}"
        for key in KEPT
        if key in found and found[key] is not None
    )
    return f"{name}\t{found['module']}\t{found['repository']}\t{fields}"


def _fields_of(
    node: ast.FunctionDef, functions: dict[str, ast.FunctionDef]
) -> Iterator[tuple[str, object]]:
    """What a function sets by plain assignments, behind what the one sets that it starts from."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="cfg")], value=ast.Call(func=ast.Name(id=base))):
                if base == "ConfigContainer":
                    yield from _keywords(statement.value, "")
                elif base in functions:
                    yield from _fields_of(functions[base], functions)
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                key = ast.unparse(target).removeprefix("cfg.")
                if key == "model":
                    yield from _repository(value)
                yield from _constant(key, value)


def _keywords(call: ast.expr, prefix: str) -> Iterator[tuple[str, object]]:
    if isinstance(call, ast.Call):
        for keyword in call.keywords:
            yield from _constant(f"{prefix}{keyword.arg}", keyword.value)
            yield from _keywords(keyword.value, f"{prefix}{keyword.arg}.")


def _constant(key: str, value: ast.expr) -> Iterator[tuple[str, object]]:
    """A value that is written out, or a constant of any module by its name."""
    if isinstance(value, ast.Name) and value.id in CONSTANTS:
        yield key, CONSTANTS[value.id]
        return
    try:
        yield key, ast.literal_eval(value)
    except ValueError:
        yield key, None  # what the recipe started from no longer holds


CONSTANTS: Fields = {}
"""Names in capitals that modules set to whole numbers -> the number."""


def _read_constants(tree: ast.Module) -> None:
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name.isupper():
                number = whole_value(ast.unparse(value))
                if number is not None:
                    assert CONSTANTS.setdefault(name, number) == number, f"{name} has two values"


def _repository(value: ast.expr) -> Iterator[tuple[str, object]]:
    """``AutoBridge.from_hf_pretrained("ORG/NAME")`` anywhere in an expression."""
    for node in ast.walk(value):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="from_hf_pretrained"), args=[ast.Constant(value=name), *_]
            ):
                yield "repository", name


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((one.asname, one.name) for one in node.names if one.asname)


if __name__ == "__main__":
    main()
