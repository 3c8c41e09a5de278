"""Logs of training engines; what an engine prints is known in its own folder (``log``)."""
