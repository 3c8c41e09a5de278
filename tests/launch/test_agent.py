import sys

from meshfit.launch.agent import torchrun_command


def test_torchrun_takes_a_free_port_restarts_nothing_and_redirects_every_rank() -> None:
    command = torchrun_command(
        num_ranks=4, endpoint="localhost:0", log_dir="logs", module="m", arguments=["a", "b"]
    )
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert command[-4:] == ["-m", "m", "a", "b"]
    assert {
        "--nproc-per-node=4",
        "--rdzv-endpoint=localhost:0",
        "--max-restarts=0",
        "--redirects=3",
        "--log-dir=logs",
    } <= set(command)
