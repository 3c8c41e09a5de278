"""Why a candidate's stages are not equally long, in words."""

from collections.abc import Iterable
from dataclasses import replace

from meshfit.funnel.space.planning import Plan, estimate_candidates
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec, balanced_stages, even_stages, stages_text
from meshfit.mesh.stage_splits import head_layers
from meshfit.units import format_bytes, format_duration


def stage_notes(plan: Plan, shown: Iterable[int]) -> list[str]:
    """One sentence or two for every split of layers among the shown candidates, the best first."""
    first_with: dict[tuple[int, ...], int] = {}
    for index in shown:
        split = plan.layout(index).stage_layers
        if split is not None:
            first_with.setdefault(split, index)
    return [_note(plan, index) for index in first_with.values()]


def _note(plan: Plan, index: int) -> str:
    layout = plan.layout(index)
    layers = plan.job.model.num_hidden_layers
    split = layout.layers_of_stages(layers)
    counted = _counted_as(plan, split)
    why = f": {counted}, so their stages hold fewer" if counted else ""
    return (
        f"stage_layers {stages_text(split)} spreads {layers} layers over {len(split)} stages{why}."
        + _bare_ends(split)
        + _evenly_instead(plan, index, layout)
    )


def _bare_ends(split: tuple[int, ...]) -> str:
    alone = [name for name, held in (("embedding", split[0]), ("head", split[-1])) if held == 0]
    return "".join(f" The {name} has a stage of its own." for name in alone)


def _counted_as(plan: Plan, split: tuple[int, ...]) -> str | None:
    """What the ends count as in this split; None where it is not one of ours."""
    model = plan.job.model
    for head in (1, head_layers(model)):
        if (
            balanced_stages(
                model.num_hidden_layers, len(split), embedding=1, head=head, bare_ends=True
            )
            == split
        ):
            if head == 1:
                return "embedding and head count as a layer each"
            return f"the embedding counts as one layer and the head as {head}, which it weighs"
    return None


def _evenly_instead(plan: Plan, index: int, layout: LayoutSpec) -> str:
    """What the even split would take, where it is another one."""
    evenly = even_stages(plan.job.model.num_hidden_layers, layout.num_stages)
    if evenly == layout.stage_layers or min(evenly) == 0:
        return ""
    other, _ = estimate_candidates(
        plan.job, Candidates.from_layouts([replace(layout, stage_layers=evenly)])
    )
    ours = plan.estimates
    return (
        f" {stages_text(evenly)} would take {format_duration(float(other.step_middle_s[0]))} a step "
        f"instead of {format_duration(float(ours.step_middle_s[index]))}, and "
        f"{format_bytes(float(other.memory_middle_bytes[0]))} instead of "
        f"{format_bytes(float(ours.memory_middle_bytes[index]))}."
    )
