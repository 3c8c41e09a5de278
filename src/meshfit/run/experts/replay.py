"""When routers' choices are kept, compared and replayed in a run."""

from pathlib import Path

import torch

from meshfit.record.schema import RunRequest
from meshfit.run.context.attention import ContextParallel
from meshfit.run.experts.capacity import TokenGroups
from meshfit.run.experts.choices import (
    KeptChoices,
    ReferenceChoices,
    TokensOfRank,
    has_choices,
)
from meshfit.run.experts.model import ExpertModel
from meshfit.run.experts.policy import ExpertPolicy
from meshfit.run.mesh import RankMesh
from meshfit.workload.training import TrainingSpec


def policy_of(request: RunRequest) -> ExpertPolicy:
    """What a request decides about experts."""
    runtime, groups = request.training.runtime, request.routing_groups
    return ExpertPolicy(
        capacity_factor=runtime.expert_capacity_factor,
        bias_rate=runtime.router_bias_rate,
        groups=TokenGroups(
            sequence_length=request.training.sequence_length,
            sequences=groups.sequences,
            shards=groups.shards,
        )
        if groups
        else None,
    )


def keep_choices(request: RunRequest, experts: ExpertModel | None) -> KeptChoices | None:
    """Have the choices of the judged steps kept, where rounding could turn one.

    None where nobody needs them: fp32, or no experts, or no reference of one process.
    """
    rounds = request.training.precision.matmul != "fp32"
    leaves = request.purpose == "reference" and request.layout.world_size == 1
    compares = request.reference is not None and has_choices(Path(request.reference))
    if experts is None or not rounds or not (leaves or compares):
        return None
    kept = KeptChoices(min(request.judged_steps, request.steps))
    experts.choices = kept
    return kept


def tokens_of_rank(
    mesh: RankMesh, training: TrainingSpec, context: ContextParallel | None
) -> TokensOfRank:
    """The tokens of a step that this rank's routers see."""
    layout = mesh.layout
    count = training.global_batch_size // layout.data_parallel_size
    length = training.sequence_length
    positions = context.positions(length, torch.device("cpu")) if context else torch.arange(length)
    if layout.sp:
        positions = positions.chunk(layout.tp)[mesh.index("tp")]
    return TokensOfRank(
        sequence_length=length,
        first=mesh.data_parallel_index * count,
        micro_batch_size=layout.micro_batch_size,
        positions=positions,
    )


def differing_tokens(
    kept: KeptChoices, reference: ReferenceChoices, mesh: RankMesh, device: torch.device
) -> int:
    """Tokens that any rank's routers sent elsewhere than the reference's. All ranks call it."""
    own = torch.tensor(kept.differing(reference), device=device)
    return int(mesh.sum_over_tokens(own))
