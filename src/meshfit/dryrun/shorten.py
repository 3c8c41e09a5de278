"""A step with few layers, micro-batches and stages that holds every situation of a long one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshfit.dryrun.order import forwards_ahead
from meshfit.dryrun.repeat import NotAlikeError
from meshfit.mesh.groups import coordinates
from meshfit.mesh.spec import LayoutSpec
from meshfit.mesh.stage_placement import stages_of_rank
from meshfit.run.data import uses_ddp
from meshfit.workload.training import TrainingSpec

LAYERS = 2
"""Layers of a short stage: the first and the last. A third shows what one between them does."""

IN_FLIGHT = 4
"""Forwards before the first backward: the first, the last, and two between, one behind the other."""

IN_TURN = 3
"""Micro-batches beyond these: the first, the last, and one between."""

_LAYER_KEYS = ("num_hidden_layers", "n_layer")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one dry run is given."""

    config: Mapping[str, Any]
    layout: LayoutSpec
    training: TrainingSpec
    rank: int

    @property
    def num_micro_batches(self) -> int:
        return self.layout.num_micro_batches(self.training.global_batch_size)

    @property
    def pp_rank(self) -> int:
        return coordinates(self.layout, self.rank)["pp"]

    @property
    def stage_sizes(self) -> tuple[int, ...]:
        """Layers of each of the rank's stages."""
        sizes = self.layout.layers_of_stages(self.num_layers)
        return tuple(sizes[stage] for stage in self._stages)

    @property
    def first_layers(self) -> tuple[int, ...]:
        """Number of the first layer of each of the rank's stages."""
        sizes = self.layout.layers_of_stages(self.num_layers)
        return tuple(sum(sizes[:stage]) for stage in self._stages)

    @property
    def _stages(self) -> tuple[int, ...]:
        layout = self.layout
        return stages_of_rank(layout.schedule, self.pp_rank, layout.pp, layout.vpp)

    @property
    def num_layers(self) -> int:
        return int(self.config[_layers_key(self.config)])

    def with_stage_size(self, layers: int) -> "Run":
        """The same with ``layers`` layers in every stage.

        Raises:
            NotAlikeError: layers are not all of one kind.
        """
        stages = self.layout.num_stages
        config = dict(self.config)
        config[_layers_key(config)] = layers * stages
        for key, value in config.items():
            if isinstance(value, list) and len(value) == self.num_layers:
                if any(one != value[0] for one in value):
                    raise NotAlikeError(f"{key}: layers are not all of one kind")
                config[key] = value[:1] * (layers * stages)
        layout = replace(self.layout, stage_layers=(layers,) * stages)
        return replace(self, config=config, layout=layout)

    def with_micro_batches(self, count: int) -> "Run":
        """The same with ``count`` micro-batches a step."""
        sequences = count * self.layout.micro_batch_size * self.layout.data_parallel_size
        return replace(self, training=replace(self.training, global_batch_size=sequences))

    def with_stages(self, pp: int, pp_rank: int) -> "Run":
        """The rank of the same place in a pipeline of ``pp`` ranks; layers are not touched."""
        ranks_of_stage = self.layout.world_size // self.layout.pp
        rank = pp_rank * ranks_of_stage + self.rank % ranks_of_stage
        return replace(self, layout=replace(self.layout, pp=pp), rank=rank)


def shortened(run: Run) -> Run:
    """A run of at most ``run``'s size from which ``repeat`` makes the whole.

    DDP's buckets reach across layers, so its layers are all run. Virtual stages take turns in a way
    that depends on the number of ranks, so all their micro-batches are run.

    Raises:
        NotAlikeError: layers or stages of this rank differ, or nothing would be saved.
    """
    if len(set(run.stage_sizes)) > 1:
        raise NotAlikeError("virtual stages of different depth")
    short = run if run.layout.vpp > 1 else _with_fewer_micro_batches(run)
    depth = run.stage_sizes[0]
    layers = depth if uses_ddp(run.layout) or depth <= LAYERS + 1 else LAYERS
    if short.num_micro_batches == run.num_micro_batches and layers == depth:
        raise NotAlikeError("the step is short")
    return short.with_stage_size(layers)


def _with_fewer_micro_batches(run: Run) -> Run:
    layout, count = run.layout, run.num_micro_batches
    if layout.pp > 1 and layout.schedule == "gpipe":
        pp, pp_rank = _shorter_pipeline(layout.pp, run.pp_rank, ahead=1)
        return run.with_stages(pp, pp_rank).with_micro_batches(min(count, IN_FLIGHT))
    ahead = forwards_ahead(layout, count, run.pp_rank)
    short_ahead = min(ahead, IN_FLIGHT)
    pp, pp_rank = _shorter_pipeline(layout.pp, run.pp_rank, ahead=short_ahead)
    short = short_ahead + min(count - ahead, IN_TURN)
    return run.with_stages(pp, pp_rank).with_micro_batches(short)


def _shorter_pipeline(pp: int, pp_rank: int, *, ahead: int) -> tuple[int, int]:
    """A pipeline and the place in it of a first, middle or last stage with ``ahead`` in flight."""
    if pp == 1:
        return 1, 0
    if pp_rank == 0:
        shorter = max(2, ahead), 0
    elif pp_rank == pp - 1:
        shorter = 2, 1
    else:
        shorter = max(2, ahead) + 1, 1
    return shorter if shorter[0] < pp else (pp, pp_rank)


def _layers_key(config: Mapping[str, Any]) -> str:
    return next(key for key in _LAYER_KEYS if key in config)
