"""Environment variables by which the launcher tells the processes of a launch what they are."""

AGENT_PID_VARIABLE = "MESHFIT_AGENT_PID"
"""Pid of the torchrun that a rank must not outlive."""

LAUNCH_VARIABLE = "MESHFIT_LAUNCH"
"""Name of the launch, unique in the world. Children inherit it, so it marks every process of the
launch, whatever session it is in and whoever its parent became."""

CANDIDATE_VARIABLE = "MESHFIT_CANDIDATE"
"""``RunRequest.candidate``, so that a fault can be aimed at one candidate of a sweep."""

HOST_VARIABLE = "MESHFIT_HOST"
"""Name of the host as the scheduler knows it, where that need not be the host's own name for itself."""
