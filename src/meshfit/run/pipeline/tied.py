"""A head tied to the embedding, when they lie on the two ends of a pipeline.

Each end keeps a copy. Both start equal, get the same gradient and so stay equal bit for bit.
"""

import torch
import torch.distributed as dist

from meshfit.measure.timeline.axes import along
from meshfit.run.gradients import local_tensor
from meshfit.run.mesh import RankMesh
from meshfit.run.parallelize import RankModel


class TiedGradients:
    """Replaces the gradients of both copies by their sum."""

    def __init__(self, model: RankModel, mesh: RankMesh) -> None:
        first = model.stages[0]
        embedding = first.embedding.weight if first.is_first else None
        self._copies = [copy for copy in (embedding, model.tied_copy) if copy is not None]
        self._group = _group_of_ends(mesh)

    @torch.no_grad()
    def reduce(self) -> None:
        """Sum what this rank holds with what the other end holds; in a V that is the same rank."""
        gradients = [local_tensor(copy.grad) for copy in self._copies]
        if len(gradients) == 2:
            gradients[0].add_(gradients[1])
            gradients[1].copy_(gradients[0])
        elif gradients:
            with along("pp"):
                dist.all_reduce(gradients[0], group=self._group)


def build_tied_gradients(model: RankModel, mesh: RankMesh) -> TiedGradients | None:
    """None where the head is not tied, lies on its embedding's stage, or is frozen as all is beside
    adapters. All ranks call it."""
    first = model.stages[0]
    is_trained = all(parameter.requires_grad for parameter in first.parameters())
    is_tied = bool(first.model.config.tie_word_embeddings)
    return TiedGradients(model, mesh) if is_tied and is_trained and mesh.layout.pp > 1 else None


def _group_of_ends(mesh: RankMesh) -> dist.ProcessGroup | None:
    """This rank and its peer at the other end of the pipeline; None for a rank between them."""
    devices = mesh.devices
    assert devices is not None, "a pipeline has two ranks or more"
    ranks = devices.mesh.movedim(devices.mesh_dim_names.index("pp"), 0)
    pairs = ranks[[0, -1]].reshape(2, -1).T.tolist()
    group, _ = dist.new_subgroups_by_enumeration(pairs)
    return group
