"""Peer access between GPUs, in words."""

from meshfit.cluster.discover.merge import Discovery
from meshfit.cluster.discover.nvidia_p2p import STATUS


def peer_access_notes(found: Discovery) -> list[str]:
    """Where GPUs may not reach each other's memory, so that copies go through the host's."""
    access = found.node.peer_access if found.node else {}
    notes = []
    for status in dict.fromkeys(access.values()):
        if status == "OK":
            continue
        pairs = [key for key, value in access.items() if value == status]
        who = "all pairs" if len(pairs) == len(access) else f"{len(pairs)} of {len(access)} pairs"
        notes.append(
            f"peer access is off for {who} ({status}: {STATUS.get(status, 'not known')}), as "
            f"{pairs[0][0]} and {pairs[0][1]}: copies go through host memory"
        )
    return notes
