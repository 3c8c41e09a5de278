"""``docs/job.md``, made from the schemas of job files: ``python -m tools.job_page > docs/job.md``.

A test compares the page with what this writes. A key's meaning is the docstring under it in
``meshfit.job.schema`` and ``meshfit.serve.job.schema``.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from meshfit.job.schema import JobFile, Strict
from meshfit.serve.job.schema import ServingJobFile
from tools.markdown import table
from tools.source_keys import keys_of_class, summary_of

ON_ONE_LAYOUT = "`check`, `compare`, `dryrun`, `run`, `train`, `scale`, `export`"
READ_BY = {
    "layout": f"{ON_ONE_LAYOUT}; `plan` gives its place",
    "rank_order": f"`plan`, `fit`, `topo`, {ON_ONE_LAYOUT}",
    "baseline": "`fit`, which always runs it; `plan` gives its place",
    "search": "`plan`, `fit`; `check` for its changes",
    "run": "`fit`, `run`, `train`, `scale`, `lab run`",
    "budget": "`plan`, `fit`",
    "assume": "`plan`, `fit`, `check`, `compare`, and every other that predicts",
    "calibration": "`plan`, `fit`, `run`, `check`, `compare`",
    "curves": "`plan`, `fit`, `check`, `compare`, and every other that predicts",
}
"""Key of a training job -> the commands that it changes something for; others matter to all."""

SERVED_BY = {
    "workload.targets": "`serve plan`, `serve simulate`, `serve bench`, `serve fit`",
    "workload.speculation": "`serve simulate`, and the predictions of `serve bench` and `serve fit`",
    "serving": "`serve plan`, `serve simulate`, `serve bench --launch`, `serve fit`, `export`",
    "layout": "`serve simulate`, `serve bench`, `serve fit`, `export`",
    "layouts": "`serve fit`",
    "baseline": "`serve fit`",
    "run": "`serve simulate`, `serve bench`, `serve fit`",
    "price": "`serve plan`",
}

_HEAD = """\
# The job file

Every key of `job.yaml`. This page is written by `python -m tools.job_page`; a test keeps it equal to the
schemas. `meshfit init` writes a commented job for this machine; a key that is not known is refused
with the nearest one.

Paths count from the job's folder. Sizes are written as `25 MB` or in bytes, times as `15 min` or in
seconds, counts as `4M` or in full, accelerator time as `4 GPU-h`. *Left out* says what holds for a key that has
no default and is not required.
*Read by* names the commands that a block matters to; blocks without it matter to every command on a job.
"""


def job_page() -> str:
    """The whole page as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## A training job"
    yield from _file(JobFile, READ_BY)
    yield ""
    yield "## A serving job"
    yield ""
    yield "`workload.kind: serving`, for `meshfit serve` and `meshfit export --to vllm|sglang`."
    yield from _file(ServingJobFile, SERVED_BY)


def _file(kind: type[BaseModel], read_by: Mapping[str, str]) -> Iterator[str]:
    yield from _block(kind, "", read_by)
    for path, block in _blocks(kind, ""):
        yield ""
        yield f"### {' and '.join(f'`{one}`' for one in path)}"
        if words := summary_of(block):
            yield ""
            yield words
        yield from _block(block, path[0], read_by)


def _blocks(
    kind: type[BaseModel], prefix: str
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Every block below ``kind`` once, under all keys of one parent that hold it."""
    found: dict[type[BaseModel], list[str]] = {}
    for name, field in kind.model_fields.items():
        for block in _blocks_in(field.annotation):
            found.setdefault(block, []).append(f"{prefix}{name}")
    for block, paths in found.items():
        yield tuple(paths), block
        yield from _blocks(block, f"{paths[0]}.")


def _blocks_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _blocks_in(part)


def _block(kind: type[BaseModel], path: str, read_by: Mapping[str, str]) -> Iterator[str]:
    if path in read_by:
        yield ""
        yield f"Read by: {read_by[path]}."
    schema = kind.model_json_schema()
    meanings = _meanings(kind)
    rows = []
    for name, key in schema["properties"].items():
        whole = f"{path}.{name}" if path else name
        meaning = meanings[name]
        if whole in read_by and path not in read_by:
            meaning += f" Read by: {read_by[whole]}."
        rows.append((f"`{name}`", _type(key), _default(key), meaning))
    yield ""
    yield from table(("key", "type", "default", "meaning"), rows)


def _meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Of all keys of ``kind``, those of its bases too."""
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, Strict)]
    return {
        key.name: key.meaning.replace("None: ", "left out: ")
        for base in bases
        for key in keys_of_class(base)
    }


def _type(key: Mapping[str, Any]) -> str:
    """A key's type as a person writes it: ``integer > 0, or list of them``."""
    if "anyOf" in key:
        kinds = [_type(one) for one in key["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in key:
        return "block"
    if "enum" in key or "const" in key:
        return ", ".join(f"`{_shown(value)}`" for value in key.get("enum", [key.get("const")]))
    if key["type"] == "array":
        return f"list of {_type(key['items'])}"
    name = {"string": "text", "object": "mapping", "boolean": "`true`, `false`"}
    return f"{name.get(key['type'], key['type'])}{_bounds(key)}"


def _bounds(key: Mapping[str, Any]) -> str:
    """`` >= 0, < 1``; the largest number that a computer takes is none."""
    low = [f"> {key[k]:g}" for k in ("exclusiveMinimum", "gt") if k in key]
    low += [f">= {key[k]:g}" for k in ("minimum", "ge") if k in key]
    high = [f"< {key[k]:g}" for k in ("exclusiveMaximum", "lt") if key.get(k, 1e6) < 1e6]
    high += [f"<= {key[k]:g}" for k in ("maximum", "le") if k in key]
    return f" {', '.join(low + high)}" if low or high else ""


def _default(key: Mapping[str, Any]) -> str:
    if "default" not in key:
        return "required"
    value = key["default"]
    if isinstance(value, dict):
        return "the block's" if value else ""
    return "" if value is None or value == [] else f"`{_shown(value)}`"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def keys_without_meaning() -> Sequence[str]:
    """Keys of job files under which no docstring stands."""
    kinds = {JobFile, ServingJobFile}
    for root in (JobFile, ServingJobFile):
        kinds |= {block for _, block in _blocks(root, "")}
    return [
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, meaning in _meanings(kind).items()
        if not re.search(r"\w", meaning)
    ]


if __name__ == "__main__":
    sys.stdout.write(job_page())
