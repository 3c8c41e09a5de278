"""Which kind of job a file holds, and what it is where it holds none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from meshfit.engines.recognise import recognise, recognise_server
from meshfit.errors import InputError
from meshfit.files import is_file, read_text, read_yaml_mapping

JobKind = Literal["training", "serving"]

COMMANDS: Mapping[JobKind, str] = {
    "training": "`meshfit check`, `plan`, `fit`, `run`",
    "serving": "`meshfit serve plan`, `serve simulate`, `serve fit`, `export --to vllm`",
}
"""What takes a job of each kind."""

_MARKS: Mapping[str, str] = {
    "levels": "describes a cluster; a job names it under cluster:",
    "matrix": "describes a cluster; a job names it under cluster:",
    "accelerators": "is a catalogue; MESHFIT_CATALOGUE names it",
    "node_types": "is a catalogue; MESHFIT_CATALOGUE names it",
    "model_type": "is the config of a model; `meshfit model` takes it, and a job names it under model:",
}
"""Keys that tell meshfit's other files."""


def read_job_mapping(path: Path, kind: JobKind) -> dict[str, Any]:
    """The keys of the job of this kind that ``path`` holds.

    Raises:
        InputError: it cannot be read, is a job of the other kind, or another file than a job: says
            which, and what takes it.
    """
    try:
        document = read_yaml_mapping(path)
    except InputError:
        _refuse_file_of_engine(path)
        raise
    if "workload" not in document:
        _refuse_file_of_engine(path)
        for key, words in _MARKS.items():
            if key in document:
                raise InputError(f"{path} {words}")
    found = _kind_of(document)
    if found in COMMANDS and found != kind:
        raise InputError(f"{path} describes {found}, not {kind}; {COMMANDS[found]} take it")
    return document


def _kind_of(document: Mapping[str, Any]) -> Any:
    workload = document.get("workload")
    return workload.get("kind", "training") if isinstance(workload, Mapping) else None


def _refuse_file_of_engine(path: Path) -> None:
    if not is_file(path):
        return
    text = read_text(path)
    form = recognise(text) or recognise_server(text)
    if form is not None:
        raise InputError(f"{path} is {form.words}, no job of meshfit; `meshfit check` takes it")
