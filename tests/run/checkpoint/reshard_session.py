"""Run under torchrun with ``FOLDER SET ACTION...``: the checkpoints of one of ``reshards.SETS``.

``save`` trains each saving layout through, with a checkpoint halfway; ``load`` goes on from it under
each loading layout of the world's size. Both leave what they found in ``FOLDER/NAME.json``.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from meshfit.record.checkpoint import checkpoint_path
from meshfit.record.schema import RunRequest
from meshfit.run.checkpoint.loading import load
from meshfit.run.checkpoint.running import identity_of
from meshfit.run.checkpoint.saving import CheckpointWriter
from meshfit.run.checkpoint.state import TrainingState
from meshfit.run.gradients import copies_of, local_tensor
from meshfit.run.mesh import build_mesh
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import build_rank_model
from meshfit.run.ranks import join
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import open_corpus
from tests.run.checkpoint.reshards import SETS, STEPS_AFTER, STEPS_BEFORE, Saved
from tests.run.layouts import CONFIGS, Case

CPU = torch.device("cpu")


class Run:
    """One layout of one model with its optimizer."""

    def __init__(self, case: Case, folder: Path) -> None:
        config = CONFIGS[case.model]
        self.mesh = build_mesh(case.layout, "cpu")
        weights = folder / "weights" / case.model
        self.model = build_rank_model(config, weights, self.mesh, case.training.precision, CPU)
        self.corpus = open_corpus(
            case.training.data,
            vocab_size=config["vocab_size"],
            sequence_length=case.training.sequence_length,
            global_batch_size=case.training.global_batch_size,
        )
        self.trainer = Trainer(self.model, self.mesh, case.training, self.corpus, CPU)
        self.state = TrainingState(self.model, self.trainer.optimizer)
        self.identity = identity_of(_request(case, weights), self.corpus)

    def train(self, first: int, count: int) -> None:
        for step in range(first, first + count):
            self.trainer.accumulate_gradients(step)
            self.trainer.update()

    def found(self, first: int) -> dict:
        """Of the steps from ``first``."""
        samples = [
            self.corpus.sample_ids(step).tolist() for step in range(first, first + STEPS_AFTER)
        ]
        return {
            "losses": self.trainer.losses()[-STEPS_AFTER:],
            "gradient_norms": self.trainer.gradient_norms()[-STEPS_AFTER:],
            "samples": samples,
        }

    @property
    def ranks_of_moments(self) -> int:
        shards = self.mesh.optimizer_shards
        return 1 if shards is None else shards.size()

    def moments(self) -> dict[str, float]:
        """Sum of squares of all first and of all second moments, each counted once."""
        optimizer = self.trainer.optimizer
        inner = getattr(optimizer, "optim", optimizer)
        sums = torch.zeros(2, dtype=torch.float64)
        for parameter in self.model.parameters_by_name().values():
            state = inner.state.get(parameter)
            if not state:
                continue
            # Of the ranks that ZeRO stage 1 divides moments over, one has a parameter's.
            share = self.ranks_of_moments / copies_of(parameter, self.mesh)
            for place, key in enumerate(("exp_avg", "exp_avg_sq")):
                sums[place] += share * local_tensor(state[key]).double().square().sum()
        first, second = self.mesh.sum_over_ranks(sums).tolist()
        return {"exp_avg": first, "exp_avg_sq": second}


def _request(case: Case, weights: Path) -> RunRequest:
    return RunRequest(
        plan_hash="",
        candidate="",
        purpose="train",
        model_config=CONFIGS[case.model],
        weights=str(weights),
        layout=case.layout,
        training=case.training,
        device_type="cpu",
        steps=STEPS_BEFORE + STEPS_AFTER,
        warmup_steps=0,
    )


def save(saved: Saved, folder: Path) -> dict:
    run = Run(saved.case, folder)
    run.train(0, STEPS_BEFORE)
    writer = CheckpointWriter(
        folder / saved.folder,
        run.state,
        identity=run.identity,
        layout=saved.case.layout.label,
        keep=1,
        asynchronous=saved.asynchronous,
        timeout_s=60.0,
    )
    moments = run.moments()
    writer.save(STEPS_BEFORE)
    run.train(STEPS_BEFORE, STEPS_AFTER)  # an asynchronous save must not see these
    (report,) = writer.close()
    return run.found(STEPS_BEFORE) | {
        "moments": moments,
        "blocked_s": report.blocked_s,
        "written_s": report.written_s,
        "size_bytes": report.size_bytes,
    }


def resume(saved: Saved, case: Case, folder: Path) -> dict:
    run = Run(case, folder)
    begin_s = time.perf_counter()
    step = load(checkpoint_path(folder / saved.folder, STEPS_BEFORE), run.state, run.identity)
    loaded_s = time.perf_counter() - begin_s
    moments = run.moments()
    run.train(step, STEPS_AFTER)
    return run.found(step) | {"step": step, "moments": moments, "load_s": loaded_s}


def results(
    saves: list[Saved], action: str, folder: Path, world_size: int
) -> Iterator[tuple[str, dict]]:
    for saved in saves:
        if action == "save":
            yield saved.folder, save(saved, folder)
        else:
            for case in saved.loads.get(world_size, ()):
                yield f"{saved.folder} loaded on {case.name}", resume(saved, case, folder)


def main() -> None:
    folder, saves, actions = Path(sys.argv[1]), SETS[sys.argv[2]], sys.argv[3:]
    torch.set_num_threads(1)
    with join("cpu", 120.0) as rank:
        if "save" in actions and rank.rank == 0:
            for model in {saved.case.model for saved in saves}:
                write_initial_weights(CONFIGS[model], folder / "weights" / model, seed=0)
        if dist.is_initialized():
            dist.barrier()
        for action in actions:
            for name, found in results(saves, action, folder, rank.world_size):
                if rank.rank == 0:
                    (folder / f"{name}.json").write_text(json.dumps(found))
                    print(name, flush=True)


if __name__ == "__main__":
    main()
