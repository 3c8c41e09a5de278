"""The hosts of a lab as a launch sees them."""

from meshfit.cluster.topology import LabSpec
from meshfit.lab.commands import LINK, start_prefix
from meshfit.launch.hosts import LaunchHost


def launch_hosts(lab: LabSpec | None) -> tuple[LaunchHost, ...]:
    """Where a launch starts its ranks; empty without a lab, which is this machine."""
    if lab is None:
        return ()
    return tuple(
        LaunchHost(
            name=host,
            ranks=lab.ranks_per_host,
            prefix=start_prefix(host),
            environment={"GLOO_SOCKET_IFNAME": LINK},
        )
        for host in lab.hosts
    )
