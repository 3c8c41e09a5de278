"""Process groups one after another in the same ranks. No meshfit here: an exported script runs so, too."""

import functools
import os
from pathlib import Path

import torch.distributed as dist

_INIT_PROCESS_GROUP = dist.init_process_group


def rendezvous_at(file: Path) -> None:
    """Let the next process group meet in ``file``: torchrun's own meeting point serves only once."""
    world = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group = functools.partial(
        _INIT_PROCESS_GROUP, init_method=f"file://{file}", **world
    )
