"""What the runner costs: against a hand-written loop, its instruments, and the start of its ranks.

Run it alone on a quiet machine:

    python benchmarks/runner.py [--ranks 2] [--steps 60] [--launches 5]

``loop``: a small Llama under FSDP2 over all ranks, by ``meshfit.run.trainer`` and by a loop written
by hand on the same mesh, model, data and optimizer; both in the same processes, steps in turn, so
that what disturbs one disturbs the other. ``instruments``: the same trainer with and without what
always runs (step clock, heartbeats); ``instruments alone``: what these take of an empty step, and of
which share that is of a step of 50 ms, whatever the model (one process: ``--only instruments``).
``startup``: seconds from launching four ranks to the end of
their first step. Accelerate is compared with where it is installed. Prints machine, versions, and
median with the range from the 10th to the 90th percentile; ratios are of medians.
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
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from meshfit.launch.supervise import launch
from meshfit.measure.timing import StepClock
from meshfit.mesh.spec import make_layout
from meshfit.record.heartbeat import HeartbeatWriter
from meshfit.record.schema import RunRequest
from meshfit.run.mesh import RankMesh, build_mesh
from meshfit.run.model.weights import write_initial_weights
from meshfit.run.parallelize import build_rank_model
from meshfit.run.ranks import Rank, join
from meshfit.run.trainer import Trainer
from meshfit.workload.corpus import Corpus, open_corpus
from meshfit.workload.training import PRECISIONS, DataSpec, TrainingSpec

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
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--only", choices=["instruments"], help="one process, no launch")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of a rank
    arguments = parser.parse_args()
    if arguments.folder is not None:
        run_rank(arguments.folder, arguments.steps)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = {"instruments alone": instruments_alone(folder)}
        if arguments.only:
            print(json.dumps(alone | facts(), indent=2))
            return
        found = alone | compared(folder, arguments.ranks, arguments.steps)
        if arguments.launches:
            found["startup of 4 ranks"] = startup(folder, arguments.launches)
    print(json.dumps(found | facts(), indent=2))


def facts() -> dict:
    return {
        "command": "python " + " ".join(["benchmarks/runner.py", *sys.argv[1:]]),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def compared(folder: Path, ranks: int, steps: int) -> dict:
    """Runs the ranks (one: without torchrun and without communication) and reads what rank 0 wrote."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    subprocess.run(
        [sys.executable, *(torchrun if ranks > 1 else []), __file__, f"--steps={steps}",
         f"--folder={folder}"],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads((folder / "found.json").read_text())


def run_rank(folder: Path, steps: int) -> None:
    torch.set_num_threads(1)
    with join("cpu", 300.0) as rank:
        times = timed(folder, rank, steps)
        if rank.rank == 0:
            (folder / "found.json").write_text(json.dumps(summary(times, rank.world_size)))


def timed(folder: Path, rank: Rank, steps: int) -> dict[str, list[float]]:
    """Seconds of every way's steps on this rank."""
    heartbeat = HeartbeatWriter(folder, rank.rank)
    trainer, corpus = our_trainer(folder, rank)
    by_hand = hand_written_loop(folder, trainer.mesh, corpus, rank)

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

    ways = {"ours": ours, "bare": bare, "by hand": by_hand}
    if importlib.util.find_spec("accelerate") and rank.world_size > 1:
        ways["accelerate"] = accelerate_loop(folder, corpus, rank)
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


def in_turn(ways: dict[str, Callable[[int], None]], steps: int) -> dict[str, list[float]]:
    """Seconds of each way's steps; ways take turns, and every round begins with another one."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for step in range(WARMUP + steps):
        for name in names[step % len(names) :] + names[: step % len(names)]:
            barrier()
            begin = time.perf_counter()
            ways[name](step)
            if step >= WARMUP:
                times[name].append(time.perf_counter() - begin)
    return times


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def summary(times: dict[str, list[float]], ranks: int) -> dict:
    """Spread of each way, and the ratios that are promised."""
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    tokens = SEQUENCE * BATCH_PER_RANK * ranks
    pairs = [ours / bare for ours, bare in zip(times["ours"], times["bare"], strict=True)]
    found = {
        "loop": {
            name: {"step": spread(times[name]), "tokens_per_s": tokens / median[name]}
            for name in times
            if name != "bare"
        },
        "ours over by hand, tokens/s": median["by hand"] / median["ours"],
        "instruments": {
            "share of a step": statistics.median(pairs) - 1,
            "step with": spread(times["ours"]),
            "step without": spread(times["bare"]),
        },
    }
    if "accelerate" in times:
        found["ours over accelerate, tokens/s"] = median["accelerate"] / median["ours"]
    else:
        found["accelerate"] = "not installed: not compared"
    return found


def spread(values: list[float]) -> dict:
    deciles = statistics.quantiles(values, n=10) if len(values) > 1 else values * 9
    return {"median": statistics.median(values), "p10": deciles[0], "p90": deciles[-1],
            "count": len(values)}  # fmt: skip


def our_trainer(folder: Path, rank: Rank) -> tuple[Trainer, Corpus]:
    weights = folder / "weights"
    if rank.rank == 0:
        write_initial_weights(CONFIG, weights, 0)
    barrier()
    training = TrainingSpec(
        sequence_length=SEQUENCE,
        global_batch_size=BATCH_PER_RANK * rank.world_size,
        precision=PRECISIONS["fp32"],
        learning_rate=LEARNING_RATE,
        data=DataSpec(),
    )
    layout = make_layout({"dp_shard": rank.world_size, "micro_batch_size": BATCH_PER_RANK})
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


def load_llama(folder: Path):
    config = LlamaConfig(**{k: v for k, v in CONFIG.items() if k != "model_type"}, use_cache=False)
    model = LlamaForCausalLM.from_pretrained(folder / "weights", config=config,
                                             attn_implementation="sdpa")  # fmt: skip
    return model.train()


def loss_of(model, tokens):
    logits = model(tokens[:, :-1], use_cache=False).logits
    return cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def hand_written_loop(
    folder: Path, rank_mesh: RankMesh, corpus: Corpus, rank: Rank
) -> Callable[[int], None]:
    """FSDP2 on the same mesh as anyone would write it, with the same clipping and optimizer."""
    mesh = rank_mesh.axis("dp_shard")
    model = load_llama(folder)
    if mesh is not None:
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    first = rank.rank * BATCH_PER_RANK

    def step(index: int) -> None:
        tokens = torch.from_numpy(corpus.batch(index, first, BATCH_PER_RANK))
        loss_of(model, tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def accelerate_loop(folder: Path, corpus: Corpus, rank: Rank) -> Callable[[int], None]:
    """The same under Accelerate's FSDP2."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin  # noqa: PLC0415

    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    plain = load_llama(folder)
    model, optimizer = accelerator.prepare(
        plain, torch.optim.AdamW(plain.parameters(), lr=LEARNING_RATE)
    )
    first = rank.rank * BATCH_PER_RANK

    def step(index: int) -> None:
        tokens = torch.from_numpy(corpus.batch(index, first, BATCH_PER_RANK))
        accelerator.backward(loss_of(model, tokens))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def startup(folder: Path, launches: int) -> dict:
    """Seconds until four ranks have ended their first step, and its phases."""
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
