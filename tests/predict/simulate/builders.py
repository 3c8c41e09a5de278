"""Timelines of small pipelines."""

from dataclasses import replace

from meshfit.cluster.topology import Topology
from meshfit.predict.costs.collectives import CollectiveCosts
from meshfit.predict.costs.rates import rates
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import Pipeline
from meshfit.predict.simulate.play_step import play_step
from meshfit.predict.simulate.timeline import Timeline
from meshfit.predict.time.exchange.machine import Machine, machine_for
from tests.predict.builders import BF16, cluster, group, llama, training

EVEN = replace(
    llama(hidden_size=1024, num_layers=32, heads=8, kv_heads=8, intermediate_size=4096),
    vocab_size=1,
)
"""A model without ends worth the name, so that equal stages take equally long."""
BATCH = training(sequence_length=1024, global_batch_size=64, precision=BF16)


def machine(of: LayoutGroup, topology: Topology | None = None) -> Machine:
    on = topology or cluster(nodes=4)
    rate = rates(on.accelerator, of.training.precision.name)
    return machine_for(of, rate, CollectiveCosts(topology=on))


def without_transfers(on: Machine, of: LayoutGroup) -> Machine:
    """The same with all stages on one host whose links take no time."""
    single = replace(on.axes.pp, degree=of.columns.tp * 0 + 1)
    return replace(on, axes=replace(on.axes, pp=single))


def timeline(*keys, model=EVEN, spec=BATCH, free_transfers=False, **more) -> Timeline:
    of = group(model, spec, *keys, **more)
    on = machine(of)
    return play_step(of, without_transfers(on, of) if free_transfers else on)


def unevenly(of: LayoutGroup, stage_layers: tuple[int, ...]) -> LayoutGroup:
    pipe = of.pipeline
    return replace(
        of,
        pipeline=Pipeline(
            pp=pipe.pp,
            vpp=pipe.vpp,
            schedule=pipe.schedule,
            stage_layers=stage_layers,
            model=pipe.model,
        ),
    )
