"""Three iterations as Megatron-LM's own ``training_log`` and ``report_memory`` print them, on one CPU rank.

Its only argument is the folder that the wheel of megatron-core is unpacked in.
"""

import sys
import typing
from types import SimpleNamespace

import torch
import typing_extensions

typing.override = typing_extensions.override  # of Python 3.12, which the wheel is for
sys.path.insert(0, sys.argv[1])
from megatron.training import training  # noqa: E402
from megatron.training.utils import common_utils as utils  # noqa: E402


class Arguments(SimpleNamespace):
    """Arguments that are not named are 0."""

    def __getattr__(self, name: str) -> int:
        return 0


class Timers:
    """Every interval took a quarter of a second."""

    def __call__(self, name: str, **options: object) -> "Timers":
        return self

    def elapsed(self, **options: object) -> float:
        return 0.25

    def log(self, *names: object, **options: object) -> None:
        pass


arguments = Arguments(
    train_iters=100,
    log_throughput=True,
    world_size=8,
    log_interval=1,
    micro_batch_size=1,
    data_parallel_size=4,
    gtp_weight_remat_size=1,
    **dict.fromkeys(
        ("num_experts", "mtp_num_layers", "dsa_indexer_loss_coeff", "log_memory_interval",
         "hybrid_layer_pattern")
    ),
)  # fmt: skip
make_tensor = torch.tensor


def on_cpu(values: list, device: str | None = None, **options: object) -> torch.Tensor:
    return make_tensor(values, **options)


torch.tensor = on_cpu
for module in (training, utils):
    module.get_args = lambda: arguments
for name in ("tensorboard_writer", "wandb_writer", "energy_monitor", "one_logger"):
    setattr(training, f"get_{name}", lambda: None)
training.get_timers = Timers
training.get_num_microbatches = lambda: 2
training.get_loaded_iteration = lambda: 0
training.one_logger_utils = SimpleNamespace(
    track_app_tag=lambda *values: None, track_e2e_metrics=lambda *values: None
)
training.reduce_max_stat_across_model_parallel_group = lambda value, **options: value
training.num_floating_point_operations = lambda *values, **options: 8e14
training.report_theoretical_memory = lambda *values, **options: None
utils.get_pg_rank = lambda group: 0

torch.distributed.init_process_group(
    "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
)
training.print_datetime("before the start of training step")
totals: dict = {}
for step in (1, 2, 3):
    arguments.consumed_train_samples = 8 * step
    training.training_log(
        {"lm loss": make_tensor([9.5 - step])},
        totals,
        learning_rate=1.5e-4,
        iteration=step,
        loss_scale=1.0,
        report_memory_flag=step == 2,
        skipped_iter=0,
        grad_norm=2.345,
        params_norm=None,
        num_zeros_in_grad=None,
        max_attention_logit=None,
        pg_collection=SimpleNamespace(mp=None, dp=object()),
        is_first_iteration=step == 1,
    )
