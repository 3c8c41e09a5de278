"""Lines of logs as engines print them, for tests. Each says whose code prints such a line: the file and
the function of the release that was read; values are ours.
"""

from datetime import UTC, datetime, timedelta

BEGAN = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)


def clock(seconds: float) -> str:
    """As ``logging`` writes ``asctime``."""
    moment = BEGAN + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


# torchtitan 0.3.0. The head of each line: tools/logging.py, init_logger.


def titan_line(message: str, at_s: float) -> str:
    return f"[titan] {clock(at_s)} - root - INFO - {message}"


def titan_start(
    at_s: float = 0.0, *, first_step: int = 1, dp_shard: int = 4, batch: int = 8, length: int = 64
) -> list[str]:
    """distributed/parallel_dims.py, ParallelDims.build_mesh; trainer.py, Trainer.__init__ and train."""
    return [
        titan_line(
            f"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard={dp_shard}, "
            "cp=1, tp=1, ep=1",
            at_s,
        ),
        titan_line(
            f"Trainer is initialized with local batch size {batch // dp_shard}, global batch size "
            f"{batch}, gradient accumulation steps 1, sequence length {length}, total steps 20 "
            "(warmup 2)",
            at_s,
        ),
        titan_line(f"Training starts at step {first_step}", at_s),
    ]


def titan_step(
    step: int, at_s: float, *, tps: int = 1280, memory: float = 5.12, loss: float | None = None
) -> str:
    """components/metrics.py, MetricsProcessor.log, with colours (tools/utils.py, Color)."""
    loss = 8.0 - step / 100 if loss is None else loss
    return titan_line(
        f"\x1b[31mstep: {step:2}  \x1b[32mloss: {loss:8.5f}  "
        f"\x1b[38;2;180;60;0mgrad_norm: {1.25:7.4f}  "
        f"\x1b[38;2;54;234;195mmemory: {memory:5.2f}GiB(6.41%)  \x1b[34mtps: {tps:,}  "
        f"\x1b[36mtflops: 1,012.30  \x1b[35mmfu: 41.50%\x1b[39m",
        at_s,
    )


def titan_validation(step: int, at_s: float) -> str:
    """components/metrics.py, MetricsProcessor.log_validation."""
    return titan_line(
        f"\x1b[33mvalidate step: {step:2}  \x1b[32mloss:  9.9999  "
        "\x1b[38;2;54;234;195mmemory: 70.00GiB(88.00%)  \x1b[34mtps: 9,999\x1b[39m",
        at_s,
    )


# Megatron-LM, in the wheel of megatron-core 0.19.2.


def megatron_arguments(**values: int) -> list[str]:
    """training/arguments.py, _print_args."""
    rows = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in values.items()]
    return [
        "------------------------ arguments ------------------------",
        *rows,
        "-------------------- end of arguments ---------------------",
    ]


MEGATRON_START = "[before the start of training step] datetime: 2026-11-29 10:00:00.123456 "
"""training/training.py, print_datetime."""


def megatron_step(
    step: int, *, milliseconds: float = 250.0, batch: int = 8, loss: float = 9.5
) -> str:
    """training/training.py, training_log."""
    return (
        f" [2026-11-29 10:00:01.000001] iteration {step:8d}/{100:8d} | consumed samples: {step * batch:12d} |"
        f" elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 402.1 |"
        f" learning rate: 1.500000E-04 | global batch size: {batch:5d} | lm loss: {loss:.6E} |"
        f" loss scale: 1.0 | grad norm: 2.345 | number of skipped iterations:   0 |"
        f" number of nan iterations:   0 |"
    )


def megatron_memory(rank: int, allocated: float, reserved: float) -> str:
    """training/utils/common_utils.py, report_memory."""
    return (
        f"[Rank {rank}] (after 2 iterations) memory (MB) | allocated: 100.00 | max allocated: "
        f"{allocated:.2f} | reserved: 120.00 | max reserved: {reserved:.2f}"
    )


# DeepSpeed 0.19.8. The head of each line: utils/logging.py, LoggerFactory.create_logger.


def deepspeed_line(message: str, at_s: float, where: str = "logging.py:96:log_dist") -> str:
    return f"[{clock(at_s)}] [INFO] [{where}] {message}"


def deepspeed_start(batch: int = 8) -> list[str]:
    """__init__.py, initialize; runtime/config.py, DeepSpeedConfig.print."""
    return [
        deepspeed_line("[Rank 0] DeepSpeed info: version=0.19.8, git-hash=x, git-branch=x", 0.0),
        deepspeed_line(f"  train_batch_size ............. {batch}", 0.0, "config.py:670:print"),
    ]


def deepspeed_progress(step: int, at_s: float) -> str:
    """runtime/engine.py, DeepSpeedEngine._report_progress."""
    return deepspeed_line(f"[Rank 0] step={step}, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", at_s)


def deepspeed_speed(step: int, at_s: float, *, rate: float = 16.0, allocated: float = 5.5) -> str:
    """utils/timer.py, ThroughputTimer.stop."""
    return deepspeed_line(
        f"epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=14.2, "
        f"CurrSamplesPerSec={rate}, MemAllocated=1.25GB, MaxMemAllocated={allocated}GB",
        at_s,
        "timer.py:264:stop",
    )


def deepspeed_pipeline(step: int) -> str:
    """runtime/pipe/engine.py, PipelineEngine.train_batch."""
    return f"steps: {step} loss: 7.2500 iter time (s): 0.125 samples/sec: 64.000"


DEEPSPEED_USAGE = "MA 1.25 GB         Max_MA 6.75 GB         CA 8.0 GB         Max_CA 9 GB "
"""runtime/utils.py, see_memory_usage."""


# transformers 5.24.


TRAINER_START = [
    "***** Running training *****",
    "  Total train batch size (w. parallel, distributed & accumulation) = 1,024",
    "  Total optimization steps = 20",
]
"""trainer.py, Trainer._inner_training_loop."""


def trainer_line(loss: float, epoch: float) -> str:
    """trainer_callback.py, ProgressCallback.on_log, over the bar that tqdm redraws."""
    bar = "\r 50%|#####     | 10/20 [00:05<00:05,  1.9it/s]"
    return (
        f"{bar}\r                                                  \r"
        f"{{'loss': '{loss:.4g}', 'grad_norm': '1.25', 'learning_rate': '0.0002', 'epoch': '{epoch:.4g}'}}"
        f"\n{bar}"
    )


TRAINER_END = (
    "{'train_runtime': '10', 'train_samples_per_second': '2048', 'train_steps_per_second': '2', "
    "'train_loss': '7.5', 'epoch': '1'}"
)


def trainer_state(entries: list[dict]) -> dict:
    """trainer_callback.py, TrainerState.save_to_json."""
    return {
        "best_metric": None,
        "global_step": len(entries),
        "log_history": entries,
        "max_steps": 20,
    }


def trainer_entry(step: int, at_s: float, loss: float = 7.5) -> dict:
    """trainer.py, Trainer.log, with include_num_input_tokens_seen."""
    return {
        "epoch": step / 20,
        "grad_norm": 1.25,
        "learning_rate": 0.0002,
        "loss": loss,
        "num_input_tokens_seen": step * 512,
        "step": step,
        "train_runtime": round(at_s, 4),
        "train_tokens_per_second": 1024.0,
    }
