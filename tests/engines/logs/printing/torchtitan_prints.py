"""Two steps and their validations as torchtitan's own ``MetricsProcessor`` prints them, without a GPU."""

import time
from types import SimpleNamespace

from torchtitan.components.metrics import DeviceMemStats, MetricsProcessor
from torchtitan.tools.logging import init_logger, logger
from torchtitan.tools.utils import Color

init_logger()
logger.info("Training starts at step 1")
memory = SimpleNamespace(
    get_peak_stats=lambda: DeviceMemStats(1.0, 1.25, 2.5, 3.1, 0, 0), reset_peak_stats=lambda: None
)
for step in (1, 2):
    processor = SimpleNamespace(
        num_flops_per_token=1e9,
        time_last_log=time.perf_counter() - 0.5,
        ntokens_since_last_log=8192,
        parallel_dims=SimpleNamespace(non_data_parallel_size=2),
        has_quantization=False,
        gpu_peak_flops=1e15,
        config=SimpleNamespace(log_freq=1),
        data_loading_times=[0.01],
        device_memory_monitor=memory,
        logger=SimpleNamespace(log=lambda metrics, step: None),
        color=Color(),
    )
    MetricsProcessor.log(processor, step, 7.5 - step, 7.6, 1.25)
    MetricsProcessor.log_validation(processor, 9.0, step)
