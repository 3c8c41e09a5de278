"""The setting that a file of a server describes, with what a person adds to it."""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshfit.cluster.files import read_topology
from meshfit.cluster.shorthand import read_shorthand
from meshfit.cluster.topology import Topology
from meshfit.engines import engine_profile
from meshfit.engines.recognise import recognise_server
from meshfit.engines.serving_file import ServingFile, ServingForm
from meshfit.errors import InputError
from meshfit.files import read_text
from meshfit.job.engine_file import Added
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rule import Violation
from meshfit.mesh.rulebook import RULES
from meshfit.mesh.rules import violations, warnings
from meshfit.profile import EngineProfile
from meshfit.serve.job.clusters import cluster_of
from meshfit.serve.setting.budget import ServingBudget, serving_budget
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.quantized import AS_STORED, served_as
from meshfit.serve.setting.space import layout_facts, layout_violations
from meshfit.workload.model import ModelSpec
from meshfit.workload.models import read_model, repository_of

_TUNED = re.compile(r"-(instruct|chat|it)$", re.IGNORECASE)
"""What names of tuned weights end in; their architecture is that of the weights they come from."""


def is_server_file(path: Path) -> bool:
    """Whether a file is one that starts a server."""
    return path.is_file() and recognise_server(read_text(path)) is not None


@dataclass(frozen=True, kw_only=True)
class ServedFile:
    """A file with the setting that it describes.

    Attributes:
        text: what was read.
        layout: None where attention's groups do not divide the ranks.
        is_bound: whether a person says how many accelerators there are.
        budget: the file's, the engine's defaults for the rest.
        request_tokens: of the longest request that the server takes.
    """

    name: str
    file: ServingFile
    form: ServingForm
    text: str
    model: ModelSpec
    profile: EngineProfile
    topology: Topology
    is_bound: bool
    layout: ServingLayout | None
    budget: ServingBudget
    request_tokens: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person must know of what was read."""
        named, model = self.file.model or "", self.model.name
        last = named.lower().rpartition("/")[2]
        if last in ("", model.lower().rpartition("/")[2]) or named == repository_of(model):
            return self.file.notes
        return (f"{named} is taken for {model}", *self.file.notes)

    @property
    def has_experts(self) -> bool:
        return self.model.moe is not None


def served_file(path: Path, added: Added) -> ServedFile:
    """The setting that a file of a server describes.

    Raises:
        InputError: the file cannot be read (names the line), neither it nor the person says what is
            needed, or the person says what such a file has no use for.
    """
    text = read_text(path)
    form = recognise_server(text)
    assert form is not None, "called for a file of a server"
    _refuse_what_trains(added)
    try:
        file = form.read(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    _require_said(path, file, added)
    model = served_as(_model(path, file, added), file.weights or AS_STORED)
    layout = _layout(file, model)
    topology = _topology(file, added)
    _require_room(file, topology)
    profile = engine_profile(file.engine)
    return ServedFile(
        name=path.stem,
        file=file,
        form=form,
        text=text,
        model=model,
        profile=profile,
        topology=topology,
        is_bound=bool(added.cluster or added.gpus),
        layout=layout,
        budget=replace(serving_budget(profile, topology.accelerator), **file.budget),
        request_tokens=added.sequence_length
        or file.longest_tokens
        or model.max_position_embeddings,
    )


def _refuse_what_trains(added: Added) -> None:
    given = [
        name for name in ("global_batch", "micro_batch_size", "layout") if getattr(added, name)
    ]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} is for files of engines that train; this one starts a server")


def _require_said(path: Path, file: ServingFile, added: Added) -> None:
    """Does nothing where file and person together say what is served, and where."""
    missing = {
        "which model it serves: --model NAME (of the catalogue, or a config.json)": added.model
        is None
        and file.model is None,
        "on which accelerators: --accelerator NAME (such as H100-SXM)": added.cluster is None
        and added.accelerator is None,
    }
    named = [words for words, is_missing in missing.items() if is_missing]
    if named:
        raise InputError(f"{path} ({file.form}) does not say {'; '.join(named)}")


def _model(path: Path, file: ServingFile, added: Added) -> ModelSpec:
    """The model that a person names, or the file: one of tuned weights has the architecture of the one
    that they were tuned from."""
    if added.model is not None or file.model is None:
        return read_model(added.model or "", Path.cwd())
    base = _TUNED.sub("", file.model)
    for name in (file.model, base, base.rpartition("/")[2]):
        with suppress(InputError):
            return read_model(name, path.parent)
    try:
        return read_model(file.model, path.parent)
    except InputError as error:
        raise InputError(f"{error} (--model NAME says which it is like)") from None


def _layout(file: ServingFile, model: ModelSpec) -> ServingLayout | None:
    """In meshfit's words: groups that share experts are not replicas."""
    if file.tp % file.attention_dp and not file.joins_replicas:
        return None
    shares = file.joins_replicas and model.moe is not None
    groups = file.replicas if shares else file.attention_dp
    tp = file.tp if file.joins_replicas else file.tp // file.attention_dp
    return ServingLayout(
        replicas=1 if shares else file.replicas,
        tp=tp,
        pp=file.pp,
        ep=tp * groups if file.spreads_experts else file.ep,
        attention_dp=groups,
    )


def _topology(file: ServingFile, added: Added) -> Topology:
    """The cluster that a person names; else as many accelerators as they name or the file takes, in the
    hosts that it names where there are such."""
    if added.cluster is not None:
        return read_topology(added.cluster, Path.cwd())
    assert added.accelerator is not None, "required before"
    count = added.gpus or file.num_ranks
    if file.hosts > 1 and count % file.hosts == 0:
        with suppress(InputError):
            return read_shorthand(f"{file.hosts}x{count // file.hosts} {added.accelerator}")
    return cluster_of(added.accelerator, count)


def _require_room(file: ServingFile, topology: Topology) -> None:
    """Does nothing where there are as many accelerators as the file takes.

    Raises:
        InputError: a person says that there are fewer.
    """
    if file.num_ranks > topology.num_accelerators:
        raise InputError(
            f"the file takes {file.num_ranks} accelerators; --gpus or --cluster has "
            f"{topology.num_accelerators}"
        )


def layout_warnings(given: ServedFile) -> tuple[Violation, ...]:
    """What must be said of the file's layout though the engine runs it."""
    if given.layout is None:
        return ()
    facts = facts_of(model=given.model) | layout_facts(given.layout, given.topology)
    return warnings(facts, given.profile)


def broken_rules(given: ServedFile) -> tuple[Violation, ...]:
    """Every rule of the engine that the file's setting breaks: of its switches as it states them, then
    of the layout that they make."""
    facts, switches = facts_of(model=given.model), _switches(given.file)
    return (
        *_of_switches(given, facts, switches),
        *(one for one in _of_layout(given, facts) if not _looks_at(one.rule, switches)),
    )


def _switches(file: ServingFile) -> dict[str, Any]:
    """Facts that the file states beside the layout."""
    switches = {"cp": file.cp, **file.switches}
    switches |= {key: file.budget[key] for key in _BATCHES if key in file.budget}
    if file.longest_tokens is not None:
        switches["sequence_length"] = file.longest_tokens
    return switches


_BATCHES = ("step_tokens", "max_sequences")


def _of_switches(
    given: ServedFile, facts: dict[str, Any], switches: dict[str, Any]
) -> tuple[Violation, ...]:
    file = given.file
    known = facts | {
        "tp": file.tp,
        "pp": file.pp,
        "vpp": 1,
        "ep": file.tp * file.replicas if file.spreads_experts else file.ep,
        "gpus_per_host": given.topology.gpus_per_host,
        **switches,
    }
    own = tuple(name for name in given.profile.rules if _looks_at(name, switches))
    return violations(known, replace(given.profile, rules=own))


def _looks_at(name: str, switches: dict[str, Any]) -> bool:
    """Whether a rule is about one of the switches."""
    rule = RULES.get(name)
    return rule is not None and bool(switches.keys() & {*rule.needs, *rule.defaults})


def _of_layout(given: ServedFile, facts: dict[str, Any]) -> tuple[Violation, ...]:
    if given.layout is None:
        return ()
    return layout_violations(given.layout, facts, given.profile, given.topology)
