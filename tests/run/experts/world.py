"""A world of ranks that are threads of one process: collectives in milliseconds."""

import threading
from collections.abc import Callable
from typing import Any


def run_ranks(world_size: int, function: Callable[[int], Any]) -> list[Any]:
    """What ``function`` gives on each rank; raises what the first rank that failed raised."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import multi_threaded_pg as threaded

    results: list[Any] = [None] * world_size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=world_size, store=store)
            results[rank] = function(rank)
        except BaseException as error:
            errors.append(error)
            threaded.ProcessLocalGroup.exception_handle(error)
        finally:
            dist.destroy_process_group()

    threaded.ProcessLocalGroup.reset()
    threaded._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store = dist.HashStore()
    try:
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        threaded._uninstall_threaded_pg()
    if errors:
        raise errors[0]
    return results
