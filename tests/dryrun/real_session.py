"""Run under torchrun by test_real: the tracked peak of a real step of every compared layout.

Leaves ``RANK.json`` in the folder given as the only argument: case -> peak by category, operation
and phase; and what the CPU's allocator says of the same step.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from meshfit.measure.tensors import TensorTracker
from meshfit.run.mesh import build_mesh
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import build_rank_model
from meshfit.run.trainer import Trainer
from tests.dryrun.layouts import COMPARED, is_copied_by_gloo
from tests.run.layouts import CONFIGS, Case
from tests.run.parity_session import corpus_of

CPU = torch.device("cpu")


def tracked(trainer: Trainer, model, step: int) -> dict:
    with TensorTracker(model.stages, trainer.optimizer) as tracker:
        take_step(trainer, step)
    at = tracker.peak_at
    return {"peak": tracker.peak().as_json(), "operation": at.operation, "phase": at.phase}


def take_step(trainer: Trainer, step: int) -> None:
    trainer.accumulate_gradients(step)
    trainer.update()


def allocator_growth(trainer: Trainer, step: int) -> int:
    """Most bytes that the CPU's allocator held during a step beyond those at its start."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        take_step(trainer, step)
    events = profile.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = highest = 0
    for _, added in changes:
        held += added
        highest = max(highest, held)
    return highest


def run(case: Case, folder: Path) -> dict:
    mesh = build_mesh(case.layout, "cpu")
    weights = folder / "weights" / case.model
    model = build_rank_model(
        CONFIGS[case.model], weights, mesh, case.training.precision, CPU, adapter=case.adapter
    )
    trainer = Trainer(model, mesh, case.training, corpus_of(case), CPU)
    take_step(trainer, 0)
    # A thread of Gloo may hold a copy a moment longer than the program: the smallest of a few.
    steps = range(1, 5) if is_copied_by_gloo(case) else range(1, 3)
    found = min((tracked(trainer, model, s) for s in steps), key=lambda one: one["peak"]["total"])
    growth = None if is_copied_by_gloo(case) else allocator_growth(trainer, len(steps) + 1)
    return found | {"allocator_growth": growth}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        for model in {case.model for case in COMPARED}:
            write_initial_weights(CONFIGS[model], folder / "weights" / model, seed=0)
    dist.barrier()
    found = {case.name: run(case, folder) for case in COMPARED}
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
