"""What the runner costs: against loops written by hand, its instruments, and the start of its ranks.

Run it alone on a quiet machine:

    python benchmarks/runner.py [--ranks 1 4] [--steps 60] [--launches 5]

``loops``: a small Llama under DDP, FSDP2 and tensor parallelism over all ranks (one rank: none of
them), by ``meshfit.run.trainer`` and by a loop written by hand on the same mesh, model, data and
optimizer, and by Accelerate where it is installed and has that mesh; all in the same processes, steps
in turn, so that what disturbs one disturbs the others. ``instruments``: the same trainer with and
without what always runs (step clock, heartbeats); ``instruments alone``: what these take of an empty
step, and of which share that is of a step of 50 ms, whatever the model (one process:
``--only instruments``). ``startup``: seconds from launching four ranks to the end of their first step.
Prints machine, versions, and median with the range from the 10th to the 90th percentile. Ratios are
of medians; ``of rounds`` is the spread of the same ratio within each round of turns, and ``of CPU time``
is what rank 0 computed itself (median), which other programs on the machine disturb less.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import loops
import torch
import torch.distributed as dist
import transformers

from meshfit.launch.supervise import launch
from meshfit.measure.timing import StepClock
from meshfit.mesh.spec import LayoutSpec, make_layout
from meshfit.record.heartbeat import HeartbeatWriter
from meshfit.record.schema import RunRequest
from meshfit.run.mesh import build_mesh
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import build_rank_model
from meshfit.run.ranks import Rank, join
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus, open_corpus
from meshfit.workload.training import PRECISIONS, DataSpec, TrainingSpec

BY_HAND = {
    "dp_replicate": loops.replicated,
    "dp_shard": loops.sharded,
    "tp": loops.tensor_parallel,
}
"""Axis that all ranks lie on -> the loop written by hand."""
NOT_OF_ACCELERATE = ("tp",)
"""Its tensor parallelism is the plan of transformers, which gathers the logits and whole sequences."""

CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}
SEQUENCE, BATCH_PER_RANK, LEARNING_RATE = 128, 4, 1e-3
WARMUP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--axes", nargs="+", choices=list(BY_HAND), default=list(BY_HAND))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--only", choices=["instruments", "startup"])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a rank
    arguments = parser.parse_args()
    if arguments.folder is not None:
        run_rank(arguments.folder, arguments.axes[0], arguments.steps)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {}
        if arguments.only != "startup":
            found["instruments alone"] = instruments_alone(folder)
        if arguments.only is None:
            found["loops"] = {
                label: compared(folder / label, axis, ranks, arguments.steps)
                for label, axis, ranks in cases(arguments.ranks, arguments.axes)
            }
        if arguments.only != "instruments" and arguments.launches:
            found["startup of 4 ranks"] = startup(folder, arguments.launches)
    print(json.dumps(found | facts(), indent=2))


def cases(ranks: list[int], axes: list[str]) -> Iterator[tuple[str, str, int]]:
    """(Label, axis, ranks) of every session; one rank has no mesh, so one session does."""
    for count in ranks:
        for axis in axes[:1] if count == 1 else axes:
            yield "one process" if count == 1 else f"{axis}={count}", axis, count


def facts() -> dict:
    has_accelerate = importlib.util.find_spec("accelerate") is not None
    return {
        "command": "python " + " ".join(["benchmarks/runner.py", *sys.argv[1:]]),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": version("accelerate") if has_accelerate else "not installed: not compared",
    }


def compared(folder: Path, axis: str, ranks: int, steps: int) -> dict:
    """Runs the ranks (one: without torchrun and without communication) and reads what rank 0 wrote."""
    folder.mkdir()
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    subprocess.run(
        [sys.executable, *(torchrun if ranks > 1 else []), __file__, f"--steps={steps}",
         f"--axes={axis}", f"--folder={folder}"],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads((folder / "found.json").read_text())


def run_rank(folder: Path, axis: str, steps: int) -> None:
    torch.set_num_threads(1)
    with join("cpu", 300.0) as rank:
        layout = make_layout({axis: rank.world_size, "micro_batch_size": BATCH_PER_RANK})
        times = timed(folder, rank, layout, axis, steps)
        if rank.rank == 0:
            tokens = SEQUENCE * BATCH_PER_RANK * layout.data_parallel_size
            (folder / "found.json").write_text(json.dumps(summary(times, tokens)))


@dataclass
class Steps:
    """Seconds of one way's steps on one rank: by the clock, and of its own CPU time."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def timed(folder: Path, rank: Rank, layout: LayoutSpec, axis: str, steps: int) -> dict[str, Steps]:
    """What every way's steps take on this rank."""
    heartbeat = HeartbeatWriter(folder, rank.rank)
    trainer, corpus = our_trainer(folder, rank, layout)
    mesh = trainer.mesh.axis(axis)
    work = loops.Work(
        config=CONFIG,
        weights=folder / "weights",
        corpus=corpus,
        first=trainer.mesh.data_parallel_index * BATCH_PER_RANK,
        count=BATCH_PER_RANK,
        learning_rate=LEARNING_RATE,
    )

    def ours(step: int) -> None:
        heartbeat.beat("train", step)
        with trainer.clock.step():
            heartbeat.beat("train", step, waiting=True)
            trainer.accumulate_gradients(step)
            trainer.update()

    def bare(step: int) -> None:
        with uninstrumented(trainer):
            trainer.accumulate_gradients(step)
            trainer.update()

    by_hand = loops.plain if mesh is None else BY_HAND[axis]
    ways = {"ours": ours, "bare": bare, "by hand": by_hand(work, mesh)}
    if importlib.util.find_spec("accelerate") and (mesh is None or axis not in NOT_OF_ACCELERATE):
        ways["accelerate"] = loops.under_accelerate(work, mesh)
    times = in_turn(ways, steps)
    heartbeat.close()
    return times


def instruments_alone(folder: Path, steps: int = 200, step_s: float = 0.05) -> dict:
    """CPU seconds of this thread that the instruments take of a step in which nothing else happens.

    Steps are spaced as real ones are, so that caches are as cold.
    """
    heartbeat, clock = HeartbeatWriter(folder, 0), StepClock(torch.device("cpu"))
    taken = []
    for step in range(steps):
        begin, cpu = time.perf_counter(), time.thread_time()
        heartbeat.beat("train", step)
        with clock.step():
            heartbeat.beat("train", step, waiting=True)
            with clock.input_wait():
                pass
        taken.append(time.thread_time() - cpu)
        time.sleep(max(0.0, step_s - (time.perf_counter() - begin)))
    heartbeat.close()
    mean_s = statistics.fmean(taken)
    return {"step": spread(taken), "mean_s": mean_s, "share of a 50 ms step": mean_s / step_s}


def in_turn(ways: dict[str, Callable[[int], None]], steps: int) -> dict[str, Steps]:
    """Ways take turns, and every round begins with another one."""
    times = {name: Steps() for name in ways}
    names = list(ways)
    for step in range(WARMUP + steps):
        for name in names[step % len(names) :] + names[: step % len(names)]:
            barrier()
            begin, cpu = time.perf_counter(), time.process_time()
            ways[name](step)
            if step >= WARMUP:
                times[name].wall.append(time.perf_counter() - begin)
                times[name].cpu.append(time.process_time() - cpu)
    return times


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def summary(times: dict[str, Steps], tokens: int) -> dict:
    """Spread of each way, and the ratios that are promised."""
    others = [name for name in ("by hand", "accelerate") if name in times]
    return {
        "ways": {
            name: {
                "step": spread(times[name].wall),
                "tokens_per_s": tokens / statistics.median(times[name].wall),
            }
            for name in ("ours", *others)
        },
        **{f"ours over {name}, tokens/s": ratio(times[name], times["ours"]) for name in others},
        "step with instruments over without": ratio(times["ours"], times["bare"]),
    }


def ratio(above: Steps, below: Steps) -> dict:
    """One way's time over another's."""
    rounds = [one / other for one, other in zip(above.wall, below.wall, strict=True)]
    return {
        "of medians": statistics.median(above.wall) / statistics.median(below.wall),
        "of rounds": spread(rounds),
        "of CPU time": statistics.median(above.cpu) / statistics.median(below.cpu),
    }


def spread(values: list[float]) -> dict:
    deciles = statistics.quantiles(values, n=10) if len(values) > 1 else values * 9
    return {"median": statistics.median(values), "p10": deciles[0], "p90": deciles[-1],
            "count": len(values)}  # fmt: skip


def our_trainer(folder: Path, rank: Rank, layout: LayoutSpec) -> tuple[Trainer, Corpus]:
    weights = folder / "weights"
    if rank.rank == 0:
        write_initial_weights(CONFIG, weights, 0)
    barrier()
    training = TrainingSpec(
        sequence_length=SEQUENCE,
        global_batch_size=BATCH_PER_RANK * layout.data_parallel_size,
        precision=PRECISIONS["fp32"],
        learning_rate=LEARNING_RATE,
        data=DataSpec(),
    )
    mesh, device = build_mesh(layout, "cpu"), torch.device("cpu")
    model = build_rank_model(CONFIG, weights, mesh, training.precision, device)
    corpus = open_corpus(
        training.data,
        vocab_size=CONFIG["vocab_size"],
        sequence_length=SEQUENCE,
        global_batch_size=training.global_batch_size,
    )
    return Trainer(model, mesh, training, corpus, device), corpus


class NoClock:
    """In place of a trainer's clock: times nothing."""

    def input_wait(self) -> nullcontext:
        return nullcontext()


@contextmanager
def uninstrumented(trainer: Trainer) -> Iterator[None]:
    """Inside, the trainer's clock takes no time."""
    clock, trainer.clock = trainer.clock, NoClock()
    yield
    trainer.clock = clock


def startup(folder: Path, launches: int) -> dict:
    """Seconds until four ranks have ended their first step, and its phases."""
    write_initial_weights(CONFIG, folder / "weights", 0)
    seconds, phases = [], []
    for number in range(launches):
        request = RunRequest(
            plan_hash="",
            candidate="startup",
            purpose="parity",
            model_config=CONFIG,
            weights=str(folder / "weights"),
            layout=make_layout({"dp_shard": 4}),
            training=TrainingSpec(sequence_length=SEQUENCE, global_batch_size=4,
                                  precision=PRECISIONS["fp32"], data=DataSpec()),
            device_type="cpu",
            steps=1,
            warmup_steps=0,
            judged_steps=1,
            track_memory=False,
        )  # fmt: skip
        ended = launch(request, folder / f"startup-{number}", deadline_s=300, hang_s=300)
        assert ended.result is not None, ended.failure
        seconds.append(ended.seconds)
        phases.append(ended.result.phases_s)
    return {
        "whole launch": spread(seconds),
        "to the end of each phase": {
            name: statistics.median(one[name] for one in phases) for name in phases[0]
        },
    }


if __name__ == "__main__":
    main()
