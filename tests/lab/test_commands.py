from hypothesis import given
from hypothesis import strategies as st

from meshfit.cluster.topology import LabSpec
from meshfit.lab.commands import (
    PREFIX,
    address,
    down_commands,
    host_namespace,
    hosts_file,
    namespaces,
    start_prefix,
    up_commands,
)

LAB = LabSpec(hosts=("node1", "node2"), ranks_per_host=2, between_bytes_per_s=25e6)

labs = st.builds(
    LabSpec,
    hosts=st.lists(
        st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True),
        min_size=2,
        max_size=64,
        unique=True,
    ).map(tuple),
    ranks_per_host=st.integers(1, 64),
    between_bytes_per_s=st.floats(1e4, 1e11),
    latency_s=st.sampled_from([0.0, 1e-3]),
)


def test_a_lab_is_its_switch_and_a_limited_link_from_each_host_to_it() -> None:
    assert [" ".join(command) for command in up_commands(LAB)] == [
        "ip netns add meshfit-lab-switch",
        "ip netns add meshfit-lab-host-node1",
        "ip netns add meshfit-lab-host-node2",
        "ip -n meshfit-lab-switch link set lo up",
        "ip -n meshfit-lab-switch link add br0 type bridge",
        "ip -n meshfit-lab-switch link set br0 up",
        "ip link add eth0 netns meshfit-lab-host-node1 type veth"
        " peer name port0 netns meshfit-lab-switch",
        "ip -n meshfit-lab-switch link set port0 master br0 up",
        "ip -n meshfit-lab-host-node1 address add 10.77.0.1/24 dev eth0",
        "ip -n meshfit-lab-host-node1 link set lo up",
        "ip -n meshfit-lab-host-node1 link set eth0 up",
        "tc -n meshfit-lab-host-node1 qdisc add dev eth0 root"
        " tbf rate 200000000bit burst 8192b latency 400ms",
        "tc -n meshfit-lab-switch qdisc add dev port0 root"
        " tbf rate 200000000bit burst 8192b latency 400ms",
        "ip link add eth0 netns meshfit-lab-host-node2 type veth"
        " peer name port1 netns meshfit-lab-switch",
        "ip -n meshfit-lab-switch link set port1 master br0 up",
        "ip -n meshfit-lab-host-node2 address add 10.77.0.2/24 dev eth0",
        "ip -n meshfit-lab-host-node2 link set lo up",
        "ip -n meshfit-lab-host-node2 link set eth0 up",
        "tc -n meshfit-lab-host-node2 qdisc add dev eth0 root"
        " tbf rate 200000000bit burst 8192b latency 400ms",
        "tc -n meshfit-lab-switch qdisc add dev port1 root"
        " tbf rate 200000000bit burst 8192b latency 400ms",
    ]


@given(lab=labs)
def test_no_command_makes_or_changes_anything_outside_the_labs_namespaces(lab: LabSpec) -> None:
    ours = set(namespaces(lab))
    assert all(name.startswith(PREFIX) for name in ours)
    for command in up_commands(lab):
        if command[1] == "-n":
            assert command[2] in ours
        elif command[1] == "netns":
            assert command[2:] == ("add", command[-1])
            assert command[-1] in ours
        else:  # a pair of interfaces, each made where it belongs
            made_in = {command[i + 1] for i, word in enumerate(command) if word == "netns"}
            assert command[:3] == ("ip", "link", "add")
            assert len(made_in) == 2
            assert made_in <= ours


@given(lab=labs)
def test_every_host_has_a_name_an_address_and_a_namespace_of_its_own(lab: LabSpec) -> None:
    assert len(set(namespaces(lab))) == len(lab.hosts) + 1
    entries = dict(reversed(line.split()) for line in hosts_file(lab).splitlines())
    assert entries == {"localhost": "127.0.0.1"} | {
        host: address(index) for index, host in enumerate(lab.hosts)
    }
    assert len(set(entries.values())) == len(entries)


def test_latency_delays_what_a_host_sends_before_the_limit_counts_it() -> None:
    slow = LabSpec(hosts=("a", "b"), ranks_per_host=1, between_bytes_per_s=1e9, latency_s=2e-3)
    on_host_a = [
        " ".join(command[3:])
        for command in up_commands(slow)
        if command[:3] == ("tc", "-n", host_namespace("a"))
    ]
    assert on_host_a == [
        "qdisc add dev eth0 root handle 1: netem delay 2000us",
        "qdisc add dev eth0 parent 1:1 tbf rate 8000000000bit burst 250000b latency 400ms",
    ]


def test_a_command_on_a_host_runs_in_its_namespace_under_its_name() -> None:
    prefix = start_prefix("node1")
    assert prefix[:7] == (
        *("ip", "netns", "exec", "meshfit-lab-host-node1", "unshare", "--uts", "sh"),
    )
    assert prefix[-1] == "node1"


def test_what_is_made_is_what_is_removed() -> None:
    assert down_commands(namespaces(LAB)) == [
        ("ip", "netns", "del", "meshfit-lab-switch"),
        ("ip", "netns", "del", "meshfit-lab-host-node1"),
        ("ip", "netns", "del", "meshfit-lab-host-node2"),
    ]
