"""The experts of one rank's model: put in place, told of steps, asked for what they found."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from meshfit.errors import InputError
from meshfit.measure.timing import boundaries_of
from meshfit.run.experts.balance import AuxiliaryLoss, move_biases
from meshfit.run.experts.choices import Choices, OwnChoices
from meshfit.run.experts.dispatch import (
    Dispatch,
    DroplessDispatch,
    GroupLimitedDispatch,
    LimitedDispatch,
    LocalDispatch,
)
from meshfit.run.experts.gather import Gathering, TokensOfAll, TokensOfEach, WholeExperts
from meshfit.run.experts.layer import Experts, Router, has_experts
from meshfit.run.experts.log import RoutingLog
from meshfit.run.experts.policy import ExpertPolicy, auxiliary_coefficient
from meshfit.run.experts.routing import rule_of
from meshfit.run.experts.shards import (
    ExpertGradients,
    build_expert_mesh,
    distribute,
    divide_states,
    packing_of,
    width_mesh,
)
from meshfit.run.experts.spans import ExchangeTimes, Spans
from meshfit.run.mesh import RankMesh
from meshfit.run.model.loss import token_losses
from meshfit.run.model.packed import Packing
from meshfit.run.model.transformer import Stage


class ExpertModel:
    """Everything of a rank that has to do with experts, over all of its stages.

    Attributes:
        choices: what becomes of routers' choices; replaced by who keeps, compares or replays them.
        log, times: what routers did, and how long exchanges took.
        num_layers, num_experts, num_choices: layers of the whole model, experts of one of them, and
            how many a token chooses.
    """

    def __init__(self, config: Any, mesh: RankMesh, policy: ExpertPolicy) -> None:
        """
        Raises:
            InputError: experts have a capacity under context parallelism.
        """
        if policy.capacity_factor is not None and mesh.layout.cp > 1:
            raise InputError(
                "runtime.expert_capacity_factor: limits are on a rank's tokens, which context "
                "parallelism takes from all over a sequence; use cp=1, or leave it out"
            )
        self.choices: Choices = OwnChoices()
        self.log = RoutingLog()
        self.times = _exchange_times(mesh)
        self.num_layers = config.num_hidden_layers
        self.num_experts = num_experts_of(config)
        self.num_choices = config.num_experts_per_tok
        self._mesh = mesh
        self._expert_mesh = build_expert_mesh(mesh)
        self._width = width_mesh(mesh, self._expert_mesh)
        self._gathering = self._gathering_of(mesh.layout.sp)
        self._policy = policy
        self._rule = rule_of(config)
        self._coefficient = auxiliary_coefficient(config)
        self._auxiliary = AuxiliaryLoss(policy.groups, _sharing_sequences(mesh))
        self._routers: list[Router] = []
        self._experts: list[Experts] = []
        self._gradients: ExpertGradients | None = None

    @property
    def has_auxiliary_loss(self) -> bool:
        """Whether routers add to the loss."""
        return self._coefficient > 0

    def install(self, stage: Stage) -> None:
        """Put routers and experts of a stage in the places of Hugging Face's; divide the experts.

        Raises:
            InputError: their width cannot be cut over so many ranks.
        """
        stage.model.config.output_router_logits = False  # the losses are taken from the routers
        for number, layer in zip(stage.layer_range, stage.layers, strict=True):
            if has_experts(layer):
                layer.mlp.gate = self._router(number, layer.mlp.gate)
                layer.mlp.experts = self._experts_of(number, layer.mlp.experts)

    def packings(self, stage: Stage) -> dict[str, Packing]:
        """Of a stage's parameters that lie in the order of shards, by name."""
        if self._width is None:
            return {}
        names = {module: name for name, module in stage.model.named_modules()}
        return {
            f"{names[experts]}.gate_up_proj": packing_of(experts, self._width.size())
            for layer in stage.layers
            if has_experts(layer)
            for experts in [layer.mlp.experts]
        }

    def divide_states(self, stage: Stage, **options: object) -> set[nn.Parameter]:
        """FSDP2 over ranks with the same experts of a stage, with its ``options``.

        The parameters that are none of FSDP2's business, here or around them.
        """
        if self._expert_mesh is None:
            return set()
        ours = [layer.mlp.experts for layer in stage.layers if has_experts(layer)]
        if not self._expert_mesh.divides_states:
            return {parameter for experts in ours for parameter in experts.parameters()}
        for experts in ours:
            divide_states(experts, self._expert_mesh, **options)
        return set()

    def groups(self) -> Iterator[tuple[str, ProcessGroup]]:
        """Names of the experts' own axes, and this rank's group along each."""
        if self._expert_mesh is not None:
            yield from self._expert_mesh.groups()

    def start(self, device: torch.device) -> None:
        """Everything is in place and has memory; steps come next."""
        self.log.start([router.layer for router in self._routers], self.num_experts, device)
        trained = [p for e in self._experts for p in e.parameters() if p.requires_grad]
        if self._expert_mesh is not None and trained:
            self._gradients = ExpertGradients(trained, self._expert_mesh)

    def begin_step(self, step: int) -> None:
        """The next forwards belong to ``step``."""
        self.choices.begin_step(step)

    def finish_gradients(self) -> None:
        """Make the step's gradients of experts what those of other parameters are already."""
        if self._gradients is not None:
            self._gradients.finish()

    def end_step(self) -> None:
        """All forwards and backwards of the step are done, and the optimizer's update."""
        counts = self.log.end_step()
        self.times.end_step()
        if self._policy.bias_rate and self._rule.is_biased:
            # Also where a stage has no router: counting is a collective of all ranks.
            tokens_LE = self._over_ranks(counts.tokens_LE)
            biases = [router.e_score_correction_bias for router in self._routers]
            move_biases(biases, tokens_LE, self._policy.bias_rate)

    def token_loss_sum(
        self, logits_BSV: Tensor, labels_BS: Tensor, *, scale: float = 1.0
    ) -> Tensor:
        """As ``loss.token_loss_sum``; the log learns what tokens of each route lose."""
        losses_BS = token_losses(logits_BSV, labels_BS)
        if self._routers:
            shards, shard = _shard_of_sequence(self._mesh)
            self.log.lose(
                losses_BS.detach().chunk(shards, dim=1)[shard].flatten(),
                labels_BS.chunk(shards, dim=1)[shard].flatten(),
            )
        return losses_BS.sum() * scale

    def auxiliary_loss(self, num_micro_batches: int) -> Tensor | None:
        """What routers add to the loss of the micro-batch that has just gone forward."""
        if not self._coefficient or not self._routers:
            return None
        loss = self._auxiliary.take() / num_micro_batches
        self.log.balance(loss.detach())
        return loss * self._coefficient

    def _router(self, layer: int, gate: nn.Module) -> Router:
        router = Router(
            gate,
            layer=layer,
            routes_its_own=self._mesh.layout.sp,
            rule=self._rule,
            observe=partial(self._observe, layer),
            replace=partial(self._replace, layer),
        )
        self._routers.append(router)
        return router

    def _experts_of(self, layer: int, experts: nn.Module) -> Experts:
        tell = partial(self.log.send, layer)
        ours = Experts(experts, self._dispatch(layer), self._gathering, tell)
        distribute(ours, self._expert_mesh, self._width)
        self._experts.append(ours)
        return ours

    def _gathering_of(self, each_routes_its_own: bool) -> Gathering:
        if self._width is None:
            return WholeExperts()
        kind = TokensOfEach if each_routes_its_own else TokensOfAll
        return kind(self._width.get_group(), "tp" if self._expert_mesh is None else "etp")

    def _dispatch(self, layer: int) -> Dispatch:
        policy, on_limit = self._policy, partial(self.log.limit, layer)
        group = self._expert_mesh.ep.get_group() if self._expert_mesh else None
        if policy.capacity_factor is None:
            return DroplessDispatch(group, self.times) if group else LocalDispatch()
        if policy.groups is None:
            return LimitedDispatch(
                factor=policy.capacity_factor,
                group=group,
                times=self.times,
                on_limit=on_limit,
                sources=self._gathering.sources,
                own=self._gathering.own,
            )
        return GroupLimitedDispatch(
            factor=policy.capacity_factor, groups=policy.groups, on_limit=on_limit
        )

    def _replace(self, layer: int, chosen_TK: Tensor) -> Tensor:
        return self.choices.take(layer, chosen_TK)

    def _observe(
        self, layer: int, scores_TE: Tensor, chosen_TK: Tensor, weights_TK: Tensor
    ) -> None:
        self.log.route(layer, scores_TE, chosen_TK, weights_TK)
        if self._coefficient:
            self._auxiliary.add(scores_TE, chosen_TK)

    def _over_ranks(self, tokens_LE: Tensor) -> Tensor:
        """The same of all ranks together."""
        layers = list(self.log.layers)
        all_LE = tokens_LE.new_zeros(self.num_layers, tokens_LE.shape[1])
        all_LE[layers] = tokens_LE
        return self._mesh.sum_over_tokens(all_LE)[layers]


def num_experts_of(config: Any) -> int:
    """Routed experts of one layer of a Hugging Face config."""
    return config.num_local_experts if hasattr(config, "num_local_experts") else config.num_experts


def _exchange_times(mesh: RankMesh) -> ExchangeTimes:
    device_type = mesh.devices.device_type if mesh.devices else "cpu"
    boundaries = boundaries_of(device_type)
    return ExchangeTimes(dispatch=Spans(boundaries), combine=Spans(boundaries))


def _shard_of_sequence(mesh: RankMesh) -> tuple[int, int]:
    """Into how many shards tensor-parallel ranks cut what they route, and which is this rank's."""
    return (mesh.layout.tp, mesh.index("tp")) if mesh.layout.sp else (1, 0)


def _sharing_sequences(mesh: RankMesh) -> ProcessGroup | None:
    """Ranks that route shards of the same sequences."""
    return mesh.group("tp") if mesh.layout.sp and mesh.layout.tp > 1 else None
