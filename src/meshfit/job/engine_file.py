"""A job from an engine's own file, and from what a person adds that the file does not say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshfit.cluster.files import read_topology
from meshfit.engines.engine_file import EngineFile
from meshfit.engines.recognise import KNOWN, Form, recognise
from meshfit.errors import InputError
from meshfit.files import read_text, validate
from meshfit.job.layout import parse_layout_text
from meshfit.job.read import read_job_file
from meshfit.job.schema import JobFile
from meshfit.job.spec import Job
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import read_model

NAMELESS = "as the file says"
"""In place of a model's name, where an engine's file gives its sizes."""


@dataclass(frozen=True, kw_only=True)
class Added:
    """What a person says beside the file; it goes before what the file says.

    Attributes:
        gpus: accelerators in all; accelerator: a name of the catalogue.
        cluster: a shorthand or a file, in place of both.
        layout: ``tp=4,pp=2``.
    """

    gpus: int | None = None
    accelerator: str | None = None
    cluster: str | None = None
    model: str | None = None
    sequence_length: int | None = None
    global_batch: str | None = None
    micro_batch_size: int | None = None
    layout: str | None = None
    calibration: str | None = None
    assume: str | None = None


def is_engine_file(path: Path) -> bool:
    """Whether a file is one that an engine reads, not a job of meshfit."""
    return path.is_file() and recognise(read_text(path)) is not None


@dataclass(frozen=True, kw_only=True)
class EngineJob:
    """An engine's file with the job that it describes: ``text`` is what was read."""

    job: Job
    file: EngineFile
    form: Form
    text: str


def job_of_engine_file(path: Path, added: Added) -> EngineJob:
    """The job that an engine's file describes, with what a person adds to it.

    Raises:
        InputError: no engine that is known reads such a file; it cannot be read (names the line);
            neither the file nor the person says something that is needed, or it is wrong.
    """
    text = read_text(path)
    form = recognise(text)
    if form is None:
        raise InputError(f"{path} is no file of an engine that is known ({KNOWN})")
    gpus = added.gpus
    if added.cluster is not None:
        gpus = read_topology(added.cluster, Path.cwd()).num_accelerators
    try:
        file = form.read(text, gpus)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return EngineJob(job=_job(path, file, added), file=file, form=form, text=text)


def _job(path: Path, file: EngineFile, added: Added) -> Job:
    _require_said(path, file, added)
    _require_known(file, added)
    layout = dict(file.layout)
    if added.micro_batch_size is not None:
        layout["micro_batch_size"] = added.micro_batch_size
    layout |= parse_layout_text(added.layout) if added.layout else {}
    workload, notes = _workload(file, added, layout)
    document = {
        "schema_version": 1,
        "name": path.stem,
        "model": _model_name(file, added),
        "workload": workload,
        "engine": file.engine,
        "cluster": _cluster(file, added),
        "layout": layout,
    }
    if file.runtime:
        document["runtime"] = dict(file.runtime)
    job = read_job_file(
        validate(JobFile, document, str(path)),
        Path.cwd(),
        name=path.stem,
        model=file.model if added.model is None and isinstance(file.model, ModelSpec) else None,
        calibration=added.calibration,
        assume=added.assume,
        to_run=False,
    )
    profile = job.profile
    if file.megatron is not None:
        profile = replace(profile, megatron=file.megatron)
    if file.option_names is not None:
        profile = replace(profile, option_names=file.option_names)
    return replace(
        job, profile=profile, engine_facts=file.facts, notes=(*job.notes, *file.notes, *notes)
    )


def _require_said(path: Path, file: EngineFile, added: Added) -> None:
    """Does nothing where file and person together say all that a job needs.

    Raises:
        InputError: they do not; names everything that is missing, with the options for it.
    """
    missing = {
        "which model it trains: --model NAME (of the catalogue, or a config.json)": added.model
        is None
        and file.model is None,
        "how long a sequence is: --sequence-length N": added.sequence_length is None
        and "sequence_length" not in file.workload,
        "how many accelerators it is for: --gpus N": added.cluster is None
        and file.num_ranks is None,
        "which they are: --accelerator NAME (such as H100-SXM)": added.cluster is None
        and added.accelerator is None,
    }
    named = [words for words, is_missing in missing.items() if is_missing]
    if named:
        raise InputError(f"{path} ({file.form}) does not say {'; '.join(named)}")


def _require_known(file: EngineFile, added: Added) -> None:
    """Does nothing where the model that a file names is known, or a person names one.

    Raises:
        InputError: it is not known here.
    """
    if added.model is None and isinstance(file.model, str):
        try:
            read_model(file.model)
        except InputError as error:
            raise InputError(f"{error} (--model NAME says which it is like)") from None


def _model_name(file: EngineFile, added: Added) -> str:
    if added.model is not None:
        return added.model
    return file.model if isinstance(file.model, str) else NAMELESS


def _workload(
    file: EngineFile, added: Added, layout: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Keys of the workload, and what a person must know of them."""
    workload = dict(file.workload)
    if added.sequence_length is not None:
        workload["sequence_length"] = added.sequence_length
    if added.global_batch is not None:
        workload["global_batch"] = added.global_batch
    if "global_batch" in workload:
        return workload, ()
    ranks = layout.get("dp_replicate", 1) * layout.get("dp_shard", 1)
    batch = ranks * layout.get("micro_batch_size", 1) * file.accumulation
    note = (
        f"the file has no global batch: {batch} sequences, micro-batches of a rank: "
        f"{file.accumulation} (--global-batch)"
    )
    return {**workload, "global_batch": batch}, (note,)


def _cluster(file: EngineFile, added: Added) -> str:
    """``4x8 H100-SXM``: in the hosts that the file names; else of eight, as most are, and fewer
    accelerators in one."""
    if added.cluster is not None:
        return added.cluster
    assert file.num_ranks is not None, "required before"
    return f"{_shape(file.num_ranks, file.num_hosts or 1)} {added.accelerator}"


GPUS_OF_A_HOST = 8


def _shape(ranks: int, hosts: int) -> str:
    """
    Raises:
        InputError: hosts cannot share the ranks evenly.
    """
    if hosts == 1 and ranks > GPUS_OF_A_HOST and ranks % GPUS_OF_A_HOST == 0:
        hosts = ranks // GPUS_OF_A_HOST
    if ranks % hosts:
        raise InputError(
            f"{ranks} accelerators do not fill {hosts} hosts of the same size; --cluster says which they are"
        )
    return f"{hosts}x{ranks // hosts}"
