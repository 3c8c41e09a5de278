"""What meshfit can do with each engine, under which name."""

from dataclasses import dataclass

from meshfit.engines import PROFILES
from meshfit.engines.exports import EXPORTS, PROFILE_OF, SERVER_EXPORTS
from meshfit.engines.logs.read import LOGS
from meshfit.engines.starts import STARTS

OWN_EXPORT = "torchrun"
"""What ``--to`` calls the plain script of our own runner."""


@dataclass(frozen=True, kw_only=True)
class EngineAbilities:
    """One engine.

    Attributes:
        name: of its profile, which ``engine:`` and ``--engine`` take.
        kind: what it does with a model.
        exports: names under which ``export --to`` writes its files.
        starts: whether a run can be started here: by our own runner, or by ``run --in-engine``.
        reads_logs: whether ``compare --log`` knows what it prints.
    """

    name: str
    kind: str
    exports: tuple[str, ...]
    starts: bool
    reads_logs: bool


def engine_abilities() -> tuple[EngineAbilities, ...]:
    """Every engine, our own first."""
    logged = {log.engine for log in LOGS}
    return tuple(
        EngineAbilities(
            name=name,
            kind=profile.kind,
            exports=tuple(to for to in export_names() if engine_of_export(to) == name),
            starts=name == engine_of_export(OWN_EXPORT) or name in STARTS,
            reads_logs=name in logged,
        )
        for name, profile in PROFILES.items()
    )


def export_names() -> tuple[str, ...]:
    """What ``export --to`` takes."""
    return (OWN_EXPORT, *EXPORTS, *SERVER_EXPORTS)


def engine_of_export(to: str) -> str:
    """The engine whose profile decides what a layout means in the files of ``--to``."""
    return {OWN_EXPORT: "native", **PROFILE_OF}.get(to, to)
