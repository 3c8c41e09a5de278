"""The message where a job has no legal layout: which rules rejected, and what would work."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from meshfit.errors import shown
from meshfit.funnel.space.examples import message_of
from meshfit.job.spec import Job
from meshfit.mesh.generate import Generated, generate
from meshfit.mesh.search import SearchSpec

WORLDS_TRIED = 16
"""World sizes looked at on either side of the job's own."""

_RULES_NAMED = 4


def nothing_legal(job: Job, generated: Generated) -> str:
    """Why ``generated`` holds no candidate, and the nearest world sizes that have one."""
    world = job.topology.num_accelerators
    if not generated.considered:
        return (
            f"`search` ({_bounds(job.search)}) leaves no layout on {world} accelerators: the "
            f"degrees it allows must multiply to {world}; widen it"
        )
    worlds = worlds_with_layouts(job)
    sizes = f" (nearest sizes with a legal layout: {_listed(worlds)})" if worlds else ""
    return "\n".join(
        (
            f"no legal layout of {job.model.name} on {world} accelerators ({generated.considered} "
            f"considered). Rules that rejected most, each with what it says of one layout:",
            *_reasons(job, generated),
            f"Widen `search`, change the world size{sizes}, or ask `meshfit check` about one layout",
        )
    )


def _reasons(job: Job, generated: Generated) -> Iterator[str]:
    most_first = sorted(generated.rejected.items(), key=lambda item: -item[1])
    for rule, count in most_first[:_RULES_NAMED]:
        example = generated.examples.get(rule)
        message = example and message_of(job, rule, example)
        yield f"  {rule} ({count})" + (f": {message}" if message else "")


def worlds_with_layouts(job: Job) -> list[int]:
    """The next smaller and the next larger world size with a legal layout, as far as looked."""
    world = job.topology.num_accelerators
    smaller = range(world - 1, max(0, world - 1 - WORLDS_TRIED), -1)
    larger = range(world + 1, world + 1 + WORLDS_TRIED)
    found = (next((n for n in sizes if _has_layouts(job, n)), None) for sizes in (smaller, larger))
    return [size for size in found if size is not None]


def _has_layouts(job: Job, world: int) -> bool:
    """Whether a mesh of ``world`` accelerators, all on one level, is legal."""
    level = replace(job.topology.levels[0], size=world)
    flat = replace(job.topology, levels=(level,), gpus_per_host=world, hosts=())
    return len(generate(job.model, job.training, flat, job.profile, job.search).candidates) > 0


def _bounds(search: SearchSpec) -> str:
    given = ((key, value) for key, value in asdict(search).items() if value is not None)
    return "; ".join(f"{key}: {shown(list(value))}" for key, value in given)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
