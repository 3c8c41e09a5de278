"""Tails of latencies for the leading rows of a plan, whose own percentiles are closed-form."""

from dataclasses import dataclass

from meshfit.engines import engine_profile
from meshfit.serve.plan.rows import ServingPlan, ServingRow
from meshfit.serve.simulate.deployment import predicted_deployment
from meshfit.serve.simulate.simulation import Simulation, simulate


@dataclass(frozen=True, kw_only=True)
class SimulatedRow:
    """One row of a plan, and what requests one by one show of it."""

    row: ServingRow
    simulation: Simulation


def simulated_front(plan: ServingPlan, most: int) -> list[SimulatedRow]:
    """The first ``most`` layouts of the plan's Pareto front under the job's traffic, each with the same
    requests."""
    front = [row for row in plan.fitting if row.is_on_front][:most]
    return [SimulatedRow(row=row, simulation=_simulated(plan, row)) for row in front]


def _simulated(plan: ServingPlan, row: ServingRow) -> Simulation:
    job, profile = plan.job, engine_profile(row.engine)
    predicted = predicted_deployment(job, row.layout, profile, plan.topology)
    return simulate(predicted.pools, job.traffic, predicted.draw, job.targets)
