"""What makes a lab, as commands. Nothing here runs anything.

Each host is a network namespace with one interface; a namespace of its own holds the bridge that
joins them, so nothing of the lab is ever in the machine's own network::

    host node1          switch             host node2
    eth0 10.77.0.1 ==== port0  br0  port1 ==== eth0 10.77.0.2

Both ends of a link are limited, so a host can neither send nor be sent more than the rate.
"""

from meshfit.cluster.topology import LabSpec

Command = tuple[str, ...]

PREFIX = "meshfit-lab-"
"""Of every namespace of a lab; whatever has it is taken down with the lab."""

SWITCH = f"{PREFIX}switch"
LINK = "eth0"
BRIDGE = "br0"

_LEAST_BURST_BYTES = 8 * 1024
_BURST_S = 250e-6
"""What a link may send at once after a pause, at its rate: some frames, so that messages of 16 KiB
already take as long as they should."""
_QUEUE = "400ms"
"""A frame waits at most so long for its turn; TCP keeps far less than that on its way."""

_START = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
"""A shell that takes its name as the host's and becomes the rest of its command line."""


def host_namespace(host: str) -> str:
    """The network namespace of a host."""
    return f"{PREFIX}host-{host}"


def namespaces(lab: LabSpec) -> list[str]:
    """Every namespace of a lab, the switch first."""
    return [SWITCH, *map(host_namespace, lab.hosts)]


def address(index: int) -> str:
    """IPv4 address of the host of this index."""
    return f"10.77.0.{index + 1}"


def hosts_file(lab: LabSpec) -> str:
    """/etc/hosts as the hosts of a lab see it."""
    lines = [f"{address(index)} {host}" for index, host in enumerate(lab.hosts)]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


def up_commands(lab: LabSpec) -> list[Command]:
    """Makes a lab, where nothing of one is left."""
    return [
        *(("ip", "netns", "add", name) for name in namespaces(lab)),
        *_switch(),
        *(command for index, host in enumerate(lab.hosts) for command in _host(lab, index, host)),
    ]


def down_commands(names: list[str]) -> list[Command]:
    """Removes namespaces, and so their links; nothing may run in them."""
    return [("ip", "netns", "del", name) for name in names]


def start_prefix(host: str) -> Command:
    """Put before a command, runs it on a host, under that host's name, as the same process."""
    namespace = host_namespace(host)
    return ("ip", "netns", "exec", namespace, "unshare", "--uts", "sh", "-c", _START, host)


def _switch() -> list[Command]:
    switch = ("ip", "-n", SWITCH, "link")
    return [
        (*switch, "set", "lo", "up"),
        (*switch, "add", BRIDGE, "type", "bridge"),
        (*switch, "set", BRIDGE, "up"),
    ]


def _host(lab: LabSpec, index: int, host: str) -> list[Command]:
    """A host's link to the switch, with its limits."""
    name, port = host_namespace(host), f"port{index}"
    pair = ("type", "veth", "peer", "name", port, "netns", SWITCH)
    return [
        ("ip", "link", "add", LINK, "netns", name, *pair),
        ("ip", "-n", SWITCH, "link", "set", port, "master", BRIDGE, "up"),
        ("ip", "-n", name, "address", "add", f"{address(index)}/24", "dev", LINK),
        ("ip", "-n", name, "link", "set", "lo", "up"),
        ("ip", "-n", name, "link", "set", LINK, "up"),
        *_delay(lab, name),
        _limit(lab, name, LINK, "parent 1:1" if lab.latency_s else "root"),
        _limit(lab, SWITCH, port, "root"),
    ]


def _delay(lab: LabSpec, namespace: str) -> list[Command]:
    if not lab.latency_s:
        return []
    delay = f"{lab.latency_s * 1e6:.0f}us"
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", LINK)
    return [(*add, "root", "handle", "1:", "netem", "delay", delay)]


def _limit(lab: LabSpec, namespace: str, device: str, where: str) -> Command:
    rate = lab.between_bytes_per_s
    burst = max(_LEAST_BURST_BYTES, round(rate * _BURST_S))
    add = ("tc", "-n", namespace, "qdisc", "add", "dev", device, *where.split())
    return (*add, "tbf", "rate", f"{rate * 8:.0f}bit", "burst", f"{burst}b", "latency", _QUEUE)
