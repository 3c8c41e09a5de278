import sys

from meshfit.launch.agent import HostLaunch, agent_command, torchrun_command


def test_torchrun_takes_a_free_port_restarts_nothing_and_redirects_every_rank() -> None:
    command = torchrun_command(
        HostLaunch(
            num_ranks=4, endpoint="localhost:0", log_dir="logs", module="m", arguments=["a", "b"]
        )
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


def test_of_several_hosts_the_first_holds_the_rendezvous_that_all_name_alike() -> None:
    def command(*, is_first_host: bool) -> list[str]:
        return torchrun_command(
            HostLaunch(
                num_ranks=2,
                endpoint="node1:29400",
                log_dir="logs",
                module="m",
                num_hosts=3,
                is_first_host=is_first_host,
                launch="name",
            )
        )

    first, other = command(is_first_host=True), command(is_first_host=False)
    assert {"--nnodes=3", "--nproc-per-node=2", "--rdzv-id=name"} <= set(first)
    [settings] = set(first) - set(other)
    assert settings.endswith(",is_host=1")
    assert settings.replace("is_host=1", "is_host=0") in other


def of_two_hosts(place: int | None) -> HostLaunch:
    return HostLaunch(
        num_ranks=2,
        endpoint="node2:29400",
        log_dir="logs",
        module="m",
        num_hosts=2,
        is_first_host=place == 0,
        place=place,
        launch="name",
    )


def test_hosts_that_have_their_place_are_not_ordered_by_name() -> None:
    for place in (0, 1):
        command = torchrun_command(of_two_hosts(place))
        assert {"--rdzv-backend=static", f"--node-rank={place}"} <= set(command)
        assert f"--place={place}" in agent_command(of_two_hosts(place), parent_pid=7)
    assert "--rdzv-backend=c10d" in torchrun_command(of_two_hosts(None))


def test_an_agent_that_another_starts_is_told_no_parent() -> None:
    assert "--parent=7" in agent_command(of_two_hosts(0), parent_pid=7)
    command = agent_command(of_two_hosts(0), parent_pid=None)
    assert not [word for word in command if word.startswith("--parent")]
