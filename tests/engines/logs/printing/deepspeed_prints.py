"""Three steps as DeepSpeed's own timer and logger print them."""

import logging
import time
from types import SimpleNamespace

from deepspeed.utils.logging import log_dist, logger
from deepspeed.utils.timer import ThroughputTimer

for one in (logger, *logger.handlers):
    one.setLevel(logging.INFO)
enabled = SimpleNamespace(enabled=True, synchronized=True)
timer = ThroughputTimer(enabled, batch_size=16, start_step=0, steps_per_output=1)
log_dist("DeepSpeed info: version=0.19.8, git-hash=unknown, git-branch=unknown", ranks=[0])
for _ in range(3):
    timer.start()
    time.sleep(0.1)
    timer.stop(global_step=True)
