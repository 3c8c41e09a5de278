"""How a job says that requests are shared out over replicas."""

from typing import Literal

Policy = Literal["round_robin", "least_outstanding"]
"""In turn, or to the replica with the fewest unfinished requests (the first of several)."""
