"""What all ranks' routers did, as one report. Legend: N steps, L layers with experts, E experts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from meshfit.record.schema import RoutingReport
from meshfit.run.experts.log import StepCounts
from meshfit.run.experts.model import ExpertModel
from meshfit.run.mesh import RankMesh


def routing_report(model: ExpertModel, mesh: RankMesh) -> RoutingReport:
    """Of all steps so far. All ranks call it, and all get the same."""
    log = model.log
    totals = _Totals(log.steps, log.layers, model, mesh)
    tokens_NLE, tokens_L = totals.tokens_NLE, totals.tokens_NLE.sum(dim=2)
    layers = tokens_L[0].nonzero().flatten().tolist()
    tokens_NLE = tokens_NLE[:, layers]
    means_NL = tokens_NLE.double().mean(dim=2)
    worst_N = (tokens_NLE.amax(dim=2) / means_NL).amax(dim=1)
    routed_N = tokens_NLE.sum(dim=(1, 2)) / model.num_choices
    return RoutingReport(
        layers=tuple(layers),
        tokens_per_expert=_rows(tokens_NLE.sum(dim=1)),
        tokens_per_layer=_rows(tokens_NLE.sum(dim=0)),
        imbalance=tuple(worst_N.tolist()),
        entropy=tuple((totals.entropy_N / routed_N).tolist()),
        dropped=tuple(totals.dropped_N.tolist()),
        padded=tuple(totals.padded_N.tolist()),
        auxiliary_loss=tuple(totals.auxiliary_N.tolist()) if model.has_auxiliary_loss else (),
        auxiliary_scope="rank" if model.has_auxiliary_loss else None,
        loss_by_route=_mean_losses(totals.loss_NE, totals.labels_NE),
    )


class _Totals:
    """Every step's counts summed over ranks."""

    def __init__(
        self,
        steps: Sequence[StepCounts],
        layers: Sequence[int],
        model: ExpertModel,
        mesh: RankMesh,
    ) -> None:
        self._mesh = mesh
        own_NLE = torch.stack([step.tokens_LE for step in steps])
        all_NLE = own_NLE.new_zeros(len(steps), model.num_layers, model.num_experts)
        if layers:
            all_NLE[:, list(layers)] = own_NLE
        self.tokens_NLE = mesh.sum_over_tokens(all_NLE).cpu()
        self.entropy_N = self._sum([step.entropy_L.sum() for step in steps])
        self.dropped_N = self._sum([step.dropped_L.sum() for step in steps])
        self.padded_N = self._sum([step.padded_L.sum() for step in steps])
        self.loss_NE = self._sum([step.loss_E for step in steps])
        self.labels_NE = self._sum([step.labels_E for step in steps])
        auxiliary_N = torch.stack([step.auxiliary for step in steps])
        self.auxiliary_N = mesh.sum_over_ranks(auxiliary_N).cpu() / mesh.layout.world_size

    def _sum(self, of_steps: Sequence[Tensor]) -> Tensor:
        return self._mesh.sum_over_tokens(torch.stack(list(of_steps))).cpu()


def _rows(counts: Tensor) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in counts.tolist())


def _mean_losses(loss_NE: Tensor, labels_NE: Tensor) -> tuple[tuple[float | None, ...], ...]:
    return tuple(
        tuple(loss / count if count else None for loss, count in zip(*row, strict=True))
        for row in zip(loss_NE.tolist(), labels_NE.tolist(), strict=True)
    )
