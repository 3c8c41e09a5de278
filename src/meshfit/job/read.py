"""From a job file to a ``Job``: names resolved, quantities parsed, everything cross-checked."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

from meshfit.cluster.files import read_topology
from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.files import is_file, validate
from meshfit.job.budget import device_seconds, positive_duration, read_budget
from meshfit.job.found import FoundJob
from meshfit.job.key_values import key_values
from meshfit.job.kinds import read_job_mapping
from meshfit.job.layout import (
    baseline_of,
    layout_keys,
    layout_of_keys,
    parse_layout_text,
    schedule_of_text,
)
from meshfit.job.schema import AssumeFile, JobFile, RunFile, SearchFile
from meshfit.job.spec import Job, RunSpec
from meshfit.job.training import (
    power_limited,
    require_run,
    without_bf16,
)
from meshfit.job.workload import training_of
from meshfit.mesh.orders import whole_order
from meshfit.mesh.search import SearchSpec
from meshfit.profile import EngineProfile
from meshfit.record.probe import default_curves_path
from meshfit.record.residuals import default_calibration_path
from meshfit.units import parse_fraction
from meshfit.workload.config_file import is_folder
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import catalogue, read_model

NO_CALIBRATION = "none"
"""In place of a calibration file: formulas alone."""


def read_job(
    path: Path,
    *,
    layout: str | None = None,
    engine: str | None = None,
    rank_order: str | None = None,
    calibration: str | None = None,
    assume: str | None = None,
    to_run: bool = True,
) -> Job:
    """The job that ``path`` describes; ``layout`` (``tp=4,pp=2``) overrides keys of its layout.

    Relative paths inside the file count from its folder. Keys that the layout leaves out mean what
    they mean to the engine.

    Args:
        engine: goes before the file's own.
        rank_order: ``tp,dp_replicate``: the order in which ranks are laid over the axes, the
            outermost first; goes before the file's own.
        calibration: a file relative to the working folder, or ``none``; goes before the job's.
        assume: ``straggler=1.05,contention=2``: goes before keys of the job's.
        to_run: the job is to be run or exported here, which the native engine alone is; False
            where it is only planned or checked.

    Raises:
        InputError: anything wrong in the file or in what it names.
    """
    found = FoundJob.at(path)
    return read_job_file(
        validate(JobFile, read_job_mapping(found.path, "training"), str(found.path)),
        found.base,
        name=found.name,
        layout=layout,
        engine=engine,
        rank_order=rank_order,
        calibration=calibration,
        assume=assume,
        to_run=to_run,
    )


def read_job_file(
    file: JobFile,
    base: Path,
    *,
    name: str,
    model: ModelSpec | None = None,
    layout: str | None = None,
    engine: str | None = None,
    rank_order: str | None = None,
    calibration: str | None = None,
    assume: str | None = None,
    to_run: bool = True,
) -> Job:
    """The same of a file that is read already.

    Args:
        base: folder that relative paths count from.
        name: of the job, where the file has none.
        model: in place of the one that the file names.

    Raises:
        InputError: anything wrong in the file or in what it names.
    """
    notes: list[str] = []
    given = layout_keys(file.layout) | (parse_layout_text(layout) if layout else {})
    profile, *others = _engines(file.engine if engine is None else engine)
    usual_order = profile.rank_order
    profile = _in_rank_order(profile, rank_order or file.rank_order)
    if profile.rank_order != usual_order:
        notes.append(f"ranks are laid over {', '.join(profile.rank_order)}, the outermost first")
    training = training_of(file, _assume(file.assume, assume), base, notes)
    topology = power_limited(read_topology(file.cluster, base), file.runtime)
    if (slow := without_bf16(training.precision, topology.accelerator)) is not None:
        notes.append(slow)
    if to_run:
        _require_native(profile, others)
        require_run(training, file.workload.documents)
    remembered = _calibration(calibration, file.calibration, base)
    if calibration is None and file.calibration and remembered and not is_file(remembered):
        notes.append(
            f"calibration {remembered} is not there yet: predictions are by formula until a run of "
            f"`meshfit fit` or `run` is remembered in it"
        )
    return Job(
        name=file.name or name,
        model=read_model(file.model, base) if model is None else model,
        weights=given_weights(file.model, base) if model is None else None,
        training=training,
        topology=topology,
        profile=profile,
        other_engines=tuple(other.name for other in others),
        layout=layout_of_keys(given, profile) if given or file.layout is not None else None,
        baseline=baseline_of(file.baseline, base, profile),
        search=_search(file.search),
        run=_run(file.run),
        headroom_fraction=_headroom(file.search.headroom),
        budget=read_budget(file.budget),
        identity=_identity(file),
        notes=tuple(notes),
        calibration=remembered,
        curves=_curves(file.curves, base),
    )


def _calibration(asked: str | None, written: str | None, base: Path) -> Path | None:
    """The file that real runs are remembered in: as asked, as written in the job, or the person's."""
    named, folder = (asked, Path()) if asked is not None else (written, base)
    if named is None:
        return default_calibration_path()
    return None if named == NO_CALIBRATION else folder / Path(named).expanduser()


def _curves(written: str | None, base: Path) -> Path | None:
    """The curves file as written in the job, or the person's.

    Raises:
        InputError: one is written that is not there.
    """
    if written is None:
        return default_curves_path()
    if written == NO_CALIBRATION:
        return None
    path = base / Path(written).expanduser()
    if not path.exists():
        raise InputError(f"curves {path} is not there; `meshfit probe --out FILE` writes one")
    return path


def _assume(file: AssumeFile, text: str | None) -> AssumeFile:
    """The job's assumptions with those of the command line before them."""
    if text is None:
        return file
    given = validate(AssumeFile, key_values(text, "--assume", "straggler=1.05"), "--assume")
    return file.model_copy(update=given.model_dump(exclude_none=True))


def _search(file: SearchFile) -> SearchSpec:
    bounds = file.model_dump(exclude_none=True, exclude={"headroom"})
    listed = {key: tuple(v) if isinstance(v, list) else (v,) for key, v in bounds.items()}
    if "schedule" in listed:
        listed["schedule"] = tuple(schedule_of_text(text) for text in listed["schedule"])
    empty = [key for key, values in listed.items() if not values]
    if empty:
        raise InputError(f"search.{empty[0]} is an empty list; leave it out to search all values")
    return SearchSpec(**listed)


def _headroom(value: str | float) -> float:
    fraction = parse_fraction(value)
    if fraction == 1:
        raise InputError(
            f"search.headroom {value!r} leaves no memory to use; write less, as in 10%"
        )
    return fraction


def _run(file: RunFile) -> RunSpec:
    if file.warmup >= file.steps:
        raise InputError(
            f"run.warmup {file.warmup} leaves no step to measure out of run.steps {file.steps}; "
            f"steps must be at least {file.warmup + 1}"
        )
    return RunSpec(
        shortlist=file.shortlist,
        repeats=file.repeats,
        steps=file.steps,
        warmup_steps=file.warmup,
        parity=file.parity,
        deadline_s=positive_duration(file.deadline, "run.deadline"),
        hang_s=positive_duration(file.hang, "run.hang"),
        threads_per_rank=file.threads_per_rank,
        port=file.port,
        budget_device_s=(
            None if file.budget is None else device_seconds(file.budget, "run.budget")
        ),
    )


def _engines(value: str | list[str]) -> list[EngineProfile]:
    """The engines of a job, its own first."""
    names = [value] if isinstance(value, str) else list(dict.fromkeys(value))
    if not names:
        raise InputError("engine is an empty list; write engine: native")
    return [engine_profile(name) for name in names]


def _in_rank_order(profile: EngineProfile, asked: str | list[str] | None) -> EngineProfile:
    """An engine that lays its ranks as asked; axes that are not named come first, as it has them.

    Raises:
        InputError: not an order of axes, or not of this engine.
    """
    if asked is None:
        return profile
    axes = asked.replace(">", ",").split(",") if isinstance(asked, str) else asked
    order = whole_order([axis.strip() for axis in axes], profile.rank_order)
    if order != profile.rank_order and not profile.any_rank_order:
        raise InputError(
            f"rank_order: engine {profile.name} lays its ranks as {', '.join(profile.rank_order)}; "
            f"to place them otherwise start its ranks in another order (by_rank_order of `meshfit "
            f"plan --placements --json`)"
        )
    return replace(profile, rank_order=order)


def _require_native(profile: EngineProfile, others: list[EngineProfile]) -> None:
    if others:
        named = ", ".join(one.name for one in (profile, *others))
        raise InputError(
            f"engine [{named}]: this version runs for one engine; write engine: native"
        )
    if profile.name != "native":
        raise InputError(
            f"engine {profile.name}: this version runs and exports native only; `meshfit check` "
            f"and `meshfit plan` take it"
        )


def given_weights(model: str, base: Path) -> Path | None:
    """The folder that the job names as its model, when it holds weights; None for random ones."""
    if model.lower() in catalogue():
        return None
    folder = base / os.path.expanduser(model)  # noqa: PTH111 (as read_model finds its config)
    return folder if is_folder(folder) and any(folder.glob("*.safetensors")) else None


def _identity(file: JobFile) -> str:
    """Hash of the file's meaning (comments and order of keys left out).

    Without the layout, which no sweep looks at, the rank order, which a plan's hash has of its own,
    and without the port, the budgets and what is remembered of other runs, which change no result: a
    sweep that ended at its budget goes on with a larger one.
    """
    document = file.model_dump(
        mode="json",
        exclude={
            "layout": True,
            "rank_order": True,
            "budget": True,
            "calibration": True,
            "curves": True,
            "run": {"port", "budget"},
        },
    )
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
